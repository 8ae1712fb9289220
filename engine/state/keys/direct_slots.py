"""Slots of whole numbers that lie close together, in a table by number: a row costs one step, and no hash.

`slots_of_rows` looks here before it asks a `KeyIndex`, which gives the slots and has the table forget them as soon as a
key loses its own. Memory is bounded: a table is as wide as a batch or the keys allow, and 8 MiB at the most.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

_Int64s = npt.NDArray[np.int64]

_MOST: Final = 1 << 20
"""Places of a table; from here on what is looked up lies in no cache of the processor, as that of an index."""
_PLACES_A_SORTED_ROW: Final = 64
"""To look through so many places costs what it does to sort one number more."""
_UNKNOWN, _WANTED = -1, -2


class DirectSlots:
    """What is known of the slots of numbers.

    Example:
        >>> slots = DirectSlots()
        >>> slots.lookup(np.array([7, 5, 7]), 10, lambda numbers: numbers * 10).tolist()
        [70, 50, 70]
    """

    def __init__(self) -> None:
        self.is_used = False
        """Whether there is a slot to forget."""
        self._low = 0
        self._slots: _Int64s = np.empty(0, np.int64)

    def forget(self) -> None:
        """Slots have been taken from their keys."""
        self._slots = np.empty(0, np.int64)
        self.is_used = False

    def lookup(self, numbers: _Int64s, most: int, give: Callable[[_Int64s], _Int64s]) -> _Int64s | None:
        """The slot of each number, from 0 on.

        Args:
            numbers: at least one.
            most: so many places the table may have.
            give: is asked for the slots of those that are not known: distinct, and ascending.

        Returns:
            None: the numbers lie too far apart.
        """
        if not self._cover(int(numbers.min()), int(numbers.max()), min(most, _MOST)):
            return None
        places = numbers - self._low
        slots: _Int64s = self._slots[places]
        missing = places[slots < 0]
        if len(missing):
            fresh = self._distinct(missing)
            self._slots[fresh] = give(fresh + self._low)
            slots = self._slots[places]
        return slots

    def find(self, numbers: _Int64s) -> _Int64s | None:
        """The slot of each number, where all are known; looking changes nothing."""
        places = numbers - self._low
        # Those below are beyond all others then.
        if int(places.view(np.uint64).max(initial=0)) >= len(self._slots):
            return None
        slots: _Int64s = self._slots[places]
        return slots if slots.min(initial=0) >= 0 else None

    def _distinct(self, places: _Int64s) -> _Int64s:
        if len(places) < len(self._slots) // _PLACES_A_SORTED_ROW:
            return np.unique(places)
        self._slots[places] = _WANTED
        return np.flatnonzero(self._slots == _WANTED)

    def _cover(self, low: int, high: int, most: int) -> bool:
        """Have places for numbers from `low` to `high`; whether there are so many."""
        before, end = self._slots, self._low + len(self._slots)
        if len(before) and self._low <= low and high < end:
            return True
        if high - low >= most:
            return False
        if len(before) and max(end, high + 1) - min(self._low, low) <= most:
            low, high = min(self._low, low), max(end - 1, high)
        else:
            # Such as numbers of orders, which go on.
            before = before[:0]
        # Room for what follows, or each batch of such numbers would copy the table.
        slots = np.full(min(high - low + (high - low) // 2 + 1, most), _UNKNOWN)
        slots[self._low - low : self._low - low + len(before)] = before
        self._low, self._slots, self.is_used = low, slots, True
        return True
