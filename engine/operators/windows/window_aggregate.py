"""Vectorised aggregates over tumbling, sliding and cumulative event-time windows.

Rows are folded into accumulators by slice and key; when the watermark passes the end of a window, its slices are
combined and emitted, and slices that no window needs any more are dropped. Emitted rows carry the timestamp
`window_end - 1`.

A row is late for a window if the watermark, as of the start of the batch, has come to the window's last millisecond
plus the allowed lateness; a row that is late for all its windows goes to the side output where there is one, and is
counted where there is none. A window that the watermark has passed is emitted again, for the keys of the rows, behind
each batch with rows for it.

Source of the rules: Flink's documentation, "Windows", "Allowed Lateness".
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.aggregates.partials import accumulators_of, partial_layout, rows_of
from penstock.engine.cells.slice_cells import SliceCells
from penstock.engine.cells.slice_tree import SliceTree
from penstock.engine.columns import beside
from penstock.engine.elements import MIN_TIMESTAMP, Batch, Slices, Watermark, table_to_record_batch
from penstock.engine.free_memory import free_memory
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.relational import WindowTotals
from penstock.engine.operators.saved_aggregates import check_types
from penstock.engine.operators.spec import OperatorTraits
from penstock.engine.operators.windows.aggregate_spec import AggregateSpec
from penstock.engine.operators.windows.aggregate_state import (
    SLICE,
    WINDOW_STATE,
    changed_table,
    kept_table,
    put_aside,
    restored_parts,
    restored_schema,
)
from penstock.engine.operators.windows.group_watermarks import GroupWatermarks
from penstock.engine.operators.windows.window_form import WINDOW_FORM, WindowForm
from penstock.engine.row_numbers import Groups
from penstock.engine.state.capture import FEW_ENTRIES, CaptureRequest, Expiry, OperatorCapture, TableCapture
from penstock.engine.state.request import StateRequest
from penstock.engine.state.snapshot import OperatorSnapshot, parts_of
from penstock.engine.windows.assigners import SlicedWindows

WINDOW_START: Final = "window_start"
WINDOW_END: Final = "window_end"
WINDOW_TYPE: Final = pa.timestamp("ms", "UTC")

_EMIT_ROWS: Final = 65_536
_EMIT_PLACES: Final = 2**20
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
    """The rows to emit for keys with their accumulators, and their windows (int64 ms, one a row)."""
    lowered = aggregation.lower(table)
    for index, (name, bound) in enumerate(((WINDOW_START, starts), (WINDOW_END, ends))):
        field = pa.field(name, WINDOW_TYPE, nullable=False)
        lowered = lowered.add_column(len(aggregation.keys) + index, field, pa.array(bound).cast(WINDOW_TYPE))
    return Batch(table_to_record_batch(lowered), pa.array(ends - 1))


def _pieces(windows: Iterable[tuple[int, list[_Int64s]]]) -> Iterator[tuple[int, list[_Int64s]]]:
    """The windows, but large ones of a single block in pieces: nothing of them has to be combined."""
    for end, parts in windows:
        if len(parts) == 1:
            for begin in range(0, len(parts[0]), _EMIT_ROWS):
                yield end, [parts[0][begin : begin + _EMIT_ROWS]]
        else:
            yield end, parts


@dataclass(frozen=True, slots=True)
class WindowAggregateSpec(AggregateSpec[SlicedWindows]):
    """Creates the operator that aggregates over `windows`."""

    def create(self) -> WindowAggregate:
        return WindowAggregate(self)

    @property
    def traits(self) -> OperatorTraits:
        # Late rows that go to a side output, and rows between windows, have to come one by one.
        by_row = self.late_tag is not None or self.windows.has_gaps
        slices = Slices(self.windows.slice_ms, self.windows.offset_ms)
        layout = None if by_row else partial_layout(self.aggregation, slices)
        return OperatorTraits(
            keys=(tuple(self.aggregation.keys),),
            partial_layout=layout,
            relational=WindowTotals(self.windows, self.aggregation),
        )


class WindowAggregate(Operator):
    """Keeps accumulators by slice and key until the last window of the slice takes no more rows in."""

    def __init__(self, spec: WindowAggregateSpec) -> None:
        self._windows = spec.windows
        self._aggregation = spec.aggregation
        self._form = WindowForm(spec.windows, spec.allowed_lateness_ms)
        self._late_tag = spec.late_tag
        self._watermark = MIN_TIMESTAMP
        self._saved: pa.Schema | None = None
        self._reset()

    def _reset(self) -> None:
        self._cells = SliceCells(self._aggregation)
        self._tree = SliceTree(self._cells, self._windows.longest_ms // self._windows.slice_ms)

    def open(self, context: OperatorContext) -> None:
        self._context = context
        self._group_watermarks = GroupWatermarks(self._aggregation.keys, context)
        context.metrics.count_keys(WINDOW_STATE, self, lambda held: held._cells.key_count)

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        # Partial aggregates count as the rows that they stand for.
        self._context.metrics.rows_in += rows_of(batch) - batch.num_rows
        for part, watermark in self._group_watermarks.parts(batch, self._watermark):
            self._take_in(part, watermark, out)

    def _take_in(self, batch: Batch, watermark: int, out: Collector) -> None:
        assert batch.timestamps is not None, "the graph refuses windows without timestamps"
        timestamps = batch.timestamps.to_numpy()
        kept = self._kept(batch, timestamps, self._form.horizon(watermark))
        if kept is not None:
            batch, timestamps = batch.filter(pa.array(kept)), timestamps[kept]
            if not batch.num_rows:
                return
        lifted = accumulators_of(self._aggregation, batch)
        if self._saved is not None:
            self._saved = check_types(self._saved, lifted.schema, self._context.where)
        numbers, slots = self._numbers(timestamps), self._cells.lookup(lifted)
        self._cells.add(0, numbers, slots, lifted)
        self._tree.update(numbers, slots, lifted)
        if self._form.lateness_ms and timestamps.min() <= watermark:
            behind = timestamps <= watermark
            self._emit_again(numbers[behind], slots[behind], watermark, out)

    def _kept(self, batch: Batch, timestamps: _Int64s, horizon: int) -> npt.NDArray[np.bool_] | None:
        """Which rows belong to a window that takes them in; None if all do. Late ones are counted and put aside."""
        suspects = np.arange(len(timestamps)) if self._windows.has_gaps else np.flatnonzero(timestamps <= horizon)
        if not len(suspects):
            return None
        times = timestamps[suspects]
        ends = self._windows.last_ends(times)
        in_window = times < ends
        taken_in = in_window & (ends - 1 > horizon)
        if taken_in.all():
            return None
        late = suspects[~taken_in & (in_window | (timestamps[suspects] <= horizon))]
        if len(late):
            put_aside(batch.take(pa.array(late)), self._late_tag, self._context)
        kept = np.ones(len(timestamps), np.bool_)
        kept[suspects[~taken_in]] = False
        return kept

    def _numbers(self, timestamps: _Int64s) -> _Int64s:
        """The number of each row's slice."""
        return (timestamps - self._windows.offset_ms) // self._windows.slice_ms

    def _number(self, boundary: int) -> int:
        return (boundary - self._windows.offset_ms) // self._windows.slice_ms

    def _start(self, number: int) -> int:
        return number * self._windows.slice_ms + self._windows.offset_ms

    def on_watermark(self, watermark: Watermark, out: Collector) -> Watermark | None:
        due = self._ends_due(watermark.timestamp)
        self._watermark = watermark.timestamp
        self._emit(self._window_cells(due), out)
        self._drop_slices()
        self._group_watermarks.advance(watermark.timestamp)
        return watermark

    def _ends_due(self, watermark: int) -> list[int]:
        """Ends of the windows with rows that are complete at `watermark`, ascending; each is looked at once."""
        slices, above, upto = self._cells.slices, self._watermark + 1, watermark + 1
        due: list[int] = []
        for number in slices[bisect_right(slices, above, key=self._last_end) :]:
            ends = self._windows.ends_over(self._start(number), due[-1] if due else above, upto)
            if ends.start > upto:
                break
            due.extend(ends)
        return due

    def _last_end(self, number: int) -> int:
        return int(self._windows.last_ends(np.array([self._start(number)]))[0])

    def _window_cells(self, ends: Sequence[int]) -> Iterator[tuple[int, list[_Int64s]]]:
        """The windows that end there, each with the cells that make it up, block by block."""
        for end, blocks in zip(ends, self._tree.blocks(list(map(self._slices_of, ends))), strict=True):
            yield end, [self._not_emitted(self._cells.cells(block), end) for block in blocks]

    def _slices_of(self, end: int) -> tuple[int, int]:
        """The first slice of the window that ends at `end`, and the one behind its last."""
        return self._number(self._windows.start_of(end)), self._number(end)

    def _not_emitted(self, cells: _Int64s, end: int) -> _Int64s:
        mask = self._group_watermarks.not_emitted(lambda: self._cells.keys(cells), end)
        return cells if mask is None else cells[mask]

    def _emit_again(self, numbers: _Int64s, slots: _Int64s, watermark: int, out: Collector) -> None:
        """Emit the windows with these rows that the watermark has passed, for the keys of the rows."""
        above, upto = self._form.horizon(watermark) + 1, watermark + 1
        starts = map(self._start, np.unique(numbers).tolist())
        ends = sorted({end for start in starts for end in self._windows.ends_over(start, above, upto)})
        self._emit(self._touched_cells(ends, numbers, slots), out)

    def _touched_cells(
        self, ends: Sequence[int], numbers: _Int64s, slots: _Int64s
    ) -> Iterator[tuple[int, list[_Int64s]]]:
        ranges = list(map(self._slices_of, ends))
        for end, (begin, stop), blocks in zip(ends, ranges, self._tree.blocks(ranges), strict=True):
            touched = np.unique(slots[(numbers >= begin) & (numbers < stop)])
            yield end, [self._cells.find(block, touched) for block in blocks]

    def _emit(self, windows: Iterable[tuple[int, list[_Int64s]]], out: Collector) -> None:
        """Emit windows, given by their ends and the cells that make them up, in batches of a middling size."""
        share: list[tuple[int, list[_Int64s]]] = []
        rows = 0
        for window in _pieces(windows):
            if not (held := sum(map(len, window[1]))):
                continue
            share.append(window)
            rows += held
            if rows >= _EMIT_ROWS or (len(share) + 1) * self._cells.width > _EMIT_PLACES:
                self._emit_share(share, out)
                share, rows = [], 0
        if share:
            self._emit_share(share, out)

    def _emit_share(self, windows: Sequence[tuple[int, list[_Int64s]]], out: Collector) -> None:
        cells = np.concatenate([part for _, parts in windows for part in parts])
        places = np.repeat(np.arange(len(windows)), [sum(map(len, parts)) for _, parts in windows])
        if all(len(parts) == 1 for _, parts in windows):
            table = beside(self._cells.keys(cells), self._cells.combined(cells))
        else:
            groups, first = self._groups(places, self._cells.slots(cells))
            table = beside(self._cells.keys(cells[first]), self._cells.combined(cells, groups))
            places = places[first]
        starts = np.array([self._windows.start_of(end) for end, _ in windows])
        ends = np.array([end for end, _ in windows])
        out.collect(window_batch(self._aggregation, table, starts[places], ends[places]))

    def _groups(self, windows: _Int64s, slots: _Int64s) -> tuple[Groups, _Int64s]:
        """Groups of the same window and key, and the first row of each; in order of first occurrence."""
        places = windows * self._cells.width + slots
        rows = np.arange(len(places))
        first_at = np.empty(int(places.max()) + 1, np.int64)
        # Of several rows for one place the last assignment stays.
        first_at[places[::-1]] = rows[::-1]
        first_rows = first_at[places]
        is_first = first_rows == rows
        ids = np.cumsum(is_first) - 1
        first = np.flatnonzero(is_first)
        return Groups(ids[first_rows], len(first)), first

    def _drop_slices(self) -> None:
        """Forget the slices of which no window takes rows in any more."""
        slices = self._cells.slices
        self._tree.drop(slices[: bisect_right(slices, self._form.horizon(self._watermark) + 1, key=self._last_end)])
        if self._cells.roomy:
            self._shrink()

    def _shrink(self) -> None:
        """Move to smaller arrays; most of the present ones is unused."""
        table = self._rows(self._cells.all_cells())() if self._cells.slices else None
        # All that is loaded counts as changed, so that the next capture holds it.
        self._reset()
        if table is not None:
            self._load(parts_of(table))
        free_memory()

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        """As `Operator.capture`; costs some 10 ns a cell that is given, and nothing a cell that is not."""
        cells = self._cells
        beside_them = {WINDOW_FORM: self._form.captured(), **self._group_watermarks.capture()}
        if not cells.slices:
            return OperatorCapture(beside_them, self._watermark)
        touched = cells.take_touched(request.scope)
        rows = self._rows(cells.all_cells() if touched is None else touched)
        # Slices go in the order of time: rows of one before the first that is held came into earlier captures.
        expiry = Expiry(SLICE, self._start(cells.slices[0]))
        keys, max_parallelism = self._aggregation.keys, self._context.config.max_parallelism
        if touched is None:
            table = kept_table(rows, keys, SLICE, expiry, max_parallelism)
        else:
            table = changed_table(rows, None, keys, SLICE, expiry, max_parallelism)
        return OperatorCapture({WINDOW_STATE: table, **beside_them}, self._watermark)

    def read_state(self, request: StateRequest) -> Mapping[str, TableCapture]:
        cells, keys = self._cells, self._aggregation.keys
        if request.keys is None or not keys or not cells.slices:
            return super().read_state(request)
        found = cells.cells_of(pa.table(request.keys))
        expiry = Expiry(SLICE, self._start(cells.slices[0]))
        kept = kept_table(self._rows(found), keys, SLICE, expiry, self._context.config.max_parallelism)
        return {WINDOW_STATE: replace(kept, exact=len(found) <= FEW_ENTRIES)}

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._form = self._form.restored(snapshot, self._aggregation, self._context.where)
        self._watermark = snapshot.watermark
        self._group_watermarks.restore(snapshot)
        self._saved = restored_schema(snapshot, self._aggregation)
        self._load(restored_parts(snapshot, self._aggregation))
        self._cells.settle()

    def _rows(self, cells: _Int64s) -> Callable[[], pa.Table]:
        """What cells of slices hold now: keys, the start of the slice (int64 ms), accumulators."""
        keys, accumulators = self._cells.keys(cells), self._cells.captured(cells)
        starts = self._cells.numbers(cells) * self._windows.slice_ms + self._windows.offset_ms
        return lambda: beside(keys, pa.table({SLICE: starts}), accumulators())

    def _load(self, parts: Iterable[pa.Table]) -> None:
        """Take in what tables hold."""
        for rows in parts:
            self._cells.add(0, self._numbers(rows.column(SLICE).to_numpy()), self._cells.lookup(rows), rows)
