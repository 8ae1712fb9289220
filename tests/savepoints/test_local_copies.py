"""Copies of a subtask's files: a survivor is restored without the storage, and never from a copy that has suffered."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.engine.checkpoint_config import FailoverConfig
from penstock.engine.checkpointing.handles import CompletedCheckpoint
from penstock.engine.checkpointing.task_capture import TaskCapture
from penstock.engine.elements import Barrier
from penstock.engine.graph.physical import PhysicalGraph
from penstock.engine.state.capture import OperatorCapture, TableCapture
from penstock.engine.state.snapshot import Redistribution
from penstock.savepoints.local_copies import remove_stale
from penstock.savepoints.store import FolderJobStore
from tests.savepoints.subtasks import STATE, UID, Storage, completed, graph, keyed_rows


def _job(tmp_path: Path) -> PhysicalGraph:
    job = graph(1)
    config = replace(job.config, failover=FailoverConfig(local_recovery=True), state_directory=str(tmp_path))
    return replace(job, config=config)


def _checkpoints(store: FolderJobStore, job: PhysicalGraph, values: list[str]) -> CompletedCheckpoint:
    """The last of as many checkpoints as there are values, each of which has replaced all of the state."""
    writer = store.writer(job, 1, 0, 1, None)
    taken = completed(0, [])
    for number, value in enumerate(values, start=1):
        rows = keyed_rows(dict.fromkeys(range(8), (value, 0)))
        state = TableCapture(Redistribution.KEYED, lambda rows=rows: rows, ("k",))
        capture = OperatorCapture({STATE: state})
        handle = writer.write(TaskCapture(Barrier(number, base=number - 1), 1, 0, 1, [(UID, UID, capture)]))
        taken = completed(number, [handle])
    return taken


def _restored(store: FolderJobStore, job: PhysicalGraph, checkpoint: CompletedCheckpoint) -> list[str]:
    restored = store.load(job, store.plan(job, checkpoint), 1, 0)
    values: list[str] = restored.operators[UID].tables[STATE].data.column("value").to_pylist()
    return values


def test_a_survivor_reads_its_own_copies_and_keeps_no_more_than_it_needs(tmp_path: Path) -> None:
    storage, job = Storage(), _job(tmp_path)
    store = FolderJobStore("memory://tests", "job", "job", open_blobs=storage.open)
    newest = _checkpoints(store, job, ["a", "b", "c", "d"])
    files = storage.folders["memory://tests/job"].files
    copies = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(copies) == 2 < len(files) == 4
    files.clear()
    assert _restored(store, job, newest) == ["d"] * 8


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"else")])
def test_without_its_copies_it_reads_from_the_storage(tmp_path: Path, damage: object) -> None:
    store, job = FolderJobStore("memory://tests", "job", "job", open_blobs=Storage().open), _job(tmp_path)
    newest = _checkpoints(store, job, ["a"])
    for path in tmp_path.rglob("*.arrow"):
        assert callable(damage)
        damage(path)
    assert _restored(store, job, newest) == ["a"] * 8


def test_a_disk_that_takes_no_copies_fails_no_checkpoint(tmp_path: Path) -> None:
    job = _job(tmp_path)
    (tmp_path / "penstock-local").write_text("no folder")
    store = FolderJobStore("memory://tests", "job", "job", open_blobs=Storage().open)
    assert _restored(store, job, _checkpoints(store, job, ["a"])) == ["a"] * 8


def test_copies_of_jobs_that_ended_long_ago_are_removed(tmp_path: Path) -> None:
    for name, age in (("old", 1e6), ("new", 0.0), ("own", 1e6)):
        folder = tmp_path / name / "1-0"
        folder.mkdir(parents=True)
        for path in (folder, folder.parent):
            os.utime(path, (path.stat().st_mtime - age,) * 2)
    remove_stale(tmp_path / "own")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "own"]
