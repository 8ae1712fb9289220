"""Accumulators by key and slice of event time, for windows that share slices.

`WindowAggregate` adds rows here, reads the cells that make up a window, and drops what no window needs any more.
Memory is bounded by the slices and keys that are held at one time.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.aggregates.accumulators import stable_order
from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.cells.accumulator_cells import AccumulatorCells
from penstock.engine.cells.cell_index import CellIndex
from penstock.engine.cells.cell_pool import CellPool
from penstock.engine.cells.key_slots import CountedKeys, map_distinct
from penstock.engine.cells.touched_cells import TouchedCells
from penstock.engine.row_numbers import Groups
from penstock.engine.state.capture import CaptureScope
from penstock.engine.state.changes import ChangesSinceWhole

_Int64s: TypeAlias = npt.NDArray[np.int64]
Block: TypeAlias = tuple[int, int]
"""Level and number: block (l, n) stands for the 2**l slices from n * 2**l on, so (0, n) is slice n itself."""

_ROOMY: Final = 8
_SMALL: Final = 65_536


@dataclass(slots=True)
class _Held:
    """A block that has cells: its row in the index, and the cells in the order in which they came."""

    row: int
    chunks: list[_Int64s] = field(default_factory=list)


class SliceCells:
    """Accumulators of a grouped aggregation, by block and key."""

    def __init__(self, aggregation: GroupedAggregation) -> None:
        self._keys = CountedKeys(aggregation.keys)
        self._pool = CellPool()
        self._index = CellIndex()
        self._slots = np.zeros(0, np.int64)
        self._numbers = np.zeros(0, np.int64)
        self._touched = TouchedCells()
        self._since = ChangesSinceWhole()
        self._accumulators = AccumulatorCells(aggregation)
        self._blocks: dict[Block, _Held] = {}
        self._by_row: list[_Held | None] = []
        self._free_rows: list[int] = []
        self.slices: list[int] = []
        """The numbers of the slices that have cells, ascending."""

    @property
    def roomy(self) -> bool:
        """Whether much less is held than there is room for: a copy would be a good deal smaller."""
        return self._pool.end > max(_ROOMY * self._pool.used, _SMALL)

    @property
    def width(self) -> int:
        """All slots are below this."""
        return self._keys.end

    @property
    def key_count(self) -> int:
        """How many keys have cells. May be asked for from another thread."""
        return self._keys.count()

    def __contains__(self, block: Block) -> bool:
        return block in self._blocks

    def slices_in(self, begin: int, end: int) -> list[int]:
        """The slices from `begin` to before `end` that have cells."""
        return self.slices[bisect_left(self.slices, begin) : bisect_left(self.slices, end)]

    def lookup(self, table: pa.Table) -> _Int64s:
        """The slot of each row's key; rows of new keys must be added."""
        return self._keys.lookup(table)

    def add(self, level: int, numbers: _Int64s, slots: _Int64s, table: pa.Table) -> None:
        """Combine rows into the cells of their blocks and keys, in order of arrival.

        Args:
            level: of the blocks.
            numbers: of each row's block.
            slots: of each row's key.
            table: accumulators; other columns are left out.

        Raises:
            RecordError: a sum does not fit its type.
        """
        rows = self._rows(level, numbers)
        self._index.reserve(len(self._by_row), self._keys.end, self._pool.used + len(slots))
        cells = self._index.find(rows, slots)
        missing = np.flatnonzero(cells < 0)
        if len(missing):
            cells[missing] = self._create(numbers[missing], rows[missing], slots[missing])
        self._accumulators.fold(cells, table, self.keys)
        if not level:
            self._touched.mark(cells, self._pool.end)

    def cells(self, block: Block) -> _Int64s:
        """The cells of a block that has some, in the order in which their keys came."""
        held = self._blocks[block]
        if len(held.chunks) > 1:
            held.chunks = [np.concatenate(held.chunks)]
        return held.chunks[0]

    def find(self, block: Block, slots: _Int64s) -> _Int64s:
        """The cells that the keys of `slots` have in a block; keys without one are left out."""
        cells = self._index.find(self._blocks[block].row, slots)
        found: _Int64s = cells[cells >= 0]
        return found

    def slots(self, cells: _Int64s) -> _Int64s:
        """The slot of each cell's key."""
        slots: _Int64s = self._slots[cells]
        return slots

    def keys(self, cells: _Int64s) -> pa.Table:
        """The key columns of `cells`."""
        return self._keys.table(self._slots[cells])

    def combined(self, cells: _Int64s, groups: Groups | None = None) -> pa.Table:
        """The accumulators of `cells`, or of groups of them.

        Raises:
            RecordError: a sum does not fit its type.
        """
        if groups is None:
            return self._accumulators.read(cells)
        return self._accumulators.combined(cells, groups, self.keys)

    def all_cells(self) -> _Int64s:
        """The cells of all slices, of which there are some: earlier slices first."""
        return np.concatenate([self.cells((0, number)) for number in self.slices])

    def cells_of(self, keys: pa.Table) -> _Int64s:
        """The cells of all slices that these keys have, earlier slices first."""
        slots = self._keys.find(keys)
        return np.concatenate([self.find((0, number), slots) for number in self.slices])

    def take_touched(self, scope: CaptureScope) -> _Int64s | None:
        """What a capture gives: the cells of slices that have changed, ascending, or None for all that there are."""
        if scope is CaptureScope.COMPLETE:
            return None
        touched = self._touched.cells() if scope.takes_changes else None
        held = sum(len(chunk) for number in self.slices for chunk in self._blocks[0, number].chunks)
        self.settle()
        return None if self._since.gives_all(None if touched is None else len(touched), held, scope) else touched

    def settle(self) -> None:
        """What there is now has not changed."""
        self._touched.settle()

    def numbers(self, cells: _Int64s) -> _Int64s:
        """The number of each cell's block."""
        numbers: _Int64s = self._numbers[cells]
        return numbers

    def captured(self, cells: _Int64s) -> Callable[[], pa.Table]:
        """The accumulators of `cells` as they are now, to be made a table later and in any thread."""
        return self._accumulators.captured(cells)

    def drop(self, blocks: Sequence[Block]) -> None:
        """Forget different blocks that have cells."""
        parts = [self.cells(block) for block in blocks]
        rows = [self._blocks.pop(block).row for block in blocks]
        for level, number in blocks:
            if not level:
                del self.slices[bisect_left(self.slices, number)]
        cells = np.concatenate(parts)
        slots = self._slots[cells]
        self._touched.forget(cells)
        self._index.remove(np.repeat(np.array(rows), [len(part) for part in parts]), slots)
        self._keys.leave(slots)
        self._accumulators.release(cells)
        self._pool.give_back(cells)
        for row in rows:
            self._by_row[row] = None
        self._free_rows += rows

    def _rows(self, level: int, numbers: _Int64s) -> _Int64s:
        """The row in the index of each number's block."""
        return map_distinct(
            numbers, lambda distinct: np.array([self._row((level, each)) for each in distinct.tolist()])
        )

    def _row(self, block: Block) -> int:
        held = self._blocks.get(block)
        if held is None:
            if not self._free_rows:
                self._free_rows.append(len(self._by_row))
                self._by_row.append(None)
            held = self._blocks[block] = _Held(self._free_rows.pop())
            self._by_row[held.row] = held
            if block[0] == 0:
                insort(self.slices, block[1])
        return held.row

    def _create(self, numbers: _Int64s, rows: _Int64s, slots: _Int64s) -> _Int64s:
        """Make cells for pairs that have none; a pair may come more than once."""
        places = np.arange(len(rows))
        self._index.enter(rows[::-1], slots[::-1], places[::-1])
        first_of = self._index.find(rows, slots)
        is_first = first_of == places
        first = np.flatnonzero(is_first)
        numbers, rows, slots = numbers[first], rows[first], slots[first]
        cells = self._pool.take(len(first))
        self._index.enter(rows, slots, cells)
        if self._pool.end > len(self._slots):
            more = max(self._pool.end, 2 * len(self._slots)) - len(self._slots)
            self._slots = np.concatenate([self._slots, np.zeros(more, np.int64)])
            self._numbers = np.concatenate([self._numbers, np.zeros(more, np.int64)])
        self._slots[cells], self._numbers[cells] = slots, numbers
        self._keys.use(slots)
        self._accumulators.create(cells)
        self._hold(rows, cells)
        created: _Int64s = cells[(np.cumsum(is_first) - 1)[first_of]]
        return created

    def _hold(self, rows: _Int64s, cells: _Int64s) -> None:
        """Enter new cells in the lists of their blocks."""
        order = stable_order(rows)
        begins = np.flatnonzero(np.diff(rows[order], prepend=-1))
        for row, chunk in zip(rows[order][begins].tolist(), np.split(cells[order], begins[1:]), strict=True):
            held = self._by_row[row]
            assert held is not None, "rows of the index belong to blocks"
            held.chunks.append(chunk)
