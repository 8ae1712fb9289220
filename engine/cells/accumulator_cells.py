"""Accumulators of a grouped aggregation by *cell*: an id from 0 that stands for a key and a slice, or for a session.

The window operators fold rows into cells, combine cells to results and release them. Columns that NumPy can hold are
dense, the others are Arrow segments; to callers they look alike. Memory follows the highest cell id, so ids are to be
reused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from penstock.engine.aggregates.accumulators import FoldAccumulator, GroupAccumulator
from penstock.engine.cells.dense_columns import Cells, DenseColumn, KeysOf, storage_type
from penstock.engine.cells.segment_cells import SegmentCells
from penstock.engine.row_numbers import Groups

_MIN_CAPACITY: Final = 1024


class HasAccumulators(Protocol):
    """What is kept in cells: a `GroupedAggregation`, or some accumulators of one."""

    @property
    def folds(self) -> tuple[FoldAccumulator, ...]: ...

    @property
    def grouped(self) -> tuple[GroupAccumulator, ...]: ...


class AccumulatorCells:
    """Accumulators by cell.

    Args:
        aggregation: whose accumulators these are.
    """

    def __init__(self, aggregation: HasAccumulators) -> None:
        self._capacity = 0
        self._fresh: list[Cells] = []
        self._used = False
        self._dense: dict[str, DenseColumn] = {}
        self._undecided = {fold.name: fold for fold in aggregation.folds}
        self._segments: SegmentCells | None = None
        if aggregation.grouped:
            self._segments = SegmentCells(aggregation.grouped)
            weights = {each.weights for each in aggregation.grouped}
            for fold in aggregation.folds:
                if fold.name in weights:
                    self._segments.add_fold(self._undecided.pop(fold.name))

    def create(self, cells: Cells) -> None:
        """Begin to use `cells`: they have seen nothing yet, and `fold` is to come."""
        if not len(cells):
            return
        needed = int(cells.max()) + 1
        if needed > self._capacity:
            self._reserve(max(needed, 2 * self._capacity, _MIN_CAPACITY))
        for column in self._dense.values():
            column.clear(cells)
        self._fresh.append(cells)

    def _reserve(self, capacity: int) -> None:
        for column in self._dense.values():
            column.reserve(capacity)
        if self._segments is not None:
            self._segments.reserve(capacity)
        self._capacity = capacity

    def release(self, cells: Cells) -> None:
        """Forget what `cells` hold; they may be created again."""
        if self._segments is not None:
            self._segments.release(cells)

    def fold(self, cells: Cells, table: pa.Table, keys_of: KeysOf) -> None:
        """Combine rows of accumulators into cells.

        Args:
            cells: of each row.
            table: the rows, in order of arrival; other columns than accumulators are left out.
            keys_of: the key columns of cells, for messages.

        Raises:
            RecordError: a sum does not fit its type.
        """
        for fold in list(self._undecided.values()):
            self._decide(fold, table.schema.field(fold.name).type)
        for name, column in self._dense.items():
            values = table.column(name)
            if values.null_count and not column.tracks_nulls:
                column.track_nulls(np.concatenate([*self._fresh, np.zeros(0, np.int64)]))
            column.fold(cells, values, keys_of)
        if self._segments is not None:
            self._segments.fold(cells, table)
        self._fresh.clear()
        self._used = True

    def _decide(self, fold: FoldAccumulator, kind: pa.DataType) -> None:
        """Choose how to hold a column as soon as its type is known."""
        if pa.types.is_null(kind):
            return
        del self._undecided[fold.name]
        if storage_type(kind) is None:
            if self._segments is None:
                self._segments = SegmentCells(())
                self._segments.reserve(self._capacity)
            self._segments.add_fold(fold)
            return
        column = self._dense[fold.name] = DenseColumn(fold, kind, self._capacity)
        if self._used:
            column.track_nulls(np.arange(self._capacity))

    def read(self, cells: Cells) -> pa.Table:
        """The accumulators of `cells`, one row each."""
        columns = {name: column.read(cells) for name, column in self._dense.items()}
        segments = None if self._segments is None else self._segments.read(cells)
        return _table(self._undecided, columns, segments, len(cells))

    def captured(self, cells: Cells) -> Callable[[], pa.Table]:
        """What `read` gives now, to be made later and in any thread.

        Dense columns are copied, 1 to 5 ns a cell; segments are immutable, and referred to.
        """
        dense = {name: column.captured(cells) for name, column in self._dense.items()}
        return self._made(dense, None if self._segments is None else self._segments.captured(cells), len(cells))

    def captured_first(self, count: int) -> Callable[[], pa.Table]:
        """As `captured` of the cells 0 to `count` - 1, in a fraction of the time."""
        dense = {name: column.captured_first(count) for name, column in self._dense.items()}
        segments = None if self._segments is None else self._segments.captured(np.arange(count))
        return self._made(dense, segments, count)

    def _made(
        self, dense: Mapping[str, Callable[[], pa.Array]], segments: Callable[[], pa.Table] | None, rows: int
    ) -> Callable[[], pa.Table]:
        undecided = list(self._undecided)

        def made() -> pa.Table:
            columns = {name: column() for name, column in dense.items()}
            return _table(undecided, columns, None if segments is None else segments(), rows)

        return made

    def combined(self, cells: Cells, groups: Groups, keys_of: KeysOf) -> pa.Table:
        """The accumulators of groups of cells, one row a group.

        Args:
            cells: in whose order lists follow each other.
            groups: the group of each cell.
            keys_of: the key columns of cells, for messages.

        Raises:
            RecordError: a sum does not fit its type.
        """
        columns = {name: column.combined(cells, groups, keys_of) for name, column in self._dense.items()}
        segments = None if self._segments is None else self._segments.combined(cells, groups)
        return _table(self._undecided, columns, segments, groups.count)


def _table(undecided: Iterable[str], dense: dict[str, pa.Array], segments: pa.Table | None, rows: int) -> pa.Table:
    columns: dict[str, pa.Array | pa.ChunkedArray] = {name: pa.nulls(rows) for name in undecided}
    columns.update(dense)
    if segments is not None:
        columns.update(zip(segments.column_names, segments.columns, strict=True))
    return pa.table(columns)
