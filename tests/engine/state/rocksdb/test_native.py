"""RocksDB's files in checkpoints: they hold what was held at the barrier, and a name has one content for ever."""

from __future__ import annotations

import datetime as dt
import gc
import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.clock import ManualClock
from penstock.engine.elements import SnapshotKind
from penstock.engine.errors import RestoreError
from penstock.engine.state.backend import BackendContext
from penstock.engine.state.backends import create_backend
from penstock.engine.state.capture import CaptureRequest, CaptureScope, NativeCapture, OperatorCapture
from penstock.engine.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    PickleSerializer,
    ValueStateDescriptor,
    ttl,
)
from penstock.engine.state.rocksdb import native as rocksdb_native
from penstock.engine.state.rocksdb.backend import RocksDbBackend
from penstock.engine.state.rocksdb.native import read_native
from penstock.engine.state.snapshot import KEY_GROUP, StateTable, rows_of_groups
from tests.draws import drawn
from tests.engine.state.saved import snapshot_of

KEYS = pa.schema([("k", pa.string()), ("n", pa.int64())])
ALL = range(128)
AT = dt.datetime(2023, 10, 28, tzinfo=ZoneInfo("Europe/Berlin"))
COUNT = ValueStateDescriptor("count", "int64")
SEEN = ListStateDescriptor("seen", "struct<at: timestamp[us, Europe/Berlin], n: int32>")
BY_DAY = MapStateDescriptor("by_day", "list<string>", key_type="date32")
MORTAL = ValueStateDescriptor("mortal", "string", ttl=ttl("10ms"))
LINES = ListStateDescriptor("lines", "int64", ttl=ttl("10ms"))
OBJECT = ValueStateDescriptor("object", serializer=PickleSerializer())


class Job:
    """A backend with states of all kinds, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.backend = RocksDbBackend(
            BackendContext("operator 'f', subtask 0", ("k", "n"), 128, self.clock, str(folder))
        )
        self.count, self.mortal = self.backend.value_state(COUNT), self.backend.value_state(MORTAL)
        self.seen, self.lines = self.backend.list_state(SEEN), self.backend.list_state(LINES)
        self.by_day, self.object = self.backend.map_state(BY_DAY), self.backend.value_state(OBJECT)
        self.backend.bind_keys(KEYS)

    def write(self, key: int, number: int) -> None:
        self.backend.set_current_key((f"user {key}", key - 2), None if number % 3 else (number, number + 10))
        self.count.update(number)
        self.mortal.update(f"text {number}")
        self.lines.add(number)
        self.seen.add({"at": AT + dt.timedelta(hours=number), "n": number})
        self.by_day.put(dt.date(2024, 1, 1 + number % 20), [str(number), None])
        self.object.update({number})
        if number % 5 == 0:
            self.count.clear()
            self.seen.update([])

    def capture(self, scope: CaptureScope = CaptureScope.CHANGES) -> OperatorCapture:
        return self.backend.capture(CaptureRequest(1, scope, SnapshotKind.CHECKPOINT))

    def native(self) -> NativeCapture:
        native = self.capture().native
        assert native is not None
        return native


def _saved(native: NativeCapture, folder: Path) -> Path:
    """The files as a checkpoint keeps them: under their names."""
    folder.mkdir()
    for name, path in native.files.items():
        shutil.copyfile(path, folder / name)
    return folder


def _rows(tables: dict[str, StateTable]) -> dict[str, list[dict[str, Any]]]:
    return {name: table.data.to_pylist() for name, table in tables.items()}


writes = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40)), max_size=25)


@given(st.lists(writes, min_size=1, max_size=3))
@settings(max_examples=drawn(10))
def test_files_and_tables_hold_what_was_held_at_the_barrier(batches: list[list[tuple[int, int]]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        job = Job(Path(directory, "state"))
        captures = []
        for batch in batches:
            for key, number in batch:
                job.write(key, number)
            held = _rows(snapshot_of(job.backend).tables)
            captures.append((held, job.capture(), job.capture(CaptureScope.COMPLETE)))
        for key in range(6):
            job.write(key, 99)
        job.backend.close()
        for number, (held, changes, complete) in enumerate(captures):
            assert {name: table.rows().to_pylist() for name, table in complete.tables.items()} == held
            assert changes.native is not None
            saved = _saved(changes.native, Path(directory, f"saved {number}"))
            assert _rows(read_native(saved, changes.native.metadata, ALL)) == held


def test_what_was_read_is_restored_by_every_backend(tmp_path: Path) -> None:
    job = Job(tmp_path / "state")
    for number in range(40):
        job.write(number % 7, number)
    held = _rows(snapshot_of(job.backend).tables)
    native = job.native()
    tables = read_native(_saved(native, tmp_path / "saved"), native.metadata, ALL)
    restored = Job(tmp_path / "other")
    restored.backend.restore(tables)
    assert _rows(snapshot_of(restored.backend).tables) == held
    heap = create_backend("heap", BackendContext("operator 'f', subtask 0", ("k", "n"), 128, ManualClock()))
    count = heap.value_state(COUNT)
    heap.restore(tables)
    job.backend.set_current_key(("user 4", 2), None)
    heap.set_current_key(("user 4", 2), None)
    assert count.value() == job.count.value() is not None


def test_what_is_read_takes_no_memory_and_comes_in_small_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocksdb_native, "_FIRST_ROWS", 4)
    monkeypatch.setattr(rocksdb_native, "_CHUNK_BYTES", 8 * 50_000)
    job = Job(tmp_path / "state")
    for number in range(100):
        job.backend.set_current_key((f"user {number}", number), None)
        job.mortal.update("x" * 50_000)
        job.object.update("y" * 50_000)
    captured = job.native()
    saved, before = _saved(captured, tmp_path / "saved"), pa.total_allocated_bytes()
    tables = read_native(saved, captured.metadata, ALL)
    assert tables["mortal"].data.nbytes > 5_000_000
    assert pa.total_allocated_bytes() - before < 100_000
    for name in ("mortal", "object"):
        assert max(batch.nbytes for batch in tables[name].data.to_batches()) < 600_000
    shutil.rmtree(saved)
    restored = Job(tmp_path / "other")
    restored.backend.restore(tables)
    restored.backend.set_current_key(("user 77", 77), None)
    assert restored.mortal.value() == "x" * 50_000


def test_what_has_expired_is_not_restored(tmp_path: Path) -> None:
    job = Job(tmp_path / "state")
    job.write(1, 1)
    job.clock.advance(0.009)
    job.write(2, 2)
    native = job.native()
    job.clock.advance(0.001)
    complete = job.capture(CaptureScope.COMPLETE)
    assert complete.tables["mortal"].rows().column("value").to_pylist() == ["text 2"]
    restored = Job(tmp_path / "other")
    restored.clock.advance(0.01)
    restored.backend.restore(read_native(_saved(native, tmp_path / "saved"), native.metadata, ALL))
    assert snapshot_of(restored.backend).tables["mortal"].data.column("value").to_pylist() == ["text 2"]


def test_a_range_of_key_groups_is_read_alone(tmp_path: Path) -> None:
    job = Job(tmp_path / "state")
    for key in range(200):
        job.write(key, key + 1)
    native = job.native()
    saved = _saved(native, tmp_path / "saved")
    held = snapshot_of(job.backend).tables
    for groups in (range(43), range(43, 86), range(86, 128), range(5, 5)):
        read = read_native(saved, native.metadata, groups)
        assert _rows(read) == {name: rows_of_groups(t.data, groups).to_pylist() for name, t in held.items()}
        assert set(read["count"].data.column(KEY_GROUP).to_pylist()) <= set(groups)


def test_a_name_of_a_file_has_one_content_for_ever(tmp_path: Path) -> None:
    contents: dict[str, str] = {}
    reused = 0
    for attempt in range(3):
        job = Job(tmp_path / "state")
        for step in range(4):
            for key in range(50):
                job.write(key, attempt * 100 + step)
            native = job.native()
            assert native.immutable < set(native.files)
            for name in native.immutable:
                content = hashlib.sha256(native.files[name].read_bytes()).hexdigest()
                reused += name in contents
                assert contents.setdefault(name, content) == content
        job.backend.close()
    assert reused
    assert len(set(contents.values())) == len(contents)


def test_files_outlive_the_backend_until_they_are_released(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.write(1, 1)
    released, forgotten, complete = job.native(), job.native(), job.capture(CaptureScope.COMPLETE)
    job.backend.close()
    assert all(path.exists() for native in (released, forgotten) for path in native.files.values())
    assert complete.tables["count"].rows().num_rows == 1
    released.release()
    assert len(list(tmp_path.iterdir())) == 2
    del forgotten, complete
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_before_the_first_key_there_are_no_files(tmp_path: Path) -> None:
    backend = RocksDbBackend(BackendContext("operator 'f', subtask 0", ("k",), 128, ManualClock(), str(tmp_path)))
    backend.value_state(COUNT)
    assert backend.capture(CaptureRequest(1, CaptureScope.BASE)) == OperatorCapture()
    backend.close()


def test_files_that_are_no_database_are_refused(tmp_path: Path) -> None:
    job = Job(tmp_path / "state")
    job.write(1, 1)
    native = job.native()
    saved = _saved(native, tmp_path / "saved")
    with pytest.raises(RestoreError, match="layout '2'"):
        read_native(saved, {**native.metadata, "layout": "2"}, ALL)
    next(saved.glob("*.sst")).unlink()
    with pytest.raises(RestoreError, match=str(saved)):
        read_native(saved, native.metadata, ALL)
    job.backend.close()
