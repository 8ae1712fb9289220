"""Accumulators by the slot of a key, kept while the job runs: what a running aggregate holds.

Numbers are folded row by row into arrays (`DenseAccumulators`), a few nanoseconds each. Accumulators that NumPy cannot
hold (texts, lists, decimals, first and last values) are combined by Arrow, rows of a batch first, then with what is
held (`CombinedAccumulators`). To callers they are alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.cells.accumulator_cells import AccumulatorCells, HasAccumulators, KeysOf, storage_type
from penstock.engine.columns import one_array
from penstock.engine.state.keys.index import Slots
from penstock.engine.state.slots import SlotColumn

_SLOT: Final = "__slot"


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
        touched: the slots, each once, in order of first occurrence.

    Example:
        >>> rows = Rows(np.array([5, 2, 5]), 6)
        >>> rows.touched.tolist(), rows.largest(np.array([30, 10, 20])).tolist()
        ([5, 2], [30, 10])
    """

    def __init__(self, slots: Slots, end: int) -> None:
        self.slots = slots
        self._numbers = np.arange(len(slots), dtype=np.int32)
        # Empty: only what is written is read.
        self._of_slot = np.empty(end, np.int32)
        self._of_slot[slots[::-1]] = self._numbers[::-1]
        self.touched: Slots = slots[self._of_slot[slots] == self._numbers]

    def largest(self, values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The largest of the values of the rows of each touched slot."""
        if (values[1:] >= values[:-1]).all():
            # As rows mostly come: it is the last one's. What is written last stays.
            self._of_slot[self.slots] = self._numbers
            return values[self._of_slot[self.touched]]
        self._of_slot[self.touched] = self._numbers[: len(self.touched)]
        largest = np.full(len(self.touched), np.iinfo(np.int64).min)
        np.maximum.at(largest, self._of_slot[self.slots], values)
        return largest


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
        end = max(self._end, int(rows.touched.max(initial=-1)) + 1)
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
