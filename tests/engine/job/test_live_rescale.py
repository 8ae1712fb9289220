"""A rescale of single tasks while the others run on: at a checkpoint that decides which layout survives."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock.engine.checkpointing.handles import SubtaskHandle
from penstock.engine.errors import NotRunningError
from penstock.engine.graph.scale import Scale
from penstock.engine.job import events as ev
from penstock.engine.job import instructions as say
from penstock.engine.job.layout import A_LOOP, Layout, TaskLayout, layout_change
from penstock.engine.job.status import JobStatus
from tests.engine.job.shell import Shell

OLD = ((2, 0), (2, 1))
NEW = ((2, 0), (2, 1), (2, 2))
SOURCES = ((1, 0), (1, 1))


def prepared(shell: Shell) -> int:
    """The sink is to get a third subtask, and the checkpoint for that is under way."""
    request = shell.ask(ev.RescaleJob({"sink": 3}))
    shell.handle(ev.Prepared(request))
    shell.preloaded()
    return request


def preloading(shell: Shell, took: float = 0.0) -> say.Preload:
    """The sink is to get a third subtask, and the checkpoint is there that is to be taken in, after so many seconds."""
    shell.handle(ev.Prepared(shell.ask(ev.RescaleJob({"sink": 3}))))
    shell.now += took
    shell.store()
    return shell.last(say.Preload)


def switching(shell: Shell) -> int:
    """The same, and the checkpoint counts."""
    request = prepared(shell)
    shell.store()
    return request


def history(shell: Shell) -> list[tuple[str, str]]:
    return [(restart.kind.value, restart.cause) for restart in shell.brain.restarts.kept]


def test_only_the_task_that_is_rescaled_stops_and_the_others_keep_their_attempt() -> None:
    shell = Shell().run()
    assert shell.brain.changing is None
    request = shell.ask(ev.RescaleJob({"sink": 3}))
    assert shell.brain.changing == "rescale sink to 3"
    assert not shell.count(say.Inject), "nothing stops before all is prepared"
    shell.now += 7.0
    shell.handle(ev.Prepared(request))
    assert not shell.last(say.Inject).barrier.replaced, "nor before what is there has been taken in"
    shell.preloaded()
    barrier = shell.last(say.Inject).barrier
    assert (barrier.replaced, barrier.alignment_timeout_ms) == ({2}, None)
    shell.now += 0.1
    shell.store()
    assert (shell.last(say.Cancel).places, shell.brain.status) == (OLD, JobStatus.RUNNING)
    shell.cancelled()
    deploy = shell.last(say.Deploy)
    assert not shell.brain.runs_anew(deploy.attempt - 1), "the client would ask the new subtasks before they are there"
    assert (deploy.places, deploy.checkpoint, deploy.layout.places) == (
        NEW,
        shell.brain.checkpoints and shell.brain.checkpoints.latest,
        [*SOURCES, *NEW],
    )
    shell.now += 0.1
    assert shell.brain.changing == "rescale sink to 3"
    shell.deployed()
    assert shell.brain.runs_anew(deploy.attempt - 1)
    assert shell.brain.changing is None
    assert shell.answers(request) == [pytest.approx(0.2)]
    assert {place: attempt for place, (attempt, _) in shell.brain.attempts.deployed.items()} == (
        dict.fromkeys(SOURCES, deploy.attempt - 1) | dict.fromkeys(NEW, deploy.attempt)
    )
    assert history(shell) == [("rescale", "rescale sink to 3, live")]
    assert shell.brain.restarts.failures == 0


def test_a_rescale_waits_for_no_periodic_checkpoint() -> None:
    """FLINK-36753: Flink's begins with the next checkpoint, which may be minutes away."""
    shell = Shell(interval_ms=600_000).run()
    request = switching(shell)
    shell.cancelled()
    shell.deployed()
    assert (shell.now, shell.answers(request)) == (0.0, [0.0])


def test_who_gets_fewer_subtasks_forgets_those_that_left() -> None:
    shell = Shell().run()
    shell.ask(ev.RescaleJob({"sink": 1}))
    shell.handle(ev.Prepared(1))
    shell.preloaded()
    shell.store()
    shell.cancelled()
    shell.deployed()
    assert sorted(shell.brain.attempts.deployed) == [*SOURCES, (2, 0)]
    shell.wait(1.0)
    assert list(shell.last(say.Inject).places) == [*SOURCES, (2, 0)]
    assert shell.store(), "the next checkpoint is that of the new layout"


def test_no_other_checkpoint_is_under_way_beside_it() -> None:
    shell = Shell().run()
    preloading(shell)
    shell.ask(ev.TakeCheckpoint())
    taken = shell.count(say.Inject)
    preload = shell.last(say.Preload)
    shell.handle(ev.Preloaded(preload.request, preload.checkpoint.checkpoint))
    assert not shell.last(say.Inject).barrier.replaced, "it waits for the one before"
    shell.store()
    shell.handle(ev.Ticked())
    assert shell.last(say.Inject).barrier.replaced
    asked = shell.ask(ev.TakeCheckpoint())
    shell.wait(5.0)
    assert shell.count(say.Inject) == taken + 1
    assert not shell.answers(asked)


def test_those_who_will_own_the_state_take_in_what_is_there_first() -> None:
    shell = Shell().run()
    preload = preloading(shell)
    latest = shell.brain.checkpoints and shell.brain.checkpoints.latest
    assert (preload.places, preload.checkpoint) == (NEW, latest)
    assert (shell.count(say.Inject), shell.count(say.Cancel)) == (1, 0), "nothing stops for it"
    shell.handle(ev.Preloaded(preload.request, preload.checkpoint.checkpoint))
    assert shell.last(say.Inject).barrier.replaced == {2}


def test_what_has_changed_is_taken_in_while_the_last_manifest_is_written() -> None:
    shell = Shell().run()
    prepared(shell)
    stored = shell.acknowledge().checkpoint
    preload = shell.last(say.Preload)
    assert (preload.checkpoint.checkpoint, preload.places) == (stored.checkpoint, NEW)
    assert not shell.count(say.Cancel), "it does not count yet"
    shell.handle(ev.Preloaded(preload.request, stored.checkpoint))
    assert not shell.count(say.Cancel)
    shell.handle(ev.Stored(stored.checkpoint, "memory://it"))
    assert shell.last(say.Cancel).places == OLD


def test_no_periodic_checkpoint_comes_between() -> None:
    shell = Shell().run()
    shell.wait(0.9)
    preload = preloading(shell)
    for _ in range(5):
        shell.wait(0.9)
    assert shell.count(say.Inject) == 1, "it might be a new base"
    shell.handle(ev.Preloaded(preload.request, preload.checkpoint.checkpoint))
    assert shell.count(say.Inject) == 2, "what has changed so long is taken in before tasks stop"


def test_they_do_so_again_as_long_as_that_takes_ever_less() -> None:
    shell = Shell().run()
    preloading(shell, took=2.0)
    for took in (1.0, 0.5, 0.4):
        preload = shell.last(say.Preload)
        shell.handle(ev.Preloaded(preload.request, preload.checkpoint.checkpoint))
        assert not shell.last(say.Inject).barrier.replaced
        shell.now += took
        shell.store()
    preload = shell.last(say.Preload)
    shell.handle(ev.Preloaded(preload.request, preload.checkpoint.checkpoint))
    assert shell.last(say.Inject).barrier.replaced == {2}
    assert shell.count(say.Preload) == 4


def test_what_somebody_says_late_of_another_checkpoint_means_nothing() -> None:
    shell = Shell().run()
    preload = preloading(shell)
    shell.handle(ev.Preloaded(preload.request, preload.checkpoint.checkpoint - 1))
    shell.handle(ev.Preloaded(preload.request + 1, preload.checkpoint.checkpoint))
    assert shell.count(say.Inject) == 1
    shell.handle(ev.Preloaded(preload.request, preload.checkpoint.checkpoint))
    shell.handle(ev.Preloaded(preload.request, preload.checkpoint.checkpoint))
    assert shell.count(say.Inject) == 2


def test_without_a_checkpoint_to_take_in_it_goes_live_all_the_same() -> None:
    shell = Shell(tolerable_failures=1).run()
    request = shell.ask(ev.RescaleJob({"sink": 3}))
    shell.handle(ev.Prepared(request))
    inject = shell.last(say.Inject)
    shell.handle(ev.Declined(inject.barrier.checkpoint, (2, 0), "the bucket is slow"))
    assert shell.last(say.Inject).barrier.replaced == {2}
    shell.store()
    assert shell.last(say.Cancel).places == OLD


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_failure_while_state_is_taken_in_makes_it_a_rescale_by_a_restart(is_stored: bool) -> None:
    shell = Shell().run()
    request = shell.ask(ev.RescaleJob({"sink": 3}))
    shell.handle(ev.Prepared(request))
    if is_stored:
        shell.store()
    shell.fail((1, 0))
    shell.restart()
    assert shell.last(say.Deploy).places == (*SOURCES, *NEW)
    assert len(shell.answers(request)) == 1
    if is_stored:
        preload = shell.last(say.Preload)
        shell.handle(ev.Preloaded(preload.request, preload.checkpoint.checkpoint))
    assert not shell.last(say.Inject).barrier.replaced, "it is over"
    assert shell.brain.status is JobStatus.RUNNING


def test_a_failure_before_the_checkpoint_counts_makes_it_a_rescale_by_a_restart() -> None:
    shell = Shell().run()
    request = prepared(shell)
    shell.fail((1, 0))
    shell.restart()
    assert shell.last(say.Deploy).places == (*SOURCES, *NEW)
    assert len(shell.answers(request)) == 1
    assert shell.brain.status is JobStatus.RUNNING


def test_a_failure_while_its_manifest_is_written_does_so_too() -> None:
    shell = Shell().run()
    request = prepared(shell)
    number = shell.acknowledge().checkpoint.checkpoint
    shell.fail((1, 0))
    shell.cancelled()
    shell.handle(ev.Stored(number, "memory://it"))
    shell.wait(0.2)
    deploy = shell.deployed().last(say.Deploy)
    assert deploy.places == (*SOURCES, *NEW)
    assert deploy.checkpoint is not None
    assert deploy.checkpoint.checkpoint == number
    assert len(shell.answers(request)) == 1


def test_a_checkpoint_that_cannot_be_taken_makes_it_a_rescale_by_a_restart() -> None:
    shell = Shell().run()
    request = prepared(shell)
    inject = shell.last(say.Inject)
    shell.handle(ev.Declined(inject.barrier.checkpoint, (2, 0), "the bucket is gone"))
    assert shell.last(say.Cancel).places == (*SOURCES, *OLD), "who has stopped, or keeps rows back, is ended at once"
    shell.restart()
    assert shell.last(say.Deploy).places == (*SOURCES, *NEW)
    assert len(shell.answers(request)) == 1


@pytest.mark.parametrize("is_deploying", [False, True])
def test_a_failure_behind_the_checkpoint_restarts_the_new_layout_from_it(is_deploying: bool) -> None:
    shell = Shell().run()
    request = switching(shell)
    if is_deploying:
        shell.cancelled()
        shell.fail((1, 1))
        shell.deployed()
    else:
        # The old sinks end already, so that only the sources are still to be ended.
        cancels = shell.last(say.Cancel)
        shell.fail((1, 1))
        shell.handle(ev.Cancelled(cancels.number))
    shell.restart()
    deploy = shell.last(say.Deploy)
    assert (deploy.places, deploy.checkpoint is not None) == ((*SOURCES, *NEW), True)
    assert len(shell.answers(request)) == 1
    assert shell.brain.status is JobStatus.RUNNING


@pytest.mark.parametrize(("ended", "is_live"), [((1, 0), True), ((2, 0), False)])
def test_only_those_that_are_replaced_must_not_have_come_to_their_end(ended: tuple[int, int], is_live: bool) -> None:
    shell = Shell().run()
    prepared(shell)
    inject = shell.last(say.Inject)
    for place in inject.places:
        handle = SubtaskHandle(*place, 2, (), (), place == ended)
        shell.handle(ev.Acknowledged(inject.barrier.checkpoint, place, handle))
    shell.handle(ev.Stored(inject.barrier.checkpoint, "memory://it"))
    shell.cancelled()
    how = "live" if is_live else "by a restart: some of its subtasks had come to their end"
    assert shell.last(say.Deploy).places == (NEW if is_live else (*SOURCES, *NEW))
    assert history(shell) == [("rescale", f"rescale sink to 3, {how}")]


def test_who_cannot_be_replaced_alone_is_rescaled_by_a_restart_that_says_why() -> None:
    def layout(counts: tuple[int, ...], names: tuple[str, ...] = ("read", "count", "write")) -> Layout:
        tasks = tuple(
            TaskLayout(number, name, count, False, False, None, 0, "" if number > 1 else "it has GPUs")
            for number, (name, count) in enumerate(zip(names, counts, strict=True), 1)
        )
        return Layout(Scale(), tasks, (), False)

    running = layout((2, 2, 2))
    assert layout_change(running, layout((2, 3, 2))).replaced == {2}
    assert layout_change(running, layout((2, 1, 3))).replaced == {2, 3}
    assert layout_change(running, layout((3, 2, 2))).reason == "it has GPUs"
    assert layout_change(running, replace(layout((2, 3, 2)), has_loop=True)).reason == A_LOOP
    assert "come together" in layout_change(running, layout((2, 3), ("read", "count -> write"))).reason
    assert layout_change(running, replace(running, scale=Scale(2))).is_none
    apart = layout((2, 3), ("read -> count", "write"))
    together = layout((2, 3), ("read", "count -> write"))
    assert (apart.places, layout_change(apart, together).is_none) == (together.places, False)


def test_a_drain_does_not_wait_for_subtasks_that_have_stopped_for_a_rescale() -> None:
    """What tells them to go on may be lost, and a source among them would never come to its end."""
    shell = Shell().run()
    prepared(shell)
    drain = shell.ask(ev.DrainJob())
    shell.handle(ev.FolderChecked(drain, "memory://s"))
    assert shell.last(say.Cancel).places == (*SOURCES, *OLD)
    assert len(shell.answers(drain)) == 1


def test_a_drain_while_state_is_taken_in_for_a_rescale_comes_first() -> None:
    shell = Shell().run()
    request = shell.ask(ev.RescaleJob({"sink": 3}))
    shell.handle(ev.Prepared(request))
    drain = shell.ask(ev.DrainJob())
    shell.handle(ev.FolderChecked(drain, "memory://s"))
    shell.finish()
    number = shell.store()
    shell.commit()
    shell.take_down()
    assert (shell.brain.status, shell.answers(drain)) == (JobStatus.FINISHED, [f"memory://{number}"])


def test_a_job_that_ends_while_it_is_to_be_rescaled_is_being_changed_no_more() -> None:
    shell = Shell().run()
    shell.ask(ev.RescaleJob({"sink": 3}))
    shell.finish()
    shell.store()
    shell.commit()
    shell.take_down()
    assert (shell.brain.status, shell.brain.changing) == (JobStatus.FINISHED, None)


def replacing(shell: Shell) -> None:
    switching(shell)


def deploying(shell: Shell) -> None:
    switching(shell)
    shell.cancelled()


def storing(shell: Shell) -> None:
    prepared(shell)
    shell.acknowledge()


TAKEN = (ev.TakeCheckpoint(), ev.TakeSavepoint(), ev.StopJob())
MOMENTS = (storing, replacing, deploying)
BEHIND = [*itertools.product((*TAKEN, ev.DrainJob()), MOMENTS), *((one, prepared) for one in TAKEN)]


@pytest.mark.parametrize(("command", "moment"), BEHIND)
def test_what_is_asked_while_tasks_are_replaced_is_done_behind_that(
    command: ev.Command, moment: Callable[[Shell], object]
) -> None:
    shell = Shell().run()
    moment(shell)
    injected = shell.count(say.Inject)
    request = shell.ask(command)
    if not isinstance(command, ev.TakeCheckpoint):
        shell.handle(ev.FolderChecked(request, "memory://s"))
    if moment is prepared:
        shell.acknowledge()
    if moment in (prepared, storing):
        number = shell.last(say.WriteManifest).checkpoint.checkpoint
        shell.handle(ev.Stored(number, f"memory://{number}"))
    assert (shell.count(say.Inject), shell.count(say.EndInput), shell.answers(request)) == (injected, 0, [])
    shell.cancelled()
    shell.deployed()
    if isinstance(command, ev.DrainJob):
        shell.finish()
    assert sorted(shell.last(say.Inject).places) == [*SOURCES, *NEW], "of the job as it is now"
    number = shell.store()
    if not isinstance(command, ev.TakeCheckpoint | ev.TakeSavepoint):
        shell.commit()
        shell.take_down()
    assert shell.answers(request) == [f"memory://{number}"]


def test_what_waits_for_tasks_that_are_replaced_is_refused_if_the_job_fails_meanwhile() -> None:
    shell = Shell().run()
    replacing(shell)
    request = shell.ask(ev.TakeCheckpoint())
    shell.fail((1, 1))
    (answer,) = shell.answers(request)
    assert isinstance(answer, NotRunningError)
    assert "try again" in str(answer)
