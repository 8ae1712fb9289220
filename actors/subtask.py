"""The actor of a subtask: a process that runs one subtask at a time, and the next one when it is deployed again.

The job manager creates it empty (or keeps it warm as a standby), deploys a subtask into it, starts it, and keeps one
`watch` call pending, which returns what the subtask reports or errors when the process dies. Other subtasks call
`push`, the client calls `fetch`. Whatever belongs to another attempt than the one that runs is dropped.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import ray

from penstock.actors.capture_writer import HAS_ENDED, Answer
from penstock.actors.channels import Pushed, sparse_id, take_frame, unpacked
from penstock.actors.counters import serve_counters
from penstock.actors.deployment import Deployment, Restore, Target
from penstock.actors.garbage import GarbageClock
from penstock.actors.lifeline import Address, Lifeline
from penstock.actors.links import LinkServer, Reply, resolve
from penstock.actors.main_thread import calm_main_thread, end_without_a_word
from penstock.actors.pandas_later import load_pandas_later
from penstock.actors.polled_readers import LoopWakeup, PolledReaders, ThreadSockets
from penstock.actors.process_end import Process
from penstock.actors.process_name import name_process, process_name
from penstock.actors.results import Fetched
from penstock.actors.running_task import TASK_THREAD, Report, RunningTask
from penstock.actors.stacks import SampledStack, sampled_stacks
from penstock.actors.state_answers import Answered, SharedAnswer, answer_frame, listening_id, prepare_for_questions
from penstock.actors.task_log import LogLine, TaskLog
from penstock.engine.checkpointing.preload import Preloaded
from penstock.engine.elements import Barrier
from penstock.engine.errors import PenstockError, StateNotReadyError
from penstock.engine.free_memory import free_memory
from penstock.engine.graph.physical import ChannelPlan, PhysicalGraph
from penstock.engine.metrics import ChannelStatistics, SubtaskMetrics
from penstock.engine.task.tap import TappedRows

if TYPE_CHECKING:
    from penstock.savepoints.live_rows import Question, StateAnswer

_KEPT_MS: Final = 60_000
"""How long Arrow's memory that is free is kept for what comes next: longer than most intervals between checkpoints."""

_DROPPED_SECONDS: Final = 1.0
"""So long behind its successor's start, the state that ran before one that was taken in beside it is freed: a tenth of
a second in which no row is processed."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """How an attempt ended: its last counters, and its error, also of closing the task; None: it had none."""

    metrics: SubtaskMetrics
    error: PenstockError | None


class SubtaskActor:
    """One subtask in a process of its own. All methods run on the event loop."""

    def __init__(self) -> None:
        self._running: RunningTask | None = None
        self._used = self._holds_old = False
        self._preloaded: asyncio.Task[Preloaded] | None = None
        self._lifeline: Lifeline | None = None
        self._links: LinkServer | None = None
        self._sparse: LinkServer | None = None
        self._questions: LinkServer | None = None
        self._counters: LinkServer | None = None
        self._sockets: ThreadSockets | None = None
        self._log = TaskLog()
        self._log.install()
        self._garbage = GarbageClock()
        self._garbage.begin()
        self._garbage_before = 0.0
        keep_memory()
        load_pandas_later()
        warm_arrow()
        # A tenth of a second of each process's start goes into looking for garbage in what has just been imported.
        gc.freeze()

    async def prepare(self, graph: PhysicalGraph) -> Process:
        """Get warm: the job's modules are imported as `graph` arrives.

        Returns:
            this process.
        """
        return Process.own()

    async def preload(self, graph: PhysicalGraph, restore: Restore, task: int, subtask: int) -> None:
        """Take in what a subtask resumes from that is to be deployed here; what runs here goes on.
        What cannot be read is read again by the deployment, which says so.
        """
        plan = restore.plan
        if plan is None:
            return
        before = self._preloaded

        async def take_in() -> Preloaded:
            known = None if before is None else await _taken(before)
            return await asyncio.to_thread(restore.store.preload, graph, plan, task, subtask, known)

        self._preloaded = asyncio.ensure_future(take_in())
        await asyncio.wait([self._preloaded])

    async def wait(self) -> None:
        """Never returns; errors when the process dies."""
        await asyncio.Event().wait()

    async def lifeline(self) -> Address | None:
        """Where job managers on other nodes see that this process lives; None: nowhere."""
        if self._lifeline is None:
            self._lifeline = Lifeline(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]
        return await self._lifeline.address()

    async def ping(self) -> None:
        """Answers, as long as the process is not stuck."""

    async def deploy(self, graph: PhysicalGraph, deployment: Deployment) -> Process:
        """Become a subtask of `graph`. What ran here is closed first; messages are accepted from now on.

        Returns:
            this process.
        """
        await self.reset()
        self._holds_old = self._used
        self._used = True
        if self._preloaded is None:
            self._drop_old()
        task = graph.task(deployment.task).name
        name_process(self, SubtaskActor, process_name(graph.name, task, deployment.subtask))
        self._log.set_levels(graph.config.log_levels)
        self._log.show(graph.config.log_levels, graph.config.log_format)
        self._log.place(deployment.task, deployment.subtask, deployment.attempt)
        self._listen()
        self._running = RunningTask(graph, deployment, asyncio.get_running_loop(), self._sockets or LoopWakeup())
        return Process.own()

    def _listen(self) -> None:
        """Take messages from processes on this machine by links, too."""
        if self._links is None and ray.is_initialized():
            actor_id = ray.get_runtime_context().get_actor_id()
            if actor_id is not None:
                if sys.platform.startswith("linux"):
                    self._sockets = ThreadSockets(asyncio.get_running_loop(), self._on_unread)
                readers = None if self._sockets is None else self._sockets.incoming
                self._links = LinkServer(actor_id, self._on_frame, readers)
                waiting = None if self._sockets is None else self._sockets.sparse
                self._sparse = LinkServer(sparse_id(actor_id), self._on_frame, waiting)
                self._questions = LinkServer(listening_id(actor_id), self._on_question, readers, prepare_for_questions)
                self._counters = serve_counters(actor_id, self._counted_of)
                end_without_a_word()
                calm_main_thread(asyncio.get_running_loop())

    def _on_frame(self, frame: bytes, reply: Reply) -> None:
        take_frame(frame, reply, self._take)

    def _take(self, pushed: Pushed, answer: Callable[[float | None], object]) -> None:
        attempt, channel, sequence, message = pushed
        running = self._of(attempt)
        if running is None:
            answer(None)
        else:
            running.take(channel, sequence, message, answer)

    async def reset(self) -> None:
        """Close what runs here, and take nothing of it any more; the process stays warm."""
        running, self._running = self._running, None
        if running is not None:
            await running.close()

    async def replace_inputs(self, attempt: int, graph: PhysicalGraph, added: Sequence[ChannelPlan]) -> int | None:
        """Take input from new subtasks; the number of the first of the new channels. None: that attempt has ended."""
        running = self._of(attempt)
        return None if running is None else await running.replace_inputs(graph, added)

    async def connect(self, attempt: int, graph: PhysicalGraph, targets: Mapping[int, Sequence[Target]]) -> None:
        """Send to new subtasks, by the number of the exchange."""
        if (running := self._of(attempt)) is not None:
            await running.connect(graph, targets)

    async def start(self, attempt: int) -> bool:
        """Restore and open the task, and begin to step it; returns when it is open. False: it is not (see `watch`)."""
        preloaded = await self._take_preloaded()
        running = self._of(attempt)
        is_open = running is not None and await running.start(preloaded)
        if is_open:
            # The other times of an attempt begin when it is open, too.
            self._garbage_before = self._garbage.seconds
        # Later, as both states had room until now: rows that wait for this subtask do not wait for that, too.
        asyncio.get_running_loop().call_later(_DROPPED_SECONDS, self._drop_old)
        return is_open

    async def _take_preloaded(self) -> Preloaded | None:
        """What was taken in for the subtask that is about to start, once it is, however long that takes."""
        taking_in, self._preloaded = self._preloaded, None
        preloaded = None if taking_in is None else await _taken(taking_in)
        if preloaded is None or not preloaded.is_held:
            self._drop_old()
        return preloaded

    def _drop_old(self) -> None:
        """Free the state that ran here before: it refers to itself, and would stay beside the one that is restored."""
        if self._holds_old:
            self._holds_old = False
            gc.collect()
            free_memory()

    async def watch(self, attempt: int, seen: int) -> Sequence[Report]:
        """What the subtask reports, behind the first `seen` reports; waits for some. Nothing once the attempt is over.

        Errors when the process dies.
        """
        running = self._of(attempt)
        return [] if running is None else await running.watch(seen)

    async def push(self, *arguments: Pushed | bytes) -> float | None:
        """Take a message; returns when the task has taken it out of its inbox (that return is the credit).

        Args:
            arguments: what `packed` gives.

        Returns:
            How many rows the task wants to have under way on the channel; None where that attempt has ended.
        """
        attempt, channel, sequence, message = unpacked(arguments)
        running = self._of(attempt)
        return None if running is None else await running.push(channel, sequence, message)

    async def fetch(self, attempt: int, output: int, received: int, seconds: float) -> Fetched:
        """Rows for the client.

        Args:
            attempt: that is meant.
            output: number of the exchange.
            received: how many batches of this attempt and exchange have arrived at the client.
            seconds: how long to wait for some.
        """
        running = self._of(attempt)
        return Fetched([], False, 0) if running is None else await running.fetch(output, received, seconds)

    async def checkpoint(self, attempt: int, barrier: Barrier) -> Answer:
        """Take part in a checkpoint: returns what the subtask acknowledges it with when its files are there.

        Args:
            attempt: that is meant.
            barrier: which checkpoint.
        """
        running = self._of(attempt)
        return HAS_ENDED if running is None else await running.checkpoint(barrier)

    async def abort(self, attempt: int, checkpoint: int) -> None:
        """The checkpoint will not be: nothing waits for its barriers any more."""
        if (running := self._of(attempt)) is not None:
            running.abort(checkpoint)

    async def complete(self, attempt: int, checkpoint: int) -> bool:
        """The checkpoint counts; returns when the sinks have committed. False: the attempt ended before."""
        running = self._of(attempt)
        return running is not None and await running.complete(checkpoint)

    async def drain(self, attempt: int) -> None:
        """End the input here, if the task is a source."""
        if (running := self._of(attempt)) is not None:
            running.drain()

    async def position(self) -> int | None:
        """How far (int64 ms) the splits of an aligned source are here; None if none takes part."""
        member = None if self._running is None else self._running.alignment
        return None if member is None else member.position

    async def align(self, minimum: int) -> None:
        """The earliest position of the alignment group: splits that are too far ahead of it wait."""
        if self._running is not None:
            self._running.align(minimum)

    async def metrics(self, attempt: int) -> SubtaskMetrics | None:
        """The counters as of now."""
        return self._counted_of(attempt)

    def _counted_of(self, attempt: int) -> SubtaskMetrics | None:
        running = self._of(attempt)
        return None if running is None else self._counted(running)

    async def channels(self, attempt: int) -> Sequence[ChannelStatistics]:
        """The channels behind the subtask as of now; none where another attempt runs here."""
        running = self._of(attempt)
        return () if running is None else running.channels()

    async def read_state(self, attempt: int, uid: str, state: str, question: Question) -> StateAnswer:
        """What an operator holds of a state between two of its steps, or the error; see `StateAnswers.ask`."""
        loop = asyncio.get_running_loop()
        given: asyncio.Future[StateAnswer] = loop.create_future()

        def answered(shared: SharedAnswer, begin: int, end: int) -> None:
            answer = shared.rows(begin, end)
            loop.call_soon_threadsafe(resolve, given, answer)

        self._ask(attempt, uid, state, question, answered)
        return await given

    def _ask(self, attempt: int, uid: str, state: str, question: Question, answered: Answered) -> None:
        running = self._of(attempt)
        if running is None:
            error = StateNotReadyError(f"operator {uid!r} has been restarted or rescaled; try again")
            answered(SharedAnswer(error), 0, 0)
        else:
            running.state_answers.ask(uid, state, question, answered)

    def _on_question(self, frame: bytes, reply: Reply) -> None:
        answer_frame(frame, reply, self._ask)

    def _on_unread(self, readers: PolledReaders) -> None:
        """Something has come that no thread reads, unless there is one that has not begun to or is at work."""
        if self._running is None or not self._running.wake():
            readers.poll()
            readers.rest()

    async def tail(self, attempt: int, uid: str, side: str, rows: int, enough: int, seconds: float) -> TappedRows:
        """The last rows that an operator emits from now on; see `RunningTask.tail`.

        Raises:
            StateNotReadyError: another attempt runs here, or none.
        """
        running = self._of(attempt)
        if running is None:
            raise StateNotReadyError(f"operator {uid!r} has been restarted or rescaled; try again")
        return await running.tail(uid, side, rows, enough, seconds)

    async def stacks(self, seconds: float) -> Sequence[SampledStack]:
        """Where the threads of this process are: each stack with how often it was seen within `seconds`."""
        return await asyncio.to_thread(sampled_stacks, seconds, (TASK_THREAD,) if seconds else None)

    async def logs(self, after: int, most: int) -> Sequence[LogLine]:
        """What was printed and logged here, behind line `after`: the newest `most` lines."""
        return self._log.after(after, most)

    async def stop(self) -> Stopped | None:
        """Stop stepping, and return when the task has been closed; None: nothing ran."""
        running = self._running
        if running is None:
            return None
        await running.close()
        return Stopped(self._counted(running), running.error)

    def _counted(self, running: RunningTask) -> SubtaskMetrics:
        metrics = running.task.read_metrics()
        metrics.garbage_seconds = self._garbage.seconds - self._garbage_before
        return metrics

    def _of(self, attempt: int) -> RunningTask | None:
        running = self._running
        return running if running is not None and running.attempt == attempt else None


async def _taken(taking_in: asyncio.Task[Preloaded]) -> Preloaded | None:
    """What has been taken in, once it is; None: nothing, since it could not be read."""
    try:
        return await taking_in
    except Exception:
        return None


def warm_arrow() -> None:
    """Have Arrow load what it needs at the first call of this kind; rows would wait for that."""
    pa.table({"key": pa.array(np.zeros(1))}).group_by("key").aggregate([])


def keep_memory() -> None:
    """Let Arrow keep what it has freed for a while: pages given back to the system cost as much again as their use."""
    if "ARROW_DEFAULT_MEMORY_POOL" in os.environ or "jemalloc" not in pa.supported_memory_backends():
        return
    # The decay holds for arenas that are made from now on: the first one goes to the thread that allocates first, which
    # must not be that of the rows.
    pool = pa.jemalloc_memory_pool()
    pa.allocate_buffer(1024, memory_pool=pool)
    pa.jemalloc_set_decay_ms(_KEPT_MS)
    pa.set_memory_pool(pool)
