"""Rows wait until their time has come, and leave as a plain list of them would say."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.errors import StateError
from penstock.engine.operators.matching.waiting_rows import WAITING, TimedRows, WaitingRows
from penstock.engine.state.capture import OperatorCapture
from tests.engine.state.saved import captured_snapshot

_SCHEMA = pa.schema({"key": pa.string(), "number": pa.int64()})
_TIMES = st.integers(0, 12)
_STEPS = st.lists(st.tuples(st.lists(_TIMES, min_size=1, max_size=9), st.lists(_TIMES, max_size=3)), max_size=4)
"""Rows that come together, and the times that come then."""


def _added(waiting: WaitingRows, times: list[int], first: int) -> list[tuple[int, int]]:
    numbers = list(range(first, first + len(times)))
    waiting.add(pa.record_batch({"key": ["k"] * len(times), "number": numbers}, _SCHEMA), np.array(times))
    return list(zip(times, numbers, strict=True))


def _in_order(taken: TimedRows | None) -> list[tuple[int, int]]:
    """Times and numbers in order of time; those of one time as they came out."""
    if taken is None:
        return []
    numbers = taken.rows.column("number").to_pylist()
    assert numbers == taken.arrivals.tolist()
    return sorted(zip(taken.times.tolist(), numbers, strict=True), key=lambda one: one[0])


@given(_STEPS)
def test_rows_leave_when_their_time_has_come_in_order_of_arrival(steps: list[tuple[list[int], list[int]]]) -> None:
    waiting, expected, arrived = WaitingRows(_SCHEMA, ["key"]), [], 0
    for times, reached in steps:
        expected += _added(waiting, times, arrived)
        arrived += len(times)
        for time in sorted(reached):
            due = [one for one in expected if one[0] <= time]
            expected = [one for one in expected if one[0] > time]
            assert _in_order(waiting.take(time)) == sorted(due)
    assert len(waiting) == len(expected)
    saved = waiting.capture(8)
    if expected:
        restored = WaitingRows(_SCHEMA, ["key"])
        restored.restore(captured_snapshot(OperatorCapture(saved)).tables[WAITING], 8, "m")
        taken = restored.take(12)
        assert taken is not None
        numbers = zip(taken.times.tolist(), taken.rows.column("number").to_pylist(), strict=True)
        assert sorted(numbers, key=lambda one: one[0]) == sorted(expected)


def test_rows_may_have_a_column_for_their_time() -> None:
    columns = pa.schema({"__time": pa.string(), "number": pa.int64()})
    waiting = WaitingRows(columns, ["number"])
    waiting.add(pa.record_batch({"__time": ["noon"], "number": [1]}, columns), np.array([5]))
    restored = WaitingRows(columns, ["number"])
    restored.restore(captured_snapshot(OperatorCapture(waiting.capture(8))).tables[WAITING], 8, "m")
    taken = restored.take(5)
    assert taken is not None
    assert (taken.times.tolist(), taken.rows.to_pylist()) == ([5], [{"__time": "noon", "number": 1}])


@pytest.mark.parametrize(
    ("key", "columns", "message"),
    [
        ("number", {"key": pa.string(), "number": pa.string()}, "by keys of other types"),
        ("key", {"key": pa.string(), "number": pa.int64()}, "by other keys than"),
        ("number", {"key": pa.string(), "number": pa.int8()}, "do not fit"),
        ("number", {"number": pa.int64(), "more": pa.string()}, "without column 'more'"),
        ("number", {"key": pa.string(), "number": pa.uint64()}, None),
    ],
)
def test_rows_of_a_changed_program_fit_or_are_refused(
    key: str, columns: dict[str, pa.DataType], message: str | None
) -> None:
    waiting = WaitingRows(_SCHEMA, ["number"])
    waiting.add(pa.record_batch({"key": [*"abc"], "number": [1, 2, 300]}, _SCHEMA), np.array([5, 6, 7]))
    saved = captured_snapshot(OperatorCapture(waiting.capture(8))).tables[WAITING]
    restored = WaitingRows(pa.schema(columns), [key])
    if message:
        with pytest.raises(StateError, match=message):
            restored.restore(saved, 8, "m")
        return
    restored.restore(saved, 8, "m")
    assert len(restored) == 3
