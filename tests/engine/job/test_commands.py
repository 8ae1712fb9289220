"""What users ask of a running job: checkpoints, savepoints, a stop, a drain, and who is answered what."""

from __future__ import annotations

import pytest

from penstock.engine.checkpointing.instructions import AbortReason
from penstock.engine.elements import SnapshotKind
from penstock.engine.errors import CheckpointError, NotRunningError, UserCodeError
from penstock.engine.job import events as ev
from penstock.engine.job import instructions as say
from penstock.engine.job.status import JobStatus
from tests.engine.job.shell import Shell


def test_a_checkpoint_that_came_too_late_to_a_subtask_is_asked_for_again() -> None:
    shell = Shell(interval_ms=0).run()
    request = shell.ask(ev.TakeCheckpoint())
    inject = shell.last(say.Inject)
    late = ev.Declined(inject.barrier.checkpoint, (1, 0), "", AbortReason.OVERTAKEN)
    shell.handle(late)
    assert shell.last(say.Inject).barrier.checkpoint == inject.barrier.checkpoint + 1
    number = shell.store()
    assert shell.answers(request) == [f"memory://{number}"]


@pytest.mark.parametrize("command", [ev.StopJob(), ev.TakeCheckpoint(), ev.TakeSavepoint("somewhere")])
def test_what_a_job_restarts_by_is_told_to_whoever_asks_for_a_checkpoint(command: ev.Command) -> None:
    shell = Shell().run()
    shell.fail(error=UserCodeError("parse", 0, "{}", "ValueError: no number", ""))
    (answer,) = shell.answers(shell.ask(command))
    assert isinstance(answer, NotRunningError)
    assert "is restarting after UserCodeError: operator 'parse', subtask 0: the user function raised" in str(answer)
    assert "ValueError: no number" in str(answer)
    assert "storage" not in answer.remedy


def test_a_savepoint_goes_to_a_folder_that_can_be_written() -> None:
    shell = Shell().run()
    request = shell.ask(ev.TakeSavepoint("somewhere"))
    assert shell.new == (say.CheckFolder(request, "somewhere"),)
    shell.handle(ev.FolderChecked(request, "file:///somewhere"))
    inject = shell.last(say.Inject)
    assert (inject.barrier.kind, inject.directory) == (SnapshotKind.SAVEPOINT, "file:///somewhere")
    number = shell.store()
    assert shell.answers(request) == [f"memory://{number}"]


def test_a_stop_is_answered_when_the_job_has_ended() -> None:
    shell = Shell().run()
    request = shell.ask(ev.StopJob())
    shell.handle(ev.FolderChecked(request, "file:///somewhere"))
    number = shell.store()
    assert not shell.answers(request)
    shell.commit()
    shell.take_down()
    assert (shell.brain.status, shell.answers(request)) == (JobStatus.FINISHED, [f"memory://{number}"])


def test_a_job_never_runs_again_behind_the_savepoint_that_stopped_it() -> None:
    shell = Shell().run()
    request = shell.ask(ev.StopJob())
    shell.handle(ev.FolderChecked(request, "file:///somewhere"))
    number = shell.acknowledge().checkpoint.checkpoint
    shell.fail()
    shell.handle(ev.Stored(number, "memory://stopped"))
    shell.restart()
    shell.take_down()
    assert (shell.brain.status, shell.count(say.Deploy)) == (JobStatus.FAILED, 1)
    (answer,) = shell.answers(request)
    assert "memory://stopped is complete" in str(answer)


def test_a_drain_ends_the_sources_and_then_the_job_with_a_savepoint() -> None:
    shell = Shell().run()
    request = shell.ask(ev.DrainJob())
    shell.handle(ev.FolderChecked(request, "file:///somewhere"))
    assert shell.last(say.EndInput) == say.EndInput()
    shell.wait(5.0)
    assert not shell.count(say.Inject), "one now would have some sources ended, and lose what the others had to read"
    shell.finish()
    assert shell.last(say.Inject).barrier.kind is SnapshotKind.SUSPEND
    number = shell.store()
    shell.commit()
    assert not shell.brain.was_drained
    shell.take_down()
    assert (shell.brain.status, shell.answers(request)) == (JobStatus.FINISHED, [f"memory://{number}"])
    assert shell.brain.was_drained


@pytest.mark.parametrize("how", ["a subtask fails", "the savepoint cannot be stored"])
def test_a_drain_that_cannot_end_with_its_savepoint_has_not_happened(how: str) -> None:
    shell = Shell().run()
    shell.wait(1.0)
    before = shell.store()
    request = shell.ask(ev.DrainJob())
    shell.handle(ev.FolderChecked(request, "file:///somewhere"))
    shell.finish()
    if how == "a subtask fails":
        shell.fail()
    else:
        number = shell.acknowledge().checkpoint.checkpoint
        shell.handle(ev.StoreFailed(number, CheckpointError("no space left")))
    (answer,) = shell.answers(request)
    assert isinstance(answer, CheckpointError)
    shell.restart()
    assert (shell.brain.status, shell.brain.attempts.restored) == (JobStatus.RUNNING, before)
    shell.wait(1.0)
    assert shell.last(say.Inject).barrier.kind is SnapshotKind.CHECKPOINT, "it takes checkpoints as before"


@pytest.mark.parametrize("counts", [True, False])
def test_a_drain_whose_savepoint_is_being_written_when_the_job_fails_is_answered_when_it_is_known_to_count(
    counts: bool,
) -> None:
    shell = Shell().run()
    request = shell.ask(ev.DrainJob())
    shell.handle(ev.FolderChecked(request, "file:///somewhere"))
    shell.finish()
    number = shell.acknowledge().checkpoint.checkpoint
    shell.fail()
    assert not shell.answers(request)
    if counts:
        shell.handle(ev.Stored(number, f"memory://{number}"))
        shell.cancelled().wait(0.2)
        shell.take_down()
        assert shell.brain.status is JobStatus.FAILED
    else:
        shell.handle(ev.StoreFailed(number, CheckpointError("no space left")))
        shell.restart()
    (answer,) = shell.answers(request)
    assert isinstance(answer, CheckpointError)
    assert ("start it again from that savepoint" in str(answer)) == counts
    assert ("resumes from before that" in str(answer)) != counts


@pytest.mark.parametrize("command", [ev.TakeCheckpoint(), ev.TakeSavepoint(), ev.StopJob(), ev.DrainJob()])
def test_nothing_is_taken_while_the_job_comes_to_its_end(command: ev.Command) -> None:
    shell = Shell().run()
    shell.finish()
    (answer,) = shell.answers(shell.ask(command))
    assert "is coming to its end" in str(answer)


@pytest.mark.parametrize("command", [ev.TakeCheckpoint(), ev.StopJob(), ev.RescaleJob(3)])
def test_a_job_without_storage_says_so(command: ev.Command) -> None:
    shell = Shell(storage=False, interval_ms=0).run()
    (answer,) = shell.answers(shell.ask(command))
    assert "has no checkpoint storage" in str(answer)


def test_a_job_that_has_ended_says_that_and_not_what_it_lacked() -> None:
    shell = Shell(storage=False, interval_ms=0).run()
    shell.ask(ev.CancelJob())
    (answer,) = shell.answers(shell.ask(ev.StopJob()))
    assert "has ended: it is cancel" in str(answer)


def test_who_waits_when_the_job_ends_is_told_exactly_once() -> None:
    shell = Shell().run()
    requests = [shell.ask(one) for one in (ev.TakeCheckpoint(), ev.TakeSavepoint(), ev.RescaleJob(3), ev.CancelJob())]
    shell.take_down()
    shell.handle(ev.FolderChecked(requests[1], "file:///somewhere"))
    assert [len(shell.answers(request)) for request in requests] == [1, 1, 1, 1]
