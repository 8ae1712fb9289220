"""Where simulated jobs write: a store outside the job that shows a row only once it was committed, for checkers.

`WarehouseSink` is transactional. The warehouse trusts nobody: a commit that comes twice counts once, by the writer and
the checkpoint that it names, as a real sink's transaction id does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.engine.connectors import Committable, ConnectorContext, TransactionalSink, TransactionalWriter
from penstock.engine.elements import Batch
from penstock.testing.simulation.faults import Crash, Dice


class Warehouse:
    """Committed rows, by the transaction that brought them."""

    def __init__(self) -> None:
        self._committed: dict[tuple[str, int], pa.Table] = {}

    def commit(self, committable: Committable) -> None:
        """Show the rows, unless this transaction was committed before."""
        self._committed.setdefault((committable.writer, committable.checkpoint), committable.data)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All rows that are visible."""
        return [row for table in self._committed.values() for row in table.to_pylist()]


class WarehouseSink(TransactionalSink):
    """Writes to a warehouse, exactly once: the rows of an epoch travel in the checkpoint.

    Args:
        warehouse: where to.
        dice: decides at which commits a process dies.
    """

    def __init__(self, warehouse: Warehouse, dice: Dice) -> None:
        self._warehouse = warehouse
        self._dice = dice

    def open(self, context: ConnectorContext) -> TransactionalWriter:
        return _WarehouseWriter(f"{context.operator}-{context.subtask}")

    def commit(self, committables: Sequence[Committable], context: ConnectorContext) -> None:
        for number, committable in enumerate(committables):
            rate = self._dice.rates.commit / 2
            if self._dice.strikes(rate, f"process dies before commit {number} of {len(committables)}"):
                raise Crash
            self._warehouse.commit(committable)
            if self._dice.strikes(rate, f"process dies behind commit {number} of {len(committables)}"):
                raise Crash

    def describe(self) -> str:
        return "warehouse"


class _WarehouseWriter(TransactionalWriter):
    def __init__(self, name: str) -> None:
        self._name = name
        self._batches: list[pa.RecordBatch] = []

    def write(self, batch: Batch) -> None:
        self._batches.append(batch.data)

    def prepare(self, checkpoint: int) -> Sequence[Committable]:
        batches, self._batches = self._batches, []
        return [Committable(self._name, checkpoint, pa.Table.from_batches(batches))] if batches else []
