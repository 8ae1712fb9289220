"""Which cells have changed since the last capture: one mark a cell.

Window operators mark what they fold into, so that a checkpoint need hold no more than that. A mark costs a nanosecond
or so a row, and a byte a cell.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_Int64s = npt.NDArray[np.int64]


class TouchedCells:
    """Marks of cells.

    Example:
        >>> touched = TouchedCells()
        >>> touched.mark(np.array([2, 0, 2]), 3)
        >>> touched.cells().tolist()
        [0, 2]
    """

    def __init__(self) -> None:
        self._marks = np.zeros(0, np.bool_)

    def mark(self, cells: _Int64s, end: int) -> None:
        """These have changed; all of them are below `end`."""
        if end > len(self._marks):
            grown = np.zeros(max(end, 2 * len(self._marks)), np.bool_)
            grown[: len(self._marks)] = self._marks
            self._marks = grown
        self._marks[cells] = True

    def forget(self, cells: _Int64s) -> None:
        """These are not in use any more."""
        self._marks[cells[cells < len(self._marks)]] = False

    def cells(self) -> _Int64s:
        """The marked ones, ascending."""
        return np.flatnonzero(self._marks)

    def settle(self) -> None:
        """A capture holds all changes so far."""
        self._marks[:] = False
