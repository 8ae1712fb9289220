"""Accumulators by cell that NumPy cannot hold (lists, strings, decimals, first and last values), as Arrow segments.

`AccumulatorCells` keeps these beside its dense columns. Each batch is appended as a segment; reading picks the rows
of the cells out of the segments and combines them. A row is merged a bounded number of times, and rows of released
cells are dropped when segments are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.aggregates.accumulators import FoldAccumulator, GroupAccumulator
from penstock.engine.aggregates.grouped import combine_accumulators
from penstock.engine.row_numbers import Groups
from penstock.engine.state.segments import SegmentedTable, concat_tables

_LIFE: Final = "__life"
_GROUP: Final = "__group"
_CELL_BITS: Final = 32
_CELL_MASK: Final = 2**32 - 1
_MIN_RELEASED: Final = 1024
"""Fewer rows than this are not worth a merge."""
_Int64s = npt.NDArray[np.int64]


class SegmentCells:
    """Accumulators by cell.

    A cell that is released and created again starts a new *life*; rows carry the life that they belong to (its number
    above the cell's), so that rows of an earlier one are told apart without looking for them at once.

    Args:
        grouped: accumulators that are kept here in any case.
    """

    def __init__(self, grouped: Sequence[GroupAccumulator]) -> None:
        self._folds: list[FoldAccumulator] = []
        self._grouped = tuple(grouped)
        self._lives = np.zeros(0, np.int64)
        self._rows = SegmentedTable(self._merge)
        self._released = 0

    @property
    def names(self) -> list[str]:
        """The columns that are kept here."""
        return _names(self._folds, self._grouped)

    def add_fold(self, fold: FoldAccumulator) -> None:
        """Keep this accumulator too from now on."""
        self._folds.append(fold)

    def reserve(self, cells: int) -> None:
        """Make room for as many cells."""
        more = np.arange(len(self._lives), cells)
        self._lives = np.concatenate([self._lives, more])

    def release(self, cells: _Int64s) -> None:
        """Forget what the cells hold."""
        self._lives[cells] += 1 << _CELL_BITS
        self._released += len(cells)
        if self._released > max(self._rows.rows // 2, _MIN_RELEASED):
            self._rows.replace(self._alive(self._rows.compact()))
            self._released = 0

    def fold(self, cells: _Int64s, table: pa.Table) -> None:
        """Combine row i of `table`, which has the columns `names`, into `cells[i]`, for each i."""
        rows = table.select(self.names).append_column(_LIFE, pa.array(self._lives[cells]))
        self._rows.append(combine_accumulators(rows, [_LIFE], self._folds, self._grouped))

    def read(self, cells: _Int64s) -> pa.Table:
        """The accumulators of `cells`, one row each; null where nothing was folded in."""
        return self._read(cells, self._rows.parts, self._lives, self._folds)

    def captured(self, cells: _Int64s) -> Callable[[], pa.Table]:
        """What `read` gives now, to be made later and in any thread: the cells' lives are copied, the rows are not."""
        parts, lives, folds = [*self._rows.parts], self._lives.copy(), [*self._folds]
        return lambda: self._read(cells, parts, lives, folds)

    def _read(
        self, cells: _Int64s, parts: Sequence[pa.Table], lives: _Int64s, folds: Sequence[FoldAccumulator]
    ) -> pa.Table:
        """The accumulators of cells in rows; of this object it uses only what never changes."""
        distinct, places = np.unique(cells, return_inverse=True)
        ranks = np.full(len(lives) + 1, -1, np.int64)
        ranks[distinct] = np.arange(len(distinct))
        taken, found = [], []
        for part in parts:
            rank = ranks[_cells_alive(part, lives)]
            rows = np.flatnonzero(rank >= 0)
            taken.append(part.drop_columns(_LIFE).take(pa.array(rows)))
            found.append(rank[rows])
        if not taken:
            return pa.table({name: pa.nulls(len(cells)) for name in _names(folds, self._grouped)})
        groups = Groups(np.concatenate(found), len(distinct))
        return self._by_group(concat_tables(taken), groups, folds).take(pa.array(places))

    def combined(self, cells: _Int64s, groups: Groups) -> pa.Table:
        """The accumulators of groups of cells, in whose order lists follow each other; `groups` has that of each."""
        return self._by_group(self.read(cells), groups, self._folds)

    def _by_group(self, table: pa.Table, groups: Groups, folds: Sequence[FoldAccumulator]) -> pa.Table:
        """One row for each group, in the order of their ids."""
        merged = combine_accumulators(table.append_column(_GROUP, pa.array(groups.ids)), [_GROUP], folds, self._grouped)
        row_of = np.full(groups.count, -1, np.int64)
        row_of[merged.column(_GROUP).to_numpy()] = np.arange(merged.num_rows)
        return merged.drop_columns(_GROUP).take(pa.array(row_of, mask=row_of < 0))

    def _merge(self, table: pa.Table) -> pa.Table:
        return combine_accumulators(self._alive(table), [_LIFE], self._folds, self._grouped)

    def _alive(self, table: pa.Table) -> pa.Table:
        return table.filter(pa.array(_cells_alive(table, self._lives) >= 0))


def _cells_alive(table: pa.Table, lives: _Int64s) -> _Int64s:
    """The cell of each row; -1 if it belongs to another life than the cell's in `lives`."""
    own = table.column(_LIFE).to_numpy()
    cells: _Int64s = own & _CELL_MASK
    return np.where(lives[cells] == own, cells, -1)


def _names(folds: Sequence[FoldAccumulator], grouped: Sequence[GroupAccumulator]) -> list[str]:
    return [*(fold.name for fold in folds), *(name for each in grouped for name in each.names)]
