"""A rescale that restarts the job: behind a checkpoint, with other subtasks."""

from __future__ import annotations

import pytest

from penstock.engine.errors import CheckpointError, ClusterError, JobError
from penstock.engine.graph.scale import Scale
from penstock.engine.job import events as ev
from penstock.engine.job import instructions as say
from penstock.engine.job.status import JobStatus
from tests.engine.job.shell import Shell, TwoTasks

ALL = ((1, 0), (1, 1), (2, 0), (2, 1))


def with_a_loop() -> Shell:
    """A job that runs, and is restarted for every rescale."""
    return Shell(TwoTasks(has_loop=True)).run()


def rescaled(shell: Shell) -> int:
    """A rescale of it for which a checkpoint was taken, and processes are being prepared."""
    request = shell.ask(ev.RescaleJob(3))
    shell.store()
    return request


def test_a_rescale_restarts_the_job_behind_a_checkpoint_with_other_subtasks() -> None:
    shell = with_a_loop()
    request = rescaled(shell)
    prepare = shell.last(say.Prepare)
    assert (prepare.layout.scale, shell.brain.status) == (Scale(3), JobStatus.RUNNING)
    shell.now += 10.0
    shell.handle(ev.Prepared(request))
    assert shell.last(say.Cancel).places == ALL
    shell.cancelled()
    deploy = shell.last(say.Deploy)
    assert (len(deploy.places), deploy.layout) == (6, prepare.layout)
    shell.now += 2.0
    shell.deployed()
    assert shell.answers(request) == [2.0]
    assert shell.brain.restarts.failures == 0


def test_a_job_that_runs_so_already_is_not_rescaled() -> None:
    shell = Shell().run()
    assert shell.answers(shell.ask(ev.RescaleJob(2))) == [0.0]
    assert not shell.count(say.Inject)


def test_a_failure_while_a_rescale_is_prepared_restarts_once_into_the_new_layout() -> None:
    shell = with_a_loop()
    request = rescaled(shell)
    shell.fail()
    shell.cancelled()
    shell.wait(1.0)
    assert shell.count(say.Deploy) == 1, "slots and processes are being changed"
    shell.handle(ev.Prepared(request))
    shell.deployed()
    assert (len(shell.last(say.Deploy).places), len(shell.answers(request))) == (6, 1)


def test_a_rescale_for_which_there_is_no_room_resumes_as_before() -> None:
    shell = with_a_loop()
    request = rescaled(shell)
    shell.handle(ev.Prepared(request))
    shell.cancelled()
    shell.handle(ev.DeployFailed(shell.last(say.Deploy).attempt, ClusterError("no room")))
    (answer,) = shell.answers(request)
    assert isinstance(answer, ClusterError)
    shell.restart()
    assert (shell.last(say.Deploy).places, shell.brain.status) == (ALL, JobStatus.RUNNING)
    # It ends when these do: those that were given up with the rescale are not waited for.
    shell.finish()
    shell.store()
    shell.commit()
    assert shell.count(say.TakeDown) == 1


@pytest.mark.parametrize("has_loop", [True, False], ids=["by a restart", "live"])
def test_a_rescale_for_which_there_is_no_room_ends_no_job_that_has_no_restarts(has_loop: bool) -> None:
    shell = Shell(TwoTasks(has_loop=has_loop), restarts=0).run()
    request = shell.ask(ev.RescaleJob(3))
    if has_loop:
        shell.store()
    shell.handle(ev.Prepared(request))
    if not has_loop:
        shell.preloaded()
        shell.store()
    shell.cancelled()
    shell.handle(ev.DeployFailed(shell.last(say.Deploy).attempt, ClusterError("no room")))
    shell.cancelled()
    shell.deployed()
    assert (shell.last(say.Deploy).places, shell.brain.status) == (ALL, JobStatus.RUNNING)
    assert [type(one) for one in shell.answers(request)] == [ClusterError]


def test_a_rescale_that_storage_delays_is_answered_once_it_has_taken_place() -> None:
    shell = with_a_loop()
    request = rescaled(shell)
    shell.handle(ev.Prepared(request))
    shell.cancelled()
    shell.handle(ev.DeployFailed(shell.last(say.Deploy).attempt, CheckpointError("the bucket is away")))
    assert not shell.answers(request)
    shell.restart()
    assert (len(shell.last(say.Deploy).places), shell.brain.status) == (6, JobStatus.RUNNING)
    assert shell.answers(request) == [pytest.approx(0.2)]


def test_a_rescale_that_cannot_be_prepared_changes_nothing() -> None:
    shell = with_a_loop()
    request = rescaled(shell)
    shell.handle(ev.PrepareFailed(request, JobError("does not fit")))
    assert (shell.brain.status, shell.count(say.Cancel)) == (JobStatus.RUNNING, 0)
    assert [str(one) for one in shell.answers(request)] == ["does not fit"]


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize("command", [ev.StopJob(), ev.DrainJob()])
def test_a_job_that_is_told_to_end_while_a_rescale_is_prepared_ends(command: ev.Command, live: bool) -> None:
    shell = Shell(TwoTasks(has_loop=not live)).run()
    request = shell.ask(ev.RescaleJob(3))
    if not live:
        shell.store()
    ended = shell.ask(command)
    shell.handle(ev.FolderChecked(ended, "memory://s"), ev.Prepared(request))
    if isinstance(command, ev.DrainJob):
        shell.finish()
    number = shell.store()
    shell.commit()
    shell.take_down()
    assert (shell.brain.status, shell.answers(ended)) == (JobStatus.FINISHED, [f"memory://{number}"])
    assert [type(one) for one in shell.answers(request)] == [JobError]
    assert not shell.count(say.Cancel)


def test_a_rescale_that_has_waited_for_a_savepoint_that_fails_goes_on() -> None:
    shell = with_a_loop()
    request = rescaled(shell)
    stop = shell.ask(ev.StopJob())
    shell.handle(ev.FolderChecked(stop, "memory://s"), ev.Prepared(request))
    shell.handle(ev.Declined(shell.last(say.Inject).barrier.checkpoint, (2, 0), "no"))
    assert [type(one) for one in shell.answers(stop)] == [CheckpointError]
    shell.cancelled()
    shell.deployed()
    assert (len(shell.last(say.Deploy).places), len(shell.answers(request))) == (6, 1)
