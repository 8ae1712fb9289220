"""The two ends of a loop: the head, where rows enter and come back to, and the tail, which sends them back.

`DataStream.iterate` makes their specs; the planner connects each tail to its head. Between them lies the loop's
body, operators that know nothing of it. They guarantee that a loop over bounded input ends when no row is left in it.

Source of the modes: Valiant, "A bridging model for parallel computation" (bulk synchronous); Ho et al., "More effective
distributed ML via a stale synchronous parallel parameter server". The proof that the loop ends in time is in
`docs/adr/0008-loops-end-by-counted-rounds.md`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from penstock.engine.elements import (
    FEEDBACK_INPUT,
    INPUT_ENDED,
    MAX_TIMESTAMP,
    Batch,
    EndOfInput,
    IterationBarrier,
    SchemaGuard,
    Watermark,
    WatermarkStatus,
)
from penstock.engine.errors import ConfigurationError, RecordError
from penstock.engine.exchange.partitioners import Partitioner
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.spec import Feedback, OperatorSpec, OperatorTraits


@dataclass(frozen=True, slots=True)
class Asynchronous:
    """Rows that are fed back go round at once; the input may be unbounded."""

    def describe(self) -> str:
        """A short text for `explain()`."""
        return "asynchronous"


@dataclass(frozen=True, slots=True)
class BulkSynchronous:
    """Supersteps: the first is the whole input, each further one all that the one before it fed back. Bounded input."""

    def describe(self) -> str:
        """A short text for `explain()`."""
        return "bulk synchronous"


@dataclass(frozen=True, slots=True)
class StaleSynchronous:
    """Supersteps, but a subtask may be ahead of the slowest one. Bounded input.

    Args:
        bound: how many supersteps it may be ahead; 0 is the same as `BulkSynchronous()`.

    Raises:
        ConfigurationError: not a whole number of 0 or more.
    """

    bound: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.bound, int) or isinstance(self.bound, bool) or self.bound < 0:
            raise ConfigurationError(f"StaleSynchronous: bound must be a whole number of 0 or more, not {self.bound!r}")

    def describe(self) -> str:
        """A short text for `explain()`."""
        return f"stale synchronous, bound {self.bound}"


IterationMode: TypeAlias = Asynchronous | BulkSynchronous | StaleSynchronous

_OBSTACLE: Final = (
    "is the head of a loop, and rows that go round cannot be held at a barrier: run the job without a checkpoint "
    "interval, or unroll the loop"
)


@dataclass(frozen=True, slots=True)
class IterationHeadSpec(OperatorSpec):
    """Creates the head of a loop.

    Args:
        loop: number of the loop: the id of its head in the job graph.
        mode: when rows that came back go round again.
        max_supersteps: end after as many; None means when nothing is fed back.
    """

    loop: int
    mode: IterationMode
    max_supersteps: int | None = None

    def create(self) -> Operator:
        return IterationHead(self.loop, self.mode, self.max_supersteps)

    def describe(self) -> str:
        steps = "" if self.max_supersteps is None else f", {self.max_supersteps} supersteps"
        return f"iterate({self.mode.describe()}{steps})"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(checkpoint_obstacle=_OBSTACLE, loop_head=self.loop)


@dataclass(frozen=True, slots=True)
class IterationTailSpec(OperatorSpec):
    """Creates the tail of a loop.

    Args:
        loop: number of the loop.
        partitioner: how its rows are spread over the subtasks of the head; each tail must reach all of them.
    """

    loop: int
    partitioner: Partitioner

    def create(self) -> Operator:
        return IterationTail(self.loop)

    def describe(self) -> str:
        return f"feedback to {self.loop}"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(feedback=Feedback(self.loop, self.partitioner))


class IterationHead(Operator):
    """Lets rows into the loop, and finds out when none is left in it.

    When its input has ended it sends a barrier round the loop again and again. Each comes back from all tails at once
    (the gate sees to that), with the number of rows that they fed back since the one before. A row that was fed back
    before barrier s returned goes round before barrier `s + bound + 1`; so when `bound + 1` barriers in a row bring
    nothing, nothing is left. All heads see the same barriers and decide alike.
    """

    def __init__(self, loop: int, mode: IterationMode, max_supersteps: int | None = None) -> None:
        self._loop = loop
        self._holds = not isinstance(mode, Asynchronous)
        self._bound = mode.bound if isinstance(mode, StaleSynchronous) else 0
        self._last = None if max_supersteps is None else max_supersteps - 1
        self._held: list[Batch] = []
        self._sent = INPUT_ENDED
        self._returned = INPUT_ENDED
        self._quiet = 0
        self._time_is_complete = False
        self._ended = False

    def open(self, context: OperatorContext) -> None:
        self._where = context.where
        self._guard = SchemaGuard(context.where)

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        self._guard.check(batch)
        if self._ended:
            self._check_too_late(batch)
        elif self._holds and input_index == FEEDBACK_INPUT:
            self._held.append(batch)
            self._release(out)
        else:
            out.collect(batch)

    def on_watermark(self, watermark: Watermark, out: Collector) -> Watermark | None:
        """Event time is complete when the loop has ended, and not when its input has."""
        return None if watermark.timestamp == MAX_TIMESTAMP else watermark

    def on_iteration_barrier(self, barrier: IterationBarrier, out: Collector) -> EndOfInput | None:
        """A superstep is over everywhere (or the input, which precedes the first): begin the next one, or end."""
        if self._ended:
            return None
        if barrier.superstep == INPUT_ENDED:
            self._send(out)
            self._release(out)
            return None
        self._returned = barrier.superstep
        self._quiet = 0 if barrier.rows else self._quiet + 1
        if self._returned == self._last or (self._quiet > self._bound and self._time_is_complete):
            return self._end(out)
        if self._quiet > self._bound:
            # Windows and timers that event time closes may yet feed rows back: go round once more behind it.
            self._complete_time(out)
            self._quiet = 0
        self._release(out)
        if self._sent == self._returned:
            self._send(out)
        return None

    def _release(self, out: Collector) -> None:
        """Begin the next superstep with the rows that have come back, if it may begin."""
        may_begin = self._sent > INPUT_ENDED and self._sent != self._last and self._sent - self._returned <= self._bound
        if not self._held or not may_begin:
            return
        held, self._held = self._held, []
        for batch in held:
            out.collect(batch)
        self._send(out)

    def _send(self, out: Collector) -> None:
        self._sent += 1
        out.broadcast(IterationBarrier(self._loop, self._sent))

    def _complete_time(self, out: Collector) -> None:
        self._time_is_complete = True
        out.broadcast(Watermark(MAX_TIMESTAMP))

    def _end(self, out: Collector) -> EndOfInput:
        if not self._time_is_complete:
            self._complete_time(out)
        self._held.clear()
        self._ended = True
        return EndOfInput()

    def _check_too_late(self, batch: Batch) -> None:
        """Rows that the last superstep fed back are dropped; any others would be lost without a word."""
        if self._returned != self._last:
            raise RecordError(
                f"{self._where}: {batch.num_rows} rows were fed back when the loop had ended, by an operator of its "
                "body that emits them at the end of its input; let it emit them as rows or watermarks come"
            )


class IterationTail(Operator):
    """Counts the rows that it sends back, and tells the number with each barrier of its loop."""

    def __init__(self, loop: int) -> None:
        self._loop = loop
        self._superstep = 0
        self._rows = 0

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        self._rows += batch.num_rows
        out.collect(batch)

    def on_watermark(self, watermark: Watermark, out: Collector) -> None:
        """Event time comes into the loop from outside."""

    def on_watermark_status(self, status: WatermarkStatus, out: Collector) -> None:
        """And so does idleness."""

    def on_iteration_barrier(self, barrier: IterationBarrier, out: Collector) -> IterationBarrier | None:
        if barrier.loop != self._loop:
            return None
        self._superstep = barrier.superstep + 1
        return replace(barrier, rows=self._take_count())

    def finish(self, out: Collector) -> None:
        """A subtask whose input ends before the loop does has no barrier to tell its last rows with."""
        if self._rows:
            out.broadcast(IterationBarrier(self._loop, self._superstep, self._take_count()))

    def _take_count(self) -> int:
        rows, self._rows = self._rows, 0
        return rows
