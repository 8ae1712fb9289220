"""Operators chained by direct calls: what one emits, the next takes, without a channel between them.

The task builds a chain from its plan and hands elements to the collectors at its entry. A link hides from its operator
whether a neighbour or the network follows.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from penstock.engine.elements import (
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    Batch,
    Control,
    Element,
    EndOfInput,
    IterationBarrier,
    LatencyMarker,
    SchemaGuard,
    Watermark,
    WatermarkStatus,
)
from penstock.engine.errors import RecordError
from penstock.engine.few_rows import FewRows
from penstock.engine.metrics import OperatorMetrics
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.state.snapshot import OperatorSnapshot, Redistribution


class Entry(Protocol):
    """Where the head's elements go: the first operator, or several."""

    def process(self, input_index: int, element: Element) -> None:
        """Handle one element."""
        ...


class GuardedEntry:
    """The entry of a task behind exchanges: checks each input, and hands the elements on.

    Args:
        entry: the first operator.
        where: its name and subtask, for messages.
    """

    def __init__(self, entry: Entry, where: str) -> None:
        self._entry = entry
        self._guards: defaultdict[int, SchemaGuard] = defaultdict(lambda: SchemaGuard(where))

    def process(self, input_index: int, element: Element) -> None:
        element = element.columns() if type(element) is FewRows else element
        if isinstance(element, Batch) and element.num_rows:
            self._guards[input_index].check(element)
        self._entry.process(input_index, element)


class SourceEntry:
    """Where a source head's elements go: straight to the collectors behind the source."""

    def __init__(self, behind: CountingCollector) -> None:
        self._behind = behind

    def process(self, input_index: int, element: Element) -> None:
        if isinstance(element, Batch):
            self._behind.collect(element)
        else:
            self._behind.broadcast(element)


class ChainLink:
    """One operator of the chain and the collector behind it. Is itself the collector of the operator before it."""

    def __init__(self, operator: Operator, context: OperatorContext, behind: Collector) -> None:
        self.operator = operator
        self.context = context
        self.output = CountingCollector(behind, context.metrics, list(context.sides.values()))
        self._restored_watermark = MIN_TIMESTAMP
        self._ended = False

    def collect(self, batch: Batch) -> None:
        self.process(0, batch)

    def broadcast(self, element: Control) -> None:
        self.process(0, element)

    def process(self, input_index: int, element: Element) -> None:
        """Handle an element that came on input `input_index`.

        Raises:
            RecordError: names the operator, or the one behind it where it arose.
        """
        try:
            self._handle(input_index, element)
        except RecordError as error:
            if error.placed:
                raise
            raise error.at(self.context.where) from error

    def _handle(self, input_index: int, element: Element) -> None:
        match element:
            case Batch():
                if element.num_rows:
                    self.context.metrics.rows_in += element.num_rows
                    self.operator.process_batch(element, input_index, self.output)
            case Watermark(timestamp):
                self.context.metrics.input_watermark = timestamp
                if timestamp <= self._restored_watermark:
                    # The sources begin anew with low watermarks; the operator had come further.
                    if timestamp == MAX_TIMESTAMP:
                        # It has been here before, but those behind it may not have been.
                        self.output.broadcast(element)
                    return
                passed_on = self.operator.on_watermark(element, self.output)
                if passed_on is not None:
                    self.output.broadcast(passed_on)
            case WatermarkStatus():
                status = self.operator.on_watermark_status(element, self.output)
                if status is not None:
                    self.output.broadcast(status)
            case IterationBarrier():
                step = self.operator.on_iteration_barrier(element, self.output)
                if isinstance(step, EndOfInput):
                    self._end()
                elif step is not None:
                    self.output.broadcast(step)
            case LatencyMarker():
                self.context.metrics.note_latency(element, self.context.clock.now_ms())
                self.output.broadcast(element)
            case EndOfInput():
                self._end()

    def _end(self) -> None:
        """End the output, once: the head of a loop does so before its input ends, which comes back from the loop."""
        if not self._ended:
            self._ended = True
            self.operator.finish(self.output)
            self.output.broadcast(EndOfInput())

    def open(self, snapshot: OperatorSnapshot | None = None) -> None:
        """Open the operator, and give it its state back where there is a snapshot to resume from."""
        if snapshot is None:
            self.operator.open(self.context)
            return
        self._restored_watermark = snapshot.watermark
        self.context = replace(self.context, restored=_without_keys(snapshot))
        self.operator.open(self.context)
        self.operator.restore(snapshot)

    def before_suspend(self) -> None:
        """Let the operator emit what it does not keep; those before it have done so."""
        self.operator.before_suspend(self.output)

    @property
    def next_processing_time(self) -> int | None:
        """When the operator has something to do by the clock (int64 ms), or None."""
        return self.operator.next_processing_time

    def on_processing_time(self, now_ms: int) -> None:
        """Let the operator do it."""
        self.operator.on_processing_time(now_ms, self.output)


def _without_keys(snapshot: OperatorSnapshot) -> OperatorSnapshot:
    tables = {
        name: table for name, table in snapshot.tables.items() if table.redistribution is not Redistribution.KEYED
    }
    return OperatorSnapshot(tables, snapshot.watermark)


class CountingCollector:
    """Counts the rows that an operator emits, and hands control elements to its side outputs too."""

    def __init__(self, behind: Collector, metrics: OperatorMetrics, sides: Sequence[Collector] = ()) -> None:
        self._consumer = self._behind = behind
        self._taps: tuple[Collector, ...] = ()
        self._metrics = metrics
        self._sides = sides
        self._marked = _InTurn([behind, *sides])

    def attach(self, tap: Collector) -> None:
        """Show everything that is emitted from now on to a tap, too."""
        self._tapped_by((*self._taps, tap))

    def detach(self, tap: Collector) -> None:
        """Show it nothing more."""
        self._tapped_by(tuple(one for one in self._taps if one is not tap))

    def _tapped_by(self, taps: tuple[Collector, ...]) -> None:
        self._taps = taps
        self._behind = fan_out([self._consumer, *taps])

    def collect(self, batch: Batch) -> None:
        if batch.num_rows:
            self._metrics.rows_out += batch.num_rows
            self._behind.collect(batch)

    def broadcast(self, element: Control) -> None:
        if isinstance(element, Watermark):
            self._metrics.watermark = element.timestamp
        if isinstance(element, LatencyMarker):
            self._marked.broadcast(element)
            return
        self._behind.broadcast(element)
        for side in self._sides:
            side.broadcast(element)


class FanOut:
    """Several consumers of the same output."""

    def __init__(self, consumers: Sequence[Collector]) -> None:
        self._consumers = consumers
        self._marked = _InTurn(consumers)

    def collect(self, batch: Batch) -> None:
        for consumer in self._consumers:
            consumer.collect(batch)

    def broadcast(self, element: Control) -> None:
        if isinstance(element, LatencyMarker):
            self._marked.broadcast(element)
            return
        for consumer in self._consumers:
            consumer.broadcast(element)


class _InTurn:
    """Hands each latency marker to one of several consumers: where ways part and meet they must not multiply."""

    def __init__(self, consumers: Sequence[Collector]) -> None:
        self._consumers = itertools.cycle(consumers)

    def broadcast(self, element: LatencyMarker) -> None:
        consumer = next(self._consumers, None)
        if consumer is not None:
            consumer.broadcast(element)


def fan_out(consumers: Sequence[Collector]) -> Collector:
    """One collector for all `consumers`."""
    return consumers[0] if len(consumers) == 1 else FanOut(consumers)
