"""The actor of one subtask: a thread that steps the task, and an event loop on which messages arrive.

The job manager creates it empty, deploys a subtask into it, starts it, and keeps one `watch` call pending, which
returns when the subtask has ended or errors when the process dies. Other subtasks call `push`, the client calls
`fetch`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.actors.channels import Push, ReceivingEnd, SendingEnd
from penstock.engine.clock import SystemClock
from penstock.engine.elements import Batch
from penstock.engine.errors import PenstockError, located
from penstock.engine.graph.physical import PhysicalGraph
from penstock.engine.metrics import SubtaskMetrics
from penstock.engine.task.alignment import alignment_member
from penstock.engine.task.build import build_task
from penstock.engine.task.input_gate import InputGate
from penstock.engine.task.loop import Blocked, Finished, Idle, Progress, Task
from penstock.engine.task.outputs import Channel, Message

_GATHER_SECONDS: Final = 0.02
_LONGEST_WAIT_SECONDS: Final = 86_400.0
"""A thread cannot wait for centuries (`threading.TIMEOUT_MAX`), and a timer may be as far away."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """Which subtask an actor becomes.

    Args:
        task, subtask: id of the task, and index of the subtask.
        attempt: number of the execution; messages of other attempts are dropped.
        targets: for each exchange that leaves the task, the receiving actors with the channel's number there.
    """

    task: int
    subtask: int
    attempt: int
    targets: Sequence[Sequence[tuple[Any, int]]]


class ResultBuffer:
    """The end of a stream whose rows go to the client: messages wait here, within credits, until they are fetched.

    Args:
        credit: how many messages may wait.
        loop: the event loop on which `arrived` is awaited.
        wake: tells the task that there is credit again.
    """

    def __init__(self, credit: int, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        self.arrived = asyncio.Event()
        self.exhausted = False
        self._credit = credit
        self._loop = loop
        self._wake = wake
        self._messages: deque[Message] = deque()

    @property
    def credits(self) -> int:
        return self._credit - len(self._messages)

    @property
    def under_way(self) -> int:
        return len(self._messages)

    def send(self, message: Message) -> None:
        self._messages.append(message)
        self._loop.call_soon_threadsafe(self.arrived.set)

    def take(self) -> list[Batch]:
        """All batches that wait."""
        self.arrived.clear()
        taken: list[Batch] = []
        while self._messages:
            taken.extend(element for element in self._messages.popleft() if isinstance(element, Batch))
        self._wake()
        return taken


class SubtaskActor:
    """One subtask in a process of its own. All methods run on the event loop, except `_run`, which is the thread."""

    def __init__(self) -> None:
        self._attempt = -1
        # Arrow loads pandas, where it is installed, at the first call of this kind: a second that rows would wait for.
        pa.table({"key": pa.array(np.zeros(1))}).group_by("key").aggregate([])

    async def deploy(self, graph: PhysicalGraph, deployment: Deployment) -> None:
        """Become a subtask of `graph`. Messages are accepted from now on."""
        self._loop = asyncio.get_running_loop()
        self._wakeup = threading.Event()
        self._stopping = False
        self._started = False
        self._aborted: PenstockError | None = None
        self._stepped = False
        self._ended: asyncio.Future[PenstockError | None] = self._loop.create_future()
        self._results: dict[int, ResultBuffer] = {}
        self._task_name = graph.task(deployment.task).name
        self._subtask = deployment.subtask
        channels = graph.input_channels(deployment.task, deployment.subtask)
        gate = InputGate([channel.input_index for channel in channels])
        self._receiving = [self._receiving_end(gate, number) for number in range(len(channels))]
        self._task = self._build(graph, deployment, gate)
        self._attempt = deployment.attempt

    def _receiving_end(self, gate: InputGate, channel: int) -> ReceivingEnd:
        def deliver(message: Message, release: Callable[[], None]) -> None:
            gate.put(channel, message, release)
            self._wakeup.set()

        return ReceivingEnd(deliver, self._abort)

    def _build(self, graph: PhysicalGraph, deployment: Deployment, gate: InputGate) -> Task:
        plan = graph.task(deployment.task)
        credit = graph.config.channel_credits

        def open_channel(output: int, index: int) -> Channel:
            if plan.outputs[output].downstream is None:
                self._results[output] = ResultBuffer(credit, self._loop, self._wakeup.set)
                return self._results[output]
            peer, channel = deployment.targets[output][index]
            push = _pusher(peer, deployment.attempt, channel)
            return SendingEnd(push, credit, self._wakeup.set, self._abort_from_any_thread)

        self._alignment = alignment_member(plan)
        return build_task(graph, plan, deployment.subtask, gate, open_channel, SystemClock(), self._alignment)

    async def start(self) -> None:
        """Begin to step the task."""
        self._started = True
        threading.Thread(target=self._run, name="task-loop", daemon=True).start()

    def _run(self) -> None:
        error: BaseException | None = None
        # Whatever a user's function raises, SystemExit too, must end the subtask and not only its thread.
        try:
            self._step_to_the_end()
        except BaseException as raised:
            error = raised
        try:
            self._task.close()
        except BaseException as raised:
            error = error or raised
        located_error = located(error, self._task_name, self._subtask) if error is not None else None
        self._loop.call_soon_threadsafe(self._on_stepped, located_error)

    def _step_to_the_end(self) -> None:
        self._task.open()
        while not self._stopping:
            # Cleared before the step: what arrives during the step sets it again, and the wait returns at once.
            self._wakeup.clear()
            match self._task.step():
                case Progress():
                    continue
                case Idle(until) | Blocked(until):
                    self._wakeup.wait(_patience(until, time.monotonic()))
                case Finished():
                    return

    def _on_stepped(self, error: PenstockError | None) -> None:
        self._stepped = True
        for buffer in self._results.values():
            buffer.arrived.set()
        # Rows for the client are safe only once the client has asked for more and been told that there is none.
        if error is not None or self._stopping or not self._results:
            self._end(self._aborted or error)

    def _abort(self, error: PenstockError) -> None:
        """Stop stepping, and end with the error once the task has been closed."""
        self._aborted = self._aborted or error
        self._stopping = True
        self._wakeup.set()

    def _abort_from_any_thread(self, error: PenstockError) -> None:
        self._loop.call_soon_threadsafe(self._abort, error)

    def _end(self, error: PenstockError | None) -> None:
        if not self._ended.done():
            self._ended.set_result(error)

    async def push(self, attempt: int, channel: int, sequence: int, message: Message) -> None:
        """Take a message; returns when the task has taken it out of its inbox (that return is the credit)."""
        if attempt != self._attempt:
            return
        taken: asyncio.Future[None] = self._loop.create_future()

        def release() -> None:
            self._loop.call_soon_threadsafe(_resolve, taken)

        self._receiving[channel].receive(sequence, message, release)
        await taken

    async def fetch(self, output: int, seconds: float) -> tuple[list[Batch], bool]:
        """Rows for the client from exchange `output`, and whether more may follow. Waits for some up to `seconds`."""
        buffer = self._results[output]
        if not self._stepped:
            try:
                await asyncio.wait_for(buffer.arrived.wait(), seconds)
            except asyncio.TimeoutError:
                return [], True
            if buffer.credits and not self._stepped:
                # A call for every few rows would cost more than the rows: let some gather.
                await asyncio.sleep(_GATHER_SECONDS)
        batches = buffer.take()
        buffer.exhausted = self._stepped and not batches
        if all(result.exhausted for result in self._results.values()):
            self._end(None)
        return batches, not buffer.exhausted

    async def position(self) -> int | None:
        """How far (int64 ms) the splits of an aligned source are here; None if none takes part."""
        return None if self._alignment is None else self._alignment.position

    async def align(self, minimum: int) -> None:
        """The earliest position of the alignment group: splits that are too far ahead of it wait."""
        if self._alignment is not None:
            # The thread of the task reads it before each batch, and again when it is woken.
            self._alignment.minimum = minimum
            self._wakeup.set()

    async def watch(self) -> PenstockError | None:
        """Return when the subtask has ended, with its error if it has one; errors when the process dies."""
        return await asyncio.shield(self._ended)

    async def metrics(self) -> SubtaskMetrics:
        """The counters as of now."""
        return self._task.metrics

    async def stop(self) -> SubtaskMetrics:
        """Stop stepping, close the task, and return the last counters."""
        self._stopping = True
        self._wakeup.set()
        for buffer in self._results.values():
            buffer.take()
        if self._stepped or not self._started:
            # The thread has ended, or never began: nobody else says that the subtask has.
            self._end(None)
        await asyncio.shield(self._ended)
        return self._task.metrics


def _patience(until: float | None, now: float) -> float | None:
    """How long (seconds) the thread waits at a time before it steps again; None for as long as nothing comes."""
    return None if until is None else min(max(0.0, until - now), _LONGEST_WAIT_SECONDS)


def _resolve(taken: asyncio.Future[None]) -> None:
    if not taken.done():
        taken.set_result(None)


def _pusher(peer: Any, attempt: int, channel: int) -> Push:
    method = peer.push

    def push(sequence: int, message: Message) -> Future[None]:
        call: Future[None] = method.remote(attempt, channel, sequence, message).future()
        return call

    return push
