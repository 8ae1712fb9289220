"""A source whose rows pass operators as they are read, so that event time is taken for each of its splits by itself.

The partitions of a log are apart in time, each in order: behind the source, where their rows are mixed, those of one
would be late by the watermark of another. Source: Flink's `SupportsWatermarkPushDown`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from penstock.engine.connectors import (
    ConnectorContext,
    Dataset,
    Position,
    Source,
    SourceReader,
    Split,
    SplitDiscovery,
    SplitOrder,
    Wait,
)
from penstock.engine.elements import Batch, Control
from penstock.engine.operators.base import Operator, OperatorContext
from penstock.tables.catalog.connectors import Stage


@dataclass(frozen=True)
class StagedSource(Source):
    """The rows of another source, behind operators that take each row by itself and keep nothing.

    Args:
        inner: where the rows come from; its splits and positions are this one's.
        stages: what they pass, one at least; a batch gives one batch at most.
    """

    inner: Source
    stages: tuple[Stage, ...]

    @property
    def schema(self) -> pa.Schema:
        return self.stages[-1].schema

    @property
    def bounded(self) -> bool:
        return self.inner.bounded

    @property
    def max_parallelism(self) -> int | None:
        return self.inner.max_parallelism

    @property
    def split_order(self) -> SplitOrder:
        return self.inner.split_order

    @property
    def datasets(self) -> Sequence[Dataset]:
        return self.inner.datasets

    @property
    def rewindable(self) -> bool:
        return self.inner.rewindable

    @property
    def rewind_remedy(self) -> str:
        return self.inner.rewind_remedy

    def splits(self, parallelism: int) -> Sequence[Split]:
        return self.inner.splits(parallelism)

    def open(self, split: Split, context: ConnectorContext) -> SourceReader:
        return _StagedReader(self.inner.open(split, context), self, context)

    def open_at(self, split: Split, position: Position, context: ConnectorContext) -> SourceReader:
        return _StagedReader(self.inner.open_at(split, position, context), self, context)

    def discover(self, context: ConnectorContext) -> SplitDiscovery | None:
        return self.inner.discover(context)

    def split(self, split_id: str) -> Split | None:
        return self.inner.split(split_id)

    def describe(self) -> str:
        return self.inner.describe()


@dataclass
class _Collected:
    """What an operator gave of a batch."""

    batches: list[Batch] = field(default_factory=list)

    def collect(self, batch: Batch) -> None:
        self.batches.append(batch)

    def broadcast(self, element: Control) -> None:
        raise AssertionError("an operator that takes each row by itself says nothing about event time")


class _StagedReader(SourceReader):
    """What a reader gives, behind operators of its own; its position is the reader's."""

    def __init__(self, inner: SourceReader, source: StagedSource, context: ConnectorContext) -> None:
        self._inner = inner
        self._empty = pa.RecordBatch.from_pylist([], source.schema)
        self._operators: list[Operator] = []
        place = OperatorContext(context.operator, context.subtask, context.parallelism, context.clock)
        for stage in source.stages:
            operator = stage.spec.create()
            operator.open(place)
            self._operators.append(operator)

    def next_batch(self, max_rows: int) -> pa.RecordBatch | Wait | None:
        read = self._inner.next_batch(max_rows)
        if not isinstance(read, pa.RecordBatch):
            return read
        batch = Batch(read)
        for operator in self._operators:
            out = _Collected()
            if batch.num_rows:
                operator.process_batch(batch, 0, out)
            if not out.batches:
                return self._empty
            (batch,) = out.batches
        return batch.data

    def position(self) -> Position:
        return self._inner.position()

    def close(self) -> None:
        while self._operators:
            self._operators.pop().close()
        self._inner.close()
