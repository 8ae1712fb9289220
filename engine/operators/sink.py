"""The operator that hands rows to a sink's writer."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.connectors import ConnectorContext, Sink, SinkWriter
from penstock.engine.elements import Batch
from penstock.engine.operators.base import Collector, Operator, OperatorContext


@dataclass(frozen=True, slots=True)
class SinkFactory:
    """Creates the operator that writes to `sink`."""

    sink: Sink

    def __call__(self) -> SinkOperator:
        return SinkOperator(self.sink)


class SinkOperator(Operator):
    """Writes every row; emits nothing."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._writer: SinkWriter | None = None

    def open(self, context: OperatorContext) -> None:
        self._writer = self._sink.open(
            ConnectorContext(context.operator, context.subtask, context.parallelism, context.clock)
        )

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        assert self._writer is not None
        self._writer.write(batch)

    def finish(self, out: Collector) -> None:
        assert self._writer is not None
        self._writer.finish()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
