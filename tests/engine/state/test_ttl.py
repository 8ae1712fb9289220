"""Time to live: what has expired is not seen, is freed though nobody asks for it, and a restore does not prolong it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.engine.clock import ManualClock
from penstock.engine.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtl,
    TtlUpdate,
    TtlVisibility,
    ValueStateDescriptor,
    ttl,
)
from tests.engine.state.backends import add, make_backend
from tests.engine.state.saved import snapshot_of

PLAIN = ttl("100ms")
READ = ttl("100ms", TtlUpdate.ON_READ_AND_WRITE)
SHOWN = ttl("100ms", visibility=TtlVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP)


class World:
    """A heap backend with states of each kind, on a clock."""

    def __init__(self, lifetime: StateTtl = PLAIN, start_ms: int = 0) -> None:
        self.clock = ManualClock(start_ms)
        self.backend = make_backend("heap", clock=self.clock)
        self.value = self.backend.value_state(ValueStateDescriptor("v", "int64", ttl=lifetime, default=-1))
        self.list = self.backend.list_state(ListStateDescriptor("l", "int64", ttl=lifetime))
        self.map = self.backend.map_state(MapStateDescriptor("m", "int64", ttl=lifetime))
        self.sum = self.backend.reducing_state(ReducingStateDescriptor("r", "int64", function=add, ttl=lifetime))
        self.backend.set_current_key(1)

    def wait(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds / 1000)

    def write(self, number: int = 1, name: str = "a") -> None:
        self.value.update(number)
        self.list.add(number)
        self.map.put(name, number)
        self.sum.add(number)

    def read(self) -> tuple[Any, ...]:
        return self.value.value(), self.list.get(), self.map.items(), self.sum.get()

    def held(self) -> int:
        """Entries in memory, expired ones included."""
        held = 0
        for state in (self.value, self.list):
            held += len(state._entries)  # type: ignore[attr-defined]
        return held + sum(len(entries) for entries in self.map._entries.values())  # type: ignore[attr-defined]


NOTHING = (-1, [], [], None)


def test_values_are_gone_when_their_time_is_over() -> None:
    world = World()
    world.write()
    world.wait(99)
    assert world.read() == (1, [1], [("a", 1)], 1)
    world.wait(1)
    assert world.read() == NOTHING
    assert world.map.is_empty()
    assert not world.map.contains("a")


def test_writing_renews_and_reading_does_not() -> None:
    world = World()
    world.write()
    world.wait(60)
    world.read()
    world.value.update(2)
    world.sum.add(2)
    world.wait(60)
    assert world.read() == (2, [], [], 3)


def test_reading_renews_where_it_should() -> None:
    world = World(READ)
    world.write()
    for _ in range(5):
        world.wait(60)
        assert world.read() == (1, [1], [("a", 1)], 1)
    world.wait(100)
    assert world.read() == NOTHING


def test_each_value_of_a_list_or_map_has_its_own_time() -> None:
    world = World()
    world.write(1, "a")
    world.wait(60)
    world.write(2, "b")
    world.wait(60)
    assert (world.list.get(), world.map.items()) == ([2], [("b", 2)])
    assert (world.map.get("a"), world.map.get("a", 5), world.map.get("b")) == (None, 5, 2)


def test_what_is_still_there_may_be_shown_once() -> None:
    world = World(SHOWN)
    world.write()
    world.wait(500)
    assert world.read() == (1, [1], [("a", 1)], 1)
    assert world.read() == NOTHING


def test_a_read_frees_what_it_finds_expired() -> None:
    world = World()
    world.write()
    world.wait(100)
    world.read()
    assert world.held() == 0


def test_what_nobody_touches_is_freed_while_others_are_worked_on() -> None:
    world = World()
    for key in range(1000):
        world.backend.set_current_key(key)
        world.write(1, "a")
        world.write(2, "b")
    assert world.held() == 4000
    for step in range(1500):
        world.wait(1)
        world.backend.set_current_key(-1 - step % 3)
        world.write()
    assert world.held() <= 3 * 3
    assert all(len(values) <= 200 for values in world.list._entries.values())  # type: ignore[attr-defined]


def test_what_was_touched_again_is_freed_too() -> None:
    world = World()
    for _ in range(2):
        for key in range(20):
            world.backend.set_current_key(key)
            world.write(1, "a")
        world.wait(60)
    for _ in range(40):
        world.wait(10)
        world.backend.set_current_key(-1)
        world.write()
    assert world.held() == 3


def test_a_key_that_is_written_all_the_time_is_not_in_the_way_of_the_sweep() -> None:
    world = World()
    for step in range(2000):
        world.wait(1)
        world.backend.set_current_key(0)
        world.write()
        world.backend.set_current_key(step)
        world.value.update(step)
    assert world.held() <= 250


def test_clearing_and_writing_again_leaves_nothing_behind() -> None:
    world = World()
    for _ in range(1000):
        world.write()
        world.value.clear()
        world.list.clear()
        world.map.clear()
    queues = [state._life._queue for state in (world.value, world.list, world.map)]  # type: ignore[attr-defined]
    assert [len(queue) for queue in queues] == [0, 0, 0]


def test_snapshots_leave_out_what_has_expired_and_free_it() -> None:
    world = World()
    world.write()
    world.wait(60)
    world.backend.set_current_key(2)
    world.write()
    world.wait(60)
    tables = snapshot_of(world.backend).tables
    assert {name: table.data["k"].to_pylist() for name, table in tables.items()} == {name: [2] for name in "vlmr"}
    assert tables["v"].data["__touched"].to_pylist() == [60]
    assert tables["l"].data["__touched"].to_pylist() == [[60]]
    assert world.held() == 3
    assert list(world.backend.entries("l")) == [(2, None)]


def test_times_go_on_after_a_restore() -> None:
    world = World()
    world.write()
    world.wait(60)
    world.list.add(2)
    later = World(start_ms=110)
    later.backend.restore(snapshot_of(world.backend).tables)
    assert later.read() == (-1, [2], [], None)
    later.wait(50)
    assert later.read() == NOTHING


def test_batches_are_touched_too() -> None:
    world = World(READ)
    world.backend.set_current_keys(pa.record_batch({"k": [1, 2]}))
    world.value.update_values([5, None])
    for _ in range(3):
        world.wait(60)
        assert world.value.values().to_pylist() == [5, -1]
    world.wait(100)
    assert world.value.values().to_pylist() == [-1, -1]
    assert world.held() == 0


@pytest.mark.parametrize("backwards", [10, 5000])
def test_a_clock_that_goes_back_lets_values_live_longer_and_no_more(backwards: int) -> None:
    world = World(start_ms=10_000)
    world.write()
    world.wait(-backwards)
    world.list.add(2)
    assert world.read() == (1, [1, 2], [("a", 1)], 1)
    world.wait(backwards + 101)
    assert world.read() == NOTHING
    assert world.held() == 0


@pytest.mark.parametrize("kind", ["heap", "rocksdb"])
def test_asking_whether_a_map_is_empty_renews_and_copies_nothing(kind: str) -> None:
    if kind == "rocksdb":
        pytest.importorskip("rocksdict")
    clock = ManualClock()
    backend = make_backend(kind, clock=clock)
    names = backend.map_state(MapStateDescriptor("m", "int64", ttl=READ))
    shown = backend.map_state(MapStateDescriptor("s", "int64", ttl=SHOWN))
    backend.set_current_key(1)
    assert names.is_empty()
    for key in ("a", "b"):
        clock.advance(0.06)
        names.put(key, 1)
        shown.put(key, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(names, "items", None)
        for milliseconds, is_empty in ((50, False), (40, False), (10, True)):
            clock.advance(milliseconds / 1000)
            assert names.is_empty() is is_empty, "an entry lives 100 ms after it was put"
    assert not shown.is_empty(), "it has expired, and is still there"
    backend.close()
