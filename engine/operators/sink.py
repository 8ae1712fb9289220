"""The operators that hand rows to a sink's writer, plain or transactional.

`SinkSpec` chooses by the kind of the sink. What a transactional writer has prepared is in the checkpoint that it was
prepared for, and is committed when that checkpoint counts, or by whoever is restored from it: exactly once.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from penstock.engine.connectors import (
    Committable,
    ConnectorContext,
    Sink,
    SinkWriter,
    TransactionalSink,
    TransactionalWriter,
)
from penstock.engine.elements import Batch
from penstock.engine.interruption import pass_interruption
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder
from penstock.engine.state.capture import CaptureRequest, OperatorCapture, TableCapture
from penstock.engine.state.snapshot import Redistribution

COMMITTABLES: Final = "committables"
"""The state of a transactional sink: what is prepared and not committed; the two columns below, then the data's."""
WRITER: Final = "__writer"
CHECKPOINT: Final = "__checkpoint"
_REPLACED: Final = "replaced"
"""The state of one that has not removed yet what earlier runs have left: its identities in these, a row each."""
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SinkSpec(OperatorSpec):
    """Creates the operator that writes to `sink`."""

    sink: Sink

    def create(self) -> Operator:
        return (
            TransactionalSinkOperator(self.sink)
            if isinstance(self.sink, TransactionalSink)
            else SinkOperator(self.sink)
        )

    def describe(self) -> str:
        return self.sink.describe()

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(
            order=RowOrder.NONE,
            accepts=(self.sink.changelog_modes,),
            sink=self.sink,
            commits=isinstance(self.sink, TransactionalSink),
        )

    def resumed(self) -> OperatorSpec:
        return SinkSpec(self.sink.resumed())


class SinkOperator(Operator):
    """Writes every row; emits nothing."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._writer: SinkWriter | None = None

    def open(self, context: OperatorContext) -> None:
        self._writer = self._sink.open(connector_context(context))

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        assert self._writer is not None
        self._writer.write(batch)

    def finish(self, out: Collector) -> None:
        assert self._writer is not None
        self._writer.finish()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


class TransactionalSinkOperator(Operator):
    """Writes every row, and commits what was prepared for a checkpoint once that counts; emits nothing.

    Args:
        sink: its `commit` may be asked again for what it has committed: after a restore, and where it failed half way.
    """

    def __init__(self, sink: TransactionalSink) -> None:
        self._sink = sink
        self._writer: TransactionalWriter | None = None
        self._prepared: list[Committable] = []

    def open(self, context: OperatorContext) -> None:
        self._context = connector_context(context)
        self._has_checkpoints = context.config.checkpoints.enabled
        # One subtask does it for all.
        self._replaced = context.replaced if context.subtask == 0 else ()
        tables = {} if context.restored is None else context.restored.tables
        if COMMITTABLES in tables:
            # The checkpoint counts, or it would not be restored; a new writer may end what old ones have left open.
            self._commit(committables_of(tables[COMMITTABLES].data))
        if _REPLACED in tables:
            self._replaced = tuple(dict.fromkeys([*self._replaced, *tables[_REPLACED].data.column(0).to_pylist()]))
        self._writer = self._sink.open(self._context)

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        assert self._writer is not None
        self._writer.write(batch)

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        assert self._writer is not None
        self._prepared.extend(self._writer.prepare(request.checkpoint))
        prepared, replaced = tuple(self._prepared), self._replaced
        tables: dict[str, TableCapture] = {}
        if prepared:
            tables[COMMITTABLES] = TableCapture(Redistribution.WHOLE, lambda: committables_table(prepared))
        if replaced:
            # The run may end between this checkpoint and its removing them.
            tables[_REPLACED] = TableCapture(Redistribution.WHOLE, lambda: pa.table({_REPLACED: replaced}))
        return OperatorCapture(tables)

    @property
    def shows_state(self) -> bool:
        """What is prepared is made by barriers alone."""
        return False

    def on_checkpoint_complete(self, checkpoint: int) -> None:
        """Commit what was prepared up to the checkpoint; what fails is tried again after the restore."""
        due = [committable for committable in self._prepared if committable.checkpoint <= checkpoint]
        self._commit(due)
        self._prepared = [committable for committable in self._prepared if committable.checkpoint > checkpoint]
        self._discard_replaced()

    def _discard_replaced(self) -> None:
        """Remove what the runs before this one have left: all subtasks have committed what they were restored with."""
        for identity in self._replaced:
            try:
                self._sink.discard(replace(self._context, identity=identity))
            except BaseException as error:
                pass_interruption(error)
                _LOG.warning(
                    "operator %r (%s): what an earlier run of the job had prepared could not be removed, and takes "
                    "room: %s",
                    self._context.operator,
                    self._sink.describe(),
                    error,
                )
        self._replaced = ()

    def finish(self, out: Collector) -> None:
        """The last checkpoint commits, where there are any."""
        if not self._has_checkpoints:
            assert self._writer is not None
            self._commit([*self._prepared, *self._writer.prepare(0)])
            self._prepared.clear()

    def _commit(self, committables: Sequence[Committable]) -> None:
        if committables:
            self._sink.commit(committables, self._context)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def connector_context(context: OperatorContext) -> ConnectorContext:
    """What the sink gets to know of the subtask."""
    return ConnectorContext(
        context.operator,
        context.subtask,
        context.parallelism,
        context.clock,
        context.identity,
        context.metrics.group,
    )


def committables_table(committables: Sequence[Committable]) -> pa.Table:
    """The committables, one at least, as rows that `committables_of` reads."""
    return pa.concat_tables(
        [
            committable.data.add_column(
                0, WRITER, pa.array([committable.writer] * committable.data.num_rows, pa.string())
            ).add_column(1, CHECKPOINT, pa.array([committable.checkpoint] * committable.data.num_rows, pa.int64()))
            for committable in committables
        ],
        promote_options="default",
    )


def committables_of(table: pa.Table) -> list[Committable]:
    """Those of the table, in order: what one writer has prepared for one checkpoint is one."""
    origins = list(zip(table.column(WRITER).to_pylist(), table.column(CHECKPOINT).to_pylist(), strict=True))
    starts = [row for row, origin in enumerate(origins) if row == 0 or origin != origins[row - 1]]
    data = table.drop_columns([WRITER, CHECKPOINT])
    return [
        Committable(*origins[begin], data.slice(begin, end - begin))
        for begin, end in zip(starts, [*starts[1:], len(origins)], strict=True)
    ]
