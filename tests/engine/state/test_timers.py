"""Timers fire once each, in order of time and registration, and are the same ones after a restore."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.state.capture import CaptureScope
from penstock.engine.state.snapshot import OperatorSnapshot, Redistribution, StateTable, share
from penstock.engine.state.timers import TimerQueue
from penstock.savepoints.history import merge_rows
from tests.engine.state.saved import timers_of

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
    snapshots = [
        share([OperatorSnapshot({"t": timers_of(whole, KEYS, 8)})], index, before, 8) for index in range(before)
    ]
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
    again.restore(timers_of(queue, keys, 128), keys)
    (timer,) = fired(again, 0)
    assert timer == (0, key, None)
    assert type(timer[1][0]) is datetime


def test_captures_hold_what_was_registered_fired_and_deleted_since() -> None:
    queue = TimerQueue()
    for time in range(100):
        queue.register(time, "a")
    base = queue.capture(CaptureScope.BASE, KEYS, 8)
    fired(queue, 1)
    queue.delete(50, "a")
    queue.register(500, "b")
    queue.register(501, "b")
    queue.delete(501, "b")
    changes = queue.capture(CaptureScope.CHANGES, KEYS, 8)
    fired(queue, 400)
    rows = changes.rows().select(["__time", "__deleted"]).to_pylist()
    assert sorted((row["__time"], row["__deleted"]) for row in rows) == [
        (0, True),
        (1, True),
        (50, True),
        (500, False),
    ], "a timer that came and went in between was never saved"
    again = TimerQueue()
    again.restore(StateTable(Redistribution.KEYED, merge_rows([base.rows(), changes.rows()], base.identity)), KEYS)
    assert [time for time, _, _ in fired(again, 1000)] == [*range(2, 50), *range(51, 100), 500]


def test_the_order_of_registration_is_kept_through_changes_and_restores() -> None:
    queue = TimerQueue()
    for name in "hgfedcba":
        queue.register(5, name)
    parts = [queue.capture(CaptureScope.BASE, KEYS, 8)]
    queue.delete(5, "g")
    for name in "zyg":
        queue.register(5, name)
    parts.append(queue.capture(CaptureScope.CHANGES, KEYS, 8))
    again = TimerQueue()
    again.restore(StateTable(Redistribution.KEYED, merge_rows([p.rows() for p in parts], parts[0].identity)), KEYS)
    again.register(5, "last")
    parts.append(again.capture(CaptureScope.CHANGES, KEYS, 8))
    assert parts[-1].rows().num_rows == 1
    third = TimerQueue()
    third.restore(StateTable(Redistribution.KEYED, merge_rows([p.rows() for p in parts], parts[0].identity)), KEYS)
    expected = [*"hfedcbazyg", "last"]
    for each in (again, third):
        assert [key for _, key, _ in fired(each, 5)] == expected


def test_timers_of_several_subtasks_come_together_and_are_saved_anew() -> None:
    one, other, both = TimerQueue(), TimerQueue(), TimerQueue()
    for name in "abc":
        one.register(5, name)
        other.register(5, name.upper())
    tables = [timers_of(queue, KEYS, 1).data for queue in (one, other)]
    both.restore(StateTable(Redistribution.KEYED, pa.concat_tables(tables)), KEYS)
    assert not both.capture(CaptureScope.CHANGES, KEYS, 8).is_changes
    assert [key for _, key, _ in fired(both, 5)] == list("aAbBcC")
