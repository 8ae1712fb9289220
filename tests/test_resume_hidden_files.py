"""What a run had prepared and nobody commits is removed by the run that takes its place, and nothing else is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import FileSink
from penstock.engine.connectors import ConnectorContext
from penstock.engine.errors import CheckpointError
from penstock.engine.job.handle import JobHandle
from penstock.engine.operators.sink import TransactionalSinkOperator
from penstock.savepoints.runs import replaced_by_resuming, state_to_resume
from penstock.savepoints.store import FolderJobStore
from tests.test_resume import ROWS, run_for_a_while, submit, written

ALL = list(range(ROWS))


def hidden(folder: Path) -> set[str]:
    return {path.name for path in (folder / "out").glob(".part-*")}


@contextlib.contextmanager
def failing_checkpoints() -> Iterator[None]:
    """No checkpoint is complete meanwhile."""

    def fails(*_: Any) -> None:
        raise CheckpointError("the disk is gone")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FolderJobStore, "complete", fails)
        yield


def prepare_without_commit(job: JobHandle, folder: Path) -> None:
    """Take checkpoints that are never complete, until sinks have prepared rows."""
    with failing_checkpoints():
        before = hidden(folder)
        # What is being written still goes with its writer.
        while not any(name.endswith(".prepared") for name in hidden(folder) - before):
            job.pump(0.05)


def leave_files(folder: Path, **arguments: Any) -> set[str]:
    """A run is suspended, and leaves prepared files that its checkpoint does not have; their names."""
    before = hidden(folder) if (folder / "out").exists() else set()
    job = submit(folder, **arguments)
    run_for_a_while(job)
    # A checkpoint that is complete before the run stands still would have them.
    with failing_checkpoints():
        prepare_without_commit(job, folder)
        job.suspend()
    left = hidden(folder) - before
    assert left
    return left


def newest_checkpoint(folder: Path) -> str:
    (newest,) = (folder / "checkpoints").glob("*/chk-*/manifest.json")
    return str(newest.parent)


def test_a_run_removes_what_the_one_had_prepared_that_it_resumes(tmp_path: Path) -> None:
    left = leave_files(tmp_path)
    again = submit(tmp_path, resume="latest")
    assert hidden(tmp_path) >= left, "nothing is removed before the run has a checkpoint"
    again.wait()
    assert (hidden(tmp_path), written(tmp_path)) == (set(), ALL)


def test_so_does_one_that_ends_before_its_first_checkpoint_is_due(tmp_path: Path) -> None:
    leave_files(tmp_path)
    submit(tmp_path, interval="5m", resume="if-any").wait()
    assert (hidden(tmp_path), written(tmp_path)) == (set(), ALL)


def test_so_does_one_that_resumes_a_run_that_was_killed_and_wrote_nothing_down_of_its_end(tmp_path: Path) -> None:
    killed = submit(tmp_path)
    run_for_a_while(killed)
    prepare_without_commit(killed, tmp_path)
    (tmp_path / "out" / sorted(hidden(tmp_path))[0].replace(".prepared", "9.inprogress")).touch()
    submit(tmp_path, interval="5m", resume="if-any").wait()
    assert (hidden(tmp_path), written(tmp_path)) == (set(), ALL)
    # Nothing of it is left to be noticed, but its files are open in this process.
    killed.cancel()


def test_so_does_one_that_is_started_from_the_last_checkpoint_of_a_run_that_is_over(tmp_path: Path) -> None:
    leave_files(tmp_path)
    submit(tmp_path, "anew", savepoint=newest_checkpoint(tmp_path)).wait()
    assert (hidden(tmp_path), written(tmp_path)) == (set(), ALL)


def test_runs_that_took_no_checkpoint_leave_it_to_the_next(tmp_path: Path) -> None:
    leave_files(tmp_path)
    second = submit(tmp_path, resume="latest")
    with failing_checkpoints():
        prepare_without_commit(second, tmp_path)
        second.suspend()
    assert len({name.split(".")[2] for name in hidden(tmp_path)}) == 2
    submit(tmp_path, resume="latest").wait()
    assert (hidden(tmp_path), written(tmp_path)) == (set(), ALL)


def test_so_does_one_that_is_suspended_between_its_first_checkpoint_and_the_removal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = leave_files(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(TransactionalSinkOperator, "on_checkpoint_complete", lambda *_: None)
        second = submit(tmp_path, resume="latest")
        run_for_a_while(second)
        second.suspend()
    assert hidden(tmp_path) >= left
    submit(tmp_path, resume="latest").wait()
    assert (hidden(tmp_path), written(tmp_path)) == (set(), ALL)


def test_what_an_older_savepoint_holds_stays_and_it_can_be_started_from(tmp_path: Path) -> None:
    # However fast the machine is, they do not end before a savepoint has found some on their way.
    rows = 10 * ROWS
    first = submit(tmp_path, rows=rows, interval="5m")
    run_for_a_while(first)
    while not hidden(tmp_path):
        first.pump(0.02)
        savepoint = first.savepoint()
    first.suspend()
    held = hidden(tmp_path)
    assert held, "the job has not run on to a checkpoint that commits them"
    submit(tmp_path, rows=rows, resume="latest").wait()
    assert (hidden(tmp_path), written(tmp_path)) == (held, list(range(rows)))
    submit(tmp_path, rows=rows, savepoint=savepoint).wait()
    assert hidden(tmp_path) == set()
    assert sorted(set(written(tmp_path))) == list(range(rows))


def test_what_is_prepared_of_a_checkpoint_that_the_run_began_with_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def is_down(_: FileSink, *committables: object) -> None:
        asked.append(committables)
        raise OSError("the share is gone")

    first = submit(tmp_path)
    run_for_a_while(first)
    with monkeypatch.context() as patch:
        patch.setattr(FileSink, "commit", is_down)
        while not asked:
            first.pump(0.05)
    first.suspend()
    assert hidden(tmp_path)
    submit(tmp_path, resume="latest").wait()
    assert (hidden(tmp_path), written(tmp_path)) == (set(), ALL)


def test_files_of_another_job_in_the_folder_stay(tmp_path: Path) -> None:
    others = leave_files(tmp_path, name="payments")
    leave_files(tmp_path)
    submit(tmp_path, resume="latest").wait()
    assert hidden(tmp_path) == others
    submit(tmp_path, "payments", resume="latest").wait()
    assert hidden(tmp_path) == set()
    assert written(tmp_path) == sorted([*ALL, *ALL])


def test_files_of_a_run_that_lives_stay(tmp_path: Path) -> None:
    living = submit(tmp_path)
    run_for_a_while(living)
    prepare_without_commit(living, tmp_path)
    prepared = hidden(tmp_path)
    submit(tmp_path, "copy", savepoint=newest_checkpoint(tmp_path)).wait()
    assert hidden(tmp_path) >= prepared != set()
    living.wait()
    assert sorted(set(written(tmp_path))) == ALL


def test_of_two_runs_that_resume_a_job_at_once_none_replaces_the_other(tmp_path: Path) -> None:
    """The other one has begun behind the look at what there is to resume."""
    root = str(tmp_path / "checkpoints")
    living = submit(tmp_path)
    run_for_a_while(living)
    for begun_with in (None, state_to_resume("orders", root)):
        assert replaced_by_resuming("orders", begun_with, root) == ()
    living.suspend()
    assert replaced_by_resuming("orders", None, root) == ()
    assert len(replaced_by_resuming("orders", state_to_resume("orders", root), root)) == 1


def test_files_stay_where_the_run_is_not_gone_on_from_its_end(tmp_path: Path) -> None:
    left = leave_files(tmp_path, retained=2)
    older, newest = sorted(map(str, (tmp_path / "checkpoints").glob("*/chk-*/manifest.json")))
    submit(tmp_path, "anew", savepoint=older).wait()
    assert hidden(tmp_path) == left
    submit(tmp_path, "anew again", savepoint=newest).wait()
    assert hidden(tmp_path) == set()


def test_what_cannot_be_removed_is_said_and_the_job_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuses(sink: FileSink, context: ConnectorContext) -> None:
        raise PermissionError("not yours")

    leave_files(tmp_path)
    monkeypatch.setattr(FileSink, "discard", refuses)
    submit(tmp_path, resume="latest").wait()
    assert written(tmp_path) == ALL
    assert "what an earlier run of the job had prepared could not be removed, and takes room: not yours" in caplog.text
