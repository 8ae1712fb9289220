"""One attempt of one subtask inside its actor: the thread that steps the task, and its ways in and out.

The subtask actor makes one for each deployment, on its event loop; messages, fetches and commands come in there, and
the thread does nothing but open, step and close the task. Reports (first rows, finished, error) wait to be watched.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias, TypeVar

from penstock.actors.capture_writer import HAS_ENDED, Answer, CaptureWriter, Declined
from penstock.actors.channels import Pusher, ReceivingEnd, SendingEnd
from penstock.actors.deployment import Deployment, Target
from penstock.actors.links import resolve
from penstock.actors.polled_readers import Wakeup
from penstock.actors.results import Fetched, ResultBuffer
from penstock.actors.shared_segments import SegmentBudget
from penstock.actors.state_answers import StateAnswers
from penstock.engine.checkpointing.instructions import AbortReason
from penstock.engine.checkpointing.preload import Preloaded
from penstock.engine.clock import SystemClock
from penstock.engine.elements import Barrier, SnapshotKind
from penstock.engine.errors import PenstockError, StateNotReadyError, WorkerLostError, located
from penstock.engine.exchange.outputs import Channel, Message
from penstock.engine.graph.physical import ChannelPlan, PhysicalGraph
from penstock.engine.metrics import ChannelStatistics
from penstock.engine.task.alignment import alignment_member
from penstock.engine.task.build import build_task, pace_of, router_edge
from penstock.engine.task.input_gate import InputGate
from penstock.engine.task.loop import Blocked, Finished, Idle, Progress, Task
from penstock.engine.task.rewiring import RunningInputs
from penstock.engine.task.tap import RowTap, TappedRows

_Answered = TypeVar("_Answered")
_REMEMBERED: Final = 100
"""A checkpoint that is older than the newest by this much needs no answer."""
_GATHER_SECONDS: Final = 0.02
_MOST_TAPS: Final = 4
TASK_THREAD: Final = "task-loop"
"""Name of the thread that steps a task."""
_SOON_SECONDS: Final = 1.0
"""A thread that steps again within this time hears then what receivers have answered, unless it waits for that."""
_LONGEST_WAIT_SECONDS: Final = 86_400.0
"""A thread cannot wait for centuries (`threading.TIMEOUT_MAX`), and a timer may be as far away."""


class SubtaskEvent(enum.Enum):
    """What a subtask reports of an attempt, apart from errors."""

    FIRST_ROWS = "first rows"
    """Rows have come to the end of its chain."""
    FINISHED = "finished"
    """It has emitted everything, and the client has all that was for it."""


Report: TypeAlias = SubtaskEvent | PenstockError
"""What a subtask reports to the job manager; an error is the last report."""


class RunningTask:
    """One attempt of one subtask. All methods run on the event loop, except those of the thread.

    Args:
        graph, deployment: which one.
        loop: the actor's event loop.
        wakeup: wakes the thread, which reads by it what comes to it.
    """

    def __init__(
        self,
        graph: PhysicalGraph,
        deployment: Deployment,
        loop: asyncio.AbstractEventLoop,
        wakeup: Wakeup,
    ) -> None:
        self.attempt = deployment.attempt
        self._graph = graph
        self._deployment = deployment
        self._restore = deployment.restore
        self._preloaded: Preloaded | None = None
        self._loop = loop
        self._wakeup = wakeup
        self._awaits_credit = self._awaits_rows = True
        self._closing = False
        self._started = False
        self._is_open = False
        self._stepped = False
        self._over = False
        self._aborted: PenstockError | None = None
        self._completed = self._restore.checkpoint if self._restore else 0
        self._reports: list[Report] = []
        self._reported = asyncio.Event()
        self._opened: asyncio.Future[None] = loop.create_future()
        self._closed: asyncio.Future[None] = loop.create_future()
        self._untaken: set[Callable[[], None]] = set()
        self._pushers: dict[int, list[Pusher]] = {}
        self._shared = SegmentBudget()
        self._commands: deque[Callable[[], None]] = deque()
        self._answers: dict[int, asyncio.Future[Answer]] = {}
        self._writer: CaptureWriter | None = None
        self._tapping = 0
        self._thread: threading.Thread | None = None
        self._results: dict[int, ResultBuffer] = {}
        plan = graph.task(deployment.task)
        self._name = plan.name
        channels = graph.input_channels(deployment.task, deployment.subtask)
        gate = self._gate = InputGate([channel.input_index for channel in channels])
        self._inputs = RunningInputs(channels)
        self._receiving = [self._receiving_end(gate, number) for number in range(len(channels))]
        self.alignment = alignment_member(plan)
        self._task = self._build(gate)
        self._ends = [metrics for _, metrics in self._task.metrics.operators[-1:]]
        self.state_answers = StateAnswers(self._name, deployment.subtask, self._task.read_state, self._command, loop)

    @property
    def task(self) -> Task:
        return self._task

    @property
    def error(self) -> PenstockError | None:
        """What it ended with, if that was an error."""
        # The client may come for its last rows later, and finish them.
        return next((report for report in self._reports if isinstance(report, PenstockError)), None)

    def channels(self) -> list[ChannelStatistics]:
        """The channels behind it."""
        credit = self._graph.config.channel_credits
        return [replace(one, credits=credit - one.output.under_way) for one in self._task.channels()]

    def _receiving_end(self, gate: InputGate, channel: int) -> ReceivingEnd:
        def deliver(message: Message, release: Callable[[], None]) -> None:
            gate.put(channel, message, release)
            if self._awaits_rows or gate.presses_on(channel, message):
                self._wakeup.set()

        return ReceivingEnd(deliver, self._abort, self._wakeup.poll_incoming)

    def _build(self, gate: InputGate) -> Task:
        graph, deployment = self._graph, self._deployment
        plan = graph.task(deployment.task)

        def open_channel(output: int, index: int) -> Channel:
            if plan.outputs[output].downstream is None:
                credit = graph.config.channel_credits
                self._results[output] = ResultBuffer(credit, self._loop, self._wakeup.set, self._completed)
                return self._results[output]
            return self._sending_end(output, deployment.targets[output][index])

        return build_task(graph, plan, deployment.subtask, gate, open_channel, SystemClock(), self.alignment)

    def _sending_end(self, output: int, target: Target) -> SendingEnd:
        config = self._graph.config
        credit, first_worth = config.channel_credits, pace_of(config).worth
        push = Pusher(target.actor, target.attempt, target.channel, self._loop, self._wakeup.answers, self._shared)
        self._pushers.setdefault(output, []).append(push)
        return SendingEnd(push, credit, self._wake_for_credit, self._abort_from_any_thread, first_worth)

    def _wake_for_credit(self) -> None:
        # At a trickle nothing waits for it, and each turn of the thread costs as much as a small batch.
        if self._awaits_credit:
            self._wakeup.set()

    # Others in the place of those that it has channels to or from

    async def replace_inputs(self, graph: PhysicalGraph, added: Sequence[ChannelPlan]) -> int:
        """Take input from new subtasks, in the place of those of the same tasks; see `RunningInputs.replace`.

        Returns:
            the number of the first of the new channels.
        """
        first = self._inputs.count
        self._receiving += [self._receiving_end(self._gate, first + number) for number in range(len(added))]
        await self._run_between_steps(lambda: self._inputs.replace(graph, self._gate, self._task, added))
        return first

    async def connect(self, graph: PhysicalGraph, targets: Mapping[int, Sequence[Target]]) -> None:
        """Send to new subtasks, by the number of the exchange, in the place of those of the same tasks."""

        def open_channel(output: int, index: int) -> Channel:
            return self._sending_end(output, targets[output][index])

        def connect() -> None:
            # Nothing is under way to those in whose place they come, and nothing more is sent to them.
            for pusher in (one for output in targets for one in self._pushers.pop(output, ())):
                self._loop.call_soon_threadsafe(pusher.close)
            place = self._deployment.task, self._deployment.subtask
            edges = {output: router_edge(graph, place, output, open_channel, SystemClock()) for output in targets}
            self._task.connect(edges)

        await self._run_between_steps(connect)

    async def _run_between_steps(self, act: Callable[[], None]) -> bool:
        """Have the thread do something between two steps, whose errors end the task. False: it has ended before."""
        done: asyncio.Future[None] = self._loop.create_future()

        def command() -> None:
            act()
            self._loop.call_soon_threadsafe(resolve, done, None)

        self._command(command)
        await asyncio.wait([done, self._closed], return_when=asyncio.FIRST_COMPLETED)
        return done.done()

    # Life

    async def start(self, preloaded: Preloaded | None = None) -> bool:
        """Begin: returns when the task has been restored and opened; False: it has failed at it, which is reported.

        Args:
            preloaded: what the process has taken in for it.
        """
        self._preloaded = preloaded
        self._started = True
        self._thread = threading.Thread(target=self._run, name=TASK_THREAD, daemon=True)
        self._thread.start()
        await asyncio.shield(self._opened)
        return self._is_open

    async def close(self) -> None:
        """Stop stepping; returns when the task has been closed."""
        self._closing = True
        self._wakeup.set()
        for buffer in self._results.values():
            buffer.take()
        if not self._started or self._closed.done():
            # The thread never began, or ended long ago: nobody else reports that the attempt has ended.
            self._on_closed(None)
        await asyncio.shield(self._closed)
        if self._thread is not None:
            # The thread reports its end just before it returns: until then it holds the task and its state.
            self._thread.join()
        for pusher in itertools.chain.from_iterable(self._pushers.values()):
            pusher.close()

    async def watch(self, seen: int) -> Sequence[Report]:
        """The reports behind the first `seen` ones; waits for some. None once the attempt is over."""
        while len(self._reports) <= seen and not self._over:
            self._reported.clear()
            await self._reported.wait()
        return self._reports[seen:]

    def _report(self, report: Report) -> None:
        self._reports.append(report)
        self._reported.set()

    # The thread

    def _run(self) -> None:
        error: BaseException | None = None
        # Whatever a user's function raises, SystemExit too, must end the subtask and not only its thread.
        try:
            self._open()
            self._is_open = True
            self._loop.call_soon_threadsafe(resolve, self._opened, None)
            self._step_to_the_end()
        except BaseException as raised:
            error = raised
        try:
            self._task.close()
        except BaseException as raised:
            error = error or raised
        if self._writer is not None:
            self._writer.close()
        told: PenstockError | None = WorkerLostError("a subtask has ended, and its error cannot be told")
        try:
            told = located(error, self._name, self._deployment.subtask) if error is not None else None
        finally:
            # Whatever becomes of the error: others wait for the end of the subtask.
            self._loop.call_soon_threadsafe(self._on_closed, told)

    def _open(self) -> None:
        restored = None
        if self._restore is not None:
            store, plan, place = self._restore.store, self._restore.plan, self._deployment
            where = (self._graph, place.task, place.subtask)
            writer = store.writer(*where, self.attempt, plan)
            self._writer = CaptureWriter(writer, self._answer_from_any_thread)
            preloaded, self._preloaded = self._preloaded, None
            if plan is not None:
                restored = store.load(self._graph, plan, place.task, place.subtask, preloaded)
        self._task.open(restored)

    def _step_to_the_end(self) -> None:
        while True:
            # Before all that it stands for: what comes later sets it again, and the wait returns at once.
            self._wakeup.poll()
            if self._closing:
                return
            while self._commands:
                self._commands.popleft()()
            result = self._task.step()
            self._hand_over()
            match result:
                case Progress():
                    continue
                case Idle(until) | Blocked(until):
                    # Until here credit and rows set the event: what came since the step is not missed.
                    self._awaits_credit, self._awaits_rows = self._task.awaits_credit, not self._task.rests
                    self._rest(_patience(until, time.monotonic()))
                    self._awaits_credit = self._awaits_rows = True
                case Finished():
                    if not self._stepped:
                        self._stepped = True
                        self._loop.call_soon_threadsafe(self._on_finished)
                    if self._writer is None:
                        return
                    # Checkpoints are taken until the whole job has finished, and the last one commits.
                    self._rest(None)

    def _rest(self, seconds: float | None) -> None:
        for_answers = self._awaits_credit or seconds is None or seconds > _SOON_SECONDS
        self._wakeup.wait(seconds, for_answers, self._awaits_rows)

    def _hand_over(self) -> None:
        """Give the captures to the writer, and say when rows have come to the end of the chain."""
        if self._writer is not None:
            for capture in self._task.take_captures():
                self._writer.put(capture)
        if self._ends and (self._ends[0].rows_in or self._ends[0].rows_out):
            self._ends.clear()
            self._loop.call_soon_threadsafe(self._report, SubtaskEvent.FIRST_ROWS)

    def _expect(self, barrier: Barrier) -> None:
        if not self._task.expect(barrier):
            self._answer_from_any_thread(barrier.checkpoint, Declined("", AbortReason.OVERTAKEN))

    def _answer_from_any_thread(self, checkpoint: int, answer: Answer) -> None:
        self._loop.call_soon_threadsafe(self._answer, checkpoint, answer)

    # What the thread says, on the event loop

    def _on_finished(self) -> None:
        for buffer in self._results.values():
            buffer.arrived.set()
        # Rows for the client are safe only once the client has asked for more and been told that there is none.
        if not self._results:
            self._report(SubtaskEvent.FINISHED)

    def _on_closed(self, error: PenstockError | None) -> None:
        error = self._aborted or error
        if error is not None:
            self._report(error)
        # A subtask that has emitted everything still has its rows for the client.
        self._over = self._over or self._closing or error is not None
        for buffer in self._results.values():
            buffer.arrived.set()
        # Calls that nobody will answer any more must not fill the actor, which may be deployed again.
        for waiting in (self._opened, self._closed):
            resolve(waiting, None)
        for release in list(self._untaken):
            release()
        self._reported.set()
        self.state_answers.end()
        # The thread reads nothing more.
        self._wakeup.rest()
        for checkpoint in list(self._answers):
            self._answer(checkpoint, HAS_ENDED)

    def _abort(self, error: PenstockError) -> None:
        """Stop stepping, and end with the error once the task has been closed."""
        self._aborted = self._aborted or error
        self._closing = True
        self._wakeup.set()

    def _abort_from_any_thread(self, error: PenstockError) -> None:
        self._loop.call_soon_threadsafe(self._abort, error)

    # Rows

    async def push(self, channel: int, sequence: int, message: Message) -> float | None:
        """Take a message; returns when the task has taken it out of its inbox (that return is the credit).

        Returns:
            How many rows the task wants to have under way on the channel; None where it has ended.
        """
        taken: asyncio.Future[float | None] = self._loop.create_future()

        def answer(wanted: float | None) -> None:
            self._loop.call_soon_threadsafe(resolve, taken, wanted)

        self.take(channel, sequence, message, answer)
        return await taken

    def take(self, channel: int, sequence: int, message: Message, answer: Callable[[float | None], object]) -> None:
        """Take a message; `answer` is called with what `push` returns, when it would, by any thread."""
        if self._closed.done():
            answer(None)
            return

        def release() -> None:
            self._untaken.discard(release)
            answer(self._gate.wanted_rows)

        self._untaken.add(release)
        self._receiving[channel].receive(sequence, message, release)

    async def fetch(self, output: int, received: int, seconds: float) -> Fetched:
        """Rows for the client from exchange `output`, which has `received` batches; waits for some up to `seconds`."""
        buffer = self._results[output]
        buffer.received(received)
        if not self._stepped:
            try:
                await asyncio.wait_for(buffer.arrived.wait(), seconds)
            except asyncio.TimeoutError:
                return Fetched([], not self._over, self._completed)
            if buffer.credits and not self._stepped:
                # A call for every few rows would cost more than the rows: let some gather.
                await asyncio.sleep(_GATHER_SECONDS)
        rows = buffer.take()
        exhausted = self._stepped and not rows
        if exhausted and not buffer.exhausted:
            buffer.exhausted = True
            if all(result.exhausted for result in self._results.values()):
                self._report(SubtaskEvent.FINISHED)
        return Fetched(rows, not exhausted and not self._over, self._completed)

    def align(self, minimum: int) -> None:
        """The earliest position of the alignment group: splits that are too far ahead of it wait."""
        if self.alignment is not None:
            # The thread of the task reads it before each batch, and again when it is woken.
            self.alignment.minimum = minimum
            self._wakeup.set()

    # Checkpoints

    async def checkpoint(self, barrier: Barrier) -> Answer:
        """Take part in a checkpoint; returns when the files are there, or with the reason why they will not be."""
        if self._closed.done():
            return HAS_ENDED
        answer = self._answer_to(barrier.checkpoint)
        self._command(lambda: self._expect(barrier))
        given = await asyncio.shield(answer)
        del self._answers[barrier.checkpoint]
        if not isinstance(given, Declined) and barrier.kind is not SnapshotKind.SAVEPOINT:
            # A task, of which nobody has to take the end where it is given up; of `gather` alone somebody has to.
            delivering = asyncio.ensure_future(self._deliver(barrier.checkpoint, given.finished))
            ends: list[asyncio.Future[Any]] = [delivering, self._closed]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not delivering.done():
                delivering.cancel()
                return HAS_ENDED
        return given

    async def _deliver(self, checkpoint: int, finished: bool) -> None:
        """Return when the client has all rows in front of the barrier."""
        await asyncio.gather(*(buffer.delivered(checkpoint, finished) for buffer in self._results.values()))

    def abort(self, checkpoint: int) -> None:
        """The checkpoint will not be."""
        self._command(lambda: self._task.abort(checkpoint))
        self._answer(checkpoint, Declined("the checkpoint was aborted"))

    async def complete(self, checkpoint: int) -> bool:
        """The checkpoint counts; returns when the sinks have committed. False: the subtask ended before."""
        self._completed = max(self._completed, checkpoint)
        return await self._run_between_steps(lambda: self._task.complete(checkpoint))

    # For those who look on

    async def tail(self, uid: str, side: str, rows: int, enough: int, seconds: float) -> TappedRows:
        """The last rows that an operator, or the source, emits from now on.

        Args:
            uid, side: where; see `Task.output`.
            rows: how many at the most.
            enough: with so many it returns at once.
            seconds: and with fewer then, or where the task ends.

        Raises:
            StateNotReadyError: the subtask has ended, or as many as may be look already.
            StateError: there is no such output, or values are hidden.
        """
        if self._tapping >= _MOST_TAPS:
            raise StateNotReadyError(f"{_MOST_TAPS} look at subtask {self._deployment.subtask} already; try again")
        come: asyncio.Future[None] = self._loop.create_future()
        tap = RowTap(rows, enough, lambda: self._loop.call_soon_threadsafe(resolve, come, None))
        self._tapping += 1
        try:
            output = await self._between_steps(lambda: self._task.output(uid, side))
            await self._between_steps(lambda: output.attach(tap))
            await asyncio.wait([come, self._closed], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            # A task that has ended adds nothing more by itself.
            with contextlib.suppress(StateNotReadyError):
                await self._between_steps(lambda: output.detach(tap))
            return await asyncio.to_thread(tap.rows, self._deployment.subtask)
        finally:
            self._tapping -= 1

    async def _between_steps(self, call: Callable[[], _Answered]) -> _Answered:
        """What the thread of the task answers between two of its steps.

        Raises:
            StateNotReadyError: it has ended.
            PenstockError: what `call` raises; the subtask keeps running.
        """
        answers: list[_Answered] = []
        errors: list[PenstockError] = []
        answered: asyncio.Future[None] = self._loop.create_future()

        def run() -> None:
            # An error of the query must not end the subtask.
            try:
                answers.append(call())
            except BaseException as error:
                errors.append(located(error, self._name, self._deployment.subtask))
            self._loop.call_soon_threadsafe(resolve, answered, None)

        self._command(run)
        await asyncio.wait([answered, self._closed], return_when=asyncio.FIRST_COMPLETED)
        if errors:
            raise errors[0]
        if not answers:
            raise StateNotReadyError(f"subtask {self._deployment.subtask} of {self._name!r} has ended; try again")
        return answers[0]

    def drain(self) -> None:
        """End the input here, if the task is a source."""
        self._command(self._task.drain)

    def _answer(self, checkpoint: int, answer: Answer) -> None:
        waiting = self._answer_to(checkpoint)
        if not waiting.done():
            waiting.set_result(answer)

    def _answer_to(self, checkpoint: int) -> asyncio.Future[Answer]:
        """What the subtask answers, which may be known before it is asked: barriers can be faster than the manager."""
        oldest = checkpoint - _REMEMBERED
        for number in [number for number, answer in self._answers.items() if number < oldest and answer.done()]:
            del self._answers[number]
        return self._answers.setdefault(checkpoint, self._loop.create_future())

    def wake(self) -> bool:
        """Have the thread read what has come; False: it has ended."""
        self._wakeup.set()
        return not self._closed.done()

    def _command(self, command: Callable[[], None]) -> None:
        """Have the thread do something between two steps."""
        self._commands.append(command)
        self._wakeup.set()


def _patience(until: float | None, now: float) -> float | None:
    """How long (seconds) the thread waits at a time before it steps again; None for as long as nothing comes."""
    return None if until is None else min(max(0.0, until - now), _LONGEST_WAIT_SECONDS)
