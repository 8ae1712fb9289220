"""One attempt of a subtask on an event loop of this process: rows in, rows out, commands between steps, its end."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import itertools
import os
import select
import sys
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from penstock import DataGenSource, Sequence, StreamEnvironment
from penstock.actors.capture_writer import Declined
from penstock.actors.channels import Pushed, Pusher, sparse_id, take_frame, unpacked
from penstock.actors.deployment import Deployment, Restore, Target
from penstock.actors.links import LinkServer, Reply
from penstock.actors.polled_readers import LoopWakeup, PolledReaders, ThreadSockets
from penstock.actors.running_task import TASK_THREAD, RunningTask, SubtaskEvent
from penstock.engine.checkpointing.handles import SubtaskHandle
from penstock.engine.checkpointing.instructions import AbortReason
from penstock.engine.config import JobConfig
from penstock.engine.elements import Barrier, Batch, Element, EndOfInput
from penstock.engine.errors import StateError, UserCodeError
from penstock.engine.graph.physical import Parallelism, PhysicalGraph, plan
from penstock.savepoints.store import FolderJobStore

RESULT = 0
"""The exchange to the client."""
AT_ONCE = JobConfig(buffer_timeout_ms=0)


class Peer:
    """The actor behind the source, which takes every message at once."""

    _actor_id = b"no process listens under this id"

    def __init__(self) -> None:
        self.elements: list[Element] = []

    @property
    def push(self) -> Any:
        return self

    def remote(self, *arguments: Any) -> Any:
        self.elements.extend(unpacked(arguments)[-1])
        return self

    def future(self) -> Future[float | None]:
        taken: Future[float | None] = Future()
        taken.set_result(None)
        return taken


class SlowPeer(Peer):
    """One that takes a message when the sender has long been waiting, and tells it from another thread."""

    def future(self) -> Future[float | None]:
        taken: Future[float | None] = Future()
        threading.Timer(0.01, taken.set_result, [None]).start()
        return taken


def graph_of(
    function: Callable[[Any], Any] = lambda row: row, rows: int | None = 10, config: JobConfig = AT_ONCE
) -> PhysicalGraph:
    """Task 1 is the source; task 2, behind a shuffle, calls the function and gives its rows to the client."""
    env = StreamEnvironment(runtime="local", parallelism=1)
    env.from_source(DataGenSource({"n": Sequence()}, rows=rows)).rebalance().map(function).collect()
    return plan("numbers", env._program.graph.build(), Parallelism(1, None, 1), config).physical()


def deployed(graph: PhysicalGraph, deployment: Deployment) -> tuple[RunningTask, ThreadSockets | None]:
    """An attempt on the loop that runs, and its sockets, where there are such."""
    loop = asyncio.get_running_loop()

    def on_unread(readers: PolledReaders) -> None:
        if not task.wake():
            readers.poll()
            readers.rest()

    sockets = ThreadSockets(loop, on_unread) if sys.platform.startswith("linux") else None
    task = RunningTask(graph, deployment, loop, sockets or LoopWakeup())
    return task, sockets


def running(use: Callable[[RunningTask], Awaitable[Any]], deployment: Deployment, graph: PhysicalGraph) -> Any:
    """What `use` gives; the attempt is closed behind it."""

    async def main() -> Any:
        task, _ = deployed(graph, deployment)
        assert await task.start()
        try:
            return await asyncio.wait_for(use(task), 30)
        finally:
            await asyncio.wait_for(task.close(), 30)

    return asyncio.run(main())


def mapping(use: Callable[[RunningTask], Awaitable[Any]], function: Callable[[Any], Any] = lambda row: row) -> Any:
    """As `running`, for the task with the function."""
    graph = graph_of(function)
    return running(use, Deployment(graph.tasks[1].id, 0, 1, [[]]), graph)


def numbers(*values: int) -> Batch:
    return Batch(pa.record_batch({"n": list(values)}))


def test_a_push_returns_with_the_credit_when_the_task_has_taken_the_message() -> None:
    async def use(task: RunningTask) -> tuple[float | None, list[int]]:
        wanted = await task.push(0, 0, (numbers(1, 2),))
        fetched = await task.fetch(RESULT, 0, 5.0)
        return wanted, [n for _, batch in fetched.rows for n in batch.data["n"].to_pylist()]

    wanted, rows = mapping(use)
    assert rows == [1, 2]
    assert wanted is not None
    assert wanted > 0, "the sender hears how much the task wants before it"


def test_an_attempt_that_has_ended_takes_messages_and_drops_them() -> None:
    async def use(task: RunningTask) -> Any:
        await task.close()
        assert await task.push(0, 0, (numbers(1),)) is None
        return await task.checkpoint(Barrier(1))

    declined = mapping(use)
    assert isinstance(declined, Declined)
    assert (declined.message, declined.reason) == ("the subtask has ended", AbortReason.SUBTASK_ENDED)


def test_a_checkpoint_whose_rows_nobody_takes_is_given_up_without_a_word(tmp_path: Path) -> None:
    async def use(task: RunningTask) -> Any:
        told = list[object]()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["message"]))
        await task.push(0, 0, (numbers(1), Barrier(1)))
        asked = asyncio.ensure_future(task.checkpoint(Barrier(1)))
        await until(lambda: any("deliver" in str(one.get_coro()) for one in asyncio.all_tasks()))
        await task.close()
        assert isinstance(await asked, Declined)
        gc.collect()
        await asyncio.sleep(0)
        return told

    graph, store = graph_of(), FolderJobStore(f"file://{tmp_path}", "job", "job")
    store.claim()
    assert running(use, Deployment(graph.tasks[1].id, 0, 1, [[]], Restore(store)), graph) == []


def test_messages_that_overtook_each_other_are_taken_in_order() -> None:
    async def use(task: RunningTask) -> list[int]:
        late = asyncio.ensure_future(task.push(0, 1, (numbers(2), EndOfInput())))
        await asyncio.sleep(0)
        await task.push(0, 0, (numbers(1),))
        await late
        rows: list[int] = []
        received, more = 0, True
        while more:
            fetched = await task.fetch(RESULT, received, 5.0)
            received, more = received + len(fetched.rows), fetched.more
            rows += [n for _, batch in fetched.rows for n in batch.data["n"].to_pylist()]
        assert SubtaskEvent.FINISHED in await task.watch(0)
        return rows

    assert mapping(use) == [1, 2]


def test_an_error_of_the_function_is_the_last_report_and_lets_the_senders_go() -> None:
    def fail(row: Any) -> Any:
        raise ValueError(f"cannot take {row['n']}")

    async def use(task: RunningTask) -> Any:
        await task.push(0, 0, (numbers(7),))
        (report,) = await task.watch(0)
        assert await task.push(0, 1, (numbers(8),)) is None
        assert not (await task.fetch(RESULT, 0, 5.0)).more
        return report

    error = mapping(use, fail)
    assert isinstance(error, UserCodeError)
    assert "cannot take 7" in str(error)


class Wordless(Exception):
    """Has no text."""

    def __str__(self) -> str:
        return str(self.args[1])


def test_an_error_without_a_text_ends_the_subtask_all_the_same() -> None:
    """Of a function; and of what the engine does not call in the name of an operator."""

    def fail(row: Any) -> Any:
        raise Wordless("only one argument")

    async def called(task: RunningTask) -> Any:
        await task.push(0, 0, (numbers(7),))
        return await task.watch(0)

    async def at_the_end(task: RunningTask) -> Any:
        await task._run_between_steps(lambda: fail(None))
        return await task.watch(0)

    for use in (called, at_the_end):
        (error,) = mapping(use, fail)
        assert "Wordless: (its __str__ raises IndexError)" in str(error)


def source_of(rows: int | None, peer: Peer | None = None) -> tuple[Peer, Deployment, PhysicalGraph]:
    peer, graph = peer or Peer(), graph_of(rows=rows)
    return peer, Deployment(graph.tasks[0].id, 0, 1, [[Target(peer, 0, 1)]]), graph


async def finished(task: RunningTask) -> None:
    seen = 0
    while SubtaskEvent.FINISHED not in (reports := await task.watch(seen)):
        seen += len(reports)


def test_a_drain_ends_a_source_without_end() -> None:
    peer, deployment, graph = source_of(None)

    async def use(task: RunningTask) -> Any:
        task.drain()
        await finished(task)

    running(use, deployment, graph)
    assert isinstance(peer.elements[-1], EndOfInput)


def test_a_source_that_waits_for_credit_goes_on_when_it_comes() -> None:
    peer, deployment, graph = source_of(40, SlowPeer())

    running(finished, deployment, replace(graph, config=replace(graph.config, max_batch_rows=4, channel_credits=1)))
    rows = [element.num_rows for element in peer.elements if isinstance(element, Batch)]
    assert sum(rows) == 40


class LinkedPeer(Peer):
    """One that is sent to through links.

    Attributes:
        came: the attempts that messages came for.
        server: holds its ends of the links.
    """

    _actor_id = f"linked-{os.getpid()}".encode()

    def __init__(self) -> None:
        super().__init__()
        self.came: set[int] = set()
        self.server = LinkServer(self._actor_id.hex(), lambda frame, reply: take_frame(frame, reply, self._take))

    def _take(self, pushed: Pushed, answer: Callable[[float | None], object]) -> None:
        self.came.add(pushed[0])
        answer(7.0)


async def until(holds: Callable[[], object]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="links are Linux's")
def test_who_sends_to_others_from_now_on_keeps_no_connection_to_those_before() -> None:
    _, deployment, graph = source_of(None)

    async def use(task: RunningTask) -> int:
        peer = LinkedPeer()
        for attempt in (2, 3, 4):
            await task.connect(graph, {0: [Target(peer, 0, attempt)]})
            await until(lambda attempt=attempt: attempt in peer.came)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(until(lambda: len(peer.server._links) == 1), 5)
        held = len(peer.server._links)
        await task.close()
        peer.server.close()
        return held

    assert running(use, deployment, graph) == 1


class Linked:
    """A task behind a link, and who sends to it.

    Attributes:
        readers: the threads that its messages were read by, one after the other.
    """

    def __init__(self, graph: PhysicalGraph) -> None:
        self.task, sockets = deployed(graph, Deployment(graph.tasks[1].id, 0, 1, [[]]))
        assert sockets is not None
        self.sockets = sockets
        self.readers: list[str] = []
        peer = SimpleNamespace(_actor_id=LinkedPeer._actor_id)
        actor_id = peer._actor_id.hex()
        self._servers = [
            LinkServer(actor_id, self._on_frame, sockets.incoming),
            LinkServer(sparse_id(actor_id), self._on_frame, sockets.sparse),
        ]
        self._loop = asyncio.get_running_loop()
        self._pusher = Pusher(peer, 1, 0, self._loop)
        self._sent = itertools.count()

    def _on_frame(self, frame: bytes, reply: Reply) -> None:
        self.readers.append(threading.current_thread().name)
        take_frame(frame, reply, lambda pushed, answer: self.task.take(*pushed[1:], answer))

    def send(self, *elements: Element) -> asyncio.Future[float | None]:
        taken: asyncio.Future[float | None] = self._loop.create_future()
        answered = functools.partial(self._loop.call_soon_threadsafe, lambda wanted, _: taken.set_result(wanted))
        self._pusher(next(self._sent), elements, answered)
        return taken

    async def close(self) -> None:
        await self.task.close()
        self._pusher.close()
        for server in self._servers:
            server.close()


def linked(use: Callable[[Linked], Awaitable[None]], graph: PhysicalGraph) -> None:
    async def main() -> None:
        one = Linked(graph)
        try:
            await asyncio.wait_for(use(one), 30)
        finally:
            await asyncio.wait_for(one.close(), 30)

    asyncio.run(main())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="links are Linux's")
def test_messages_by_links_are_read_by_the_thread_of_the_task_and_dropped_behind_its_end() -> None:
    async def use(one: Linked) -> None:
        before_the_start = one.send(numbers(1))
        assert await one.task.start()
        for sent in (before_the_start, one.send(numbers(2))):
            assert (await sent or 0) > 0, "the sender hears how much the task wants before it"
        rows: list[int] = []
        batches = 0
        while len(rows) < 2:
            fetched = await one.task.fetch(RESULT, batches, 5.0)
            batches += len(fetched.rows)
            rows += [n for _, batch in fetched.rows for n in batch.data["n"].to_pylist()]
        assert rows == [1, 2]
        assert one.readers == [TASK_THREAD] * 2
        await one.task.close()
        assert await one.send(numbers(3)) is None

    linked(use, graph_of())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="links are Linux's")
@pytest.mark.parametrize("pressing", [numbers(*range(64)), EndOfInput()])
def test_behind_few_rows_a_task_takes_what_presses_at_once(pressing: Element) -> None:
    async def use(one: Linked) -> None:
        before_the_start = one.send(numbers(1))
        # The loop says so once of a socket that nobody has read yet.
        await until(lambda: select.select([one.sockets._event], (), (), 0)[0])
        assert await one.task.start()
        await before_the_start
        await until(lambda: one.task.task.rests)
        few = one.send(numbers(2))
        for _ in range(1_000):
            await asyncio.sleep(0)
        assert len(one.readers) == 1, "few rows wake nobody within the rest"
        await asyncio.gather(few, one.send(pressing))

    # Whatever its pace: a machine that is busy makes it take rows one by one, and it has much to do then.
    linked(use, graph_of(config=JobConfig(buffer_timeout_ms=3_600_000, buffer_debloat_target_ms=0)))


@pytest.mark.parametrize("aborted", [False, True])
def test_a_checkpoint_is_answered_when_its_files_are_there_or_it_was_given_up(tmp_path: Path, aborted: bool) -> None:
    peer, deployment, graph = source_of(None)
    store = FolderJobStore(f"file://{tmp_path}", "job", "job")
    store.claim()

    async def use(task: RunningTask) -> Any:
        asked = asyncio.ensure_future(task.checkpoint(Barrier(1)))
        if aborted:
            await asyncio.sleep(0)
            task.abort(1)
        answer = await asked
        assert await task.complete(1) is True
        return answer

    deployed = Deployment(deployment.task, 0, 1, deployment.targets, Restore(store))
    answer = running(use, deployed, graph)
    if aborted:
        assert isinstance(answer, Declined)
        assert answer.message == "the checkpoint was aborted"
    else:
        assert isinstance(answer, SubtaskHandle)
        assert answer.times is not None
        assert answer.times.async_ms > 0
        assert Barrier(1) in peer.elements


def test_the_last_rows_are_shown_to_who_asks_for_as_long_as_that_is() -> None:
    graph = graph_of()
    uid = graph.tasks[1].operators[0].uid

    async def use(task: RunningTask) -> Any:
        await task.push(0, 0, (numbers(1, 2),))
        looking = asyncio.ensure_future(task.tail(uid, "", 3, 3, 30.0))
        while not looking.done():
            for sequence in range(1, 50):
                await task.push(0, sequence, (numbers(10 * sequence, 10 * sequence + 1),))
                if looking.done():
                    break
                await task.fetch(RESULT, sequence, 5.0)
        with pytest.raises(StateError, match="no side output 'late'"):
            await task.tail(uid, "late", 1, 1, 1.0)
        return looking.result(), await task.tail(uid, "", 3, 3, 0.01)

    found, nothing = running(use, Deployment(graph.tasks[1].id, 0, 1, [[]]), graph)
    shown = [row["n"] for row in found.rows.to_pylist()]
    assert len(shown) == 3
    assert 1 not in shown, "it came before anybody asked"
    assert found.rows["subtask"].to_pylist() == [0, 0, 0]
    assert (nothing.seen, nothing.rows.num_rows) == (0, 0)
