"""When partial matches may time out: times by slot, given out in order of time.

`ColumnFinder` holds one. It takes 16 bytes a time-out, and costs little where none is due.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from penstock.engine.patterns.machine_rules import Int64s

_MOST_PARTS: Final = 64


class TimeOuts:
    """Slots with times."""

    def __init__(self) -> None:
        self._parts: list[Int64s] = []
        """Each in order of time: slot, time."""
        self._counts = np.zeros(0, np.int64)
        """How many a slot has."""

    def add(self, timers: Int64s) -> None:
        """Remember slots and times, one a row."""
        if not len(timers):
            return
        ordered = timers[np.argsort(timers[:, 1], kind="stable")]
        self._parts.append(ordered)
        if len(self._parts) > _MOST_PARTS:
            together = np.concatenate(self._parts)
            self._parts = [together[np.argsort(together[:, 1], kind="stable")]]
        end = int(timers[:, 0].max()) + 1
        if end > len(self._counts):
            larger = np.zeros(max(end, 2 * len(self._counts)), np.int64)
            larger[: len(self._counts)] = self._counts
            self._counts = larger
        self._counts[:end] += np.bincount(timers[:, 0], minlength=end)

    def take(self, time: int) -> Int64s:
        """The slots with time-outs up to `time`, each once, in order of their first ones; of one time, as they came."""
        due, kept = [], []
        for part in self._parts:
            end = int(np.searchsorted(part[:, 1], time, side="right"))
            if end:
                due.append(part[:end])
            if end < len(part):
                kept.append(part[end:])
        if not due:
            return np.empty(0, np.int64)
        self._parts = kept
        together = np.concatenate(due)
        ordered = together[np.argsort(together[:, 1], kind="stable"), 0]
        slots, first, counts = np.unique(ordered, return_index=True, return_counts=True)
        self._counts[slots] -= counts
        return slots[np.argsort(first)]

    @property
    def next(self) -> int | None:
        """The first time to come."""
        return min((int(part[0, 1]) for part in self._parts), default=None)

    def has(self, slots: Int64s) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Whether each slot has a time-out to come."""
        found = np.zeros(len(slots), np.bool_)
        known = slots < len(self._counts)
        found[known] = self._counts[slots[known]] > 0
        return found

    def all(self) -> tuple[Int64s, Int64s]:
        """All slots and times, in order of time."""
        if not self._parts:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        together = np.concatenate(self._parts)
        together = together[np.argsort(together[:, 1], kind="stable")]
        return together[:, 0].copy(), together[:, 1].copy()
