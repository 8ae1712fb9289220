"""Vectorised aggregates over tumbling and sliding event-time windows.

Each batch is reduced to one row a slice and key, and appended to the state of its slices; when the watermark passes the
end of a window, its slices are merged, finished and emitted, and slices that no window needs any more are dropped.

A row is late when the watermark has passed every window that it belongs to, as of the start of its batch; late rows
are counted and dropped. Emitted rows carry the timestamp `window_end - 1`, as in Flink.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.aggregation import GroupedAggregation
from penstock.engine.elements import MIN_TIMESTAMP, Batch, Watermark, table_to_record_batch
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.state.segments import SegmentedTable, concat_tables
from penstock.engine.windows.assigners import AlignedWindows

WINDOW_START: Final = "window_start"
WINDOW_END: Final = "window_end"
WINDOW_TYPE: Final = pa.timestamp("ms", "UTC")

_SLICE: Final = "__slice"
_EMIT_ROWS: Final = 65_536
_Int64s = npt.NDArray[np.int64]


def window_schema(keyed: pa.Schema, keys: Sequence[str]) -> pa.Schema:
    """The columns that a window operator emits: keys, window_start, window_end, results.

    Args:
        keyed: keys and results, as `GroupedAggregation.bind` gives them.
    """
    fields = list(keyed)
    bounds = [pa.field(WINDOW_START, WINDOW_TYPE, nullable=False), pa.field(WINDOW_END, WINDOW_TYPE, nullable=False)]
    return pa.schema([*fields[: len(keys)], *bounds, *fields[len(keys) :]])


def window_batch(aggregation: GroupedAggregation, table: pa.Table, starts: _Int64s, ends: _Int64s) -> Batch:
    """The rows to emit for merged accumulators and their windows (int64 ms, one a row)."""
    lowered = aggregation.lower(table)
    for index, (name, bound) in enumerate(((WINDOW_START, starts), (WINDOW_END, ends))):
        field = pa.field(name, WINDOW_TYPE, nullable=False)
        lowered = lowered.add_column(len(aggregation.keys) + index, field, pa.array(bound).cast(WINDOW_TYPE))
    return Batch(table_to_record_batch(lowered), pa.array(ends - 1))


@dataclass(frozen=True, slots=True)
class WindowAggregateFactory:
    """Creates the operator that aggregates over `windows`."""

    windows: AlignedWindows
    aggregation: GroupedAggregation

    def __call__(self) -> WindowAggregate:
        return WindowAggregate(self.windows, self.aggregation)


class WindowAggregate(Operator):
    """Keeps accumulators by slice and key until the watermark has passed the last window of the slice."""

    def __init__(self, windows: AlignedWindows, aggregation: GroupedAggregation) -> None:
        self._windows = windows
        self._aggregation = aggregation
        self._slices: dict[int, SegmentedTable] = {}
        self._order: list[int] = []
        self._watermark = MIN_TIMESTAMP
        self._next_end: int | None = None

    def open(self, context: OperatorContext) -> None:
        self._metrics = context.metrics

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        assert batch.timestamps is not None, "the graph refuses windows without timestamps"
        timestamps = batch.timestamps.to_numpy()
        kept = self._kept(timestamps)
        if kept is not None:
            batch, timestamps = batch.filter(pa.array(kept)), timestamps[kept]
            if not batch.num_rows:
                return
        starts = timestamps - (timestamps - self._windows.offset_ms) % self._windows.slice_ms
        lifted = self._aggregation.lift(batch.data, batch.timestamps)
        first, last = int(starts.min()), int(starts.max())
        if first == last:
            self._append(first, self._aggregation.combine(lifted))
        else:
            self._append_by_slice(lifted, starts)

    def _kept(self, timestamps: _Int64s) -> npt.NDArray[np.bool_] | None:
        """Which rows belong to a window that is still open; None if all do."""
        gaps = self._windows.slide_ms > self._windows.size_ms
        if not gaps and timestamps.min() > self._watermark:
            return None
        ends = timestamps - (timestamps - self._windows.offset_ms) % self._windows.slide_ms + self._windows.size_ms
        in_window = timestamps < ends
        kept: npt.NDArray[np.bool_] = in_window & (ends - 1 > self._watermark)
        self._metrics.late_rows += int(in_window.sum() - kept.sum())
        return None if kept.all() else kept

    def _append_by_slice(self, lifted: pa.Table, starts: _Int64s) -> None:
        by = [_SLICE, *self._aggregation.keys]
        partial = self._aggregation.combine(lifted.append_column(_SLICE, pa.array(starts)), by=by)
        slices = partial.column(_SLICE).to_numpy()
        order = np.argsort(slices, kind="stable")
        partial, slices = partial.drop_columns(_SLICE).take(pa.array(order)), slices[order]
        begins = np.flatnonzero(np.diff(slices, prepend=slices[0] - 1))
        ends = np.append(begins[1:], len(slices))
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            self._append(int(slices[begin]), partial.slice(begin, end - begin))

    def _append(self, start: int, partial: pa.Table) -> None:
        segments = self._slices.get(start)
        if segments is None:
            segments = self._slices[start] = SegmentedTable(self._aggregation.combine)
            insort(self._order, start)
            self._find_next_end()
        segments.append(partial)

    def _find_next_end(self) -> None:
        """The first slice has the earliest open window: later slices never have an earlier one."""
        self._next_end = self._first_open_start(self._order[0]) + self._windows.size_ms if self._order else None

    def _first_open_start(self, slice_start: int) -> int:
        """Start of the earliest window over the slice that has not been emitted."""
        covering = self._windows.starts_covering(slice_start)
        emitted_below = self._watermark + 2 - self._windows.size_ms
        return max(covering[-1], emitted_below + (covering[-1] - emitted_below) % self._windows.slide_ms)

    def on_watermark(self, watermark: Watermark, out: Collector) -> Watermark | None:
        if self._next_end is not None and self._next_end - 1 <= watermark.timestamp:
            self._emit_until(watermark.timestamp, out)
        self._watermark = watermark.timestamp
        self._drop_slices()
        return watermark

    def _emit_until(self, watermark: int, out: Collector) -> None:
        size = self._windows.size_ms
        due = np.array(self._due_starts(watermark), np.int64)
        ordered = np.array(self._order[: bisect_left(self._order, int(due[-1]) + size)], np.int64)
        parts = [self._slices[start].compact() for start in ordered.tolist()]
        # In one piece: grouping costs a call a chunk, and there are thousands of small ones.
        rows = concat_tables(parts).combine_chunks()
        offsets = np.cumsum([0, *(part.num_rows for part in parts)])
        begins, ends = (offsets[np.searchsorted(ordered, bound)] for bound in (due, due + size))
        shares = np.cumsum(ends - begins) // _EMIT_ROWS
        for share in np.split(np.arange(len(due)), np.flatnonzero(np.diff(shares)) + 1):
            self._emit(rows, due[share], begins[share], ends[share], out)

    def _due_starts(self, watermark: int) -> list[int]:
        """Starts of the windows with rows that are complete at `watermark`, ascending; each is looked at once."""
        last_due = watermark + 1 - self._windows.size_ms
        slide = self._windows.slide_ms
        due: list[int] = []
        for slice_start in self._order:
            first = self._first_open_start(slice_start)
            if due:
                first = max(first, due[-1] + slide)
            if first > last_due:
                break
            due.extend(range(first, min(self._windows.last_start(slice_start), last_due) + 1, slide))
        return due

    def _emit(self, rows: pa.Table, starts: _Int64s, begins: _Int64s, ends: _Int64s, out: Collector) -> None:
        """Emit the windows that begin at `starts`; window i is made of rows `begins[i]` to `ends[i]`."""
        windows = np.repeat(starts, ends - begins)
        if self._windows.slice_ms == self._windows.size_ms or len(starts) == 1:
            table = rows.slice(begins[0], ends[-1] - begins[0])
            if self._windows.slice_ms < self._windows.size_ms:
                table = self._aggregation.combine(table)
                windows = windows[: table.num_rows]
        else:
            indices = np.concatenate([np.arange(begin, end) for begin, end in zip(begins, ends, strict=True)])
            keyed = rows.take(pa.array(indices)).append_column(_SLICE, pa.array(windows))
            table = self._aggregation.combine(keyed, by=[_SLICE, *self._aggregation.keys])
            windows, table = table.column(_SLICE).to_numpy(), table.drop_columns(_SLICE)
        out.collect(window_batch(self._aggregation, table, windows, windows + self._windows.size_ms))

    def _drop_slices(self) -> None:
        """Forget the slices of which every window has been emitted, and find the next end."""
        if self._next_end is None or self._next_end - 1 > self._watermark:
            return
        last_emitted = self._watermark + 1 - self._windows.size_ms
        done = 0
        while done < len(self._order) and self._windows.last_start(self._order[done]) <= last_emitted:
            del self._slices[self._order[done]]
            done += 1
        del self._order[:done]
        self._find_next_end()
