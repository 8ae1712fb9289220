"""What a window is: a range of time that rows belong to, and the global window, which has no end.

Assigners make windows, triggers and functions are given them, and the window operator keeps state by them. A window is
also a plain pair of numbers, which is what state backends take as a namespace.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP


class TimeWindow(NamedTuple):
    """The half-open range [start, end) of milliseconds.

    Args:
        start: the first millisecond that belongs to it (int64, since the epoch).
        end: the first that does not.

    Example:
        >>> TimeWindow(0, 60_000).max_timestamp
        59999
    """

    start: int
    end: int

    @property
    def max_timestamp(self) -> int:
        """The last millisecond that belongs to it; results carry it. The global window's is the end of time."""
        return self.end - 1 if self.end != MAX_TIMESTAMP else MAX_TIMESTAMP

    def intersects(self, other: TimeWindow) -> bool:
        """Whether both overlap or touch, so that sessions merge."""
        return self.start <= other.end and other.start <= self.end

    def cover(self, other: TimeWindow) -> TimeWindow:
        """The smallest window that contains both."""
        return TimeWindow(min(self.start, other.start), max(self.end, other.end))


GLOBAL_WINDOW: Final = TimeWindow(MIN_TIMESTAMP, MAX_TIMESTAMP)
"""The only window of `global_windows()`: it holds all rows of a key."""


def merge_intersecting(windows: Iterable[TimeWindow]) -> list[tuple[TimeWindow, list[TimeWindow]]]:
    """The windows to be merged: each merged window with those that it is made of (two or more).

    Example:
        >>> merge_intersecting([TimeWindow(0, 5), TimeWindow(9, 12), TimeWindow(4, 8)])
        [(TimeWindow(start=0, end=8), [TimeWindow(start=0, end=5), TimeWindow(start=4, end=8)])]
    """
    groups: list[tuple[TimeWindow, list[TimeWindow]]] = []
    for window in sorted(windows):
        if groups and groups[-1][0].intersects(window):
            merged, parts = groups[-1]
            groups[-1] = (merged.cover(window), [*parts, window])
        else:
            groups.append((window, [window]))
    return [(merged, parts) for merged, parts in groups if len(parts) > 1]
