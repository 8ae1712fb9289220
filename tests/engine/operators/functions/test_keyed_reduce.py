"""Reduced rows by key: one for each row, and the same after a restore, whether the columns are declared or not."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.elements import Batch
from penstock.engine.errors import GraphError, RecordError, UserCodeError
from penstock.engine.functions import Row
from penstock.engine.operators.functions.keyed_reduce import KeyedReduceSpec
from tests.engine.operators.functions.functions import Running, at, owner, plain, rescaled
from tests.engine.state.saved import snapshot_of

SCHEMA = pa.schema([("key", pa.string()), ("n", pa.int64())])


def add(one: Row, two: Row) -> Row:
    one["n"] += two["n"]
    return one


def rows(*pairs: tuple[str, int]) -> Batch:
    return plain({"key": key, "n": n} for key, n in pairs)


@pytest.mark.parametrize("schema", [None, SCHEMA])
@given(given_rows=st.lists(st.tuples(st.sampled_from("abc"), st.integers(-9, 9)), max_size=30), size=st.integers(1, 9))
def test_each_row_gives_what_its_key_is_reduced_to_so_far(schema: Any, given_rows: Any, size: int) -> None:
    expected, totals = [], dict[str, int]()
    for key, n in given_rows:
        totals[key] = totals.get(key, 0) + n
        expected.append({"key": key, "n": totals[key]})
    job = Running(KeyedReduceSpec(add, ("key",), schema))
    parts = [given_rows[i : i + size] for i in range(0, len(given_rows), size)]
    assert [row for part in parts for row in job.process(rows(*part))] == expected


@pytest.mark.parametrize("schema", [None, SCHEMA])
@pytest.mark.parametrize("after", [1, 3])
def test_what_was_reduced_survives_a_rescale(schema: Any, after: int) -> None:
    spec = KeyedReduceSpec(add, ("key",), schema)
    old = [Running(spec, subtask=subtask, parallelism=2) for subtask in range(2)]
    for n, key in enumerate("abcdef"):
        old[owner(pa.array([key]), 2)].process(rows((key, n)))
    new = rescaled(spec, [snapshot_of(job.operator) for job in old], after)
    for n, key in enumerate("abcdef"):
        assert new[owner(pa.array([key]), after)].process(rows((key, 10))) == [{"key": key, "n": n + 10}]


def test_the_key_may_be_called_as_the_column_of_the_state_is() -> None:
    spec = KeyedReduceSpec(lambda a, b: {"value": a["value"], "n": a["n"] + b["n"]}, ("value",))
    job = Running(spec)
    job.process(plain([{"value": "x", "n": 1}]))
    again = Running(spec, restored=snapshot_of(job.operator))
    assert again.process(plain([{"value": "x", "n": 1}])) == [{"value": "x", "n": 2}]


def test_a_subtask_without_rows_keeps_its_event_time() -> None:
    job = Running(KeyedReduceSpec(add, ("key",)))
    job.advance(5)
    assert snapshot_of(job.operator).watermark == 5
    job.operator.close()


def test_reduced_rows_have_the_time_of_the_last_row() -> None:
    job = Running(KeyedReduceSpec(add, ("key",), timed=True))
    job.process(at([{"key": "a", "n": 1, "at": 9}, {"key": "a", "n": 1, "at": 4}]))
    assert job.times == [9, 4]


def test_errors_of_the_function_show_the_row() -> None:
    with pytest.raises(UserCodeError, match=r"(?s)ZeroDivisionError.*'n': 2"):
        Running(KeyedReduceSpec(lambda a, b: 1 / 0, ("key",))).process(rows(("a", 1), ("a", 2)))  # type: ignore[arg-type,return-value]
    with pytest.raises(RecordError, match="'tested', subtask 0"):
        Running(KeyedReduceSpec(lambda a, b: 5, ("key",))).process(rows(("a", 1), ("a", 2)))  # type: ignore[arg-type,return-value]
    with pytest.raises(GraphError, match="needs a function of two rows"):
        KeyedReduceSpec(None, ("key",))  # type: ignore[arg-type]
