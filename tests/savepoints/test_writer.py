"""What is written is what was captured, whatever fails in between; and no more of it than has changed."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.checkpointing.handles import CompletedCheckpoint, SegmentHandle, SubtaskHandle
from penstock.engine.checkpointing.restored import RestoredTask
from penstock.engine.checkpointing.store import RestorePlan
from penstock.engine.elements import Barrier, Batch, SnapshotKind
from penstock.engine.errors import CheckpointCorruptError, CheckpointError
from penstock.engine.state.capture import Expiry, OperatorCapture, TableCapture
from penstock.engine.state.snapshot import KEY_GROUP, Redistribution
from penstock.savepoints import history
from penstock.savepoints import writer as writer_module
from penstock.savepoints.restore import load_task, plan_failover, plan_restore
from penstock.savepoints.segments import decode_table, read_file, read_segment
from penstock.savepoints.writer import CheckpointWriter
from tests.draws import drawn
from tests.savepoints.subtasks import (
    GROUPS,
    ROOT,
    STATE,
    UID,
    Storage,
    capture_of,
    completed,
    entries_of,
    graph,
    keyed_capture,
    keyed_rows,
    owner,
    restored_entries,
    writer,
)

Entries = dict[int, tuple[str, int]]


class Subtask:
    """An operator with a dict for its state, and its writer."""

    def __init__(self, checkpoints: CheckpointWriter, restored: RestoredTask) -> None:
        self.writer = checkpoints
        self.entries = entries_of(restored)
        self.changed: set[int] = set()
        self.has_base = restored.tracked
        self.below = 0
        self.keys: list[int] = []

    def put(self, key: int, entry: tuple[str, int]) -> None:
        if entry[1] >= self.below:
            self.entries[key] = entry
            self.changed.add(key)

    def drop(self, key: int) -> None:
        if self.entries.pop(key, None) is not None:
            self.changed.add(key)

    def expire(self, below: int) -> None:
        self.below = max(self.below, below)
        self.entries = {key: entry for key, entry in self.entries.items() if entry[1] >= self.below}

    def capture(self, is_whole: bool) -> OperatorCapture:
        changed, self.changed = self.changed, set()
        expiry = Expiry("at", self.below) if self.below else None
        if is_whole or not self.has_base:
            self.has_base = True
            # A list of its own until other keys come.
            self.keys = self.keys if self.keys == [*self.entries] else [*self.entries]
            keys = None if expiry else self.keys
            rows = keyed_rows(self.entries)
            return keyed_capture(rows, expiry=expiry, keys=keys) if self.entries else OperatorCapture()
        live = {key: self.entries[key] for key in changed & self.entries.keys()}
        return keyed_capture(keyed_rows(live, changed - self.entries.keys()), True, expiry)


class Job:
    """All subtasks of a job, and a coordinator that is told what completes when."""

    def __init__(self) -> None:
        self.storage = Storage()
        self.attempt, self.next_checkpoint = 0, 1
        self.complete: CompletedCheckpoint | None = None
        self.expected: dict[int, Entries] = {0: {}}
        self.under_way: list[CompletedCheckpoint] = []
        self.start(2)

    def start(self, parallelism: int) -> None:
        self.attempt += 1
        self.parallelism = parallelism
        self.under_way.clear()
        plan = plan_failover(graph(parallelism), self.complete, ROOT) if self.complete else None
        self.subtasks = [self._subtask(subtask, plan) for subtask in range(parallelism)]

    def _subtask(self, subtask: int, plan: RestorePlan | None) -> Subtask:
        now = graph(self.parallelism)
        restored = load_task(self.storage.open, now, plan, 1, subtask) if plan else RestoredTask()
        return Subtask(writer(self.storage, self.parallelism, subtask, self.attempt, plan), restored)

    def of(self, key: int) -> Subtask:
        return self.subtasks[owner(key, self.parallelism)]

    @property
    def entries(self) -> Entries:
        return {key: entry for subtask in self.subtasks for key, entry in subtask.entries.items()}

    def checkpoint(self, fail_after: int | None, whole: int) -> None:
        number, base = self.next_checkpoint, self.complete.checkpoint if self.complete else 0
        self.next_checkpoint += 1
        self.expected[number] = self.entries
        blobs = self.storage.open(ROOT)
        blobs.fail_after = fail_after
        handles: list[SubtaskHandle] = []
        for index, subtask in enumerate(self.subtasks):
            taken = capture_of(Barrier(number, base=base), subtask.capture(index == whole), index, self.parallelism)
            with contextlib.suppress(CheckpointError) if fail_after is not None else contextlib.nullcontext():
                handles.append(subtask.writer.write(taken))
        blobs.fail_after = None
        if len(handles) == self.parallelism:
            self.under_way.append(completed(number, handles))

    def settle(self, which: int) -> None:
        """Of those under way number `which` completes; those before it are aborted, and what nobody needs goes."""
        if which < len(self.under_way):
            self.complete = self.under_way[which]
            del self.under_way[: which + 1]
            self._delete()

    def abort(self) -> None:
        if self.under_way:
            del self.under_way[0]
            self._delete()

    def _delete(self) -> None:
        needed = [*self.under_way, *([self.complete] if self.complete else [])]
        files = {file.path for checkpoint in needed for file in checkpoint.files()}
        blobs = self.storage.open(ROOT)
        blobs.delete([path for path in blobs.files if path not in files])

    def check(self, parallelism: int) -> None:
        if self.complete is not None:
            expected = self.expected[self.complete.checkpoint]
            assert restored_entries(self.storage, self.complete, parallelism) == expected


@dataclass(frozen=True)
class Round:
    """What happens around one checkpoint."""

    puts: list[tuple[int, int]]
    drops: list[int]
    below: int
    fail_after: int | None
    whole: int
    settle: int | None
    restart: int | None


_KEYS = st.integers(0, 23)
_SELDOM = st.sampled_from([False] * 5 + [True])


@st.composite
def _rounds(draw: st.DrawFn) -> Round:
    return Round(
        puts=draw(st.lists(st.tuples(_KEYS, st.integers(0, 9)), max_size=6)),
        drops=draw(st.lists(_KEYS, max_size=3)),
        below=draw(st.integers(1, 7)) if draw(_SELDOM) else 0,
        fail_after=draw(st.integers(0, 2)) if draw(_SELDOM) else None,
        whole=draw(st.integers(0, 9)),
        settle=draw(st.sampled_from([0, 0, 0, 0, 1, None])),
        restart=draw(st.integers(0, 4)) if draw(_SELDOM) else None,
    )


@settings(max_examples=drawn(30))
@given(st.lists(_rounds(), min_size=3, max_size=20))
def test_a_completed_checkpoint_is_the_state_at_its_barrier_whatever_failed_before(rounds: list[Round]) -> None:
    with mock.patch.object(history, "_SMALLEST", 2), mock.patch.object(writer_module, "_APART_BYTES", 1):
        job = Job()
        for number, this in enumerate(rounds):
            for key, at in this.puts:
                job.of(key).put(key, (f"v{number}", at))
            for key in this.drops:
                job.of(key).drop(key)
            for subtask in job.subtasks:
                subtask.expire(this.below)
            job.checkpoint(this.fail_after, this.whole)
            if this.settle is None:
                job.abort()
            else:
                job.settle(this.settle)
            job.check(1 + number % 3)
            if this.restart is not None:
                job.start(this.restart or job.parallelism)
                assert job.entries == job.expected[job.complete.checkpoint if job.complete else 0]


class Chain:
    """One subtask whose checkpoints all complete at once."""

    def __init__(self, storage: Storage, overrides: Mapping[str, str] | None = None) -> None:
        self.storage = storage
        self.writer = writer(storage, overrides=overrides)
        self.number = 0

    def take(self, operator: OperatorCapture) -> SubtaskHandle:
        self.number += 1
        return self.writer.write(capture_of(Barrier(self.number, base=self.number - 1), operator))


def _entries(keys: range, value: str = "v") -> Entries:
    return dict.fromkeys(keys, (value, 0))


def test_small_changes_write_little_and_recovery_reads_few_files() -> None:
    storage = Storage()
    chain, blobs = Chain(storage), storage.open(ROOT)
    keys, changed, rounds = 40_000, 400, 40
    entries = _entries(range(keys), "v" * 20)
    handle = chain.take(keyed_capture(keyed_rows(entries)))
    whole, most = blobs.written, 0
    for turn in range(rounds):
        changes = _entries(range(turn * changed % keys, turn * changed % keys + changed), f"{turn:020d}")
        entries.update(changes)
        handle = chain.take(keyed_capture(keyed_rows(changes, []), True))
        most = max(most, len(handle.operators[0].tables[STATE].segments))
    # Each of those wrote 1 % of the keys, and each row was written again once, in a merge of 16.
    assert blobs.written - whole < rounds * whole * changed / keys * 3.5
    assert most <= 22
    assert restored_entries(storage, completed(chain.number, [handle])) == entries


def test_rows_are_written_as_they_were_captured_and_put_in_order_by_who_restores_them() -> None:
    storage, entries = Storage(), {key: (str(key), key) for key in range(40)}
    rows = keyed_rows(entries)
    written = writer(storage).write(capture_of(Barrier(1), keyed_capture(rows)))
    (segment,) = written.operators[0].tables[STATE].segments
    blobs = storage.open(ROOT)
    groups = rows.column(KEY_GROUP).to_pylist()
    assert groups != sorted(groups)
    assert decode_table(read_file(blobs, segment.file), segment.file, ROOT) == rows
    assert (segment.first_group, segment.last_group) == (min(groups), max(groups))
    assert restored_entries(storage, completed(1, [written])) == entries


def test_changes_behind_a_capture_without_the_state_are_all_there_is_of_it() -> None:
    storage = Storage()
    checkpoints = writer(storage)
    checkpoints.write(capture_of(Barrier(1), OperatorCapture()))
    written = checkpoints.write(capture_of(Barrier(2), keyed_capture(keyed_rows({1: ("a", 1)}, [2, 3]), True)))
    (segment,) = written.operators[0].tables[STATE].segments
    assert segment.rows == 1
    assert restored_entries(storage, completed(2, [written])) == {1: ("a", 1)}


def test_nothing_is_written_where_nothing_has_changed() -> None:
    storage = Storage()
    chain, blobs = Chain(storage), storage.open(ROOT)
    first = chain.take(keyed_capture(keyed_rows(_entries(range(10)))))
    written = blobs.written
    assert chain.take(keyed_capture(keyed_rows({}, []), True)).operators == first.operators
    assert chain.take(keyed_capture(keyed_rows(_entries(range(10))))).operators == first.operators
    assert blobs.written == written


def test_keys_that_stay_are_written_once() -> None:
    storage, keys, others = Storage(), object(), object()
    chain, blobs = Chain(storage), storage.open(ROOT)

    def take(value: str, count: int, keys: object) -> tuple[SegmentHandle, int]:
        before = blobs.written
        handle = chain.take(keyed_capture(keyed_rows(_entries(range(count), value)), keys=keys))
        assert restored_entries(storage, completed(chain.number, [handle])) == _entries(range(count), value)
        [segment] = handle.operators[0].tables[STATE].segments
        return segment, blobs.written - before

    with mock.patch.object(writer_module, "_APART_BYTES", 1):
        first, whole = take("a", 5000, keys)
        second, _ = take("b", 5000, keys)
        third, less = take("c", 5000, keys)
        fourth, again = take("d", 5001, others)
    assert first.keys is None
    assert second.keys is not None
    assert third.keys == second.keys
    assert {(segment.rows, segment.first_group, segment.last_group) for segment in (first, second, third)} == {
        (5000, 0, GROUPS - 1)
    }
    assert whole - less > 0.9 * 5000 * (4 + 8)
    assert fourth.keys is None, "who knows whether they stay"
    assert again > 0.99 * whole


def test_keys_of_a_checkpoint_that_is_not_the_base_are_written_again() -> None:
    storage, keys = Storage(), object()
    checkpoints = writer(storage)

    def take(number: int, base: int) -> SegmentHandle:
        capture = keyed_capture(keyed_rows(_entries(range(9), str(number))), keys=keys)
        handle = checkpoints.write(capture_of(Barrier(number, base=base), capture))
        return handle.operators[0].tables[STATE].segments[0]

    with mock.patch.object(writer_module, "_APART_BYTES", 1):
        take(1, 0)
        aborted, other, behind = take(2, 1).keys, take(3, 1).keys, take(4, 3).keys
    assert None not in (aborted, other)
    assert aborted != other
    assert behind == other


def test_changes_behind_keys_by_themselves_are_merged_with_all_columns() -> None:
    storage, keys = Storage(), object()
    chain, entries = Chain(storage), _entries(range(5), "a")
    with mock.patch.object(history, "_SMALLEST", 2), mock.patch.object(writer_module, "_APART_BYTES", 1):
        for _ in range(2):
            chain.take(keyed_capture(keyed_rows(entries), keys=keys))
        for number in range(40):
            changed = {number % 5: ("b", number)}
            entries |= changed
            handle = chain.take(keyed_capture(keyed_rows(changed), True))
            assert restored_entries(storage, completed(chain.number, [handle])) == entries
            if handle.operators[0].tables[STATE].segments[0].keys is None:
                return
    pytest.fail("they were not merged")


def test_keys_of_rows_without_values_are_beside_them() -> None:
    storage, keys = Storage(), object()
    chain = Chain(storage)
    rows = keyed_rows(_entries(range(5000), "a")).select([KEY_GROUP, "k"]).append_column("value", pa.nulls(5000))
    with mock.patch.object(writer_module, "_APART_BYTES", 1):
        for _ in range(2):
            handle = chain.take(keyed_capture(rows, keys=keys))
    (segment,) = handle.operators[0].tables[STATE].segments
    assert read_segment(storage.open(ROOT), segment).num_rows == 5000


def test_few_keys_have_no_file_by_themselves() -> None:
    storage, keys = Storage(), object()
    chain = Chain(storage)
    for value in "abc":
        handle = chain.take(keyed_capture(keyed_rows(_entries(range(5000), value)), keys=keys))
        assert len([*handle.files()]) == 1


def test_the_table_is_written_anew_when_four_times_as_much_has_changed_as_it_holds() -> None:
    storage = Storage()
    chain = Chain(storage)
    chain.take(keyed_capture(keyed_rows(_entries(range(3000)))))
    for value in "stuvwy":
        chain.take(keyed_capture(keyed_rows(_entries(range(2000), value), []), True))
    handle = chain.take(keyed_capture(keyed_rows({}, range(1500)), True))
    [segment] = handle.operators[0].tables[STATE].segments
    assert segment.rows == 1500
    expected = _entries(range(1500, 3000)) | _entries(range(1500, 2000), "y")
    assert restored_entries(storage, completed(8, [handle])) == expected


def test_nothing_is_merged_while_tasks_wait_to_be_replaced() -> None:
    storage = Storage()
    checkpoints = writer(storage, 1, 0)
    files: list[int] = []
    for number in range(1, 9):
        rows = keyed_rows(dict.fromkeys(range(3000), ("x", number)))
        barrier = Barrier(number, base=number - 1, replaced=frozenset({1}))
        written = checkpoints.write(capture_of(barrier, keyed_capture(rows, is_changes=number > 1), 0, 1))
        files.append(len(written.operators[0].tables[STATE].segments))
    assert files == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_state_that_is_gone_is_empty_and_may_come_back() -> None:
    storage = Storage()
    chain = Chain(storage)
    chain.take(keyed_capture(keyed_rows(_entries(range(5)))))
    gone = chain.take(OperatorCapture())
    back = chain.take(keyed_capture(keyed_rows(_entries(range(1)), []), True))
    assert restored_entries(storage, completed(2, [gone])) == {}
    assert restored_entries(storage, completed(3, [back])) == _entries(range(1))


def test_a_failed_upload_names_the_place_leaves_no_file_and_is_made_good() -> None:
    storage = Storage()
    chain, blobs = Chain(storage), storage.open(ROOT)
    chain.take(keyed_capture(keyed_rows(_entries(range(5)))))
    before, blobs.fail_after = dict(blobs.files), 1
    rows = {"a->b#0@0": [Batch(pa.record_batch({"k": [1]}))]}
    changes = keyed_capture(keyed_rows(_entries(range(3), "w"), [4]), True)
    with pytest.raises(CheckpointError, match=r"task 'count', subtask 0: checkpoint 2 .*the disk is full"):
        chain.writer.write(capture_of(Barrier(2, base=1), changes, in_flight=rows))
    assert blobs.files == before
    blobs.fail_after = None
    empty = keyed_capture(keyed_rows({}, []), True)
    handle = chain.writer.write(capture_of(Barrier(3, base=1), empty))
    assert restored_entries(storage, completed(3, [handle])) == _entries(range(3), "w") | _entries(range(3, 4))


def test_changes_that_could_not_be_read_are_missed_until_the_state_comes_whole() -> None:
    storage = Storage()
    chain = Chain(storage)
    chain.take(keyed_capture(keyed_rows(_entries(range(5)))))

    def rows() -> pa.Table:
        raise ValueError("no such type")

    broken = OperatorCapture({STATE: TableCapture(Redistribution.KEYED, rows, ("k",), True)})
    for operator in (broken, keyed_capture(keyed_rows(_entries(range(1), "w"), []), True)):
        with pytest.raises(CheckpointError, match="ValueError: no such type"):
            chain.writer.write(capture_of(Barrier(chain.number + 1, base=1), operator))
    handle = chain.writer.write(capture_of(Barrier(4, base=1), keyed_capture(keyed_rows(_entries(range(2), "x")))))
    assert restored_entries(storage, completed(4, [handle])) == _entries(range(2), "x")


def test_what_has_died_stays_dead_when_a_restored_operator_knows_less_event_time() -> None:
    storage = Storage()
    chain = Chain(storage)
    chain.take(keyed_capture(keyed_rows({1: ("dies", 3), 2: ("lives", 8)})))
    passed = chain.take(keyed_capture(keyed_rows({}, []), True, Expiry("at", 5)))
    plan = plan_failover(graph(1), completed(2, [passed]), ROOT)
    late = keyed_capture(keyed_rows({3: ("late", 2)}, []), True, Expiry("at", 1))
    again = writer(storage, attempt=2, plan=plan)
    for checkpoint in (3, 4):
        handle = again.write(capture_of(Barrier(checkpoint, base=2), late))
        assert restored_entries(storage, completed(checkpoint, [handle])) == {2: ("lives", 8), 3: ("late", 2)}


def test_what_has_died_stays_dead_whatever_later_captures_say() -> None:
    storage = Storage()
    chain = Chain(storage)
    chain.take(keyed_capture(keyed_rows({1: ("dies", 3)})))
    for checkpoint, rows, below in ((2, {1: ("dies again", 4)}, 5), (3, {2: ("late", 2)}, 1)):
        changes = keyed_capture(keyed_rows(rows, []), True, Expiry("at", below))
        handle = chain.writer.write(capture_of(Barrier(checkpoint, base=1), changes))
    assert restored_entries(storage, completed(3, [handle])) == {2: ("late", 2)}


def test_changes_of_an_unknown_state_are_refused() -> None:
    with pytest.raises(CheckpointError, match="changes build on checkpoint 7, which this subtask has not written"):
        writer(Storage()).write(capture_of(Barrier(8, base=7), keyed_capture(keyed_rows({}, [1]), True)))


def test_a_savepoint_is_whole_in_its_own_folder_and_disturbs_no_checkpoint() -> None:
    storage, target = Storage(), "memory://tests/savepoint"
    checkpoints = writer(storage)
    checkpoints.write(capture_of(Barrier(1), keyed_capture(keyed_rows(_entries(range(5))))))
    files = dict(storage.open(ROOT).files)
    whole = keyed_capture(keyed_rows(_entries(range(5)) | _entries(range(1), "w")))
    saved = checkpoints.write(capture_of(Barrier(2, kind=SnapshotKind.SAVEPOINT, base=1, target=target), whole))
    assert storage.open(ROOT).files == files
    assert {file.path for file in saved.files()} == storage.open(target).files.keys()
    later = checkpoints.write(
        capture_of(Barrier(3, base=1), keyed_capture(keyed_rows(_entries(range(1), "w"), []), True))
    )
    assert len(later.operators[0].tables[STATE].segments) == 2
    assert restored_entries(storage, completed(3, [later])) == _entries(range(5)) | _entries(range(1), "w")
    plan = plan_restore(graph(1), completed(2, [saved], SnapshotKind.SAVEPOINT), target)
    assert entries_of(load_task(storage.open, graph(1), plan, 1, 0)) == _entries(range(5)) | _entries(range(1), "w")


def test_a_savepoint_of_changes_is_refused() -> None:
    barrier = Barrier(2, kind=SnapshotKind.SUSPEND, target="memory://tests/savepoint")
    changes = keyed_capture(keyed_rows({}, [1]), True)
    with pytest.raises(CheckpointError, match="'count' gave changes for a savepoint"):
        writer(Storage()).write(capture_of(barrier, changes))


def test_the_files_of_an_operator_go_to_its_own_storage_and_are_found_there() -> None:
    storage, overrides = Storage(), {UID: "memory://hot/state"}
    handle = Chain(storage, overrides).take(keyed_capture(keyed_rows(_entries(range(5)))))
    assert not storage.open(ROOT).files
    assert len(storage.open("memory://hot/state/job").files) == 1
    now = graph(1, overrides)
    plan = plan_failover(now, completed(1, [handle]), ROOT)
    assert entries_of(load_task(storage.open, now, plan, 1, 0)) == _entries(range(5))
    with pytest.raises(CheckpointError, match="set the storage of the operator as it was"):
        load_task(storage.open, graph(1), plan, 1, 0)


def test_a_damaged_segment_fails_the_compaction_and_is_named() -> None:
    storage = Storage()
    chain, blobs = Chain(storage), storage.open(ROOT)
    handle = chain.take(keyed_capture(keyed_rows(_entries(range(5000)))))
    [file] = handle.files()
    blobs.files[file.path] = blobs.files[file.path][:-1] + b"x"
    with pytest.raises(CheckpointCorruptError, match=file.path):
        chain.take(keyed_capture(keyed_rows(_entries(range(20_001), "w"), []), True))


def test_rows_under_way_are_written_by_exchange_and_sender() -> None:
    storage = Storage()
    rows = {"a->b#0@0": [Batch(pa.record_batch({"k": [1]}))], "a->b#0@1": []}
    handle = writer(storage).write(capture_of(Barrier(1), OperatorCapture(), in_flight=rows))
    assert [part.exchange for part in handle.in_flight] == ["a->b#0@0"]


class Native:
    """Files of a backend that have been written when they are released."""

    format = "rocksdb"
    metadata: Mapping[str, str] = {"version": "1"}

    def __init__(self, folder: Path, immutable: Mapping[str, bytes], others: Mapping[str, bytes]) -> None:
        for name, content in {**immutable, **others}.items():
            (folder / name).write_bytes(content)
        self.files = {name: folder / name for name in (*immutable, *others)}
        self.immutable = frozenset(immutable)
        self.released = 0

    def release(self) -> None:
        self.released += 1


def _native(native: Native) -> OperatorCapture:
    return OperatorCapture(native=native)


def test_immutable_files_of_a_backend_are_written_once(tmp_path: Path) -> None:
    storage = Storage()
    chain, blobs = Chain(storage), storage.open(ROOT)
    one = Native(tmp_path, {"1.sst": b"one"}, {"CURRENT": b"a", "EMPTY": b""})
    first = chain.take(_native(one))
    written = blobs.written
    two = Native(tmp_path, {"1.sst": b"one", "2.sst": b"second"}, {"CURRENT": b"b"})
    second = chain.take(_native(two))
    assert blobs.written - written == len("second") + len("b")
    before, after = first.operators[0].native, second.operators[0].native
    assert before is not None
    assert after is not None
    assert after.files["1.sst"] == before.files["1.sst"]
    assert {name: blobs.files[file.path] for name, file in after.files.items()} == {
        "1.sst": b"one",
        "2.sst": b"second",
        "CURRENT": b"b",
    }
    assert (one.released, two.released) == (1, 1)


def test_a_restored_backend_may_give_an_old_name_to_another_file(tmp_path: Path) -> None:
    storage = Storage()
    blobs = storage.open(ROOT)
    first = Chain(storage).take(_native(Native(tmp_path, {"1.sst": b"one", "2.sst": b"two"}, {})))
    plan = plan_failover(graph(1), completed(1, [first]), ROOT)
    again = writer(storage, attempt=2, plan=plan)
    second = again.write(
        capture_of(Barrier(2, base=1), _native(Native(tmp_path, {"1.sst": b"ONE", "2.sst": b"two"}, {})))
    )
    after = second.operators[0].native
    assert after is not None
    assert {name: blobs.files[file.path] for name, file in after.files.items()} == {"1.sst": b"ONE", "2.sst": b"two"}
    assert blobs.written == len("one") + len("two") + len("ONE")


def test_a_backend_is_released_when_its_files_cannot_be_written(tmp_path: Path) -> None:
    storage = Storage()
    storage.open(ROOT).fail_after = 0
    native = Native(tmp_path, {"1.sst": b"one"}, {})
    with pytest.raises(CheckpointError):
        Chain(storage).take(_native(native))
    assert native.released == 1
