"""Too little room: a job that may restarts with fewer subtasks, and gets the others back once there is room."""

from __future__ import annotations

import pytest

from penstock.engine.checkpointing.store import Claim
from penstock.engine.errors import ClusterError, JobError, NoRoomError
from penstock.engine.graph.scale import Scale
from penstock.engine.job import events as ev
from penstock.engine.job import instructions as say
from penstock.engine.job.replay import replay
from penstock.engine.job.status import JobStatus
from tests.engine.job.shell import Shell

NO_ROOM = NoRoomError("no room for 2 slots", 1)
SMALL = [(1, 0), (2, 0)]


def short(shell: Shell, room: int | None = 1) -> Shell:
    """A job that has run fails, and there is room for fewer slots than its two."""
    shell.run()
    shell.wait(1.0)
    shell.store()
    shell.fail()
    shell.cancelled()
    shell.wait(0.2)
    shell.handle(ev.DeployFailed(shell.last(say.Deploy).attempt, NO_ROOM, room))
    return shell


def runs_small() -> Shell:
    """That job, with one subtask of each operator."""
    shell = short(Shell(min_parallelism=1))
    shell.cancelled()
    shell.wait(0.2)
    return shell.deployed()


def test_a_job_restarts_with_as_many_subtasks_as_there_is_room_for() -> None:
    shell = runs_small()
    deploy = shell.last(say.Deploy)
    assert (list(deploy.places), shell.brain.status) == (SMALL, JobStatus.RUNNING)
    assert deploy.checkpoint is not None
    assert "with at most 1 subtasks of each operator instead of 2" in shell.last(say.Warn).message


def test_it_waits_for_room_beside_that_and_grows_back_behind_a_checkpoint() -> None:
    shell = runs_small()
    assert shell.last(say.AwaitRoom).layout.scale == Scale()
    shell.handle(ev.RoomFound())
    shell.handle(ev.Prepared(shell.last(say.Prepare).request))
    shell.preloaded()
    shell.store()
    shell.cancelled()
    shell.deployed()
    deploy = shell.last(say.Deploy)
    assert (len(deploy.places), deploy.layout.scale, shell.brain.status) == (4, Scale(), JobStatus.RUNNING)
    assert shell.count(say.AwaitRoom) == 1
    assert shell.brain.restarts.to_dicts()[-1]["cause"] == "rescale to 2, all at a checkpoint"


@pytest.mark.parametrize(
    ("least", "room"), [(None, 1), (2, 1), (1, 0), (1, None), (1, 2)], ids=["off", "too few", "none", "unknown", "all"]
)
def test_it_waits_for_room_where_it_may_not_be_smaller(least: int | None, room: int | None) -> None:
    shell = short(Shell(min_parallelism=least), room)
    shell.cancelled()
    shell.wait(0.2)
    shell.deployed()
    assert (len(shell.last(say.Deploy).places), shell.count(say.AwaitRoom)) == (4, 0)


def test_without_storage_it_is_not_begun_from_its_beginning_with_fewer() -> None:
    shell = Shell(min_parallelism=1, storage=False).run()
    shell.fail()
    shell.cancelled()
    shell.wait(0.2)
    shell.handle(ev.DeployFailed(shell.last(say.Deploy).attempt, NO_ROOM, 1))
    shell.cancelled()
    shell.wait(0.2)
    assert len(shell.last(say.Deploy).places) == 4


@pytest.mark.parametrize("error", [JobError("processes do not start"), ClusterError("no room any more")])
def test_room_that_is_gone_when_it_is_needed_is_waited_for_again(error: JobError) -> None:
    shell = runs_small()
    shell.handle(ev.RoomFound())
    shell.store()
    shell.handle(ev.PrepareFailed(shell.last(say.Prepare).request, error))
    assert (shell.count(say.AwaitRoom), shell.count(say.Cancel), shell.brain.status) == (2, 2, JobStatus.RUNNING)


def test_a_failure_while_it_is_smaller_restarts_it_so_and_waits_for_room_anew() -> None:
    shell = runs_small()
    shell.fail((2, 0))
    shell.handle(ev.RoomFound())
    assert not shell.count(say.Prepare)
    shell.restart()
    assert (list(shell.last(say.Deploy).places), shell.count(say.AwaitRoom)) == (SMALL, 2)


def test_who_rescales_it_meanwhile_has_the_last_word() -> None:
    shell = runs_small()
    shell.ask(ev.RescaleJob(3))
    shell.handle(ev.RoomFound())
    shell.handle(ev.Prepared(shell.last(say.Prepare).request))
    shell.preloaded()
    shell.store()
    shell.cancelled()
    shell.deployed()
    shell.handle(ev.RoomFound())
    assert (shell.last(say.Deploy).layout.scale, shell.count(say.Prepare)) == (Scale(3), 1)


def test_who_asks_for_what_it_has_gets_that_for_good() -> None:
    shell = runs_small()
    assert shell.answers(shell.ask(ev.RescaleJob(1))) == [0.0]
    shell.handle(ev.RoomFound())
    assert not shell.count(say.Prepare)
    shell.fail((2, 0))
    shell.restart()
    assert (list(shell.last(say.Deploy).places), shell.count(say.AwaitRoom)) == (SMALL, 2)
    assert list(shell.last(say.AwaitRoom).layout.places) == SMALL, "what is there already, and no more"


def test_whoever_takes_it_over_lets_it_have_that_as_well() -> None:
    before = runs_small()
    before.ask(ev.RescaleJob(1))
    before.wait(1.0)
    wanted = before.acknowledge().checkpoint
    shell = Shell(min_parallelism=1).run(Claim(2, wanted.checkpoint + 1, (wanted,)))
    assert (list(shell.last(say.Deploy).places), shell.count(say.AwaitRoom)) == (SMALL, 0)


def test_a_job_that_is_drained_stays_small() -> None:
    shell = runs_small()
    request = shell.ask(ev.DrainJob())
    shell.handle(ev.FolderChecked(request, "memory://s"), ev.RoomFound())
    assert not shell.count(say.Prepare)


def test_who_takes_it_over_waits_for_room_as_well() -> None:
    before = runs_small()
    before.wait(1.0)
    smaller = before.acknowledge().checkpoint
    shell = Shell(min_parallelism=1).run(Claim(2, smaller.checkpoint + 1, (smaller,)))
    assert list(shell.last(say.Deploy).places) == SMALL
    assert shell.last(say.AwaitRoom).layout.scale == Scale()
    shell.handle(ev.RoomFound())
    shell.handle(ev.Prepared(shell.last(say.Prepare).request))
    shell.preloaded()
    shell.store()
    shell.cancelled()
    shell.deployed()
    shell.wait(1.0)
    assert (len(shell.last(say.Deploy).places), shell.acknowledge().checkpoint.scale) == (4, None)


def test_its_log_tells_the_same_when_it_is_replayed() -> None:
    shell = runs_small()
    shell.handle(ev.RoomFound())
    shell.handle(ev.Prepared(shell.last(say.Prepare).request))
    shell.preloaded()
    shell.store()
    steps = list(replay([(0, shell.log.text().splitlines())]))
    assert steps
    assert not [step.difference for step in steps if step.difference]
