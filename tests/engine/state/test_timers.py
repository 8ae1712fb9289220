"""Timers fire once each, in order of time and registration, and are the same ones after a restore."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.state.snapshot import OperatorSnapshot, share
from penstock.engine.state.timers import TimerQueue

KEYS = pa.schema([("k", pa.string())])


def fired(queue: TimerQueue, until: int) -> list[Any]:
    return list(queue.due(until))


def test_timers_fire_in_order_of_time_then_registration() -> None:
    queue = TimerQueue()
    for time, key in ((5, "a"), (3, "b"), (5, "c"), (3, "a")):
        queue.register(time, key)
    assert queue.next_time == 3
    assert fired(queue, 4) == [(3, "b", None), (3, "a", None)]
    assert fired(queue, 9) == [(5, "a", None), (5, "c", None)]
    assert queue.next_time is None


def test_a_timer_is_key_namespace_and_time() -> None:
    queue = TimerQueue()
    for _ in range(2):
        queue.register(1, "a")
        queue.register(1, "a", (0, 10))
    assert len(queue) == 2
    queue.delete(1, "a")
    queue.delete(2, "a")
    assert fired(queue, 1) == [(1, "a", (0, 10))]


def test_a_timer_registered_while_timers_fire_fires_too_if_it_is_due() -> None:
    queue, seen = TimerQueue(), []
    queue.register(1, "a")
    for time, key, _ in queue.due(3):
        seen.append(time)
        queue.register(time + 1, key)
    assert seen == [1, 2, 3]
    assert queue.next_time == 4


def test_what_is_registered_meanwhile_is_not_among_the_timers_so_far() -> None:
    queue, seen = TimerQueue(), []
    for time, key in ((5, "a"), (7, "b"), (8, "c"), (9, "d")):
        queue.register(time, key)
    for time, key, _ in queue.due_so_far(8):
        seen.append((time, key))
        queue.register(6, key)
        queue.delete(7, "b")
    assert seen == [(5, "a"), (8, "c")]
    assert fired(queue, 9) == [(6, "a", None), (6, "c", None), (9, "d", None)]


def test_a_timer_deleted_while_timers_fire_does_not() -> None:
    queue, seen = TimerQueue(), []
    queue.register(1, "a")
    queue.register(2, "b")
    for _, key, _ in queue.due(3):
        seen.append(key)
        queue.delete(2, "b")
    assert seen == ["a"]


def test_a_timer_deleted_and_registered_again_fires_once() -> None:
    queue = TimerQueue()
    queue.register(1, "a")
    queue.delete(1, "a")
    queue.register(1, "a")
    assert fired(queue, 1) == [(1, "a", None)]


def test_memory_is_bounded_where_timers_are_deleted() -> None:
    queue = TimerQueue()
    for time in range(50_000):
        queue.register(time, "a")
        queue.delete(time, "a")
    assert len(queue) == 0
    assert len(queue._queue) < 2_000


@given(
    st.sets(st.tuples(st.integers(-5, 5), st.sampled_from("abcd"), st.sampled_from([None, (0, 5)]))),
    st.integers(1, 3),
    st.integers(1, 3),
)
def test_timers_are_the_same_after_a_rescale(timers: set[Any], before: int, after: int) -> None:
    whole = TimerQueue()
    for timer in timers:
        whole.register(*timer)
    # One snapshot of everything, cut as subtasks would have had it.
    snapshots = [share([OperatorSnapshot({"t": whole.snapshot(KEYS, 8)})], index, before, 8) for index in range(before)]
    back = []
    for index in range(after):
        queue, tables = TimerQueue(), share(snapshots, index, after, 8).tables
        if "t" in tables:
            queue.restore(tables["t"], KEYS)
        times = fired(queue, 5)
        assert [time for time, _, _ in times] == sorted(time for time, _, _ in times)
        back += times
    assert len(back) == len(timers)
    assert set(back) == timers


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_restored_keys_equal_those_that_rows_carry(unit: str) -> None:
    keys = pa.schema([("at", pa.timestamp(unit, "UTC")), ("k", pa.int64())])
    key = (datetime(2026, 1, 1, tzinfo=timezone.utc), 1)
    queue, again = TimerQueue(), TimerQueue()
    queue.register(0, key)
    again.restore(queue.snapshot(keys, 128), keys)
    (timer,) = fired(again, 0)
    assert timer == (0, key, None)
    assert type(timer[1][0]) is datetime
