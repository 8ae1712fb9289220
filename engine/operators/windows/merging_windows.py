"""The windows of each key that merge, such as sessions, and under which of them each one's contents are kept.

The window operator goes to a key for each row and timer, and has what changed written before a capture. Between, the
sets that were used last are held decoded and in order, so that a row costs the same beside one open session and beside
thousands. When windows merge, the contents stay in the place of one of them (the *state window*): a session that grows
copies nothing.

Source: Flink's `MergingWindowSet`.
"""

from __future__ import annotations

import bisect
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

import pyarrow as pa

from penstock.engine.elements import MAX_TIMESTAMP
from penstock.engine.state.backend import Key, KeyedStateBackend
from penstock.engine.state.descriptors import ValueStateDescriptor
from penstock.engine.state.state_tables import instant
from penstock.engine.windows.base import WindowAssigner
from penstock.engine.windows.windows import TimeWindow

MERGING_WINDOWS: Final = ValueStateDescriptor("merging-window-set", pa.list_(pa.list_(pa.list_(pa.int64()))))
"""The set, as state of a key: pairs of a window and its state window, each as [start, end]."""
_HELD_WINDOWS: Final = 65_536
"""How many windows are held decoded, those of all keys together; of one key all, however many."""

OnMerge: TypeAlias = Callable[[TimeWindow, Sequence[TimeWindow], TimeWindow, Sequence[TimeWindow]], None]
"""Called for a merge: the merged window, the windows it is made of, its state window, and theirs that are given up."""


class _WindowSet:
    """The windows of one key, which touch none of each other, with the state window of each."""

    __slots__ = ("changed", "ordered", "places")

    def __init__(self, pairs: Iterable[tuple[Sequence[int], Sequence[int]]]) -> None:
        self.places = {TimeWindow(*window): TimeWindow(*place) for window, place in pairs}
        self.ordered = sorted(self.places)
        self.changed = False

    def __len__(self) -> int:
        return len(self.places)

    def touching(self, window: TimeWindow) -> Sequence[TimeWindow]:
        """Those that overlap or touch `window`: windows apart end in the order in which they begin."""
        ordered = self.ordered
        end = begin = bisect.bisect_right(ordered, (window.end, MAX_TIMESTAMP))
        while begin and ordered[begin - 1].end >= window.start:
            begin -= 1
        return ordered[begin:end]

    def put(self, window: TimeWindow, place: TimeWindow) -> None:
        """Add a window; one that an assigner of the user's makes anew gets another state window."""
        if window not in self.places:
            bisect.insort(self.ordered, window)
        self.places[window] = place
        self.changed = True

    def pop(self, window: TimeWindow) -> TimeWindow:
        """Remove a window that is there; its state window."""
        del self.ordered[bisect.bisect_left(self.ordered, window)]
        self.changed = True
        return self.places.pop(window)


class MergingWindows:
    """The windows of the current key.

    Args:
        assigner: says which windows merge.
        backend: holds the sets as keyed state. `go_to` and `write` move its current key.
    """

    def __init__(self, assigner: WindowAssigner, backend: KeyedStateBackend) -> None:
        self._assigner = assigner
        self._merges_touching = type(assigner).merge_windows is WindowAssigner.merge_windows
        self._backend = backend
        self._state = backend.value_state(MERGING_WINDOWS)
        self._held: OrderedDict[Key, tuple[Key, _WindowSet]] = OrderedDict()
        self._windows = _WindowSet(())
        self._count = 0

    def go_to(self, key: Key) -> None:
        """Hold the windows of `key`; where too many are held, write those of the keys that were used longest ago."""
        at = instant(key)
        found = self._held.get(at)
        if found is not None:
            self._held.move_to_end(at)
            self._windows = found[1]
            return
        self._backend.set_current_key(key)
        self._windows = _WindowSet(self._state.value() or ())
        self._held[at] = key, self._windows
        self._count += len(self._windows)
        while self._count + len(self._held) > _HELD_WINDOWS and len(self._held) > 1:
            _, (other, windows) = self._held.popitem(last=False)
            self._write(other, windows)
            self._count -= len(windows)

    def write(self) -> None:
        """Write what has changed to the state, which is complete then."""
        for key, windows in self._held.values():
            self._write(key, windows)

    def _write(self, key: Key, windows: _WindowSet) -> None:
        if windows.changed:
            windows.changed = False
            self._backend.set_current_key(key)
            self._state.update([[list(window), list(place)] for window, place in windows.places.items()] or None)

    def state_window(self, window: TimeWindow) -> TimeWindow | None:
        """Where the contents of a window are, or None if there is no such window (any more)."""
        return self._windows.places.get(window)

    def touching(self, window: TimeWindow) -> list[tuple[TimeWindow, TimeWindow]]:
        """The windows that overlap or touch `window`, and where the contents of each are."""
        return [(found, self._windows.places[found]) for found in self._windows.touching(window)]

    def add(self, window: TimeWindow, on_merge: OnMerge) -> TimeWindow:
        """Add a row's window, and merge what is to be merged.

        Returns:
            The window that the row is in now.
        """
        if window in self._windows.places:
            return window
        result = window
        for merged, parts in self._merges(window):
            old = [part for part in parts if part != window]
            if len(old) < len(parts):
                result = merged
            self._merge(merged, old, on_merge)
        if result not in self._windows.places:
            self._put(result, result)
        return result

    def _merges(self, window: TimeWindow) -> Iterable[tuple[TimeWindow, Sequence[TimeWindow]]]:
        """What is to be merged now that `window` comes in."""
        if not self._merges_touching:
            return self._assigner.merge_windows([*self._windows.places, window])
        # Windows of the set touch none of each other: only the new one can bring some of them together.
        parts = [window, *self._windows.touching(window)]
        return [(TimeWindow(min(p.start for p in parts), max(p.end for p in parts)), parts)] if len(parts) > 1 else ()

    def _merge(self, merged: TimeWindow, old: Sequence[TimeWindow], on_merge: OnMerge) -> None:
        """Replace the windows `old`, which are in the set, by `merged`."""
        if list(old) == [merged]:
            return
        places = [self._pop(part) for part in old]
        self._put(merged, places[0])
        on_merge(merged, old, places[0], places[1:])

    def retire(self, window: TimeWindow) -> None:
        """Forget a window."""
        if window in self._windows.places:
            self._pop(window)

    def _put(self, window: TimeWindow, place: TimeWindow) -> None:
        self._count -= len(self._windows)
        self._windows.put(window, place)
        self._count += len(self._windows)

    def _pop(self, window: TimeWindow) -> TimeWindow:
        self._count -= 1
        return self._windows.pop(window)
