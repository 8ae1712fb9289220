"""Which cell belongs to a key's slot and a slice: a matrix of cell ids, or a hash table where that would be sparse.

`SliceCells` keeps one. A row of the matrix is a slice, a column a slot: to find a cell is one step, and costs four
bytes for each slot and slice. Where most pairs have no cell, a hash table takes less, so memory is bounded by the
cells in use.
"""

from __future__ import annotations

from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.state.keys.index import KeyIndex

_Int64s = npt.NDArray[np.int64]

_SPARSE: Final = 16
"""A matrix may have this many places a cell."""
_SMALL: Final = 2**20
"""A matrix with fewer places than this is never too sparse."""
_MIN_SLOTS: Final = 64
_MIN_SLICES: Final = 8
_SLOT_BITS: Final = 32
_SLOT_MASK: Final = 2**32 - 1


class CellIndex:
    """Cells by the row of a slice and the slot of a key; -1 where there is none."""

    def __init__(self) -> None:
        self._places: _Places = _Matrix(_MIN_SLICES, _MIN_SLOTS)

    def reserve(self, slices: int, slots: int, cells: int) -> None:
        """Make room.

        Args:
            slices, slots: all rows of slices, and all slots, that have cells or may soon have are below these.
            cells: how many pairs have a cell, or may soon have.
        """
        self._places = self._places.grown(slices, slots, max(_SMALL, cells * _SPARSE))

    def find(self, slices: _Int64s | int, slots: _Int64s) -> _Int64s:
        """The cell of each pair, or -1."""
        return self._places.find(slices, slots)

    def enter(self, slices: _Int64s | int, slots: _Int64s, cells: _Int64s) -> None:
        """Enter cells for pairs that have none; where a pair comes again, the last cell stays."""
        self._places.enter(slices, slots, cells)

    def remove(self, slices: _Int64s, slots: _Int64s) -> None:
        """Take out the cells of these different pairs, which have some."""
        self._places.remove(slices, slots)


class _Places(Protocol):
    def grown(self, slices: int, slots: int, most: int) -> _Places:
        """The same cells with room for more; a matrix may have at most so many places."""
        ...

    def find(self, slices: _Int64s | int, slots: _Int64s) -> _Int64s: ...

    def enter(self, slices: _Int64s | int, slots: _Int64s, cells: _Int64s) -> None: ...

    def remove(self, slices: _Int64s, slots: _Int64s) -> None: ...


class _Matrix:
    """A cell id, or -1, for each slice and slot."""

    def __init__(self, slices: int, slots: int) -> None:
        self._cells = np.full((slices, slots), -1, np.int32)

    def grown(self, slices: int, slots: int, most: int) -> _Places:
        rows, width = self._cells.shape
        if slices <= rows and slots <= width:
            return self
        larger = max(slices, 2 * rows) if slices > rows else rows, max(slots, 2 * width) if slots > width else width
        if larger[0] * larger[1] > most:
            return self._hashed()
        matrix = _Matrix(*larger)
        matrix._cells[:rows, :width] = self._cells
        return matrix

    def _hashed(self) -> _Hashed:
        hashed = _Hashed()
        slices, slots = np.nonzero(self._cells >= 0)
        hashed.enter(slices, slots, self._cells[slices, slots].astype(np.int64))
        return hashed

    def find(self, slices: _Int64s | int, slots: _Int64s) -> _Int64s:
        return self._cells.reshape(-1).take(slices * self._cells.shape[1] + slots).astype(np.int64)

    def enter(self, slices: _Int64s | int, slots: _Int64s, cells: _Int64s) -> None:
        self._cells.reshape(-1)[slices * self._cells.shape[1] + slots] = cells

    def remove(self, slices: _Int64s, slots: _Int64s) -> None:
        self._cells[slices, slots] = -1


class _Hashed:
    """A hash table of the pairs that have a cell."""

    def __init__(self) -> None:
        self._index = KeyIndex()
        self._cells = np.full(0, -1, np.int64)

    def grown(self, slices: int, slots: int, most: int) -> _Places:
        # With room to grow, so that it does not change to and fro.
        if slices * slots * 4 > most:
            return self
        matrix = _Matrix(slices, slots)
        held = self._index.slots()
        pairs = self._index.keys(held)[0].to_numpy() if len(held) else held
        matrix.enter(pairs >> _SLOT_BITS, pairs & _SLOT_MASK, self._cells[held])
        return matrix

    def find(self, slices: _Int64s | int, slots: _Int64s) -> _Int64s:
        found = self._index.find(_pairs(slices, slots))
        cells = np.full(len(found), -1, np.int64)
        known = found >= 0
        cells[known] = self._cells[found[known]]
        return cells

    def enter(self, slices: _Int64s | int, slots: _Int64s, cells: _Int64s) -> None:
        found = self._index.lookup(_pairs(slices, slots))
        if self._index.end > len(self._cells):
            more = max(self._index.end, 2 * len(self._cells)) - len(self._cells)
            self._cells = np.concatenate([self._cells, np.full(more, -1, np.int64)])
        self._cells[found] = cells

    def remove(self, slices: _Int64s, slots: _Int64s) -> None:
        self._index.remove(self._index.find(_pairs(slices, slots)))


def _pairs(slices: _Int64s | int, slots: _Int64s) -> list[pa.Array]:
    return [pa.array((slices << _SLOT_BITS) + slots)]
