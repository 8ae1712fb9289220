"""THE loop: one subtask as a state machine that is stepped.

A runtime calls `Task.step` again and again from one thread. Each step takes one element from the head (an input gate or
a source), runs it through the chain, and flushes the router. It is taken only when every output has capacity, so a slow
consumer stops its producers, step by step, up to the source; only unaligned barriers do not wait, and those that a
source begins with. What belongs to checkpoints is in `checkpoints.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from penstock.engine.checkpointing.restored import RestoredTask
from penstock.engine.checkpointing.task_capture import TaskCapture
from penstock.engine.clock import Clock
from penstock.engine.connectors import Wait
from penstock.engine.elements import Barrier, Batch, Element, EndOfInput
from penstock.engine.errors import StateError, nearest
from penstock.engine.interruption import pass_interruption
from penstock.engine.metrics import ChannelStatistics, GateStatistics, SubtaskMetrics
from penstock.engine.operators.base import Operator
from penstock.engine.state.capture import TableCapture
from penstock.engine.state.request import StateRequest
from penstock.engine.task.chain import ChainLink, CountingCollector, Entry
from penstock.engine.task.checkpoints import Barriers, Gate, TaskCheckpoints, TaskInfo
from penstock.engine.task.input_gate import FEW_ROWS
from penstock.engine.task.pace import Pace
from penstock.engine.task.router import Router, RouterEdge
from penstock.engine.task.source_head import SourceHead

MAIN: Final = ""
"""In the place of a side output's tag: the results of an operator."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Something was done: step again."""


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing to do before input arrives, or before `until` (seconds, monotonic) where it is not None."""

    until: float | None


@dataclass(frozen=True, slots=True)
class Blocked:
    """An output has no capacity: step again when a channel has got credit back.

    Rows for other channels may be due before that, at `until` (seconds, monotonic) where it is not None.
    """

    until: float | None


@dataclass(frozen=True, slots=True)
class Finished:
    """The input ended and everything was sent. Do not step again."""


StepResult: TypeAlias = Progress | Idle | Blocked | Finished


class Head(Barriers, Protocol):
    """Where a task's elements come from."""

    def follow(self, pace: Pace) -> None:
        """Give batches of at most `pace.rows` from now on."""
        ...

    def next_urgent(self, now: float) -> tuple[int, Element] | None:
        """What must not wait for the outputs: an unaligned barrier, one of a source, and what was taken before it.

        Args:
            now: seconds, monotonic.
        """
        ...

    @property
    def presses(self) -> bool:
        """Whether something has come that must not wait, as few rows may, until the task has rested."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits here; False where only `next` can tell."""
        ...

    @property
    def deadline(self) -> float:
        """When (seconds, monotonic) `next_urgent` has something to do because time has passed; infinity for never."""
        ...

    def next(self) -> tuple[int, Element] | Wait | None:
        """The next element and the input that it came on; `Wait` or None if there is none now."""
        ...

    def next_watermark(self) -> tuple[int, Element] | None:
        """The watermark right behind the element that was given last, where it is there already."""
        ...

    def statistics(self) -> GateStatistics:
        """What waits there, or is left to read."""
        ...

    def close(self) -> None:
        """Release readers."""
        ...


class Task:
    """One subtask.

    Args:
        head: where elements come from.
        entry: where they go.
        links: all operators of the chain, from first to last.
        router: where the chain's output goes.
        clock: the runtime's clock.
        metrics: kept up to date by each step.
        info: which subtask it is.
        pace: how many rows it takes at a time; it is told what they cost.
        source: the head, where that is a source.
        gate: the head, where that is an input gate.
        outputs: by uid and tag of the side output, or `MAIN`, where operators emit; those of them that can be tapped.
        rest: seconds that what comes behind a turn of few rows may wait for more; 0: it is taken at once.
    """

    def __init__(
        self,
        head: Head,
        entry: Entry,
        links: Sequence[ChainLink],
        router: Router,
        clock: Clock,
        metrics: SubtaskMetrics,
        info: TaskInfo,
        pace: Pace,
        source: SourceHead | None = None,
        gate: Gate | None = None,
        outputs: Mapping[tuple[str, str], CountingCollector] | None = None,
        rest: float = 0.0,
    ) -> None:
        self._head = head
        self._pace = pace
        self._rows = self._taken_rows = self._turn = 0
        self._rest, self._pause = rest, Wait(-math.inf)
        self._blocked_seconds = 0.0
        self._entry = entry
        self._links = links
        self._timed = [link for link in links if _uses_processing_time(link.operator)]
        self._router = router
        self._clock = clock
        self._source = source
        self._outputs = outputs or {}
        self._checkpoints = TaskCheckpoints(info, head, source, gate, links, router, clock)
        self._timers_went_first = False
        head.follow(pace)
        self._last_step = clock.monotonic()
        self._last_result: StepResult = Idle(None)
        self.metrics = metrics

    def open(self, restored: RestoredTask | None = None) -> None:
        """Open all operators, the last one first, so that each finds those behind it ready.

        Args:
            restored: what the subtask resumes from; None at a fresh start.

        Raises:
            RestoreError: it does not fit the task.
        """
        self._checkpoints.open(restored)

    def expect(self, barrier: Barrier) -> bool:
        """Take part in a checkpoint.

        Returns:
            False where it comes too late: the task has ended and captured for a later one, or is a source and has given
            the barrier of a later one. It takes no part then, and the checkpoint must be given up.

        This and all calls below come between steps, from the thread that steps; then step.
        """
        return self._checkpoints.expect(barrier)

    def take_captures(self) -> list[TaskCapture]:
        """The captures that are ready to be written, in the order in which they were made. Ask after each step."""
        captures = self._checkpoints.take_captures()
        for capture in captures:
            self.metrics.alignment_ms, self.metrics.sync_ms = capture.alignment_ms, capture.sync_ms
            self.metrics.start_delay_ms = capture.start_delay_ms
        return captures

    def abort(self, checkpoint: int) -> None:
        """The checkpoint will not be: nothing waits for its barriers any more."""
        self._checkpoints.abort(checkpoint)

    def complete(self, checkpoint: int) -> None:
        """The checkpoint counts: sinks commit."""
        self._checkpoints.complete(checkpoint)

    def drain(self) -> None:
        """End the input here, if the task is a source."""
        if self._source is not None:
            self._source.drain()

    @property
    def awaits_credit(self) -> bool:
        """Whether something that was emitted waits, so that credit for it is a reason to step.

        What came of the turn before a rest is due when that ends, and not worth a step before.
        """
        return self._router.awaits_credit(self._pause.until - self._rest / 2 if self.rests else math.inf)

    @property
    def rests(self) -> bool:
        """Whether rows that come are no reason to step, unless they press: it is stepped when its rest ends, anyway."""
        until = self._last_result.until if isinstance(self._last_result, Idle | Blocked) else None
        return until is not None and until <= self._pause.until and not self._head.presses

    def read_metrics(self) -> SubtaskMetrics:
        """The counters, with the queues as of now. May be called from another thread than the one that steps."""
        self.metrics.gate = self._head.statistics()
        self.metrics.output = self._router.statistics()
        return self.metrics

    def channels(self) -> list[ChannelStatistics]:
        """The channels behind it. May be called from another thread than the one that steps."""
        return self._router.channels()

    def read_state(self, uid: str, request: StateRequest) -> Mapping[str, TableCapture]:
        """The state of one operator as of now, by reference; nothing changes by it.

        Raises:
            StateError: the task has no such operator, or it is the source.
        """
        return self._checkpoints.link(uid).operator.read_state(request)

    def replace_inputs(self, keys: Sequence[str]) -> None:
        """The gate has new channels behind those that it had, with these `in_flight_key`s."""
        self._checkpoints.replace_inputs(keys)

    def connect(self, edges: Mapping[int, RouterEdge]) -> None:
        """Send to the channels of other edges from now on, by number of the edge, and what was kept back for them."""
        self._checkpoints.connect(edges)
        self._router.flush(self._clock.monotonic())

    def output(self, uid: str, side: str) -> CountingCollector:
        """Where an operator emits, for a tap.

        Args:
            uid: its uid, or the source's.
            side: tag of one of its side outputs; `MAIN` for its results.

        Raises:
            StateError: it has no such output.
        """
        if (uid, side) not in self._outputs:
            sides = sorted(tag for own, tag in self._outputs if own == uid and tag != MAIN)
            there = f"there are {', '.join(sides)}" if sides else "it has none"
            raise StateError(f"operator {uid!r} has no side output {side!r}{nearest(side, sides)}; {there}")
        return self._outputs[uid, side]

    def suspend_at_end(self, barrier: Barrier) -> None:
        """Let the barrier stand where the input ends, if the task is a source: event time stays where it is."""
        if self._source is not None:
            self._source.suspend_at_end(barrier)

    def step(self) -> StepResult:
        """Do one thing, or say why nothing can be done. Few rows and what follows them at once are one thing."""
        started = self._clock.monotonic()
        self._account(started)
        self._router.flush(started)
        self._last_result = self._step(started)
        ended = self._clock.monotonic()
        if self._taken_rows:
            self._rows += self._taken_rows
            self._pace.add(self._taken_rows, ended - started)
            if self._taken_rows < FEW_ROWS and self._router.has_capacity:
                self._last_result = self._go_on_behind_few(ended)
                ended = self._clock.monotonic()
            self._taken_rows = 0
        self.metrics.busy_seconds += ended - started
        self._last_step = ended
        return self._last_result

    def _step(self, now: float) -> StepResult:
        if self._checkpoints.deadline <= now:
            self._checkpoints.on_time(now)
        if self._checkpoints.input_ended:
            return Finished() if self._router.drained else Blocked(self._until())
        urgent = self._head.next_urgent(now)
        if urgent is not None:
            return self._process(*urgent)
        # Rows that are not read wait in the source, and are read in larger batches later; at a gate they cost credit.
        if not self._router.has_capacity or (self._source is not None and self._router.congested(now)):
            return Blocked(self._until())
        # Timers that are due again at once must not keep the input waiting for ever.
        self._timers_went_first = bool(self._timed) and not self._timers_went_first and self._fire_timers()
        if self._timers_went_first:
            return self._send_what_timers_gave()
        if self._blocked_seconds or self._pace.may_grow:
            self._pace.heed(self._blocked_seconds, self._router.wanted_of(self._rows))
            self._blocked_seconds = 0.0
        taken = self._pause if now < self._pause.until and not self._head.presses else self._head.next()
        if taken is not None and not isinstance(taken, Wait):
            return self._process(*taken)
        return self._idle(now, taken)

    def _send_what_timers_gave(self) -> Progress:
        self._router.flush(self._clock.monotonic())
        self._turn += not self._router.drained
        return Progress()

    def _go_on_behind_few(self, now: float) -> StepResult:
        """Take the watermark right behind few rows, and rest where no more are there: a step costs as much."""
        if behind := self._head.next_watermark():
            self._turn += 1
            self._entry.process(*behind)
        return self._idle(now, None) if self._rest and self._head.is_empty else self._last_result

    def _idle(self, now: float, taken: Wait | None) -> Idle:
        if 0 < self._turn < FEW_ROWS and self._rest:
            taken = self._pause_behind_few(now, taken)
        else:
            self._turn = 0
        timers = self._timer_deadline(now) if self._timed else None
        return Idle(self._until(timers, None if taken is None else taken.until))

    def _pause_behind_few(self, now: float, nothing: Wait | None) -> Wait | None:
        """Send what came of few rows, once a rest, in which what comes to a gate waits for company.

        Not where it could have no company or a source may be asked at once; one that has nothing for long sends always.
        """
        if self._turn >= self._pace.rows or (nothing is not None and nothing.until <= now):
            return nothing
        if now >= self._pause.until or (self._source and nothing and nothing.until >= now + self._rest / 2):
            self._router.hurry(now)
            self._pause, self._turn = Wait(now + self._rest), 0
        return nothing if self._head.presses else self._pause

    def _until(self, *deadlines: float | None) -> float | None:
        """The first of the deadlines, and of those of what is to be sent and of checkpoints; None if there is none."""
        checkpoints = min(self._checkpoints.deadline, self._head.deadline)
        others = (self._router.deadline, None if checkpoints == math.inf else checkpoints)
        return min((deadline for deadline in (*deadlines, *others) if deadline is not None), default=None)

    def _fire_timers(self) -> bool:
        """Let the operators whose time has come act; whether there were any."""
        if self._checkpoints.suspended:
            return False
        now_ms = self._clock.now_ms()
        due = [link for link in self._timed if (at := link.next_processing_time) is not None and at <= now_ms]
        for link in due:
            link.on_processing_time(now_ms)
        return bool(due)

    def _timer_deadline(self, now: float) -> float | None:
        """When (seconds, monotonic) the next operator has something to do by the clock."""
        if self._checkpoints.suspended:
            return None
        times = [at for link in self._timed if (at := link.next_processing_time) is not None]
        return now + (min(times) - self._clock.now_ms()) / 1000 if times else None

    def _process(self, input_index: int, element: Element) -> Progress:
        if isinstance(element, Barrier):
            self._checkpoints.begin(element)
        else:
            if isinstance(element, Batch):
                self._taken_rows = element.num_rows
            self._turn += self._taken_rows or 1
            self._entry.process(input_index, element)
            if isinstance(element, EndOfInput):
                self._checkpoints.on_end()
        if not (self._rest and 0 < self._taken_rows < FEW_ROWS):
            self._router.flush(self._clock.monotonic())
        return Progress()

    def _account(self, now: float) -> None:
        """Credit the time since the last step to what that step ended with."""
        waited = now - self._last_step
        match self._last_result:
            case Blocked():
                self.metrics.blocked_seconds += waited
                self._blocked_seconds += waited
            case Idle():
                self.metrics.idle_seconds += waited
            case _:
                self.metrics.busy_seconds += waited

    def close(self) -> None:
        """Release everything, also after an error; the first error of closing is raised when all have been closed."""
        errors: list[BaseException] = []
        for release in (self._head.close, *(link.operator.close for link in self._links)):
            try:
                release()
            except BaseException as error:
                pass_interruption(error)
                errors.append(error)
        if errors:
            raise errors[0]


def _uses_processing_time(operator: Operator) -> bool:
    return type(operator).next_processing_time is not Operator.next_processing_time
