"""Slices merged to ever larger blocks, so that a window of many slices is put together from a few blocks.

`WindowAggregate` asks it for the blocks of a window, and tells it of rows behind the watermark. Blocks are made
when the first window needs them, those of all windows that are due together at once, and kept up to date; a window of n
slices is at most 2 * log2(n) blocks.

Source: the idea of FlatFAT, Tangwongsan et al., "General Incremental Sliding-Window Aggregation", VLDB 2015.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.cells.slice_cells import Block, SliceCells
from penstock.engine.elements import MIN_TIMESTAMP

_Int64s = npt.NDArray[np.int64]

_MANY_SLICES: Final = 16
"""To merge fewer slices than this again for each window is cheaper than to keep blocks."""
_RANGES_AT_ONCE: Final = 4096
_CELLS_AT_ONCE: Final = 2**20


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

    def blocks(self, ranges: Sequence[tuple[int, int]]) -> Iterator[list[Block]]:
        """The blocks that make up the slices of each range, in order of time, empty ones left out.

        Args:
            ranges: the first slice of each, and the one behind its last.
        """
        for first in range(0, len(ranges), _RANGES_AT_ONCE):
            aligned = [self._aligned(begin, end) for begin, end in ranges[first : first + _RANGES_AT_ONCE]]
            self._make(block for blocks in aligned for block in blocks)
            yield from ([part for block in blocks for part in self._parts(*block)] for blocks in aligned)

    def _aligned(self, begin: int, end: int) -> list[Block]:
        """The blocks, held or not, that a range is divided into."""
        slices = self._cells.slices_in(begin, end)
        if len(slices) < _MANY_SLICES or not self._levels:
            return [(0, number) for number in slices]
        blocks: list[Block] = []
        while begin < end:
            level = min(self._levels, (end - begin).bit_length() - 1, _factors_of_two(begin))
            blocks.append((level, begin >> level))
            begin += 1 << level
        return blocks

    def _parts(self, level: int, number: int) -> list[Block]:
        """The block where it is held, or else the largest that are held of it."""
        if (level, number) in self._cells:
            return [(level, number)]
        slices = self._slices(level, number)
        return [(0, each) for each in slices] if len(slices) < 2 else self._halves(level, number)

    def _halves(self, level: int, number: int) -> list[Block]:
        return [*self._parts(level - 1, 2 * number), *self._parts(level - 1, 2 * number + 1)]

    def _slices(self, level: int, number: int) -> list[int]:
        return self._cells.slices_in(number << level, number + 1 << level)

    def _make(self, blocks: Iterable[Block]) -> None:
        """Make what is missing of these, but for blocks of little to merge: small ones first, a level at a time."""
        missing: list[set[int]] = [set() for _ in range(self._levels + 1)]
        for level, number in blocks:
            missing[level].add(number)
        for level in range(self._levels, 0, -1):
            missing[level] = {each for each in missing[level] if self._is_to_make(level, each)}
            missing[level - 1].update(half for each in missing[level] for half in (2 * each, 2 * each + 1))
        at_once = max(_CELLS_AT_ONCE // max(self._cells.width, 1), 1)
        for level in range(1, self._levels + 1):
            halves = [(each, self._halves(level, each)) for each in sorted(missing[level])]
            merged = [(each, parts) for each, parts in halves if len(parts) > 1]
            for first in range(0, len(merged), at_once):
                self._merge(level, merged[first : first + at_once])

    def _is_to_make(self, level: int, number: int) -> bool:
        return (level, number) not in self._cells and len(self._slices(level, number)) > 1

    def _merge(self, level: int, blocks: Sequence[tuple[int, list[Block]]]) -> None:
        """Make blocks of one level, each out of its parts."""
        held = [np.concatenate([self._cells.cells(part) for part in parts]) for _, parts in blocks]
        numbers, cells = np.array([number for number, _ in blocks]), np.concatenate(held)
        slots, combined = self._cells.slots(cells), self._cells.combined(cells)
        self._cells.add(level, np.repeat(numbers, list(map(len, held))), slots, combined)
        self._end = max(self._end, int(numbers[-1]) + 1 << level)

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

    def drop(self, numbers: Sequence[int]) -> None:
        """Forget slices, and the blocks that hold them: whatever needs these needs the slices."""
        blocks = {(level, number >> level) for number in numbers for level in range(self._levels + 1)}
        if held := [block for block in blocks if block in self._cells]:
            self._cells.drop(held)


def _factors_of_two(number: int) -> int:
    return (number & -number).bit_length() - 1 if number else 62
