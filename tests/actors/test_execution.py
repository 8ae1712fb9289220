"""The processes of a job, as actors of this process: what is told of them, and which of them are given up."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayError

from penstock import DataGenSource, StreamEnvironment
from penstock import Sequence as Counting
from penstock.actors import execution as module
from penstock.actors.execution import Execution
from penstock.actors.process_end import Process
from penstock.actors.running_task import SubtaskEvent
from penstock.actors.subtask import Stopped
from penstock.engine.checkpoint_config import CheckpointConfig, FailoverConfig
from penstock.engine.config import JobConfig
from penstock.engine.errors import ClusterError, JobError, NoRoomError, PenstockError, RecordError, WorkerLostError
from penstock.engine.graph.physical import Parallelism, PhysicalGraph, plan
from penstock.engine.job import events as ev
from penstock.engine.metrics import SubtaskMetrics
from tests.actors.fakes import FakeActor, FakeSlots, fails, never, program_of

A, B = (1, 0), (1, 1)


def alive() -> Process:
    return Process("another node", os.getpid())


def subtask(*reports: Any, **answers: Callable[..., Any]) -> FakeActor:
    """A process that runs, and reports these of its attempt, one after the other."""

    async def watch(attempt: int, seen: int) -> Sequence[Any]:
        return reports[seen : seen + 1] or await never()

    usual = {"deploy": lambda *_: alive(), "start": lambda *_: True, "watch": watch}
    return FakeActor(**{**usual, **answers})


@pytest.fixture(autouse=True)
def killed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The actors that were killed."""
    actors: list[Any] = []
    # Without a cluster that it could ask, Ray would start one.
    monkeypatch.setattr(module.WarmProcesses, "made", lambda *_: None)
    monkeypatch.setattr(ray, "kill", actors.append)
    return actors


def run(
    actors: Sequence[FakeActor], use: Callable[[Execution], Awaitable[Any]], heartbeat_timeout_ms: int = 5_000
) -> tuple[Any, list[ev.Event]]:
    """What `use` gives, and what was told of the subtasks."""
    told: list[ev.Event] = []
    failover = FailoverConfig(heartbeat_timeout_ms=heartbeat_timeout_ms)
    program = program_of(len(actors), failover=failover)

    async def main() -> Any:
        execution = Execution("job", program.config, told.append)
        execution.graph = program.physical()
        execution.actors = dict(zip((A, B), actors, strict=False))
        try:
            return await asyncio.wait_for(use(execution), 30)
        finally:
            await execution.stop(5.0)

    return asyncio.run(main()), told


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0)


def deployed(*actors: FakeActor, ends: int = 0, heartbeat_timeout_ms: int = 5_000) -> tuple[Any, list[ev.Event]]:
    """Whether all were open, and what was told until `ends` events had come."""
    seen: list[ev.Event] = []

    async def use(execution: Execution) -> bool:
        execution._tell = seen.append
        is_open = await execution.deploy([A, B][: len(actors)], 3, None)
        await until(lambda: len(seen) >= ends)
        return is_open

    return run(actors, use, heartbeat_timeout_ms)[0], seen


def test_first_rows_and_the_end_of_each_subtask_are_told() -> None:
    one, other = subtask(SubtaskEvent.FIRST_ROWS, SubtaskEvent.FINISHED), subtask(SubtaskEvent.FINISHED)
    is_open, told = deployed(one, other, ends=3)
    assert is_open is True
    assert [event for event in told if event.place == A] == [  # type: ignore[union-attr]
        ev.RowsCame(A, 3),
        ev.TaskFinished(A, 3),
    ]
    assert ev.TaskFinished(B, 3) in told


def test_behind_an_error_nothing_is_told() -> None:
    error = RecordError("it broke")
    _, told = deployed(subtask(error, SubtaskEvent.FINISHED), ends=1)
    assert told == [ev.TaskFailed(A, 3, error)]


def test_a_subtask_that_could_not_be_opened_is_no_lost_process(killed: list[Any]) -> None:
    error = RecordError("no such model")
    is_open, told = deployed(subtask(), subtask(error, start=lambda *_: False), ends=1)
    assert is_open is False
    assert told == [ev.TaskFailed(B, 3, error)]


@pytest.mark.parametrize(
    ("deploy", "why"), [(fails(RayActorError()), "The actor"), (never, "it did not answer within 0.1 s")]
)
def test_who_dies_or_hangs_while_it_is_deployed_is_forgotten(
    deploy: Callable[..., Any], why: str, killed: list[Any]
) -> None:
    lost = subtask(deploy=deploy)

    async def use(execution: Execution) -> None:
        with pytest.raises(WorkerLostError, match=rf"the process of task '.*', subtask 1 died: {why}"):
            await execution.deploy([A, B], 3, None)
        assert list(execution.actors) == [A]
        assert killed == [lost]

    run([subtask(), lost], use, heartbeat_timeout_ms=100)


def ended_process() -> Process:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return Process(Process.own().node, child.pid)


@pytest.mark.parametrize("explained", [True, False])
def test_an_end_of_a_process_is_told_at_once_and_its_reason_when_it_is_known(explained: bool) -> None:
    error = RecordError("it broke")
    watched = asyncio.Event()

    async def watch(attempt: int, seen: int) -> Sequence[Any]:
        await watched.wait()
        return [error] if explained else fails(RayActorError())()  # type: ignore[no-any-return]

    process = ended_process()
    told: list[ev.Event] = []

    async def use(execution: Execution) -> None:
        execution._tell = told.append
        await execution.deploy([A], 3, None)
        await until(lambda: told)
        assert A not in execution.actors
        (first,) = told
        assert isinstance(first, ev.TaskFailed)
        assert (first.place, first.attempt, first.is_explained) == (A, 3, False)
        assert f"process {process.pid} was killed, or has crashed" in str(first.error)
        watched.set()
        await until(lambda: len(told) == 2)

    run([subtask(deploy=lambda *_: process, watch=watch)], use)
    reason = told[1]
    assert isinstance(reason, ev.Explained)
    assert (reason.error is error) if explained else ("died" in str(reason.error))


def test_a_process_that_does_not_answer_is_replaced(killed: list[Any]) -> None:
    stuck = subtask(ping=never)
    _, told = deployed(stuck, ends=1, heartbeat_timeout_ms=100)
    (failed,) = told
    assert isinstance(failed, ev.TaskFailed)
    assert "has not answered for 0.1 s and is replaced; raise heartbeat_timeout" in str(failed.error)
    assert killed == [stuck]


def test_a_process_that_does_not_end_its_attempt_in_time_is_killed(
    monkeypatch: pytest.MonkeyPatch, killed: list[Any]
) -> None:
    monkeypatch.setattr(module, "_RESET_SECONDS", 0.05)
    fine, stuck = subtask(), subtask(reset=never)

    async def use(execution: Execution) -> None:
        await execution.deploy([A, B], 3, None)
        await execution.cancel([A, B])
        assert execution.actors == {A: fine}
        assert execution.attempts == {}
        assert killed == [stuck]

    _, told = run([fine, stuck], use)
    assert told == [], "who is cancelled has not failed"


def test_the_last_counters_are_kept_of_who_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_METRICS_SECONDS", 0.05)
    first, second = SubtaskMetrics(*A), SubtaskMetrics(*A)
    answers: list[Any] = [lambda: first, fails(RayError("lost")), never, lambda: second]
    actor = subtask(metrics=lambda attempt: answers.pop(0)())

    async def use(execution: Execution) -> list[Sequence[SubtaskMetrics]]:
        await execution.deploy([A], 3, None)
        return [await execution.metrics() for _ in range(4)]

    assert run([actor], use)[0] == [[first], [first], [first], [second]]


def test_the_end_keeps_the_last_counters_and_no_process(killed: list[Any]) -> None:
    last = SubtaskMetrics(*A)
    actors = [subtask(stop=lambda: Stopped(last, None)), subtask(stop=fails(RayActorError()))]
    kept: list[Execution] = []

    async def use(execution: Execution) -> None:
        await execution.deploy([A, B], 3, None)
        kept.append(execution)

    run(actors, use)
    assert kept[0].last_metrics == [last]
    assert killed == actors
    assert kept[0].actors == {}


def test_the_end_says_what_could_not_be_closed() -> None:
    full = RecordError("the disk is full")
    fine, broken = Stopped(SubtaskMetrics(*A), None), Stopped(SubtaskMetrics(*B), full)

    async def use(execution: Execution) -> PenstockError | None:
        return await execution.stop(5.0)

    assert run([subtask(stop=lambda: fine), subtask(stop=lambda: broken)], use)[0] is full
    lost, _ = run([subtask(stop=lambda: fine), subtask(stop=fails(RayActorError()))], use)
    assert isinstance(lost, WorkerLostError), "what close() would have done is missing"
    assert "subtask 1 died before it was closed" in str(lost)


def test_a_process_that_had_not_begun_has_nothing_to_close(caplog: pytest.LogCaptureFixture) -> None:
    never = RayActorError()
    never.error_msg = "The actor is dead: killed by `ray.kill`.\nThe actor never ran - it was cancelled."

    async def use(execution: Execution) -> PenstockError | None:
        return await execution.stop(5.0)

    assert run([subtask(), subtask(stop=fails(never))], use)[0] is None
    assert not caplog.text


def test_a_process_that_dies_behind_the_last_checkpoint_fails_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def use(execution: Execution) -> PenstockError | None:
        execution._config = replace(execution._config, checkpoints=CheckpointConfig(interval_ms=1000))
        return await execution.stop(5.0)

    assert run([subtask(), subtask(stop=fails(RayActorError()))], use)[0] is None
    assert "subtask 1 died before it was closed" in caplog.text


def test_a_job_ends_though_its_slots_cannot_be_given_back(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def use(execution: Execution) -> PenstockError | None:
        with monkeypatch.context() as patched:
            patched.setattr(execution._slots, "release", fails(GetTimeoutError("the head is busy")))
            return await execution.stop(5.0)

    assert run([subtask()], use)[0] is None
    assert "slots could not be given back yet: the head is busy" in caplog.text


def test_who_is_not_closed_in_time_is_killed_and_named(killed: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    slow = subtask(stop=never)

    async def use(execution: Execution) -> PenstockError | None:
        return await execution.stop(0.05)

    error, _ = run([subtask(), slow], use)
    assert isinstance(error, WorkerLostError)
    assert "subtask 1 was not closed within 0.05 s, and its process was killed" in str(error)
    assert str(error) in caplog.text
    assert slow in killed


def test_a_subtask_without_a_process_has_no_stacks() -> None:
    async def use(execution: Execution) -> None:
        with pytest.raises(JobError, match="no process for subtask 1 of task 1 now"):
            await execution.stacks(B, 0.1)

    run([subtask()], use)


def test_room_is_waited_for_until_there_is_some_and_over_failures_of_the_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_ROOM_SECONDS", 0.0)
    asked: list[int] = []

    async def room_for(bundles: Sequence[Any]) -> None:
        asked.append(len(bundles))
        if len(asked) < 3:
            raise [RayError("the head is away"), ValueError("no bundle")][len(asked) - 1]

    async def use(execution: Execution) -> None:
        monkeypatch.setattr(execution._slots, "room_for", room_for)
        assert execution.graph is not None
        execution.await_room(execution.graph)
        assert execution._awaiting_room is not None
        await execution._awaiting_room

    _, told = run([subtask(), subtask()], use)
    assert (asked, told) == ([2, 2, 2], [ev.RoomFound()])


def test_room_is_waited_for_no_more_when_the_job_ends() -> None:
    async def use(execution: Execution) -> bool:
        assert execution.graph is not None
        execution.await_room(execution.graph)
        waiting = execution._awaiting_room
        assert waiting is not None
        execution.kill()
        await asyncio.sleep(0)
        return waiting.cancelled()

    assert run([subtask()], use) == (True, [])


def test_all_subtasks_in_the_slots_of_a_node_that_is_about_to_leave_are_named() -> None:
    async def use(execution: Execution) -> tuple[Sequence[Any], Sequence[Any]]:
        execution.processes = {A: Process("stays", 1), B: Process("leaves", 2), (2, 1): Process("leaves", 3)}
        execution.actors[2, 1] = subtask()
        named = execution.leave({"leaves"})
        execution.discard((2, 1))
        return named, execution.leave({"elsewhere"})

    assert run([subtask(), subtask()], use)[0] == ([B, (2, 1)], [])


def test_who_moves_keeps_its_process_until_it_is_deployed_in_the_other_one(
    killed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new, stays = subtask(), subtask(prepare=lambda *_: alive()), subtask()
    slots = FakeSlots()

    async def use(execution: Execution) -> None:
        execution._slots = slots  # type: ignore[assignment]
        monkeypatch.setattr(execution, "_replacement", lambda graph, place: new)
        monkeypatch.setattr(ray, "put", lambda value: value)
        graph = execution.graph
        assert graph is not None
        await execution.prepare(graph, [B])
        assert (slots.said, killed, execution.actors[B]) == ([("find_others", {1})], [], old)
        await execution.provide(graph, [A])
        assert (execution.actors[B], killed) == (old, [new]), "another restart came first"
        killed.clear()
        await execution.prepare(graph, [B])
        await execution.provide(graph, [A, B])
        assert (execution.actors, killed) == ({A: stays, B: new}, [old])
        assert slots.said[-1] == ("move",)
        killed.clear()

    run([stays, old], use)


def lodged(execution: Execution, slots: FakeSlots, monkeypatch: pytest.MonkeyPatch, new: FakeActor) -> None:
    """Subtask 0 runs in what has been a standby in slot 1; `new`: every process that is made."""
    execution._slots = slots  # type: ignore[assignment]
    execution._standbys.lodged[execution.actors[A]] = 1
    monkeypatch.setattr(execution, "_replacement", lambda graph, place: new)
    monkeypatch.setattr(ray, "put", lambda value: value)


def test_a_subtask_that_lives_in_a_slot_that_goes_gets_another_process(
    killed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, new, slots = subtask(), subtask(), subtask(prepare=lambda *_: alive()), FakeSlots()

    async def use(execution: Execution) -> None:
        lodged(execution, slots, monkeypatch, new)
        await execution.provide(program_of(1).physical(), [A])
        assert (execution.actors, killed, slots.count) == ({A: new}, [one, other], 1)
        killed.clear()

    run([one, other], use)


def test_a_slot_in_which_a_subtask_lives_that_runs_on_stays(killed: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    one, other, slots = subtask(), subtask(), FakeSlots()

    async def use(execution: Execution) -> None:
        lodged(execution, slots, monkeypatch, subtask())
        execution.attempts = {A: 1}
        await execution.provide(program_of(1).physical(), [])
        assert (execution.actors, killed, slots.count) == ({A: one}, [other], 2)
        killed.clear()

    run([one, other], use)


def test_a_standby_in_a_slot_that_goes_takes_nobodys_place(killed: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    warm, new, slots = subtask(), subtask(prepare=lambda *_: alive()), FakeSlots()

    async def use(execution: Execution) -> None:
        lodged(execution, slots, monkeypatch, new)
        execution._standbys.lodged[warm] = 1
        execution._standbys._warm[warm] = alive()
        await execution.provide(program_of(1).physical(), [A])
        assert execution.actors == {A: new}

    run([subtask(), subtask()], use)


def test_what_was_prepared_for_a_node_that_has_gone_since_is_used(
    killed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    new, slots = subtask(prepare=lambda *_: alive()), FakeSlots()

    async def use(execution: Execution) -> None:
        execution._slots = slots  # type: ignore[assignment]
        monkeypatch.setattr(execution, "_replacement", lambda graph, place: new)
        monkeypatch.setattr(ray, "put", lambda value: value)
        assert execution.graph is not None
        await execution.prepare(execution.graph, [B])
        execution._forget(B)
        await execution.provide(execution.graph, [A, B])
        assert (execution.actors[B], killed, slots.said[-1]) == (new, [], ("move",))

    run([subtask(), subtask()], use)


@pytest.fixture
def a_node_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the nodes that are asked for, the one called `lost` is."""

    async def lost(nodes: set[str]) -> set[str]:
        return nodes & {"lost"}

    monkeypatch.setattr(module, "lost_nodes", lost)
    monkeypatch.setattr(ray, "put", lambda value: value)


@pytest.mark.usefixtures("a_node_is_lost")
def test_who_shares_a_slot_with_a_lost_subtask_of_another_region_is_told_to_have_failed(
    killed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    new, other, slots = subtask(prepare=lambda *_: alive()), subtask(), FakeSlots()
    told: list[ev.Event] = []

    async def use(execution: Execution) -> None:
        graph = two_pipelines()
        execution.graph, execution._slots, execution._tell = graph, slots, told.append  # type: ignore[assignment]
        monkeypatch.setattr(execution, "_replacement", lambda graph, place: new)
        execution.actors = {A: subtask(), (2, 0): subtask(), (2, 1): other}
        execution.attempts = {A: 1, (2, 0): 2, (2, 1): 3}
        execution.processes = {A: Process("here", 1), B: Process("lost", 2), (2, 1): Process("lost", 3)}
        await execution.provide(graph, [A, B])
        assert (killed, execution.actors[B], execution.actors[2, 1]) == ([other], new, new)
        assert execution.attempts == {A: 1, (2, 0): 2}

    run([subtask(), subtask()], use)
    (failed,) = told
    assert isinstance(failed, ev.TaskFailed)
    assert (failed.place, failed.attempt) == ((2, 1), 3)
    assert isinstance(failed.error, WorkerLostError)
    assert "subtask 1 died: its node is lost" in str(failed.error)


@pytest.mark.usefixtures("a_node_is_lost")
def test_all_that_is_on_a_lost_node_is_left_though_only_some_are_known_to_be_dead(
    killed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call to the others would have no answer before Ray knows of the node's loss, many seconds later."""
    silent, slots = subtask(), FakeSlots()
    made = [subtask(prepare=lambda *_: alive()), subtask(prepare=lambda *_: alive())]

    async def use(execution: Execution) -> None:
        execution._slots = slots  # type: ignore[assignment]
        monkeypatch.setattr(execution, "_replacement", lambda graph, place: made[place[1]])
        execution.actors = {A: silent}
        execution.processes = {A: Process("lost", 1), B: Process("lost", 2)}
        await execution.provide(program_of(2).physical(), [A, B])
        assert (killed, execution.actors) == ([silent], dict(zip((A, B), made, strict=True)))
        assert slots.said == [("replace", {0, 1}, {"lost"})]
        assert {process.node for process in execution.processes.values()} == {alive().node}

    run([subtask(), subtask()], use)


@pytest.mark.usefixtures("a_node_is_lost")
def test_slots_that_found_no_room_in_the_place_of_lost_ones_are_waited_for_and_not_replaced_again(
    killed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, slots = [subtask(prepare=lambda *_: alive()), subtask(prepare=lambda *_: alive())], FakeSlots()
    slots.has_room = False

    async def use(execution: Execution) -> None:
        execution._slots = slots  # type: ignore[assignment]
        monkeypatch.setattr(execution, "_replacement", lambda graph, place: made[place[1]])
        execution.actors = {}
        execution.processes = {A: Process("lost", 1), B: Process("lost", 2)}
        with pytest.raises(NoRoomError):
            await execution.provide(program_of(2).physical(), [A, B])
        await execution.provide(program_of(2).physical(), [A, B])
        assert execution.actors == dict(zip((A, B), made, strict=True))
        assert slots.said == [("replace", {0, 1}, {"lost"})]

    run([subtask(), subtask()], use)


@pytest.mark.usefixtures("a_node_is_lost")
def test_what_was_prepared_elsewhere_for_a_subtask_of_a_lost_node_stays(
    killed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    new, spare, slots = subtask(prepare=lambda *_: alive()), subtask(), FakeSlots()

    async def use(execution: Execution) -> None:
        execution._slots = slots  # type: ignore[assignment]
        monkeypatch.setattr(execution, "_replacement", lambda graph, place: new)
        execution.actors, execution._spare = {}, {B: spare}
        execution.processes = {A: Process("lost", 1), B: Process("lost", 2)}
        await execution.provide(program_of(2).physical(), [A, B])
        assert (execution.actors, killed) == ({A: new, B: spare}, [])
        assert ("replace", {0}, {"lost"}) in slots.said, "not the one that it has moved to"

    run([subtask(), subtask()], use)


def two_pipelines() -> PhysicalGraph:
    """Tasks 1 and 2, two subtasks each, with no channels between them."""
    env = StreamEnvironment(runtime="local", parallelism=2)
    for _ in range(2):
        env.from_source(DataGenSource({"n": Counting()}, rows=10)).collect()
    return plan("two", env._program.graph.build(), Parallelism(2, None, 1), JobConfig()).physical()


@pytest.mark.parametrize("start", [fails(RayActorError()), never])
def test_a_rescale_whose_processes_do_not_start_gives_its_slots_back(
    start: Callable[..., Any], killed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_START_SECONDS", 0.01)
    broken, slots = subtask(prepare=start), FakeSlots()
    slots.count = 1

    async def use(execution: Execution) -> None:
        execution._slots, execution._config = slots, replace(execution._config, slot_timeout_ms=1)  # type: ignore[assignment]
        monkeypatch.setattr(execution, "_replacement", lambda graph, place: broken)
        monkeypatch.setattr(ray, "put", lambda value: value)
        with pytest.raises((RayActorError, ClusterError)):
            await execution.prepare(program_of(2).physical())
        assert (killed, slots.count) == ([broken], 1)
        killed.clear()

    run([subtask()], use)


def test_processes_that_do_not_start_in_time_are_a_failure_that_the_restart_strategy_deals_with(
    killed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_START_SECONDS", 0.01)
    monkeypatch.setattr(ray, "put", lambda value: value)
    slow = subtask(prepare=never)

    async def use(execution: Execution) -> None:
        execution._slots, execution._config = FakeSlots(), replace(execution._config, slot_timeout_ms=1)  # type: ignore[assignment]
        monkeypatch.setattr(execution, "_replacement", lambda graph, place: slow)
        execution.actors = {}
        # And no `ClusterError`, such as want of room is, with which a job that has never run ends.
        with pytest.raises(WorkerLostError, match=r"1 processes of the job did not start .* machines are busy"):
            await execution.provide(program_of(1).physical(), [A])
        assert (killed, execution.actors) == ([slow], {})

    run([subtask()], use)
