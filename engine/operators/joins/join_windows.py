"""Rows of two inputs in event-time windows, brought together by key when the watermark passes a window's end.

The window join and co-group hold one of the two classes here: `AlignedPairing` for tumbling and sliding windows,
`SessionPairing` for sessions, which merge over the rows of both inputs. They give all rows of complete windows, grouped
by window and key, and forget rows that no window needs any more; late rows are dropped, and told about.

A row is late when the watermark has passed every window that it belongs to. Source: Flink's documentation, "Joining".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.engine.cells.key_slots import CountedKeys
from penstock.engine.cells.session_cells import Placed, SessionCells
from penstock.engine.cells.session_rules import NONE
from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, concat_record_batches
from penstock.engine.operators.join_columns import (
    FIRED_UNTIL,
    LEFT,
    RIGHT,
    TIMESTAMP,
    Int64s,
    JoinRows,
    KeptRows,
    timed_rows,
)
from penstock.engine.operators.joins.join_buffers import TimeSegments, TimeSlice
from penstock.engine.operators.joins.join_form import check_form, form_capture, window_form
from penstock.engine.operators.joins.session_rows import SessionRows
from penstock.engine.operators.spec import RowOrder
from penstock.engine.row_numbers import groups_of
from penstock.engine.state.capture import OperatorCapture
from penstock.engine.state.snapshot import OperatorSnapshot
from penstock.engine.windows.assigners import AlignedWindows, SessionWindows

JoinWindows: TypeAlias = AlignedWindows | SessionWindows
"""The windows, of event time, that two inputs can have in common."""


def order_within(windows: JoinWindows) -> RowOrder:
    """The order of rows that results by these windows depend on: a row's session is looked for from the latest on."""
    return RowOrder.ACROSS_INPUTS if isinstance(windows, SessionWindows) else RowOrder.WITHIN_INPUTS


_SHARE_ROWS: Final = 1_048_576
"""About the most rows that are grouped at once; a single window may have more."""
_SHARE_BYTES: Final = 1 << 30
"""And the most bytes: text columns of one record batch have offsets of 32 bits."""
_SESSION: Final = "session"
_MANY_SESSIONS: Final = 1 << 20


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

    def capture(self) -> OperatorCapture:
        """All rows that are kept, by reference."""
        ...

    def restore(self, snapshot: OperatorSnapshot) -> None:
        """Resume from a snapshot."""
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
        self._form = window_form(windows)
        self._form_capture = form_capture(self._form)
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
        held = [part.rows for kept in self._kept for part in kept]
        shares = np.cumsum(rows) // _share_rows(sum(map(len, self._kept)), sum(part.nbytes for part in held))
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

    def capture(self) -> OperatorCapture:
        kept = [_with_fired(list(segments), self._watermark) for segments in self._kept]
        return OperatorCapture({**self._rows.capture(kept), **self._form_capture}, self._watermark)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        check_form(snapshot.tables, self._form, self._rows.where)
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
        self._form = window_form(windows)
        self._form_capture = form_capture(self._form)
        self._rows = rows
        self._key_names = [str(place) for place in range(len(rows.key_names(LEFT)))]
        self._watermark = MIN_TIMESTAMP
        self._reset()

    def _reset(self) -> None:
        self._keys = CountedKeys(self._key_names)
        self._sessions = SessionCells()
        self._kept = (SessionRows(), SessionRows())
        self._due = TimeSegments()
        """Sessions at the ends that they have had; the last one is where they end."""

    def add(self, side: int, rows: pa.RecordBatch, timestamps: Int64s) -> int:
        placed = self._place(side, rows, timestamps, self._watermark)
        is_late = placed.sessions == NONE
        late = int(is_late.sum())
        if late:
            rows, timestamps = rows.filter(pa.array(~is_late)), timestamps[~is_late]
            placed = replace(placed, sessions=placed.sessions[~is_late])
        if len(timestamps):
            self._keep(side, placed, rows, timestamps)
        return late

    def _place(self, side: int, rows: pa.RecordBatch, timestamps: Int64s, horizon: int = MIN_TIMESTAMP) -> Placed:
        slots = self._keys.lookup(pa.table(dict(zip(self._key_names, self._rows.keys(side, rows), strict=True))))
        placed = self._sessions.place(slots, timestamps, timestamps + self._gap, self._keys.end, horizon)
        self._keys.use(self._sessions.slots[placed.opened])
        self._keys.leave(self._sessions.slots[placed.merged])
        self._keys.pass_over(slots[placed.sessions == NONE])
        if len(placed.merged):
            for kept in self._kept:
                kept.merge(placed.merged, placed.into)
        return placed

    def _keep(self, side: int, placed: Placed, rows: pa.RecordBatch, timestamps: Int64s) -> None:
        sessions = self._kept[side].add(placed.sessions, rows, timestamps)
        self._due.append(pa.record_batch({_SESSION: sessions}), self._sessions.ends[sessions])

    def _forget(self, sessions: Int64s) -> None:
        self._keys.leave(self._sessions.slots[sessions])
        self._sessions.close(sessions)

    def fire(self, watermark: int) -> Iterator[WindowGroups]:
        self._watermark = watermark
        ended = self._ended(min(watermark, MAX_TIMESTAMP - 2) + 1)
        for share in self._shares(ended):
            grouped = [None if taken is None else GroupedSide(*taken) for taken in (k.take(share) for k in self._kept)]
            bounds = self._sessions.starts[share], self._sessions.ends[share]
            self._forget(share)
            yield WindowGroups((grouped[LEFT], grouped[RIGHT]), *bounds, 1)
        if len(ended) and not len(self._sessions) and self._sessions.end > _MANY_SESSIONS:
            self._reset()

    def _ended(self, upto: int) -> Int64s:
        """The sessions that end at or before `upto`, earlier ends first."""
        due = self._due.between(MIN_TIMESTAMP, upto + 1)
        self._due.drop_before(upto + 1)
        sessions, ends = _joined([p.rows.column(_SESSION).to_numpy() for p in due]), _joined(_times(due))
        # Other windows have changed since, were merged, or have an id that another one had.
        ending = self._sessions.ends[sessions] == ends
        sessions, ends = sessions[ending], ends[ending]
        ordered = sessions[np.argsort(ends, kind="stable")]
        firsts = np.unique(ordered, return_index=True)[1]
        distinct: Int64s = ordered[np.sort(firsts)]
        return distinct

    def _shares(self, sessions: Int64s) -> list[Int64s]:
        """The sessions in runs that have a bounded number of rows together."""
        held = sum(map(len, self._kept))
        if not len(sessions):
            return []
        most = _share_rows(held, sum(kept.nbytes for kept in self._kept))
        if held <= most:
            return [sessions]
        shares = np.cumsum(sum(kept.sizes(sessions) for kept in self._kept)) // most
        return np.split(sessions, np.flatnonzero(np.diff(shares)) + 1)

    def capture(self) -> OperatorCapture:
        kept = [timed_rows(rows.captured()) for rows in self._kept]
        return OperatorCapture({**self._rows.capture(kept), **self._form_capture}, self._watermark)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        check_form(snapshot.tables, self._form, self._rows.where)
        self._watermark = snapshot.watermark
        for side in (LEFT, RIGHT):
            restored = self._rows.restore(side, snapshot.tables)
            if restored is not None:
                # None of these is late: rows of the other side may have kept its session open.
                rows, timestamps = restored[0], restored[1][TIMESTAMP]
                self._keep(side, self._place(side, rows, timestamps), rows, timestamps)


def _with_fired(parts: Sequence[TimeSlice], watermark: int) -> KeptRows | None:
    """Rows with their timestamps, and until when windows have been emitted with them."""
    if not parts:
        return None

    def made() -> tuple[Sequence[pa.RecordBatch], Mapping[str, Int64s]]:
        fired = [np.full(len(part.timestamps), max(part.fired_until, watermark)) for part in parts]
        return [part.rows for part in parts], {TIMESTAMP: _joined(_times(parts)), FIRED_UNTIL: _joined(fired)}

    return made


def _share_rows(rows: int, nbytes: int) -> int:
    """How many rows to group at once, where `rows` have so many bytes together."""
    return min(_SHARE_ROWS, max(rows * _SHARE_BYTES // max(nbytes, 1), 1))


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
