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
        completed: job and number of the checkpoints that were complete, as far as managers knew; the world adds to it.
    """

    def __init__(self) -> None:
        self._committed: dict[tuple[int, int, str], pa.Table] = {}
        self.completed: set[tuple[int, int]] = set()

    def commit(self, committable: Committable) -> None:
        """Show the rows, unless this transaction was committed before."""
        job, _, writer = committable.writer.partition("/")
        self._committed.setdefault((int(job), committable.checkpoint, writer), committable.data)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """All rows that are visible."""
        return [row for table in self._committed.values() for row in table.to_pylist()]

    def rows_up_to(self, job: int, checkpoint: int) -> list[dict[str, Any]]:
        """The rows of all transactions up to a checkpoint of a job."""
        return Warehouse._of(self._until(job, checkpoint + 1)).rows

    def branch(self, job: int, savepoint: int) -> Warehouse:
        """Another warehouse, with what is there now of what was written before a savepoint of a job."""
        return Warehouse._of(self._until(job, savepoint))

    def _until(self, job: int, checkpoint: int) -> dict[tuple[int, int, str], pa.Table]:
        return {key: table for key, table in self._committed.items() if key[:2] < (job, checkpoint)}

    @staticmethod
    def _of(committed: dict[tuple[int, int, str], pa.Table]) -> Warehouse:
        warehouse = Warehouse()
        warehouse._committed = committed
        return warehouse


class WarehouseSink(TransactionalSink):
    """Writes to a warehouse, exactly once: the rows of an epoch travel in the checkpoint.

    Args:
        warehouse: where to.
        dice: decides at which commits a process dies.
        job: number of the job in the run, part of the names of its transactions.
    """

    def __init__(self, warehouse: Warehouse, dice: Dice, job: int) -> None:
        self._job = job
        self._warehouse = warehouse
        self._dice = dice

    def open(self, context: ConnectorContext) -> TransactionalWriter:
        return _WarehouseWriter(
            f"{self._job}/{context.operator}-{context.subtask}-{self._dice.chosen.getrandbits(64):x}"
        )

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
