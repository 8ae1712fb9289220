"""Drives a transactional sink as the engine does, by the engine's own operator, through checkpoints and crashes.

The sink suite calls it. Each attempt of a subtask has its own copy of the sink, as another process would, and what a
checkpoint holds goes through Arrow's file format on its way to the next attempt.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from penstock.engine.clock import Clock
from penstock.engine.config import DEFAULTS
from penstock.engine.connectors import (
    Committable,
    ConnectorContext,
    TransactionalSink,
    TransactionalWriter,
)
from penstock.engine.elements import Batch, Control
from penstock.engine.operators.base import OperatorContext
from penstock.engine.operators.sink import CHECKPOINT, COMMITTABLES, WRITER, TransactionalSinkOperator
from penstock.engine.state.capture import CaptureRequest, CaptureScope
from penstock.engine.state.snapshot import OperatorSnapshot, Redistribution, StateTable
from penstock.recovery import checkpoints
from penstock.testing.connector_suite.copies import copied
from penstock.testing.connector_suite.crash_points import LineCounter
from penstock.testing.connector_suite.rules import COMMITTABLE, WRITER_CLOSE, obeying, require

WITH_CHECKPOINTS: Final = replace(DEFAULTS, checkpoints=checkpoints("1s", "memory://connector-suite"))


class SinkJob(contextlib.AbstractContextManager["SinkJob"]):
    """A job that writes to a sink: its subtasks in all their attempts. What is left open is closed behind it.

    Args:
        sink: a copy of it is written to.
        clock: of the job.
    """

    def __init__(self, sink: TransactionalSink, clock: Clock) -> None:
        self.sink = sink
        self._clock = clock
        self._identity = f"connector-suite/{secrets.token_hex(8)}"
        self._subtasks: list[SinkSubtask] = []

    def begin(self, schema: pa.Schema) -> SinkJob:
        """Check and prepare the target, as the client of a job does."""
        self.sink.check(schema)
        self.sink.prepare()
        return self

    def subtask(
        self, restored: pa.Table | None = None, index: int = 0, parallelism: int = 1, takes_checkpoints: bool = True
    ) -> SinkSubtask:
        """Open a subtask, with the committables of a checkpoint to resume from."""
        subtask = self.unopened(index, parallelism, takes_checkpoints)
        subtask.open(restored)
        return subtask

    def unopened(self, index: int = 0, parallelism: int = 1, takes_checkpoints: bool = True) -> SinkSubtask:
        """A subtask that is still to be opened."""
        config = WITH_CHECKPOINTS if takes_checkpoints else DEFAULTS
        context = OperatorContext("sink", index, parallelism, self._clock, config=config, identity=self._identity)
        subtask = SinkSubtask(copied(self.sink), context)
        self._subtasks.append(subtask)
        return subtask

    def __exit__(self, *exception: object) -> None:
        # Those that were left like this are dead to the checks; only their resources must go.
        for subtask in self._subtasks:
            with contextlib.suppress(Exception):
                subtask.operator.close()


class SinkSubtask:
    """One attempt of one subtask.

    Args:
        sink: its own copy.
        context: where it runs.
    """

    def __init__(self, sink: TransactionalSink, context: OperatorContext) -> None:
        self._sink = sink
        self._context = context
        self.operator = TransactionalSinkOperator(_Watched(sink))

    def open(self, restored: pa.Table | None = None) -> None:
        """Commit what the checkpoint holds, and open the writer."""
        tables = {} if restored is None else {COMMITTABLES: StateTable(Redistribution.WHOLE, restored)}
        self.operator.open(replace(self._context, restored=OperatorSnapshot(tables)))

    def write(self, rows: pa.Table) -> None:
        """Write the rows, in two batches where there are two."""
        for part in (rows.slice(0, rows.num_rows // 2), rows.slice(rows.num_rows // 2)):
            for batch in part.combine_chunks().to_batches():
                self.operator.process_batch(Batch(batch), 0, NOWHERE)

    def prepare(self, checkpoint: int) -> pa.Table | None:
        """What a checkpoint holds of the subtask: all that is prepared and not committed; None for nothing."""
        tables = self.operator.capture(CaptureRequest(checkpoint, CaptureScope.COMPLETE)).tables
        if COMMITTABLES not in tables:
            return None
        with obeying(COMMITTABLE, "making a table of the committables"):
            return _stored(tables[COMMITTABLES].rows())

    def complete(self, checkpoint: int) -> None:
        """The checkpoint counts: what was prepared up to it is committed."""
        self.operator.on_checkpoint_complete(checkpoint)

    def finish(self) -> None:
        """The input has ended."""
        self.operator.finish(NOWHERE)

    def close(self) -> None:
        """Close the writer."""
        with obeying(WRITER_CLOSE, "close()"):
            self.operator.close()

    def until_line(self, fatal: int | None) -> LineCounter:
        """Counts the lines of the sink and its writer, or dies before one of them."""
        return LineCounter(self._sink, fatal)


def prepared_by(table: pa.Table | None, checkpoint: int) -> pa.Table | None:
    """The rows of a checkpoint's committables that were prepared up to `checkpoint`."""
    if table is None:
        return None
    rows = [row for row, number in enumerate(table.column(CHECKPOINT).to_pylist()) if number <= checkpoint]
    return table.take(rows) if rows else None


def writers_of(table: pa.Table | None) -> set[str]:
    """The names of the writers of a checkpoint's committables."""
    return set() if table is None else set(table.column(WRITER).to_pylist())


def _stored(table: pa.Table) -> pa.Table:
    """The table on its way through storage."""
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_file(buffer, table.schema) as file:
        file.write_table(table)
    return pa.ipc.open_file(buffer.getvalue()).read_all()


class _Nowhere:
    """Where a sink emits: nothing."""

    def collect(self, batch: Batch) -> None:
        raise AssertionError("sinks emit nothing")

    def broadcast(self, element: Control) -> None:
        raise AssertionError("sinks emit nothing")


NOWHERE: Final = _Nowhere()


class _Watched(TransactionalSink):
    """The author's sink, whose committables are checked."""

    def __init__(self, sink: TransactionalSink) -> None:
        self._sink = sink

    def open(self, context: ConnectorContext) -> TransactionalWriter:
        return _WatchedWriter(self._sink.open(context))

    def commit(self, committables: Sequence[Committable], context: ConnectorContext) -> None:
        self._sink.commit(committables, context)

    def describe(self) -> str:
        return self._sink.describe()


@dataclass(slots=True)
class _WatchedWriter(TransactionalWriter):
    writer: TransactionalWriter

    def write(self, batch: Batch) -> None:
        self.writer.write(batch)

    def prepare(self, checkpoint: int) -> list[Committable]:
        committables = list(self.writer.prepare(checkpoint))
        for one in committables:
            belongs = one.checkpoint == checkpoint
            require(belongs, COMMITTABLE, f"prepare({checkpoint}) gave a committable of checkpoint {one.checkpoint}")
            require(isinstance(one.writer, str) and one.writer != "", COMMITTABLE, f"its writer is {one.writer!r}")
            require(isinstance(one.data, pa.Table), COMMITTABLE, f"its data is a {type(one.data).__name__}")
            require(one.data.num_rows > 0, COMMITTABLE, "its data has no rows, so the checkpoint would not hold it")
            taken = {WRITER, CHECKPOINT} & set(one.data.column_names)
            require(not taken, COMMITTABLE, f"its data has the columns {sorted(taken)}, which the checkpoint adds")
        schemas = {one.data.schema for one in committables}
        require(len(schemas) < 2, COMMITTABLE, f"prepare({checkpoint}) gave committables of {len(schemas)} schemas")
        return committables

    def close(self) -> None:
        self.writer.close()
