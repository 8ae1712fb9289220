"""What a notebook or a debugger shows of a stream."""

from __future__ import annotations

from penstock import StreamEnvironment, col


def test_a_stream_shows_the_operator_that_it_comes_from_and_its_columns() -> None:
    env = StreamEnvironment(runtime="local")
    first, second = (env.from_collection([{"x": 1}]) for _ in range(2))
    late = first.filter(col("x") > 3).name("late")
    assert repr(late) == "<DataStream behind late: x: int64>"
    assert repr(late.key_by("x")) == "<KeyedStream behind late by x: x: int64>"
    assert repr(late.group_by("x")) == "<GroupedStream behind late by x: x: int64>"
    assert repr(late.union(second)) == "<DataStream behind late + collection(1 rows): x: int64>"
    assert repr(late.map(dict).name("dict")) == "<DataStream behind dict: columns not declared>"
