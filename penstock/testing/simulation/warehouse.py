"""Where simulated jobs write: a store outside the job that shows a row only once it was committed, for checkers.

`WarehouseSink` is transactional. The warehouse trusts nobody: a commit that comes twice counts once, by the writer and
the checkpoint that it names, as a real sink's transaction id does; and no two writers ever have one name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.engine.connectors import Committable, ConnectorContext, TransactionalSink, TransactionalWriter
from penstock.engine.elements import Batch
from penstock.testing.simulation.faults import Crash, Dice


class Warehouse:
    """Committed rows, by the transaction that brought them.

    Attributes:
        completed: the checkpoints of the job that were complete, as far as its managers knew; the world adds to it.
    """

    def __init__(self) -> None:
        self._committed: dict[tuple[str, int], pa.Table] = {}
        self.completed: set[int] = set()

    def commit(self, committable: Committable) -> None:
        """Show the rows, unless this transaction was committed before."""
        self._committed.setdefault((committable.writer, committable.checkpoint), committable.data)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All rows that are visible."""
        return [row for table in self._committed.values() for row in table.to_pylist()]

    def rows_up_to(self, checkpoint: int) -> list[dict[str, Any]]:
        """The rows of all transactions of a job up to one of its checkpoints."""
        return [row for (_, number), table in self._committed.items() if number <= checkpoint for row in table.to_pylist()]

    def branch(self, savepoint: int) -> Warehouse:
        """Another warehouse, with what is there now of what the job had written before a savepoint."""
        other = Warehouse()
        other._committed = {key: table for key, table in self._committed.items() if key[1] < savepoint}
        return other


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
        return _WarehouseWriter(f"{context.operator}-{context.subtask}-{self._dice.chosen.getrandbits(64):x}")

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
