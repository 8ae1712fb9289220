"""Co-group: what its function is called with, and what becomes of what it gives."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.elements import MAX_TIMESTAMP
from penstock.engine.errors import GraphError, RecordError, UserCodeError
from penstock.engine.operators.join_columns import LEFT, RIGHT, JoinColumns
from penstock.engine.operators.joins import co_group
from penstock.engine.operators.joins.co_group import CoGroupSpec
from penstock.engine.windows.assigners import AlignedWindows, SessionWindows
from tests.draws import drawn
from tests.engine.operators.joins.join_jobs import (
    SIDES,
    TEXT_KEYS,
    TEXT_SIDES,
    JoinJob,
    Row,
    in_order,
    rows_of,
    text_rows,
)

TUMBLING = AlignedWindows(10, 10)


def summary(key: Any, window: Any, left: list[dict[str, Any]], right: list[dict[str, Any]]) -> Any:
    yield {
        "key": key,
        "start": window.start,
        "left": [row["n"] for row in left],
        "right": [row["n"] for row in right],
    }


def job(function: Any = summary, windows: Any = TUMBLING, parallelism: int = 1) -> JoinJob:
    return JoinJob(CoGroupSpec(windows, JoinColumns(*SIDES), function), parallelism=parallelism)


def test_the_function_gets_the_rows_of_both_sides_in_order_of_time() -> None:
    join = job()
    join.left((4, 1, 1), (3, 1, 2), (12, 1, 3))
    join.right((5, 1, 9), (6, 2, None))
    join.advance(9)
    assert join.take() == in_order([(1, 0, [2, 1], ["r9"], 9), (2, 0, [], [None], 9)])
    join.advance(MAX_TIMESTAMP)
    assert join.take() == [(1, 10, [3], [], 19)]


def test_sessions_are_of_both_sides() -> None:
    join = job(windows=SessionWindows(5))
    join.left((10, 1, 10), (0, 1, 0))
    join.right((5, 1, 5))
    join.advance(MAX_TIMESTAMP)
    assert join.take() == [(1, 0, [0, 10], ["r5"], 14)]


def test_the_key_is_a_tuple_where_there_are_several_columns() -> None:
    keys: list[Any] = []
    spec = CoGroupSpec(TUMBLING, JoinColumns(*TEXT_SIDES), lambda key, *_: keys.append(key))
    join = JoinJob(spec, TEXT_KEYS)
    join.send(LEFT, text_rows(LEFT, [(0, 2, 1)]))
    join.send(RIGHT, text_rows(RIGHT, [(0, 3, 1)]))
    join.advance(MAX_TIMESTAMP)
    assert [(key[0], key[1].isoformat()) for key in keys] == [("2", "1970-01-01"), ("3", "1970-01-02")]


def test_rows_that_the_function_changes_are_its_own() -> None:
    def change(key: Any, window: Any, left: list[dict[str, Any]], right: list[dict[str, Any]]) -> Any:
        for row in left:
            row["n"] += 100
        return left

    join = job(change, AlignedWindows(10, 5))
    join.left((7, 1, 1))
    join.advance(MAX_TIMESTAMP)
    assert join.take() == [(1, 101, 14), (1, 101, 9)]


def test_late_rows_are_dropped_and_counted() -> None:
    join = job()
    join.advance(9)
    join.left((9, 1, 1))
    join.right((9, 1, 1), (10, 1, 2))
    join.advance(MAX_TIMESTAMP)
    assert join.take() == [(1, 10, [], ["r2"], 19)]
    assert join.late == 2


def test_an_error_of_the_function_says_what_it_was_called_with() -> None:
    join = job(lambda key, window, left, right: 1 / 0)
    join.left((4, 1, 77))
    with pytest.raises(UserCodeError, match=r"ZeroDivisionError[\s\S]*TimeWindow\(start=0, end=10\)[\s\S]*77"):
        join.advance(MAX_TIMESTAMP)


def test_a_single_dict_is_refused_with_the_remedy() -> None:
    join = job(lambda key, window, left, right: {"n": 1})
    join.left((4, 1, 77))
    with pytest.raises(RecordError, match=r"the function of co_group returned .* return a list of dicts"):
        join.advance(MAX_TIMESTAMP)


def test_what_cannot_be_called_is_refused() -> None:
    with pytest.raises(GraphError, match=r"co_group: needs a function\(key, window, left_rows, right_rows\)"):
        CoGroupSpec(TUMBLING, JoinColumns(*SIDES), 3)  # type: ignore[arg-type]


def test_results_have_the_declared_columns() -> None:
    schema = pa.schema({"n": pa.int32(), "other": pa.string()})
    join = JoinJob(
        CoGroupSpec(TUMBLING, JoinColumns(*SIDES), lambda *_: [{"other": None, "n": n} for n in (1, 2)], schema)
    )
    join.left((4, 1, 77))
    join.advance(MAX_TIMESTAMP)
    assert join.out.batches[0].data.schema == schema
    assert join.take() == [(1, None, 9), (2, None, 9)]


@given(rows_of(12), rows_of(12), st.integers(1, 12), st.integers(1, 12), st.integers(1, 3), st.integers(1, 4))
@settings(max_examples=drawn(20))
def test_every_key_and_window_with_rows_is_given_once(
    left: list[Row], right: list[Row], size: int, slide: int, parallelism: int, at_once: int
) -> None:
    expected: dict[tuple[int, int], tuple[list[Any], list[Any]]] = defaultdict(lambda: ([], []))
    for side, rows in ((LEFT, left), (RIGHT, right)):
        for at, key, n in sorted(rows, key=lambda row: row[0]):
            for start in range(at - size + 1, at + 1):
                if start % slide == 0:
                    expected[start, key][side].append(n if side == LEFT or n is None else f"r{n}")
    groups, co_group._GROUPS_AT_ONCE = co_group._GROUPS_AT_ONCE, at_once
    try:
        join = job(windows=AlignedWindows(size, slide), parallelism=parallelism)
        join.left(*left)
        join.rescale(2)
        join.right(*right)
        join.advance(MAX_TIMESTAMP)
    finally:
        co_group._GROUPS_AT_ONCE = groups
    rows = [(key, start, *sides, start + size - 1) for (start, key), sides in expected.items()]
    assert join.take() == in_order(rows)
