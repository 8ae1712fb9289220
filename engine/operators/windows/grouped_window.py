"""The general window operator for batches: rows are added window by window, not one by one.

The operators of compiled functions build on it. State, timers and firing are those of `window.py`, so that a job may go
from one to the other by a savepoint.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.aggregates.accumulators import plain
from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, Batch
from penstock.engine.errors import GraphError
from penstock.engine.functions import Row
from penstock.engine.operators.base import Collector
from penstock.engine.operators.functions.function_operator import key_values
from penstock.engine.operators.windows.batch_windows import are_usual, sessions_of, windows_of
from penstock.engine.operators.windows.window import WindowOperator, WindowOperatorSpec
from penstock.engine.row_numbers import distinct_of
from penstock.engine.rows import batch_rows
from penstock.engine.state.backend import Key
from penstock.engine.windows.assigners import AlignedWindows, CumulativeWindows, SessionWindows
from penstock.engine.windows.windows import TimeWindow

_Int64s: TypeAlias = npt.NDArray[np.int64]


def check_windows(plan: WindowOperatorSpec) -> None:
    """Make sure that asking the trigger once is asking it for each row.

    Raises:
        GraphError: it is not.
    """
    windows = plan.windows
    is_known = isinstance(windows, AlignedWindows | CumulativeWindows | SessionWindows)
    if not is_known or plan.evictor is not None or plan.trigger not in (None, windows.default_trigger()):
        raise GraphError(
            f"compiled: functions of {windows.describe()} windows are compiled for tumbling, sliding and cumulative "
            "windows, and sessions of one gap, without a trigger or an evictor alone; drop @compiled"
        )


@dataclass(frozen=True, slots=True)
class Place:
    """A window to which rows are added.

    Attributes:
        key: whose it is.
        first: what the first of the rows brings.
        window: what it is behind all of them.
        contents: where its contents are kept.
    """

    key: Key
    first: TimeWindow
    window: TimeWindow
    contents: TimeWindow


@dataclass(frozen=True, slots=True)
class Grouped:
    """The rows of a batch by window.

    Attributes:
        rows: those that are added, one after another and once for each window.
        ids: the number of the window of each.
        places: the windows, in the order in which plain Python registers their timers.
        rest: the rows that are added one by one.
    """

    rows: _Int64s
    ids: _Int64s
    places: list[Place]
    rest: _Int64s


class GroupedWindowOperator(WindowOperator):
    """Adds the rows of a batch to each window at once; `WindowOperator` is its way row by row."""

    _adds_late = False
    _least_rows = 1
    """So many rows of a batch must windows have, or it costs less to add rows one by one."""

    @abstractmethod
    def _contents_of(self, data: pa.RecordBatch, grouped: Grouped) -> Sequence[Any] | None:
        """What is kept of the rows of each window; None, and nothing has changed, where they are added one by one.

        Args:
            data: the rows, as `grouped.rows` has them.
            grouped: their windows.
        """

    @abstractmethod
    def _put(self, contents: Any) -> None:
        """Keep it in the current window."""

    def _add_batch(self, batch: Batch, out: Collector) -> bool:
        """Add all rows; False, and nothing has changed, where they must be added one by one."""
        self._keyed.bind(batch.data.schema)
        grouped = self._grouped(batch)
        if grouped is None:
            return False
        is_whole = np.array_equal(grouped.rows, np.arange(len(batch.data)))
        made = self._contents_of(batch.data if is_whole else batch.data.take(pa.array(grouped.rows)), grouped)
        if made is None:
            return False
        if len(grouped.rest):
            # They go to other windows than the rows above.
            self._adds_late = self._merging is None
            super().process_batch(batch.take(pa.array(grouped.rest)), 0, out)
            self._adds_late = False
        self._clock.current_processing_time = self._timers.batch_time = self._assigning_time()
        for place, contents in zip(grouped.places, made, strict=True):
            self._add_to(place, contents)
        self._timers.batch_time = None
        return True

    def _add_to(self, place: Place, contents: Any) -> None:
        """Rows come to a window, which fires and ends in time."""
        self._timers.key = place.key
        if self._merging is not None:
            self._merging.go_to(place.key)
            self._merging.add(place.first, self._merge)
            self._merging.add(place.window, self._merge)
        self._backend.set_current_key(place.key, place.contents)
        self._put(contents)
        self._timers.window = place.window
        self._act_on_row({}, None, place.window, place.contents, self._cleanup_time(place.window))

    def _assigned(self, row: Row, time: int | None) -> Iterable[TimeWindow]:
        windows = super()._assigned(row, time)
        if not self._adds_late:
            return windows
        return [window for window in windows if window.max_timestamp <= self._keyed.watermark]

    # The windows of a batch

    def _grouped(self, batch: Batch) -> Grouped | None:
        """The rows by window; None where they must be added one by one."""
        if not self._is_event_time:
            times = np.full(len(batch.data), self._assigning_time())
        elif batch.timestamps is None or batch.timestamps.null_count:
            return None
        else:
            times = batch.timestamps.to_numpy()
        if not are_usual(times):
            return None
        names = self._plan.keys
        numbers, keys = np.zeros(len(times), np.int64), [()]
        if names:
            numbers, distinct = distinct_of([plain(batch.data.column(name)) for name in names])
            columns = pa.RecordBatch.from_arrays(distinct, names=list(names))
            keys = key_values(batch_rows(columns, self._context.where), names)
        windows = self._plan.windows
        if len(times) < self._least_rows * len(keys):
            return None
        if isinstance(windows, SessionWindows):
            grouped: Grouped | None = self._in_sessions(windows, times, numbers, keys)
        else:
            assert isinstance(windows, AlignedWindows | CumulativeWindows)
            grouped = self._in_aligned(windows, times, numbers, keys)
        return grouped if grouped is not None and len(grouped.rows) else None

    def _in_aligned(
        self, windows: AlignedWindows | CumulativeWindows, times: _Int64s, numbers: _Int64s, keys: Sequence[Key]
    ) -> Grouped | None:
        rows, ends = windows_of(windows, times)
        rest = np.array([], np.int64)
        if self._is_event_time:
            watermark, lateness = self._keyed.watermark, self._plan.allowed_lateness_ms
            # A window that has fired fires again for each row.
            is_open = ends - 1 > watermark
            is_late = times <= watermark - lateness
            is_late[rows[is_open]] = False
            is_late[rows[~is_open & (ends - 1 > watermark - lateness)]] = True
            rest, rows, ends = np.flatnonzero(is_late), rows[is_open], ends[is_open]
        ids, (of_key, of_end) = distinct_of([pa.array(numbers[rows]), pa.array(ends)])
        if len(rows) < self._least_rows * len(of_key):
            return None
        places = []
        for number, end in zip(of_key.to_pylist(), of_end.to_pylist(), strict=True):
            window = TimeWindow(windows.start_of(end), end)
            places.append(Place(keys[number], window, window, window))
        return Grouped(rows, ids, places, rest)

    def _in_sessions(self, windows: SessionWindows, times: _Int64s, numbers: _Int64s, keys: Sequence[Key]) -> Grouped:
        gap = windows.gap_ms
        held = self._sessions_so_far(gap, times, numbers, keys)
        parts = [(number, *window) for number, window, _ in held]
        of_key, starts, ends = np.array(parts, np.int64).reshape(-1, 3).T
        watermark = self._keyed.watermark if self._is_event_time else MIN_TIMESTAMP
        found = sessions_of(numbers, times, gap, (of_key, starts, ends), watermark)
        places = []
        for first, start, end, before in zip(found.firsts, found.starts, found.ends, found.before, strict=True):
            window, opened = TimeWindow(start, end), TimeWindow(int(times[first]), int(times[first]) + gap)
            contents = opened if before < 0 else held[before][2]
            places.append(Place(keys[numbers[first]], opened, window, contents))
        is_added = found.of_rows >= 0
        return Grouped(np.flatnonzero(is_added), found.of_rows[is_added], places, np.flatnonzero(~is_added))

    def _sessions_so_far(
        self, gap: int, times: _Int64s, numbers: _Int64s, keys: Sequence[Key]
    ) -> list[tuple[int, TimeWindow, TimeWindow]]:
        """Those that rows may be in: the number of the key, the window, and where its contents are."""
        merging = self._merging
        assert merging is not None, "sessions merge"
        least, most = np.full(len(keys), MAX_TIMESTAMP), np.full(len(keys), MIN_TIMESTAMP)
        np.minimum.at(least, numbers, times)
        np.maximum.at(most, numbers, times)
        held = []
        for number, (key, start, end) in enumerate(zip(keys, least.tolist(), most.tolist(), strict=True)):
            merging.go_to(key)
            held += [(number, *found) for found in merging.touching(TimeWindow(start, end + gap))]
        return held
