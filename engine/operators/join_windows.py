"""Rows of two inputs in event-time windows, brought together by key when the watermark passes a window's end.

The window join and co-group hold one of the two classes here: `AlignedPairing` for tumbling and sliding windows,
`SessionPairing` for sessions, which merge over the rows of both inputs. They give all rows of complete windows, grouped
by window and key, and forget rows that no window needs any more; late rows are dropped, and told about.

A row is late when the watermark has passed every window that it belongs to. Source: Flink's documentation, "Joining".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.engine.aggregation import groups_of
from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, concat_record_batches
from penstock.engine.operators.join_buffers import Mask, TimeSegments, TimeSlice
from penstock.engine.operators.join_columns import FIRED_UNTIL, LEFT, RIGHT, TIMESTAMP, Int64s, JoinRows
from penstock.engine.state.snapshot import OperatorSnapshot
from penstock.engine.windows.assigners import AlignedWindows, SessionWindows

JoinWindows: TypeAlias = AlignedWindows | SessionWindows
"""The windows, of event time, that two inputs can have in common."""

_SHARE_ROWS: Final = 1_048_576
"""About the most rows that are grouped at once; a single window may have more."""


@dataclass(frozen=True, slots=True)
class GroupedSide:
    """Rows of one input: `order` lists rows by group and time, `groups` (ascending) has the group of each of these."""

    rows: pa.RecordBatch
    order: Int64s
    groups: Int64s


@dataclass(frozen=True, slots=True)
class WindowGroups:
    """The rows of complete windows, grouped by window and key; earlier windows have smaller group numbers.

    Args:
        sides: left and right; None where the input has no row in these windows.
        starts, ends: of each window (int64 ms).
        groups_per_window: group `g` belongs to window `g // groups_per_window`.
    """

    sides: tuple[GroupedSide | None, GroupedSide | None]
    starts: Int64s
    ends: Int64s
    groups_per_window: int

    def bounds(self, groups: Int64s) -> tuple[Int64s, Int64s]:
        """Start and end of the window of each group."""
        windows = groups // self.groups_per_window
        return self.starts[windows], self.ends[windows]


class WindowPairing(Protocol):
    """Rows of two inputs in windows."""

    def add(self, side: int, rows: pa.RecordBatch, timestamps: Int64s) -> int:
        """Keep rows of one input, at least one; returns how many were late."""
        ...

    def fire(self, watermark: int) -> Iterator[WindowGroups]:
        """Event time has come to `watermark`: the windows that are complete now. To be read to the end."""
        ...

    def snapshot(self, max_parallelism: int) -> OperatorSnapshot:
        """All rows that are kept."""
        ...

    def restore(self, snapshot: OperatorSnapshot) -> None:
        """Go on from a snapshot."""
        ...


def pairing(windows: JoinWindows, rows: JoinRows) -> WindowPairing:
    """What brings rows together in `windows`."""
    return SessionPairing(windows, rows) if isinstance(windows, SessionWindows) else AlignedPairing(windows, rows)


class AlignedPairing:
    """Keeps the rows of both inputs by time until the last of their windows is complete.

    Args:
        windows: tumbling or sliding.
        rows: knows the columns of both inputs.
    """

    def __init__(self, windows: AlignedWindows, rows: JoinRows) -> None:
        self._windows = windows
        self._rows = rows
        self._kept = (TimeSegments(), TimeSegments())
        self._watermark = MIN_TIMESTAMP

    def add(self, side: int, rows: pa.RecordBatch, timestamps: Int64s) -> int:
        windows = self._windows
        late = 0
        if windows.slide_ms > windows.size_ms or timestamps.min() <= self._watermark:
            ends = timestamps - (timestamps - windows.offset_ms) % windows.slide_ms + windows.size_ms
            in_window = timestamps < ends
            keep = in_window & (ends - 1 > self._watermark)
            late = int(in_window.sum() - keep.sum())
            if not keep.all():
                rows, timestamps = rows.filter(pa.array(keep)), timestamps[keep]
        if len(timestamps):
            self._kept[side].append(rows, timestamps)
        return late

    def fire(self, watermark: int) -> Iterator[WindowGroups]:
        starts = self._due_starts(watermark)
        if len(starts):
            for share in self._shares(starts):
                yield self._grouped(share)
        self._watermark = watermark
        oldest_needed = self._first_open(watermark)
        for kept in self._kept:
            kept.drop_before(oldest_needed)

    def _first_open(self, watermark: int) -> int:
        """Start of the first window that is not complete at `watermark`."""
        windows = self._windows
        start = watermark + 2 - windows.size_ms
        return min(start + (windows.offset_ms - start) % windows.slide_ms, MAX_TIMESTAMP)

    def _due_starts(self, watermark: int) -> Int64s:
        """Starts of the windows with rows that are complete at `watermark` and were not before, ascending."""
        windows = self._windows
        first = min((kept.first for kept in self._kept if kept.first is not None), default=None)
        empty = np.empty(0, np.int64)
        # Windows are numbered from the one that starts at the offset.
        last_due = (watermark + 1 - windows.size_ms - windows.offset_ms) // windows.slide_ms
        if first is None or windows.offset_ms + last_due * windows.slide_ms + windows.size_ms <= first:
            return empty
        open_from = (self._first_open(self._watermark) - windows.offset_ms) // windows.slide_ms
        behind = min(windows.offset_ms + last_due * windows.slide_ms + windows.size_ms, MAX_TIMESTAMP)
        times = np.unique(np.concatenate([t for kept in self._kept for t in _times(kept.between(first, behind))]))
        lasts = (times - windows.offset_ms) // windows.slide_ms
        firsts = (times - windows.size_ms - windows.offset_ms) // windows.slide_ms + 1
        firsts[1:] = np.maximum(firsts[1:], lasts[:-1] + 1)
        firsts = np.maximum(firsts, max(open_from, int(firsts[0])))
        lasts = np.minimum(lasts, min(last_due, int(lasts[-1])))
        counts = np.maximum(lasts - firsts + 1, 0)
        numbers = np.arange(counts.sum()) + np.repeat(firsts - (np.cumsum(counts) - counts), counts)
        starts: Int64s = windows.offset_ms + numbers * windows.slide_ms
        return starts

    def _shares(self, starts: Int64s) -> list[Int64s]:
        """The windows in runs that have a bounded number of rows together."""
        size = self._windows.size_ms
        rows = np.zeros(len(starts), np.int64)
        for kept in self._kept:
            for part in kept.between(int(starts[0]), int(starts[-1]) + size):
                begins, ends = (np.searchsorted(part.timestamps, bound) for bound in (starts, starts + size))
                rows += ends - begins
        shares = np.cumsum(rows) // _SHARE_ROWS
        return np.split(starts, np.flatnonzero(np.diff(shares)) + 1)

    def _grouped(self, starts: Int64s) -> WindowGroups:
        size = self._windows.size_ms
        sides = [self._in_windows(side, starts) for side in (LEFT, RIGHT)]
        ids, count = _key_ids(self._rows, [None if found is None else found[0] for found in sides])
        grouped: list[GroupedSide | None] = []
        for found, keys in zip(sides, ids, strict=True):
            if found is None:
                grouped.append(None)
                continue
            rows, indices, windows = found
            groups = windows * count + keys[indices]
            order = np.argsort(groups, kind="stable")
            grouped.append(GroupedSide(rows, indices[order], groups[order]))
        return WindowGroups((grouped[LEFT], grouped[RIGHT]), starts, starts + size, count)

    def _in_windows(self, side: int, starts: Int64s) -> tuple[pa.RecordBatch, Int64s, Int64s] | None:
        """Rows of one input; and for each row of each window the row's index, and the window's number in `starts`."""
        size = self._windows.size_ms
        parts = self._kept[side].between(int(starts[0]), int(starts[-1]) + size)
        if not parts:
            return None
        times = np.concatenate(_times(parts))
        order = np.argsort(times, kind="stable")
        times = times[order]
        begins, ends = np.searchsorted(times, starts), np.searchsorted(times, starts + size)
        counts = ends - begins
        windows = np.repeat(np.arange(len(starts)), counts)
        places = np.arange(len(windows)) + np.repeat(begins - (np.cumsum(counts) - counts), counts)
        indices = order[places]
        if any(part.fired_until > self._watermark for part in parts):
            fired_until = np.repeat([part.fired_until for part in parts], [len(part.timestamps) for part in parts])
            unfired = starts[windows] + (size - 1) > fired_until[indices]
            indices, windows = indices[unfired], windows[unfired]
        return concat_record_batches([part.rows for part in parts]), indices, windows

    def snapshot(self, max_parallelism: int) -> OperatorSnapshot:
        kept = []
        for segments in self._kept:
            parts = list(segments)
            fired = [np.full(len(part.timestamps), max(part.fired_until, self._watermark)) for part in parts]
            beside = {TIMESTAMP: _times(parts), FIRED_UNTIL: fired}
            kept.append(([part.rows for part in parts], {name: _joined(values) for name, values in beside.items()}))
        return OperatorSnapshot(self._rows.snapshot(kept, max_parallelism), self._watermark)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._watermark = snapshot.watermark
        for side, segments in enumerate(self._kept):
            restored = self._rows.restore(side, snapshot.tables)
            if restored is None:
                continue
            rows, beside = restored
            # Subtasks whose rows come together here may have come to different watermarks before.
            for fired_until in np.unique(beside[FIRED_UNTIL]).tolist():
                same = beside[FIRED_UNTIL] == fired_until
                segments.append(rows.filter(pa.array(same)), beside[TIMESTAMP][same], fired_until)


class SessionPairing:
    """Keeps the rows of both inputs until their session ends.

    Args:
        windows: the gap.
        rows: knows the columns of both inputs.
    """

    def __init__(self, windows: SessionWindows, rows: JoinRows) -> None:
        self._gap = windows.gap_ms
        self._rows = rows
        self._kept: tuple[list[TimeSlice], list[TimeSlice]] = ([], [])
        self._watermark = MIN_TIMESTAMP
        self._next_end = MAX_TIMESTAMP
        """At or before the end of the first session."""

    def add(self, side: int, rows: pa.RecordBatch, timestamps: Int64s) -> int:
        self._kept[side].append(TimeSlice(rows, timestamps))
        first_end = int(timestamps.min()) + self._gap
        self._next_end = min(self._next_end, first_end)
        if first_end - 1 > self._watermark:
            return 0
        # What ends at or below the watermark now is made of these rows alone: all else was taken before.
        late = self._take_ended()
        return 0 if late is None else sum(len(side.order) for side in late.sides if side is not None)

    def fire(self, watermark: int) -> Iterator[WindowGroups]:
        self._watermark = watermark
        if any(self._kept) and self._next_end - 1 <= watermark:
            ended = self._take_ended()
            if ended is not None:
                yield ended

    def _take_ended(self) -> WindowGroups | None:
        """Remove the sessions that end at or below the watermark, and return them."""
        sides = [self._side(side) for side in (LEFT, RIGHT)]
        ids, _ = _key_ids(self._rows, [None if part is None else part.rows for part in sides])
        lengths = [0 if part is None else len(part.timestamps) for part in sides]
        times = np.concatenate([part.timestamps for part in sides if part is not None])
        keys = np.concatenate(ids)
        order = np.lexsort((times, keys))
        keys, ordered = keys[order], times[order]
        begins = np.flatnonzero(
            np.concatenate([[True], (keys[1:] != keys[:-1]) | (ordered[1:] > ordered[:-1] + self._gap)])
        )
        sessions = np.empty(len(order), np.int64)
        sessions[order] = np.repeat(np.arange(len(begins)), np.diff(begins, append=len(order)))
        starts, ends = ordered[begins], ordered[np.append(begins[1:], len(order)) - 1] + self._gap
        ended = ends - 1 <= self._watermark
        self._next_end = int(ends[~ended].min()) if not ended.all() else MAX_TIMESTAMP
        # Numbered anew, by their ends.
        by_end = np.lexsort((starts, ends))
        number = np.empty(len(by_end), np.int64)
        number[by_end] = np.arange(len(by_end))
        grouped: list[GroupedSide | None] = []
        for side, part in enumerate(sides):
            of_row = sessions[lengths[LEFT] :] if side == RIGHT else sessions[: lengths[LEFT]]
            grouped.append(self._split(side, part, ended[of_row], number[of_row]))
        if grouped == [None, None]:
            return None
        return WindowGroups((grouped[LEFT], grouped[RIGHT]), starts[by_end], ends[by_end], 1)

    def _side(self, side: int) -> TimeSlice | None:
        parts = self._kept[side]
        if not parts:
            return None
        rows = concat_record_batches([part.rows for part in parts])
        return TimeSlice(rows, np.concatenate(_times(parts)))

    def _split(self, side: int, part: TimeSlice | None, ended: Mask, groups: Int64s) -> GroupedSide | None:
        """Keep the rows of open sessions, and give back the others."""
        if part is None:
            return None
        keep = ~ended
        kept = part if keep.all() else TimeSlice(part.rows.filter(pa.array(keep)), part.timestamps[keep])
        self._kept[side][:] = [kept] if len(kept.timestamps) else []
        indices = np.flatnonzero(ended)
        if not len(indices):
            return None
        order = indices[np.lexsort((part.timestamps[indices], groups[indices]))]
        return GroupedSide(part.rows, order, groups[order])

    def snapshot(self, max_parallelism: int) -> OperatorSnapshot:
        kept = [([part.rows for part in parts], {TIMESTAMP: _joined(_times(parts))}) for parts in self._kept]
        return OperatorSnapshot(self._rows.snapshot(kept, max_parallelism), self._watermark)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._watermark = snapshot.watermark
        for side in (LEFT, RIGHT):
            restored = self._rows.restore(side, snapshot.tables)
            if restored is not None:
                rows, beside = restored
                self._kept[side].append(TimeSlice(rows, beside[TIMESTAMP]))
                self._next_end = min(self._next_end, int(beside[TIMESTAMP].min()) + self._gap)


def _times(parts: Sequence[TimeSlice]) -> list[Int64s]:
    return [part.timestamps for part in parts]


def _joined(arrays: list[Int64s]) -> Int64s:
    return np.concatenate(arrays) if arrays else np.empty(0, np.int64)


def _key_ids(rows: JoinRows, sides: Sequence[pa.RecordBatch | None]) -> tuple[list[Int64s], int]:
    """The number of each row's key, the same on both sides, and how many keys there are."""
    present = [(side, part) for side, part in enumerate(sides) if part is not None]
    columns = [pa.chunked_array(list(chunks)) for chunks in zip(*(rows.keys(*one) for one in present), strict=True)]
    groups = groups_of(columns, sum(part.num_rows for _, part in present))
    lengths = [0 if part is None else part.num_rows for part in sides]
    return [groups.ids[: lengths[LEFT]], groups.ids[lengths[LEFT] :]], groups.count
