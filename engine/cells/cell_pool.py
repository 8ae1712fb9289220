"""Ids of cells: given out from 0, taken back, and given out again, so that arrays by cell stay as short as they can be.

`SliceCells` and `SessionCells` number their cells here.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_Int64s = npt.NDArray[np.int64]


class CellPool:
    """Gives ids that are not in use."""

    def __init__(self) -> None:
        self._free = np.empty(0, np.int64)
        self._num_free = 0
        self._end = 0
        self.used = 0

    @property
    def end(self) -> int:
        """All ids that were ever given are below this."""
        return self._end

    def take(self, count: int) -> _Int64s:
        """Ids for `count` new cells."""
        self.used += count
        again = min(count, self._num_free)
        self._num_free -= again
        # A copy: what is given back later goes to the same place.
        old = self._free[self._num_free : self._num_free + again].copy()
        fresh = np.arange(self._end, self._end + count - again)
        self._end += len(fresh)
        return np.concatenate([old, fresh])

    def give_back(self, cells: _Int64s) -> None:
        """These are not in use any more."""
        self.used -= len(cells)
        needed = self._num_free + len(cells)
        if needed > len(self._free):
            grown = np.empty(max(needed, 2 * len(self._free)), np.int64)
            grown[: self._num_free] = self._free[: self._num_free]
            self._free = grown
        self._free[self._num_free : needed] = cells
        self._num_free = needed
