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
        self._free: list[_Int64s] = []
        self._end = 0
        self.used = 0

    @property
    def end(self) -> int:
        """All ids that were ever given are below this."""
        return self._end

    def take(self, count: int) -> _Int64s:
        """Ids for `count` new cells."""
        self.used += count
        taken: list[_Int64s] = []
        while self._free and count:
            free = self._free.pop()
            taken.append(free[:count])
            if len(free) > count:
                self._free.append(free[count:])
            count -= len(taken[-1])
        taken.append(np.arange(self._end, self._end + count))
        self._end += count
        return np.concatenate(taken)

    def give_back(self, cells: _Int64s) -> None:
        """These are not in use any more."""
        self.used -= len(cells)
        self._free.append(cells)
