"""The shell of one subtask, on an event loop of this process: no cluster needed."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import os
import sys
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pyarrow as pa
import pytest
import ray

import penstock as ps
from penstock import DataStream, ListStateDescriptor, StreamEnvironment
from penstock.actors import subtask
from penstock.actors.capture_writer import Answer
from penstock.actors.channels import packed
from penstock.actors.deployment import Deployment, Restore
from penstock.actors.links import WaitingLink, connected
from penstock.actors.running_task import TASK_THREAD, Report, SubtaskEvent, _patience
from penstock.actors.state_answers import listening_id
from penstock.actors.state_frames import packed_question, unpacked_answer
from penstock.actors.subtask import SubtaskActor
from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.cells.slot_accumulators import HeldAccumulators
from penstock.engine.checkpointing.handles import CompletedCheckpoint, SubtaskHandle
from penstock.engine.checkpointing.preload import Preloaded, TakenState
from penstock.engine.checkpointing.store import RestorePlan
from penstock.engine.config import JobConfig
from penstock.engine.elements import Barrier, Batch, CheckpointMode, SnapshotKind
from penstock.engine.errors import PenstockError, StateNotReadyError, UnknownStateError, UserCodeError
from penstock.engine.functions import Context, ProcessFunction, Row, Rows, RuntimeContext
from penstock.engine.graph.physical import Parallelism, PhysicalGraph, plan
from penstock.savepoints.live_rows import Question
from penstock.savepoints.store import FolderJobStore

FIRST_TASK = Deployment(1, 0, 1, [[]])
_ACTOR = f"asked-{os.getpid()}"


def graph_of(build: Callable[[DataStream], DataStream] = lambda stream: stream) -> PhysicalGraph:
    """One task: the numbers 0 to 9, what `build` adds, and the client behind it."""
    env = StreamEnvironment(runtime="local", parallelism=1)
    build(env.from_collection(list(range(10)))).collect()
    return plan(
        "one task", env._program.graph.build(), Parallelism(1, None, 1), JobConfig(buffer_timeout_ms=0)
    ).physical()


def with_actor(
    graph: PhysicalGraph,
    use: Callable[[SubtaskActor], Awaitable[Any]],
    deployment: Deployment = FIRST_TASK,
) -> Any:
    async def run() -> Any:
        actor = SubtaskActor()
        await actor.deploy(graph, deployment)
        try:
            return await asyncio.wait_for(use(actor), 30)
        finally:
            # Its thread must not outlive the event loop that it reports to.
            await asyncio.wait_for(actor.stop(), 30)

    return asyncio.run(run())


def test_the_subtask_ends_only_when_the_client_knows_that_it_has_all_rows() -> None:
    async def use(actor: SubtaskActor) -> list[int]:
        assert await actor.start(1) is True
        values: list[int] = []
        received, more = 0, True
        while more:
            fetched = await actor.fetch(1, 0, received, 1.0)
            received += len(fetched.rows)
            values.extend(value for _, batch in fetched.rows for value in batch.data.column("value").to_pylist())
            # An answer with rows may be lost on its way: the subtask must not have reported its end yet.
            assert not (fetched.rows and SubtaskEvent.FINISHED in await actor.watch(1, 0))
            more = fetched.more
        assert await actor.watch(1, 1) == [SubtaskEvent.FINISHED]
        return values

    assert with_actor(graph_of(), use) == list(range(10))


def test_a_function_that_exits_ends_the_subtask_with_an_error() -> None:
    async def use(actor: SubtaskActor) -> Sequence[Report]:
        await actor.start(1)
        return await actor.watch(1, 0)

    (error,) = with_actor(graph_of(lambda stream: stream.map(lambda row: sys.exit(3))), use)
    assert isinstance(error, UserCodeError)
    assert (error.given, error.error) == ("{'value': 0}", "SystemExit: 3")


class FailsToOpen(ProcessFunction):
    """Its model is missing."""

    def open(self, context: RuntimeContext) -> None:
        raise FileNotFoundError("no such model")

    def process_element(self, row: Row, ctx: Context) -> Rows:
        yield row


def test_a_subtask_that_fails_to_open_has_not_started_and_reports_why() -> None:
    async def use(actor: SubtaskActor) -> Sequence[Report]:
        assert await actor.start(1) is False
        return await actor.watch(1, 0)

    (error,) = with_actor(graph_of(lambda stream: stream.process(FailsToOpen())), use)
    assert "no such model" in str(error)


def test_what_a_process_looked_for_garbage_before_is_not_counted_to_the_subtask_that_it_becomes() -> None:
    async def use(actor: SubtaskActor) -> float:
        await actor.start(1)
        actor._garbage.seconds += 3600.0
        await actor.deploy(graph_of(), dataclasses.replace(FIRST_TASK, attempt=2))
        await actor.start(2)
        counted = await actor.metrics(2)
        assert counted is not None
        return counted.garbage_seconds

    assert with_actor(graph_of(), use) < 3600.0


def test_a_subtask_that_never_started_stops_at_once() -> None:
    async def use(actor: SubtaskActor) -> Sequence[Report]:
        await actor.stop()
        return await actor.watch(1, 0)

    assert with_actor(graph_of(), use) == []


def test_a_subtask_whose_rows_nobody_fetches_can_be_stopped() -> None:
    async def use(actor: SubtaskActor) -> Sequence[Report]:
        await actor.start(1)
        assert await actor.watch(1, 0) == [SubtaskEvent.FIRST_ROWS]
        await actor.stop()
        return await actor.watch(1, 1)

    assert with_actor(graph_of(), use) == []


class Remembers(ProcessFunction):
    """State of a size that should not be there twice."""

    alive: ClassVar[weakref.WeakSet[Remembers]] = weakref.WeakSet()

    def open(self, context: RuntimeContext) -> None:
        self.alive.add(self)

    def process_element(self, row: Row, ctx: Context) -> Rows:
        yield row


def test_what_an_attempt_kept_is_gone_before_the_next_one_is_restored() -> None:
    graph = graph_of(lambda stream: stream.process(Remembers))

    async def use(actor: SubtaskActor) -> list[int]:
        kept = []
        for attempt in (2, 3):
            await actor.start(attempt - 1)
            kept.append(len(Remembers.alive))
            await actor.reset()
            await actor.deploy(graph, dataclasses.replace(FIRST_TASK, attempt=attempt))
            kept.append(len(Remembers.alive))
        return kept

    gc.disable()
    try:
        assert with_actor(graph, use) == [1, 0, 1, 0]
    finally:
        gc.enable()


def a_restore(folder: Path) -> Restore:
    """From checkpoint 1 of a job, which has no files."""
    kind, mode = SnapshotKind.CHECKPOINT, CheckpointMode.ALIGNED
    checkpoint = CompletedCheckpoint("job", "job", 1, 1, kind, mode, 128, 0, 0, ())
    return Restore(FolderJobStore(folder.as_uri(), "job", "job"), RestorePlan("", checkpoint, failover=False))


def test_what_an_attempt_kept_is_freed_later_where_its_successor_has_been_taken_in_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = graph_of(lambda stream: stream.process(Remembers))
    accumulators = HeldAccumulators(GroupedAggregation(["key"], {"n": ps.count()}), False)
    held = Preloaded(("", 0, 1, 128), 1, 1, {"totals": TakenState({}, {}, accumulators)})
    monkeypatch.setattr(FolderJobStore, "preload", lambda *arguments: held)
    # What comes behind a start happens at once.
    monkeypatch.setattr(subtask, "_DROPPED_SECONDS", 0.0)

    async def use(actor: SubtaskActor) -> list[int]:
        await actor.start(1)
        await actor.preload(graph, a_restore(tmp_path), 1, 0)
        await actor.deploy(graph, dataclasses.replace(FIRST_TASK, attempt=2))
        kept = [len(Remembers.alive)]
        await actor.start(2)
        while len(Remembers.alive) > 1:
            await asyncio.sleep(0)
        return [*kept, len(Remembers.alive)]

    gc.disable()
    try:
        assert with_actor(graph, use) == [1, 1], "the first one, and then the successor's own"
    finally:
        gc.enable()


def test_a_process_that_takes_long_to_take_state_in_is_deployed_at_once_and_started_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end, graph = threading.Event(), graph_of()
    monkeypatch.setattr(
        FolderJobStore, "preload", lambda *arguments: may_end.wait(30) and Preloaded(("", 0, 1, 128), 1, 1, {})
    )

    async def use(actor: SubtaskActor) -> list[bool]:
        loading = asyncio.ensure_future(actor.preload(graph, a_restore(tmp_path), 1, 0))
        await asyncio.sleep(0)
        await asyncio.wait_for(actor.deploy(graph, dataclasses.replace(FIRST_TASK, attempt=2)), 10)
        starting = asyncio.ensure_future(actor.start(2))
        done, _ = await asyncio.wait([starting], timeout=0.05)
        may_end.set()
        await loading
        return [bool(done), await starting]

    try:
        assert with_actor(graph, use) == [False, True]
    finally:
        may_end.set()


def test_an_attempt_that_ends_while_state_is_taken_in_for_it_never_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end, graph = threading.Event(), graph_of()
    monkeypatch.setattr(
        FolderJobStore, "preload", lambda *arguments: may_end.wait(30) and Preloaded(("", 0, 1, 128), 1, 1, {})
    )

    async def use(actor: SubtaskActor) -> bool:
        loading = asyncio.ensure_future(actor.preload(graph, a_restore(tmp_path), 1, 0))
        await asyncio.sleep(0)
        starting = asyncio.ensure_future(actor.start(1))
        await asyncio.sleep(0)
        await actor.reset()
        may_end.set()
        await loading
        return await starting

    try:
        assert with_actor(graph, use) is False
    finally:
        may_end.set()


class CannotBeClosed(ProcessFunction):
    """Its last rows do not fit anywhere."""

    def process_element(self, row: Row, ctx: Context) -> Rows:
        yield row

    def close(self) -> None:
        raise OSError("the disk is full")


@pytest.mark.parametrize("takes_checkpoints", [False, True])
def test_what_closing_a_task_raises_is_told_by_its_end(tmp_path: Path, takes_checkpoints: bool) -> None:
    store = FolderJobStore(tmp_path.as_uri(), "job", "job")
    store.claim()
    deployment = dataclasses.replace(FIRST_TASK, restore=Restore(store) if takes_checkpoints else None)

    async def use(actor: SubtaskActor) -> PenstockError | None:
        await actor.start(1)
        received, more = 0, True
        while more:
            fetched = await actor.fetch(1, 0, received, 1.0)
            received, more = received + len(fetched.rows), fetched.more
        stopped = await actor.stop()
        assert stopped is not None
        return stopped.error

    error = with_actor(graph_of(lambda stream: stream.process(CannotBeClosed())), use, deployment)
    assert "OSError: the disk is full" in str(error)


def test_a_process_can_be_deployed_again_and_what_belongs_to_the_attempt_before_is_dropped() -> None:
    graph = graph_of()

    async def use(actor: SubtaskActor) -> list[int]:
        await actor.start(1)
        waiting = asyncio.ensure_future(actor.watch(1, 1))
        await actor.deploy(graph, Deployment(1, 0, 2, [[]]))
        assert await waiting == []
        await actor.start(2)
        assert not (await actor.fetch(1, 0, 0, 1.0)).more
        fetched = await actor.fetch(2, 0, 0, 5.0)
        await actor.stop()
        return [value for _, batch in fetched.rows for value in batch.data.column("value").to_pylist()]

    assert with_actor(graph, use) == list(range(10))


@pytest.mark.parametrize("kind", [SnapshotKind.CHECKPOINT, SnapshotKind.SAVEPOINT])
def test_a_barrier_that_comes_before_the_manager_asks_for_the_checkpoint_is_answered(
    tmp_path: Path, kind: SnapshotKind
) -> None:
    graph = graph_of(lambda stream: stream.key_by("value").aggregate(n=ps.count()))
    store = FolderJobStore(f"file://{tmp_path}", "job", "job")
    store.claim()
    barrier = Barrier(1, kind=kind, target=f"file://{tmp_path}/savepoint" if kind is SnapshotKind.SAVEPOINT else None)
    rows = Batch(pa.RecordBatch.from_pydict({"value": [1, 2, 3]}))

    async def use(actor: SubtaskActor) -> Answer:
        await actor.start(1)
        pushed = asyncio.ensure_future(actor.push(*packed((1, 0, 0, (rows, barrier)))))
        fetched = await actor.fetch(1, 0, 0, 5.0)
        await actor.fetch(1, 0, len(fetched.rows), 0.0)
        await pushed
        while not list(tmp_path.rglob("*.arrow")):
            await asyncio.sleep(0)
        return await actor.checkpoint(1, barrier)

    answer = with_actor(graph, use, Deployment(graph.tasks[-1].id, 0, 1, [[]], Restore(store)))
    assert isinstance(answer, SubtaskHandle)
    assert [operator.name for operator in answer.operators] == ["aggregate(n=count(*))"]


@pytest.mark.parametrize(("until", "seconds"), [(None, None), (5.0, 0.0), (12.5, 2.5)])
def test_the_thread_waits_until_the_task_has_something_to_do(until: float | None, seconds: float | None) -> None:
    assert _patience(until, now=10.0) == seconds


def test_a_timer_in_the_year_9999_does_not_end_the_subtask() -> None:
    seconds = _patience(253_402_300_799.0, now=10.0)
    assert seconds is not None
    assert 0 < seconds < threading.TIMEOUT_MAX


async def state_of(actor: SubtaskActor, state: str = "rules", attempt: int = 1, uid: str = "op") -> Any:
    answer = await actor.read_state(attempt, uid, state, Question(None))
    if isinstance(answer, PenstockError):
        raise answer
    return answer


def test_state_is_read_between_steps_and_a_question_that_fails_harms_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FolderJobStore(f"file://{tmp_path}", "job", "job")
    store.claim()

    class Counts(ProcessFunction):
        def open(self, context: RuntimeContext) -> None:
            self.seen = context.get_operator_list_state(ListStateDescriptor("seen", "int64"))

        def process_element(self, row: Row, ctx: Context) -> Rows:
            self.seen.add(row["value"])
            yield row

    async def use(actor: SubtaskActor) -> list[int]:
        await actor.start(1)
        without = "no state that can be asked for; of its task do: op$"
        for uid, state, problem in (("nobody", "seen", without), ("all", "seen", without), ("op", "sean", "seen")):
            with pytest.raises(UnknownStateError, match=problem):
                await state_of(actor, state, uid=uid)
        with pytest.raises(StateNotReadyError, match="restarted or rescaled"):
            await state_of(actor, attempt=2)
        rows = (await state_of(actor, "seen")).data
        monkeypatch.setattr("penstock.actors.state_answers._MOST_SCANS", 0)
        with pytest.raises(StateNotReadyError, match="requests of this kind"):
            await state_of(actor, "seen")
        values: list[int] = rows.column("value").to_pylist()
        return values

    # A job with checkpoints: its subtasks stay until all have ended.
    there = dataclasses.replace(FIRST_TASK, restore=Restore(store))
    seen = with_actor(
        graph_of(lambda stream: stream.process(Counts).uid("op").filter(lambda row: True).uid("all")), use, there
    )
    assert seen == list(range(len(seen)))


def test_who_asks_for_state_is_told_when_the_subtask_ends() -> None:
    async def use(actor: SubtaskActor) -> None:
        # It was not started, so nobody answers.
        asking = asyncio.ensure_future(state_of(actor))
        await asyncio.sleep(0)
        await actor.stop()
        with pytest.raises(StateNotReadyError, match="has ended"):
            await asking
        with pytest.raises(StateNotReadyError, match="has ended"):
            await state_of(actor)

    with_actor(graph_of(), use)


def _asked_by_link(attempt: int) -> Any:
    """What the answer to a question is that comes through a link; waits for it."""
    connection = connected(listening_id(_ACTOR))
    assert connection is not None
    link, deadline = WaitingLink(connection), time.monotonic() + 20
    link.send(packed_question(attempt, "op", "n", Question(pa.record_batch({"key": ["a"]}))), deadline)
    return unpacked_answer(link.receive(deadline))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="links are Linux's")
def test_questions_by_links_are_answered_between_steps_at_rest_and_behind_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    worker = SimpleNamespace(mode=None)
    context = SimpleNamespace(get_actor_id=lambda: _ACTOR, get_node_id=lambda: "", worker=worker)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
    readers: list[str] = []
    ask = SubtaskActor._ask

    def noted(self: SubtaskActor, *asked: Any) -> None:
        readers.append(threading.current_thread().name)
        ask(self, *asked)

    monkeypatch.setattr(SubtaskActor, "_ask", noted)

    async def answer(attempt: int = 1) -> str:
        return str(await asyncio.to_thread(_asked_by_link, attempt))

    async def use(actor: SubtaskActor) -> None:
        before_the_start = asyncio.ensure_future(answer())
        await actor.start(1)
        assert "no state that can be asked for" in await before_the_start
        # Its rows are with the client, which does not fetch them: the task rests.
        assert "no state that can be asked for" in await answer()
        assert "restarted or rescaled" in await answer(2)
        assert set(readers) == {TASK_THREAD}
        await actor.stop()
        assert "has ended" in await answer()
        for server in (actor._links, actor._sparse, actor._questions, actor._counters):
            assert server is not None
            server.close()

    with_actor(graph_of(), use)


@pytest.mark.parametrize("attempt", [0, 2])
def test_messages_of_another_attempt_are_dropped(attempt: int) -> None:
    async def use(actor: SubtaskActor) -> None:
        await actor.push((attempt, 0, 0, ()))
        await actor.stop()

    with_actor(graph_of(), use)
