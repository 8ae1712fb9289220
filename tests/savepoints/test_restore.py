"""What a program may be restored from, what it is told where it may not, and what each of its subtasks then holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.engine.checkpointing.handles import (
    CompletedCheckpoint,
    NativeHandle,
    OperatorHandle,
    SubtaskHandle,
    TableHandle,
)
from penstock.engine.checkpointing.restored import RestoredTask
from penstock.engine.checkpointing.store import RestorePlan
from penstock.engine.config import JobConfig
from penstock.engine.elements import Barrier, Batch, SnapshotKind
from penstock.engine.errors import CheckpointCorruptError, CheckpointError, RestoreError
from penstock.engine.graph.physical import PhysicalGraph
from penstock.engine.state.capture import OperatorCapture, complete_table
from penstock.engine.state.snapshot import OperatorSnapshot, Redistribution, StateTable, by_group, rows_of_groups
from penstock.savepoints import restore
from penstock.savepoints.content import digest_of
from penstock.savepoints.restore import NonRestoredState, load_task, plan_failover, plan_restore, url_of
from penstock.savepoints.segments import write_file
from tests.savepoints.subtasks import (
    GROUPS,
    PATHS,
    ROOT,
    STATE,
    Blobs,
    Storage,
    capture_of,
    completed,
    entries_of,
    graph_of,
    keyed_capture,
    keyed_rows,
    owner,
    task,
    writer,
)


def _subtask(
    number: int, subtask: int, parallelism: int, uids: tuple[str, ...], finished: bool = False
) -> SubtaskHandle:
    state = {STATE: TableHandle(Redistribution.KEYED, (), ())}
    operators = tuple(OperatorHandle(uid, f"the {uid}", state) for uid in uids)
    return SubtaskHandle(number, subtask, parallelism, operators, finished=finished)


def test_what_a_job_begins_with_is_told_by_the_folder_that_one_can_start_from_again() -> None:
    def told(kind: SnapshotKind) -> str:
        return url_of(RestorePlan(ROOT, completed(3, [], kind), failover=False))

    assert told(SnapshotKind.CHECKPOINT) == f"{ROOT}/chk-00000003"
    assert told(SnapshotKind.SAVEPOINT) == told(SnapshotKind.SUSPEND) == ROOT


def _load(
    graph: PhysicalGraph, checkpoint: CompletedCheckpoint, storage: Storage, place: tuple[int, int]
) -> RestoredTask:
    return load_task(storage.open, graph, plan_failover(graph, checkpoint, ROOT), *place)


def test_a_failover_of_the_same_subtasks_lets_writers_go_on() -> None:
    checkpoint = completed(3, [_subtask(1, subtask, 2, ("count",)) for subtask in range(2)])
    same = graph_of(task(1, 2, ["count"]))
    assert plan_failover(same, checkpoint, ROOT).failover
    assert _load(same, checkpoint, Storage(), (1, 0)).tracked
    other = graph_of(task(1, 3, ["count"]))
    assert not plan_failover(other, checkpoint, ROOT).failover
    assert not _load(other, checkpoint, Storage(), (1, 0)).tracked
    assert not plan_restore(same, checkpoint, ROOT).failover


def test_another_number_of_key_groups_is_refused_with_the_reason() -> None:
    graph = graph_of(task(1, 1, ["count"]), config=JobConfig(max_parallelism=2 * GROUPS))
    for plan in (plan_failover, plan_restore):
        with pytest.raises(RestoreError, match=r"max_parallelism 16, and the program 32: .* set max_parallelism=16"):
            plan(graph, completed(3, []), ROOT)


def test_state_without_its_operator_is_refused_or_dropped_as_the_user_says() -> None:
    graph = graph_of(task(1, 1, ["counts", "other"]))
    checkpoint = completed(3, [_subtask(1, 0, 1, ("count", "other"))], SnapshotKind.SAVEPOINT)
    with pytest.raises(RestoreError) as caught:
        plan_restore(graph, checkpoint, "file:///saved")
    assert "savepoint 3 of job 'job' in file:///saved" in str(caught.value)
    assert "'count' (operator 'the count') (did you mean 'counts'?)" in str(caught.value)
    assert "the uids 'counts', 'other'" in " ".join(str(caught.value).split())
    plan = plan_restore(graph, checkpoint, ROOT, NonRestoredState.DROPPED)
    assert list(plan.drop_operators) == ["count"]


def test_an_operator_that_had_no_state_may_go_and_a_new_one_starts_fresh() -> None:
    gone = replace(_subtask(1, 0, 1, ("count",)), operators=(OperatorHandle("filter", "filter"),))
    plan = plan_restore(graph_of(task(1, 1, ["new"])), completed(3, [gone]), ROOT)
    assert not plan.drop_operators
    assert load_task(Storage().open, graph_of(task(1, 1, ["new"])), plan, 1, 0) == RestoredTask()


def test_a_subtask_may_get_rows_from_others_after_a_rescale_so_it_ends_only_with_all_before_it() -> None:
    ended = [_subtask(2, subtask, 2, ("b",), finished=True) for subtask in range(2)]
    for source_ended in (True, False):
        checkpoint = completed(3, [_subtask(1, 0, 1, ("a",), source_ended), *ended])
        loop = [("b->a#-1", 1)]
        rescaled = graph_of(task(1, 1, ["a"], [("a->b#0", 2)]), task(2, 3, ["b"], loop))
        assert _load(rescaled, checkpoint, Storage(), (2, 0)).finished == source_ended
        same = graph_of(task(1, 1, ["a"], [("a->b#0", 2)]), task(2, 2, ["b"], loop))
        assert _load(same, checkpoint, Storage(), (2, 0)).finished


def _batch(number: int) -> Batch:
    return Batch(pa.record_batch({"k": [number]}), pa.array([number]))


def _under_way(storage: Storage, rows: Mapping[str, list[int]], number: int, subtask: int = 0) -> SubtaskHandle:
    batches = {key: [_batch(value) for value in values] for key, values in rows.items()}
    taken = capture_of(Barrier(3), OperatorCapture(), subtask, 2, batches)
    return replace(writer(storage, 2, subtask).write(taken), task=number, operators=())


def test_rows_under_way_are_sent_again_by_their_sender_arrived_ones_first() -> None:
    storage = Storage()
    sent = _under_way(storage, {"a->b#0@1": [3], "a->x#0@1": [9]}, 1, 1)
    arrived = _under_way(storage, {"a->b#0@0": [1], "a->b#0@1": [2]}, 2)
    checkpoint = completed(3, [sent, arrived])
    outputs = [("a->b#0", 2), ("a->x#0", 2)]
    for parallelism, expected in ((1, [[1, 2, 3]]), (2, [[1], [2, 3]]), (3, [[1], [2, 3], []])):
        graph = graph_of(task(1, parallelism, ["a"], outputs), task(2, 2, ["b"]))
        for subtask, values in enumerate(expected):
            rows = _load(graph, checkpoint, storage, (1, subtask)).in_flight.get("a->b#0", [])
            assert [batch.data.column("k")[0].as_py() for batch in rows] == values
            assert all(batch.timestamps is not None for batch in rows)
        assert not _load(graph, checkpoint, storage, (2, 0)).in_flight


def test_rows_under_way_to_nowhere_are_refused() -> None:
    checkpoint = completed(3, [_under_way(Storage(), {"a->b#0@0": [1]}, 1)])
    for policy in NonRestoredState:
        with pytest.raises(RestoreError, match=r"exchanges which the program does not have: 'a->b#0'; .* savepoint"):
            plan_restore(graph_of(task(1, 1, ["a"])), checkpoint, ROOT, policy)


@pytest.mark.parametrize(
    ("finished", "parallelism", "expected"),
    [
        ((True, False), 2, [True, False]),
        ((True, False), 1, [False]),
        ((True, True), 1, [True]),
        ((True, True), 3, [True, True, True]),
    ],
)
def test_what_had_finished_does_nothing_twice(
    finished: tuple[bool, ...], parallelism: int, expected: list[bool]
) -> None:
    handles = [_subtask(1, subtask, 2, ("a", "b"), ended) for subtask, ended in enumerate(finished)]
    graph = graph_of(task(1, parallelism, ["a", "b"]))
    found = [_load(graph, completed(3, handles), Storage(), (1, subtask)).finished for subtask in range(parallelism)]
    assert found == expected
    with_new = graph_of(task(1, parallelism, ["a", "b", "new"]))
    assert not _load(with_new, completed(3, handles), Storage(), (1, 0)).finished


def _written(storage: Storage, ways: Mapping[str, Redistribution], parallelism: int = 2) -> CompletedCheckpoint:
    """A checkpoint in which subtask i has one row with the value i in each of the states."""
    handles = []
    for subtask in range(parallelism):
        rows = StateTable(Redistribution.KEYED, pa.table({"value": [subtask]}))
        tables = {name: complete_table(replace(rows, redistribution=way)) for name, way in ways.items()}
        taken = capture_of(Barrier(3), OperatorCapture(tables, watermark=100 + subtask), subtask, parallelism)
        handles.append(writer(storage, parallelism, subtask).write(taken))
    return completed(3, handles)


def _values(snapshot: OperatorSnapshot, name: str) -> list[int]:
    return snapshot.tables[name].data.column("value").to_pylist() if name in snapshot.tables else []


def test_state_without_keys_is_shared_out_as_it_says_and_read_no_more_than_needed() -> None:
    storage = Storage()
    ways = {way.value: way for way in Redistribution if way is not Redistribution.KEYED}
    checkpoint = _written(storage, ways, 3)
    graph = graph_of(task(1, 2, ["count"]))
    shares = [_load(graph, checkpoint, storage, (1, subtask)).operators["count"] for subtask in range(2)]
    assert [_values(share, "split") for share in shares] == [[0], [1, 2]]
    assert [_values(share, "union") for share in shares] == [[0, 1, 2]] * 2
    assert [_values(share, "whole") for share in shares] == [[0, 2], [1]]
    assert [_values(share, "broadcast") for share in shares] == [[0], [1]]
    assert [share.watermark for share in shares] == [100, 100]
    last = checkpoint.subtasks[2].operators[0].tables["broadcast"].segments[0].file
    del storage.open(ROOT).files[last.path]
    assert _load(graph, checkpoint, storage, (1, 1)).operators["count"] == shares[1]


def test_keyed_state_moves_with_its_operator_into_another_chain() -> None:
    storage = Storage()
    entries = dict.fromkeys(range(20), ("v", 0))
    handle = writer(storage).write(capture_of(Barrier(3), keyed_capture(keyed_rows(entries))))
    graph = graph_of(task(1, 1, ["source"]), task(2, 3, ["map", "count"]))
    checkpoint = completed(3, [handle])
    for subtask in range(3):
        data = _load(graph, checkpoint, storage, (2, subtask)).operators["count"].tables[STATE].data
        assert sorted(data.column("k").to_pylist()) == [key for key in entries if owner(key, 3) == subtask]
    assert _load(graph, checkpoint, storage, (1, 0)).operators == {}


def test_only_segments_with_key_groups_of_the_subtask_are_read() -> None:
    storage, reads = Storage(), []

    class Counted(Blobs):
        def get(self, path: str) -> pa.Buffer:
            reads.append(path)
            return super().get(path)

    storage.folders[ROOT] = Counted()
    handles = []
    for subtask in range(4):
        own = {key: ("v", 0) for key in range(40) if owner(key, 4) == subtask}
        taken = capture_of(Barrier(3), keyed_capture(keyed_rows(own)), subtask, 4)
        handles.append(writer(storage, 4, subtask).write(taken))
    for parallelism, expected in ((2, 2), (4, 1), (8, 1), (1, 4)):
        reads.clear()
        _load(graph_of(task(1, parallelism, ["count"])), completed(3, handles), storage, (1, 0))
        assert len(reads) == expected


def test_of_a_file_that_several_subtasks_refer_to_each_has_its_own_rows() -> None:
    storage = Storage()
    entries = dict.fromkeys(range(20), ("v", 0))
    handle = writer(storage).write(capture_of(Barrier(3), keyed_capture(keyed_rows(entries))))
    checkpoint = completed(3, [replace(handle, subtask=subtask, parallelism=2) for subtask in range(2)])
    assert entries_of(_load(graph_of(task(1, 1, ["count"])), checkpoint, storage, (1, 0))) == entries


def test_a_missing_or_changed_file_is_named() -> None:
    storage = Storage()
    handle = writer(storage).write(capture_of(Barrier(3), keyed_capture(keyed_rows({1: ("v", 0)}))))
    [file] = handle.files()
    graph, files = graph_of(task(1, 1, ["count"])), storage.open(ROOT).files
    content = files[file.path]
    for broken in (content[:-1], content[:-1] + b"x", None):
        files[file.path] = broken or b""
        if broken is None:
            del files[file.path]
        with pytest.raises(CheckpointCorruptError, match=file.path):
            _load(graph, completed(3, [handle]), storage, (1, 0))


def _native(storage: Storage, format_name: str, file_name: str = "1.sst") -> CompletedCheckpoint:
    """Two subtasks with one file each, which holds their keys."""
    handles, blobs = [], storage.open(ROOT)
    for subtask in range(2):
        data = " ".join(str(key) for key in range(20) if owner(key, 2) == subtask).encode()
        file = write_file(blobs, PATHS.shared(digest_of(data), 3, 1, 1, subtask, 0), data)
        native = NativeHandle(format_name, {file_name: file}, {"value": "v"})
        handles.append(SubtaskHandle(1, subtask, 2, (OperatorHandle("count", "the count", native=native),)))
    return completed(3, handles)


def _read_native(folder: Path, metadata: Mapping[str, str], groups: range) -> Mapping[str, StateTable]:
    keys = [int(key) for key in (folder / "1.sst").read_text().split()]
    rows = keyed_rows(dict.fromkeys(keys, (metadata["value"], 0)))
    return {STATE: StateTable(Redistribution.KEYED, by_group(rows_of_groups(rows, groups)))}


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_the_files_of_a_backend_become_tables_of_the_subtask(
    parallelism: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore, "_NATIVE_READERS", {"test": _read_native})
    storage, directory = Storage(), tmp_path / "state"
    config = JobConfig(max_parallelism=GROUPS, state_directory=str(directory))
    graph = graph_of(task(1, parallelism, ["count"]), config=config)
    checkpoint = _native(storage, "test")
    for subtask in range(parallelism):
        expected = {key: ("v", 0) for key in range(20) if owner(key, parallelism) == subtask}
        assert entries_of(_load(graph, checkpoint, storage, (1, subtask))) == expected
    assert list(directory.iterdir()) == []


def test_a_state_that_is_in_a_table_and_in_the_files_of_a_backend_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore, "_NATIVE_READERS", {"test": _read_native})
    storage = Storage()
    tables = writer(storage).write(capture_of(Barrier(3), keyed_capture(keyed_rows({1: ("new", 0)}))))
    subtasks = [
        replace(one, operators=(replace(one.operators[0], tables=tables.operators[0].tables),))
        for one in _native(storage, "test").subtasks
    ]
    with pytest.raises(RestoreError, match=f"'count'.*'{STATE}'.*change a savepoint of the job"):
        _load(graph_of(task(1, 1, ["count"])), completed(3, subtasks), storage, (1, 0))


def test_files_of_an_unknown_backend_or_outside_of_their_folder_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore, "_NATIVE_READERS", {"test": _read_native})
    graph = graph_of(task(1, 2, ["count"]))
    for format_name, file_name, message in (("other", "1.sst", "format 'other'"), ("test", "../1.sst", "1.sst")):
        storage = Storage()
        with pytest.raises(CheckpointError, match=message):
            _load(graph, _native(storage, format_name, file_name), storage, (1, 0))
