"""Rows wait until their time has come, and leave as a plain list of them would say."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

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
        restored.restore(captured_snapshot(OperatorCapture(saved)).tables[WAITING])
        taken = restored.take(12)
        assert taken is not None
        numbers = zip(taken.times.tolist(), taken.rows.column("number").to_pylist(), strict=True)
        assert sorted(numbers, key=lambda one: one[0]) == sorted(expected)


def test_rows_may_have_a_column_for_their_time() -> None:
    columns = pa.schema({"__time": pa.string(), "number": pa.int64()})
    waiting = WaitingRows(columns, ["number"])
    waiting.add(pa.record_batch({"__time": ["noon"], "number": [1]}, columns), np.array([5]))
    restored = WaitingRows(columns, ["number"])
    restored.restore(captured_snapshot(OperatorCapture(waiting.capture(8))).tables[WAITING])
    taken = restored.take(5)
    assert taken is not None
    assert (taken.times.tolist(), taken.rows.to_pylist()) == ([5], [{"__time": "noon", "number": 1}])
