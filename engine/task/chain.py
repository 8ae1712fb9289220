"""Operators chained by direct calls: what one emits, the next takes, without a channel between them.

The task builds a chain from its plan and hands elements to the collectors at its entry. A link hides from its operator
whether a neighbour or the network follows.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engine.elements import Batch, Control, Element, EndOfInput, Watermark, WatermarkStatus
from penstock.engine.metrics import OperatorMetrics
from penstock.engine.operators.base import Collector, Operator, OperatorContext


class ChainLink:
    """One operator of the chain and the collector behind it. Is itself the collector of the operator before it."""

    def __init__(self, operator: Operator, context: OperatorContext, behind: Collector) -> None:
        self.operator = operator
        self.context = context
        self._out = CountingCollector(behind, context.metrics)

    def collect(self, batch: Batch) -> None:
        self.process(0, batch)

    def broadcast(self, element: Control) -> None:
        self.process(0, element)

    def process(self, input_index: int, element: Element) -> None:
        """Handle an element that came on input `input_index`."""
        match element:
            case Batch():
                if element.num_rows:
                    self.context.metrics.rows_in += element.num_rows
                    self.operator.process_batch(element, input_index, self._out)
            case Watermark():
                passed_on = self.operator.on_watermark(element, self._out)
                if passed_on is not None:
                    self._out.broadcast(passed_on)
            case WatermarkStatus():
                self._out.broadcast(element)
            case EndOfInput():
                self.operator.finish(self._out)
                self._out.broadcast(element)


class CountingCollector:
    """Counts the rows that an operator emits."""

    def __init__(self, behind: Collector, metrics: OperatorMetrics) -> None:
        self._behind = behind
        self._metrics = metrics

    def collect(self, batch: Batch) -> None:
        if batch.num_rows:
            self._metrics.rows_out += batch.num_rows
            self._behind.collect(batch)

    def broadcast(self, element: Control) -> None:
        if isinstance(element, Watermark):
            self._metrics.watermark = element.timestamp
        self._behind.broadcast(element)


class FanOut:
    """Several consumers of the same output."""

    def __init__(self, consumers: Sequence[Collector]) -> None:
        self._consumers = consumers

    def collect(self, batch: Batch) -> None:
        for consumer in self._consumers:
            consumer.collect(batch)

    def broadcast(self, element: Control) -> None:
        for consumer in self._consumers:
            consumer.broadcast(element)


def fan_out(consumers: Sequence[Collector]) -> Collector:
    """One collector for all `consumers`."""
    return consumers[0] if len(consumers) == 1 else FanOut(consumers)
