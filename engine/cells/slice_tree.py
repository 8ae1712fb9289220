"""Slices merged to ever larger blocks, so that a window of many slices is put together from a few blocks.

`WindowAggregate` asks it for the blocks of a window, and tells it of rows behind the watermark. A block is made when
the first window needs it, and kept up to date; a window of n slices is at most 2 * log2(n) blocks.

Source: the idea of FlatFAT, Tangwongsan et al., "General Incremental Sliding-Window Aggregation", VLDB 2015.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.cells.slice_cells import Block, SliceCells
from penstock.engine.elements import MIN_TIMESTAMP

_Int64s = npt.NDArray[np.int64]

_MANY_SLICES: Final = 16
"""To merge fewer slices than this again for each window is cheaper than to keep blocks."""


class SliceTree:
    """Blocks of the slices in `cells`, which holds them too.

    Args:
        cells: where slices and blocks are held.
        window_slices: how many slices the longest window has.
    """

    def __init__(self, cells: SliceCells, window_slices: int) -> None:
        self._cells = cells
        self._levels = window_slices.bit_length() - 2 if window_slices >= _MANY_SLICES else 0
        self._end = MIN_TIMESTAMP

    def blocks(self, begin: int, end: int) -> list[Block]:
        """The blocks that make up the slices from `begin` to before `end`, in order of time, empty ones left out."""
        slices = self._cells.slices_in(begin, end)
        if len(slices) < _MANY_SLICES or not self._levels:
            return [(0, number) for number in slices]
        blocks: list[Block] = []
        while begin < end:
            level = min(self._levels, (end - begin).bit_length() - 1, _factors_of_two(begin))
            blocks += self._cover(level, begin >> level)
            begin += 1 << level
        return blocks

    def _cover(self, level: int, number: int) -> list[Block]:
        """The block, made if need be; or what stands for it where there is little to merge."""
        if (level, number) in self._cells:
            return [(level, number)]
        slices = self._cells.slices_in(number << level, number + 1 << level)
        if len(slices) < 2:
            return [(0, each) for each in slices]
        parts = [*self._cover(level - 1, 2 * number), *self._cover(level - 1, 2 * number + 1)]
        if len(parts) < 2:
            return parts
        cells = np.concatenate([self._cells.cells(part) for part in parts])
        self._cells.add(level, np.full(len(cells), number), self._cells.slots(cells), self._cells.combined(cells))
        self._end = max(self._end, number + 1 << level)
        return [(level, number)]

    def update(self, numbers: _Int64s, slots: _Int64s, table: pa.Table) -> None:
        """Bring the blocks up to date with rows that were added to slices `numbers`."""
        if numbers.min() >= self._end:
            return
        inside = np.flatnonzero(numbers < self._end)
        numbers, slots, table = numbers[inside], slots[inside], table.take(pa.array(inside))
        for level in range(1, self._levels + 1):
            blocks, places = np.unique(numbers >> level, return_inverse=True)
            made = np.array([(level, block) in self._cells for block in blocks.tolist()])
            rows = np.flatnonzero(made[places])
            if len(rows):
                self._cells.add(level, numbers[rows] >> level, slots[rows], table.take(pa.array(rows)))

    def drop(self, number: int) -> None:
        """Forget a slice, and the blocks that hold it: whatever needs them needs the slice."""
        for level in range(self._levels + 1):
            if (level, number >> level) in self._cells:
                self._cells.drop((level, number >> level))


def _factors_of_two(number: int) -> int:
    return (number & -number).bit_length() - 1 if number else 62
