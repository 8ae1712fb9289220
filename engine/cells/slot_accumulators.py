"""Accumulators by key, and by the slot of a key, kept while the job runs: what running and final aggregates hold.

Numbers are folded row by row into arrays (`DenseAccumulators`), a few nanoseconds each. Accumulators that NumPy cannot
hold (texts, lists, decimals, first and last values) are combined by Arrow, rows of a batch first, then with what is
held (`CombinedAccumulators`). To callers they are alike. `HeldAccumulators` can take state in before there is an
operator for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.aggregates.accumulators import ExtremeAccumulator, FoldAccumulator, GroupAccumulator
from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.cells.accumulator_cells import AccumulatorCells, HasAccumulators, KeysOf, storage_type
from penstock.engine.cells.key_slots import slots_of_rows
from penstock.engine.columns import one_array
from penstock.engine.state.capture import DELETED
from penstock.engine.state.keys.index import KeyIndex, Slots
from penstock.engine.state.slots import SlotColumn
from penstock.engine.state.snapshot import KEY_GROUP, OperatorSnapshot, parts_of

_SLOT: Final = "__slot"
STATE: Final = "accumulators"
LATEST: Final = "__latest time"
"""The largest event timestamp of a key; no accumulator of a column has such a name."""
_MANY_ROWS: Final = 1024
_PLACES_A_ROW: Final = 8
"""A batch of many rows is marked in a table of all slots, unless there are so many more of these."""


class SlotAccumulators(Protocol):
    """Accumulators by slot; slots are given from 0 on, and kept."""

    def merge(self, rows: Rows, table: pa.Table) -> None:
        """Combine rows of accumulators into those of their slots.

        Args:
            rows: the slots of the rows.
            table: the rows; columns that are no accumulators are left out.

        Raises:
            RecordError: a sum does not fit its type.
        """
        ...

    def replace(self, rows: Rows, table: pa.Table) -> None:
        """Hold these rows, one a slot, in the place of what their slots hold; arguments and errors as `merge`."""
        ...

    def held(self, slots: Slots) -> pa.Table:
        """What `slots` hold, one row each."""
        ...

    def captured(self, slots: Slots) -> Callable[[], pa.Table]:
        """What `held` gives now, to be made a table later and in any thread."""
        ...

    def captured_first(self, count: int) -> Callable[[], pa.Table]:
        """As `captured` of the slots 0 to `count` - 1, in a fraction of the time."""
        ...


class Rows:
    """The slots of the rows of a batch, and which of them there are.

    Args:
        slots: of each row.
        end: all slots are below this.

    Attributes:
        touched: the slots, each once: in order of first occurrence where the batch is small, else ascending, as what
            they hold lies in memory.

    Example:
        >>> rows = Rows(np.array([5, 2, 5]), 6)
        >>> rows.touched.tolist(), rows.largest(np.array([30, 10, 20])).tolist()
        ([5, 2], [30, 10])
    """

    def __init__(self, slots: Slots, end: int) -> None:
        self.slots, self._end = slots, end
        if slots.size >= _MANY_ROWS and end <= _PLACES_A_ROW * slots.size:
            self.touched: Slots = _ascending(slots, end)
        else:
            numbers, first_of_slot = np.arange(slots.size, dtype=np.int32), np.empty(end, np.int32)
            first_of_slot[slots[::-1]] = numbers[::-1]
            self.touched = slots[first_of_slot[slots] == numbers]

    def largest(self, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The largest of the values of the rows of each touched slot."""
        if len(self.touched) == len(values) < _MANY_ROWS:
            return values
        of_slot = np.empty(self._end, np.int32)
        if (values[1:] >= values[:-1]).all():
            # As rows mostly come: it is the last one's. What is written last stays.
            of_slot[self.slots] = np.arange(len(values), dtype=np.int32)
            return values[of_slot[self.touched]]
        of_slot[self.touched] = np.arange(len(self.touched), dtype=np.int32)
        largest = np.full(len(self.touched), np.iinfo(np.int64).min)
        np.maximum.at(largest, of_slot[self.slots], values)
        return largest


def _ascending(slots: Slots, end: int) -> Slots:
    seen = np.zeros(end, np.bool_)
    seen[slots] = True
    return np.flatnonzero(seen)


def accumulators_by_slot(aggregation: GroupedAggregation, schema: pa.Schema, keys_of: KeysOf) -> SlotAccumulators:
    """Accumulators of a running aggregate; none of them has seen a row.

    Args:
        aggregation: whose accumulators these are.
        schema: of the first of them.
        keys_of: the key columns of slots, for messages.
    """
    types = [schema.field(fold.name).type for fold in aggregation.folds]
    if not aggregation.grouped and all(storage_type(kind) is not None for kind in types):
        return DenseAccumulators(aggregation, keys_of)
    return CombinedAccumulators(aggregation)


class DenseAccumulators:
    """Accumulators that are numbers, in arrays.

    Args:
        aggregation: whose accumulators these are.
        keys_of: the key columns of slots, for messages.
    """

    def __init__(self, aggregation: HasAccumulators, keys_of: KeysOf) -> None:
        self._cells = AccumulatorCells(aggregation)
        self._keys_of = keys_of
        self._end = 0

    def merge(self, rows: Rows, table: pa.Table) -> None:
        end = int(rows.touched.max(initial=-1)) + 1
        if end > self._end:
            self._cells.create(np.arange(self._end, end))
            self._end = end
        self._cells.fold(rows.slots, table, self._keys_of)

    def replace(self, rows: Rows, table: pa.Table) -> None:
        known = rows.touched[rows.touched < self._end]
        self._cells.create(known)
        self.merge(rows, table)

    def held(self, slots: Slots) -> pa.Table:
        return self._cells.read(slots)

    def captured(self, slots: Slots) -> Callable[[], pa.Table]:
        return self._cells.captured(slots)

    def captured_first(self, count: int) -> Callable[[], pa.Table]:
        return self._cells.captured_first(count)


class CombinedAccumulators:
    """Accumulators of any type, a row of each key held; Arrow combines it with those that come.

    Args:
        aggregation: whose accumulators these are.
    """

    def __init__(self, aggregation: GroupedAggregation) -> None:
        self._aggregation = aggregation
        grouped = (name for accumulator in aggregation.grouped for name in accumulator.names)
        self._names = [*(fold.name for fold in aggregation.folds), *grouped]
        self._columns = {name: SlotColumn() for name in self._names}

    def merge(self, rows: Rows, table: pa.Table) -> None:
        # By slot, since whole numbers are grouped several times as fast as texts or several columns.
        came = table.select(self._names).append_column(_SLOT, pa.array(rows.slots))
        if len(rows.touched) < len(rows.slots):
            came = self._aggregation.combine(came, by=(_SLOT,))
        slots = pa.array(rows.touched)
        known = {name: column.get(rows.touched) for name, column in self._columns.items()}
        both = pa.concat_tables([pa.table({**known, _SLOT: slots}), came], promote_options="default")
        merged = self._aggregation.combine(both, by=(_SLOT,)).select(self._names)
        for name, column in self._columns.items():
            column.set(rows.touched, one_array(merged.column(name)))

    def replace(self, rows: Rows, table: pa.Table) -> None:
        for name, column in self._columns.items():
            column.set(rows.slots, one_array(table.column(name)))

    def held(self, slots: Slots) -> pa.Table:
        return self.captured(slots)()

    def captured(self, slots: Slots) -> Callable[[], pa.Table]:
        return _made({name: column.take(slots) for name, column in self._columns.items()})

    def captured_first(self, count: int) -> Callable[[], pa.Table]:
        return _made({name: column.take_first(count) for name, column in self._columns.items()})


def _made(columns: dict[str, Callable[[], pa.Array]]) -> Callable[[], pa.Table]:
    return lambda: pa.table({name: column() for name, column in columns.items()})


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
    """The accumulators of some keys, without an operator; a `HeldState`.

    A process that is to become a subtask makes one of the newest checkpoint while others run that subtask's keys, and
    changes it into that of the checkpoint it is restored from. `KeyedAccumulators` works on one.

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
