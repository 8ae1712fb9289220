"""State in RocksDB: lists and maps of any size, keys kept apart, files removed; all backends: test_backends.py."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.engine.clock import ManualClock
from penstock.engine.errors import ConfigurationError, RecordError, StateError
from penstock.engine.state.backend import BackendContext, KeyedStateBackend
from penstock.engine.state.backends import create_backend
from penstock.engine.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    PickleSerializer,
    TtlUpdate,
    TtlVisibility,
    ValueStateDescriptor,
    ttl,
)
from penstock.engine.state.rocksdb import backend as rocksdb
from penstock.engine.state.rocksdb import native as rocksdb_native
from penstock.engine.state.rocksdb.backend import RocksDbBackend
from penstock.engine.state.rocksdb.store import RocksDbStore
from penstock.engine.state.snapshot import KEY_GROUP, OperatorSnapshot, StateTable, share
from tests.engine.state.saved import snapshot_of

KEYS = pa.schema([("k", pa.string())])
WHERE = "operator 'count', subtask 0"
COUNT = ValueStateDescriptor("count", "int64", default=0)
SEEN = ListStateDescriptor("seen", "int64")
BY_DAY = MapStateDescriptor("by_day", "float64", key_type="int64")


def make(directory: Path, clock: ManualClock | None = None, kind: str = "rocksdb") -> KeyedStateBackend:
    backend = create_backend(kind, BackendContext(WHERE, ("k",), 128, clock or ManualClock(), str(directory)))
    backend.bind_keys(KEYS)
    return backend


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[KeyedStateBackend]:
    backend = make(tmp_path)
    yield backend
    backend.close()


def test_keys_and_namespaces_do_not_see_each_other(backend: KeyedStateBackend) -> None:
    state, seen = backend.value_state(COUNT), backend.list_state(SEEN)
    places = [(key, space) for key in ("", "a", "a\0", "ab", None) for space in (None, (0, 10), (0, 11), (-5, 0))]
    for number, (key, space) in enumerate(places):
        backend.set_current_key(key, space)
        state.update(number)
        seen.add_all([number, number])
    backend.set_current_key("a")
    seen.clear()
    state.clear()
    for number, (key, space) in enumerate(places):
        backend.set_current_key(key, space)
        gone = (key, space) == ("a", None)
        assert state.value() == (0 if gone else number)
        assert seen.get() == ([] if gone else [number, number])
    assert set(backend.entries("count")) == set(backend.entries("seen")) == set(places) - {("a", None)}


def test_a_long_list_keeps_its_order(backend: KeyedStateBackend) -> None:
    seen = backend.list_state(SEEN)
    values = random.Random(5).sample(range(10_000), 3_000)
    for value in values:
        backend.set_current_key("odd" if value % 2 else "even")
        seen.add(value)
    assert seen.get() == [value for value in values if value % 2 == values[-1] % 2]
    seen.update([3, 1])
    seen.add(2)
    assert seen.get() == [3, 1, 2]


def test_a_list_is_unchanged_when_one_of_the_new_values_does_not_fit(backend: KeyedStateBackend) -> None:
    seen = backend.list_state(SEEN)
    backend.set_current_key("a")
    seen.add(1)
    with pytest.raises(RecordError, match="state 'seen'"):
        seen.update([2, None])
    assert seen.get() == [1]


def test_a_large_map_is_read_entry_by_entry_and_in_order(backend: KeyedStateBackend) -> None:
    days = backend.map_state(BY_DAY)
    backend.set_current_key("a")
    order = random.Random(5).sample(range(-2_000, 2_000), 4_000)
    days.put_all({day: day / 2 for day in order})
    assert days.get(-7) == -3.5
    assert days.keys() == sorted(order)
    days.remove(-7)
    assert not days.contains(-7)
    backend.set_current_key("b")
    assert days.is_empty()


@pytest.mark.parametrize("key", ["text", 1.5, 2**70])
def test_a_map_key_of_another_type_is_not_there_and_cannot_be_put(backend: KeyedStateBackend, key: Any) -> None:
    days = backend.map_state(BY_DAY)
    backend.set_current_key("a")
    days.remove(key)
    assert days.get(key, "none") == "none"
    with pytest.raises(RecordError, match="state 'by_day'"):
        days.put(key, 1.0)


def test_values_are_copies(backend: KeyedStateBackend) -> None:
    state = backend.value_state(ValueStateDescriptor("tags", "list<string>", default=["none"]))
    backend.set_current_key("a")
    state.value().append("lost")
    assert state.value() == ["none"]
    state.update(["x"])
    state.value().append("lost")
    assert state.value() == ["x"]


def test_entries_are_those_of_when_they_were_asked_for(backend: KeyedStateBackend) -> None:
    state = backend.value_state(COUNT)
    for key in "abc":
        backend.set_current_key(key)
        state.update(1)
    found = backend.entries("count")
    for key in "abcd":
        backend.set_current_key(key)
        state.clear() if key == "a" else state.update(2)
    gc.collect()
    assert sorted(key for key, _ in found) == ["a", "b", "c"]


def test_a_scan_ends_at_its_prefix_whatever_else_is_allocated(tmp_path: Path) -> None:
    store = RocksDbStore(str(tmp_path), WHERE)
    store.put_all((bytes([state, number]), b"") for state in (1, 2) for number in range(100))
    scans = [store.scan(b"\x01") for _ in range(50)]
    gc.collect()
    others = [store.scan(b"\x02\xff" + bytes([number])) for number in range(50)]
    assert [len(list(scan)) for scan in scans] == [100] * 50
    assert not any(list(scan) for scan in others)
    store.close()


def test_in_a_batch_values_are_set_and_read_at_once(backend: KeyedStateBackend) -> None:
    state = backend.value_state(COUNT)
    keys = pa.RecordBatch.from_pydict({"k": ["a", None, "b"]}, schema=KEYS)
    backend.set_current_keys(keys)
    state.update_values(pa.array([1, 2, None]))
    backend.set_current_keys(keys)
    assert state.values().to_pylist() == [1, 2, 0]
    backend.set_current_key(None)
    assert state.value() == 2


# --- snapshots -------------------------------------------------------------------------------------------------------


def filled(backend: KeyedStateBackend) -> dict[str, StateTable]:
    count, seen, days = backend.value_state(COUNT), backend.list_state(SEEN), backend.map_state(BY_DAY)
    for number in range(200):
        backend.set_current_key(f"key {number % 60}", None if number % 3 else (number, number + 10))
        count.update(number)
        seen.add_all(range(number % 7))
        days.put(number, number / 2)
    return snapshot_of(backend).tables


def as_rows(tables: dict[str, StateTable]) -> dict[str, list[str]]:
    return {name: sorted(map(str, table.data.to_pylist())) for name, table in tables.items()}


@pytest.mark.parametrize("rows", [1, 3, 1000])
def test_a_snapshot_in_chunks_equals_that_of_the_heap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(rocksdb, "_CHUNK_ROWS", rows)
    monkeypatch.setattr(rocksdb_native, "_CHUNK_ROWS", rows)
    heap, disk, restored = make(tmp_path, kind="heap"), make(tmp_path), make(tmp_path)
    expected, tables = filled(heap), filled(disk)
    assert as_rows(tables) == as_rows(expected)
    for name, table in tables.items():
        groups = table.data.column(KEY_GROUP).to_pylist()
        assert groups == sorted(groups)
        assert table.data.schema == expected[name].data.schema
    for descriptor in (restored.value_state(COUNT), restored.list_state(SEEN), restored.map_state(BY_DAY)):
        assert descriptor
    restored.restore(expected)
    assert as_rows(snapshot_of(restored).tables) == as_rows(expected)
    for backend in (heap, disk, restored):
        backend.close()


def test_two_subtasks_restore_what_one_has_saved(tmp_path: Path) -> None:
    one = make(tmp_path)
    snapshot = OperatorSnapshot(filled(one))
    found: list[str] = []
    for subtask in range(2):
        half = make(tmp_path)
        half.value_state(COUNT)
        half.restore(share([snapshot], subtask, 2, 128).tables)
        found += as_rows(snapshot_of(half).tables)["count"]
        half.close()
    assert sorted(found) == as_rows(snapshot_of(one).tables)["count"]
    one.close()


def test_a_list_goes_on_after_what_was_restored(tmp_path: Path) -> None:
    old, new = make(tmp_path), make(tmp_path)
    old.set_current_key("a")
    old.list_state(SEEN).add_all([3, 1])
    seen = new.list_state(SEEN)
    new.restore(snapshot_of(old).tables)
    new.set_current_key("a")
    seen.add(2)
    assert seen.get() == [3, 1, 2]
    old.close()
    new.close()


def test_state_with_a_serializer_is_saved_as_its_bytes(tmp_path: Path) -> None:
    descriptor = ValueStateDescriptor("any", serializer=PickleSerializer())
    old, new = make(tmp_path), make(tmp_path)
    old.set_current_key("a")
    old.value_state(descriptor).update({1, 2j})
    state = new.value_state(descriptor)
    new.restore(snapshot_of(old).tables)
    new.set_current_key("a")
    assert state.value() == {1, 2j}
    old.close()
    new.close()


# --- time to live ----------------------------------------------------------------------------------------------------


def test_what_nobody_reads_is_freed_while_other_keys_are_worked_on(tmp_path: Path) -> None:
    clock = ManualClock()
    backend = make(tmp_path, clock)
    lives = ttl("1s", visibility=TtlVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP)
    state = backend.value_state(ValueStateDescriptor("count", "int64", ttl=lives))
    for number in range(2_000):
        backend.set_current_key(f"old {number}")
        state.update(number)
    clock.advance(2)
    backend.set_current_key("old 7")
    assert state.value() == 7
    for number in range(4_000):
        backend.set_current_key(f"new {number % 10}")
        state.update(number)
    for number in range(2_000):
        backend.set_current_key(f"old {number}")
        assert state.value() is None
    backend.close()


def test_what_has_expired_is_not_saved_nor_restored(tmp_path: Path) -> None:
    clock = ManualClock()
    descriptor = ListStateDescriptor("seen", "int64", ttl=ttl("1s"))
    old, new = make(tmp_path, clock), make(tmp_path, clock)
    seen, restored = old.list_state(descriptor), new.list_state(descriptor)
    old.set_current_key("a")
    seen.add(1)
    clock.advance(0.6)
    seen.add(2)
    both = snapshot_of(old).tables
    clock.advance(0.6)
    assert snapshot_of(old).tables["seen"].data.column("value").to_pylist() == [[2]]
    new.restore(both)
    new.set_current_key("a")
    assert restored.get() == [2]
    clock.advance(0.6)
    assert seen.get() == []
    assert list(old.entries("seen")) == []
    old.close()
    new.close()


def test_what_has_expired_is_not_restored_even_where_it_would_be_shown(tmp_path: Path) -> None:
    clock = ManualClock()
    lives = ttl("1s", visibility=TtlVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP)
    descriptor = ValueStateDescriptor("count", "int64", ttl=lives)
    old, new = make(tmp_path, clock), make(tmp_path, clock)
    old.set_current_key("a")
    old.value_state(descriptor).update(1)
    saved, state = snapshot_of(old).tables, new.value_state(descriptor)
    clock.advance(2)
    new.restore(saved)
    new.set_current_key("a")
    assert state.value() is None
    old.close()
    new.close()


@pytest.mark.parametrize("update", TtlUpdate)
def test_reading_renews_what_is_declared_so(tmp_path: Path, update: TtlUpdate) -> None:
    clock = ManualClock()
    backend = make(tmp_path, clock)
    lives = ttl("1s", update)
    value = backend.value_state(ValueStateDescriptor("count", "int64", ttl=lives))
    seen = backend.list_state(ListStateDescriptor("seen", "int64", ttl=lives))
    days = backend.map_state(MapStateDescriptor("by_day", "float64", key_type="int64", ttl=lives))
    backend.set_current_key("a")
    value.update(1)
    seen.add(1)
    days.put(1, 1.0)
    for _ in range(2):
        clock.advance(0.6)
        read = value.value(), seen.get(), days.get(1)
    assert read == ((1, [1], 1.0) if update is TtlUpdate.ON_READ_AND_WRITE else (None, [], None))
    backend.close()


# --- files -----------------------------------------------------------------------------------------------------------


def test_each_backend_has_a_folder_that_goes_when_it_is_closed(tmp_path: Path) -> None:
    directory = tmp_path / "not" / "there yet"
    one, other = make(directory), make(directory)
    assert len(list(directory.iterdir())) == 2
    one.close()
    one.close()
    assert len(list(directory.iterdir())) == 1
    other.close()
    assert not list(directory.iterdir())


def test_the_folder_goes_when_nobody_closed_the_backend(tmp_path: Path) -> None:
    backend = make(tmp_path)
    del backend
    gc.collect()
    assert not list(tmp_path.iterdir())


def test_closed_state_cannot_be_used(tmp_path: Path) -> None:
    backend = make(tmp_path)
    state = backend.value_state(COUNT)
    backend.set_current_key("a")
    backend.close()
    with pytest.raises(StateError, match="outside a keyed context"):
        state.value()


def test_a_directory_that_cannot_be_written_to_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match=r"operator 'count', subtask 0: no folder .*file.*state_directory"):
        make(tmp_path / "file" / "folder")


def test_without_the_package_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'penstock\[rocksdb\]'"):
        RocksDbBackend(BackendContext(WHERE, ("k",), 128, ManualClock(), str(tmp_path)))
    assert not list(tmp_path.iterdir())
