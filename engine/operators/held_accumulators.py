"""Accumulators by key without an operator: what a running or final aggregate holds, and can take in before it is open.

`KeyedAccumulators` works on one. A process that is to become a subtask makes one of the newest checkpoint while others
run that subtask's keys, and changes it into that of the checkpoint it is restored from (`HeldState`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.aggregates.accumulators import ExtremeAccumulator, FoldAccumulator, GroupAccumulator
from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.cells.row_slots import slots_of_rows
from penstock.engine.cells.slot_accumulators import (
    DenseAccumulators,
    Rows,
    SlotAccumulators,
    accumulators_by_slot,
)
from penstock.engine.row_numbers import one_array
from penstock.engine.state.capture import DELETED
from penstock.engine.state.keys.index import KeyIndex, Slots
from penstock.engine.state.snapshot import KEY_GROUP, OperatorSnapshot, parts_of

STATE: Final = "accumulators"
LATEST: Final = "__latest time"
"""The largest event timestamp of a key; no accumulator of a column has such a name."""


class _Latest(ExtremeAccumulator):
    """The largest event timestamp."""

    @property
    def name(self) -> str:
        return LATEST


@dataclass(frozen=True, slots=True)
class _LatestTime:
    """What is kept beside the aggregates."""

    folds: tuple[FoldAccumulator, ...] = (_Latest("", "max"),)
    grouped: tuple[GroupAccumulator, ...] = ()


class HeldAccumulators:
    """The accumulators of some keys; a `HeldState`.

    Args:
        aggregation: whose accumulators.
        timed: whether each key keeps its largest event timestamp too.

    Attributes:
        index: numbers the keys.
        parts: what they hold, by slot.
        saved: the columns of the state that was taken in; None: there was none.
    """

    def __init__(self, aggregation: GroupedAggregation, timed: bool) -> None:
        self.index = KeyIndex()
        self.parts: list[SlotAccumulators] = []
        self.saved: pa.Schema | None = None
        self._aggregation = aggregation
        self._timed = timed
        self._keys = list(aggregation.keys)

    @classmethod
    def of(cls, aggregation: GroupedAggregation, timed: bool, snapshot: OperatorSnapshot) -> HeldAccumulators | None:
        """What a snapshot holds; None: nothing, or other things."""
        if snapshot.tables.keys() != {STATE}:
            return None
        held = cls(aggregation, timed)
        held.take_in(snapshot.tables[STATE].data)
        return held

    def merge(self, table: pa.Table) -> Rows:
        """Merge rows of keys and accumulators; the slots of the keys."""
        rows = self._rows(table)
        for part in self._parts_for(table):
            part.merge(rows, table)
        return rows

    def take_in(self, saved: pa.Table) -> None:
        """Take in state that was saved, whose keys are not held."""
        data = saved.drop_columns(KEY_GROUP)
        self.saved = data.schema
        for part in parts_of(data):
            self.merge(part)

    def change(self, changes: Mapping[str, pa.Table]) -> bool:
        if changes.keys() - {STATE} or any(pc.any(table.column(DELETED)).as_py() for table in changes.values()):
            # Keys never go one by one.
            return False
        for table in changes.values():
            data = table.drop_columns([KEY_GROUP, DELETED])
            if data.schema != self.saved or any(map(pa.types.is_null, data.schema.types)):
                return False
            for rows in parts_of(data):
                self._replace(rows)
        return True

    def _replace(self, table: pa.Table) -> None:
        rows = self._rows(table)
        for part in self._parts_for(table):
            part.replace(rows, table)

    def keys_of(self, slots: Slots) -> pa.Table:
        """The key columns of slots."""
        return pa.table(dict(zip(self._keys, self.index.keys(slots), strict=True)))

    def _rows(self, table: pa.Table) -> Rows:
        return Rows(slots_of_rows(self.index, [one_array(table.column(key)) for key in self._keys]), self.index.end)

    def _parts_for(self, table: pa.Table) -> list[SlotAccumulators]:
        if not self.parts:
            self.parts = [accumulators_by_slot(self._aggregation, table.schema, self.keys_of)]
            if self._timed:
                self.parts.append(DenseAccumulators(_LatestTime(), self.keys_of))
        return self.parts
