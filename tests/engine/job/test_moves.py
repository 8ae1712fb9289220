"""Nodes that are about to leave: their subtasks move to other processes at a checkpoint, and nothing is a failure."""

from __future__ import annotations

import pytest

from penstock.engine.checkpointing.handles import SubtaskHandle
from penstock.engine.errors import ClusterError
from penstock.engine.job import events as ev
from penstock.engine.job import instructions as say
from penstock.engine.job.replay import replay
from penstock.engine.job.status import JobStatus
from tests.engine.job.shell import Shell, TwoTasks

SLOT = ((1, 1), (2, 1))
ALL = ((1, 0), (1, 1), (2, 0), (2, 1))


def leaving(shell: Shell, places: tuple[tuple[int, int], ...] = SLOT) -> Shell:
    """The nodes of these subtasks are about to leave."""
    shell.handle(ev.Leaving(places))
    return shell


def prepared(shell: Shell, is_live: bool = True) -> Shell:
    shell.handle(ev.Prepared(shell.last(say.Prepare).request))
    return shell.preloaded() if is_live else shell


def history(shell: Shell) -> list[tuple[str, str]]:
    return [(restart.kind.value, restart.cause) for restart in shell.brain.restarts.kept]


def test_subtasks_move_behind_a_fresh_checkpoint_and_the_job_counts_no_restart() -> None:
    shell = leaving(Shell().run())
    prepare = shell.last(say.Prepare)
    assert (prepare.moved, prepare.layout) == (SLOT, shell.brain.layout)
    assert not shell.count(say.Inject), "nothing stops before there are other processes"
    prepared(shell)
    assert shell.last(say.Inject).barrier.replaced == {1, 2}, "sources give nothing behind it, so nothing comes twice"
    number = shell.store()
    assert shell.last(say.Cancel).places == ALL
    shell.cancelled()
    deploy = shell.last(say.Deploy)
    assert (deploy.places, deploy.checkpoint and deploy.checkpoint.checkpoint) == (ALL, number)
    shell.deployed()
    assert (shell.brain.status, shell.brain.restarts.failures) == (JobStatus.RUNNING, 0)
    assert history(shell) == [("move", "move 2 subtasks off nodes that leave, all at a checkpoint")]


def test_tasks_that_have_nothing_there_run_on() -> None:
    shell = prepared(leaving(Shell().run(), ((2, 1),)))
    shell.store()
    assert shell.last(say.Cancel).places == ((2, 0), (2, 1))
    shell.cancelled()
    shell.deployed()
    assert history(shell) == [("move", "move 1 subtasks off nodes that leave, live")]


def test_what_is_said_again_while_it_moves_changes_nothing() -> None:
    shell = leaving(leaving(Shell().run()))
    prepared(shell)
    leaving(shell)
    shell.store()
    leaving(shell)
    shell.cancelled()
    leaving(shell)
    shell.deployed()
    assert (shell.count(say.Prepare), shell.count(say.Deploy)) == (1, 2)
    leaving(shell)
    assert shell.count(say.Prepare) == 2, "the other processes are on nodes that leave, too"


def test_it_is_tried_again_where_there_was_no_room() -> None:
    shell = leaving(Shell().run())
    shell.handle(ev.PrepareFailed(shell.last(say.Prepare).request, ClusterError("no room")))
    assert (shell.brain.status, shell.count(say.Cancel)) == (JobStatus.RUNNING, 0)
    assert shell.count(say.Prepare) == 1
    leaving(shell)
    assert shell.count(say.Prepare) == 2


def test_a_node_that_goes_before_others_are_there_costs_one_restart() -> None:
    shell = leaving(Shell().run())
    shell.fail((1, 1))
    shell.fail((2, 1))
    shell.handle(ev.Cancelled(shell.last(say.Cancel).number))
    shell.wait(1.0)
    assert shell.count(say.Deploy) == 1, "slots and processes are being changed"
    prepared(shell, is_live=False)
    shell.wait(1.0)
    shell.deployed()
    assert (shell.last(say.Deploy).places, shell.brain.restarts.failures) == (ALL, 1)
    assert shell.brain.status is JobStatus.RUNNING


@pytest.mark.parametrize("ended", [(1, 1), (2, 1)])
def test_subtasks_that_have_come_to_their_end_move_with_the_others(ended: tuple[int, int]) -> None:
    shell = prepared(leaving(Shell().run()))
    inject = shell.last(say.Inject)
    for place in inject.places:
        handle = SubtaskHandle(*place, 2, (), (), place == ended)
        shell.handle(ev.Acknowledged(inject.barrier.checkpoint, place, handle))
    shell.handle(ev.Stored(inject.barrier.checkpoint, "memory://it"))
    assert shell.last(say.Cancel).places == ALL
    assert history(shell)[0][1].endswith("all at a checkpoint")


def test_a_job_with_a_loop_moves_by_a_restart_from_a_checkpoint() -> None:
    shell = leaving(Shell(TwoTasks(has_loop=True)).run())
    assert not shell.last(say.Inject).barrier.replaced
    shell.store()
    prepared(shell, is_live=False)
    shell.cancelled()
    shell.deployed()
    assert history(shell) == [("move", "move 2 subtasks off nodes that leave, by a restart: the job has a loop")]
    assert shell.brain.restarts.failures == 0


def test_a_job_without_checkpoints_stays_where_it_is() -> None:
    shell = leaving(Shell(storage=False).run())
    assert (shell.count(say.Prepare), shell.brain.status) == (0, JobStatus.RUNNING)


def test_its_log_tells_the_same_when_it_is_replayed() -> None:
    shell = prepared(leaving(Shell().run()))
    shell.store()
    shell.cancelled()
    shell.deployed()
    steps = list(replay([(0, shell.log.text().splitlines())]))
    assert [step.difference for step in steps if step.difference] == []
