"""The windows of one key that merge, such as sessions, and under which of them each one's contents are kept.

The window operator loads the set of a key for each row, and saves it where it has changed. When windows merge, the
contents stay in the place of one of them (the *state window*), so that a session that grows copies nothing.

Source: Flink's `MergingWindowSet`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

import pyarrow as pa

from penstock.engine.state.backend import ValueState
from penstock.engine.state.descriptors import ValueStateDescriptor
from penstock.engine.windows.base import WindowAssigner
from penstock.engine.windows.windows import TimeWindow

MERGING_WINDOWS: Final = ValueStateDescriptor("merging-window-set", pa.list_(pa.list_(pa.list_(pa.int64()))))
"""The set, as state of a key: pairs of a window and its state window, each as [start, end]."""

OnMerge: TypeAlias = Callable[[TimeWindow, Sequence[TimeWindow], TimeWindow, Sequence[TimeWindow]], None]
"""Called for a merge: the merged window, the windows it is made of, its state window, and theirs that are given up."""


class MergingWindows:
    """The windows of the current key.

    Args:
        assigner: says which windows merge.
        state: holds the set of each key; the backend is at the key, without a namespace, for `load` and `save`.
    """

    def __init__(self, assigner: WindowAssigner, state: ValueState) -> None:
        self._assigner = assigner
        self._merges_touching = type(assigner).merge_windows is WindowAssigner.merge_windows
        self._state = state
        self._windows: dict[TimeWindow, TimeWindow] = {}
        self._changed = False

    def load(self) -> None:
        """Hold the windows of the current key."""
        self._changed = False
        pairs = self._state.value()
        if not pairs:
            self._windows = {}
        elif type(pairs[0][0]) is TimeWindow:
            # The heap keeps what it was given.
            self._windows = dict(pairs)
        else:
            self._windows = {TimeWindow(*window): TimeWindow(*place) for window, place in pairs}

    def save(self) -> None:
        """Keep what has changed since `load`."""
        if self._changed:
            self._changed = False
            self._state.update(list(self._windows.items()) or None)

    def state_window(self, window: TimeWindow) -> TimeWindow | None:
        """Where the contents of a window are, or None if there is no such window (any more)."""
        return self._windows.get(window)

    def add(self, window: TimeWindow, on_merge: OnMerge) -> TimeWindow:
        """Add a row's window, and merge what is to be merged.

        Returns:
            The window that the row is in now.
        """
        if window in self._windows:
            return window
        result = window
        for merged, parts in self._merges(window):
            old = [part for part in parts if part != window]
            if len(old) < len(parts):
                result = merged
            self._merge(merged, old, on_merge)
        if result not in self._windows:
            self._windows[result] = result
            self._changed = True
        return result

    def _merges(self, window: TimeWindow) -> Iterable[tuple[TimeWindow, Sequence[TimeWindow]]]:
        """What is to be merged now that `window` comes in."""
        if not self._merges_touching:
            return self._assigner.merge_windows([*self._windows, window])
        # Windows of the set touch none of each other: only the new one can bring some of them together.
        parts = [window, *filter(window.intersects, self._windows)]
        return [(TimeWindow(min(p.start for p in parts), max(p.end for p in parts)), parts)] if len(parts) > 1 else ()

    def _merge(self, merged: TimeWindow, old: Sequence[TimeWindow], on_merge: OnMerge) -> None:
        """Replace the windows `old`, which are in the set, by `merged`."""
        if list(old) == [merged]:
            return
        places = [self._windows.pop(part) for part in old]
        self._windows[merged] = places[0]
        self._changed = True
        on_merge(merged, old, places[0], places[1:])

    def retire(self, window: TimeWindow) -> None:
        """Forget a window."""
        if self._windows.pop(window, None) is not None:
            self._changed = True
