"""OVER windows: to each row the aggregates of the rows before it in its partition, by event time.

Rows wait until the watermark has passed them, and then come out in the order of their timestamps (of equal ones, of
arrival), with their results behind them. Late rows are counted and dropped. A frame that goes back without bound keeps
one row of running values a partition; others keep the rows that later frames may still need.

Source: Flink's documentation, "Over Aggregation", and its `RowTimeRangeBoundedPrecedingFunction` and siblings.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.elements import MIN_TIMESTAMP, Batch, Watermark, concat_record_batches
from penstock.engine.errors import GraphError, missing_column
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.changelog.column_names import free_name, free_prefix
from penstock.engine.operators.changelog.frames import NUMBERS, FrameFunction, Ordered, OverCall
from penstock.engine.operators.changelog.inputs import conformed, distinct_keys, on_time, plain_columns
from penstock.engine.operators.changelog.keyed_rows import RowsLayout
from penstock.engine.operators.changelog.ranks import within_runs
from penstock.engine.operators.changelog.row_states import (
    NUMBER,
    RowState,
    RowStates,
    waiting_rows,
    waiting_table,
)
from penstock.engine.operators.joins.join_buffers import TimeSegments
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder
from penstock.engine.state.capture import CaptureRequest, OperatorCapture, TableCapture
from penstock.engine.state.snapshot import OperatorSnapshot, Redistribution

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_PENDING: Final = "pending"
_HELD: Final = "held"
_TIME: Final = "__time"
_LARGEST: Final = 2**62


class FrameUnit(enum.Enum):
    """What a frame's bound counts."""

    ROWS = "rows"
    """Rows; the frame ends with the row itself."""
    RANGE = "range"
    """Milliseconds of event time; rows with the row's own timestamp are in the frame, also those behind it."""


class OverTime(enum.Enum):
    """By what time rows are ordered."""

    EVENT = "event time"
    """Results come when the watermark has passed their rows."""
    PROCESSING = "processing time"
    """Results come at once; each row's frame ends with the row itself."""


@dataclass(frozen=True, slots=True)
class OverSpec(OperatorSpec):
    """Creates the operator of OVER windows with one frame.

    Args:
        input: the columns that come; rows carry timestamps where they are ordered by event time.
        partition: the columns whose values make a partition; none: all rows are one, in one subtask.
        unit: what `preceding` counts.
        preceding: how far the frame goes back; None: to the first row.
        calls: the functions.
        ttl_ms: how long what is kept of a partition lives, in milliseconds of processing time; None: for ever. Frames
            of a range of time keep nothing longer than that range.
        time: by which rows are ordered.

    Raises:
        GraphError: a column that is not there, or a function that does not go with the frame.
    """

    input: pa.Schema
    partition: tuple[str, ...]
    unit: FrameUnit
    preceding: int | None
    calls: tuple[OverCall, ...]
    ttl_ms: int | None = None
    time: OverTime = OverTime.EVENT

    def __post_init__(self) -> None:
        for name in (*self.partition, *(name for call in self.calls for name in call.columns)):
            if name not in self.input.names:
                raise missing_column(name, self.input.names, "over")
        if self.preceding is not None and self.preceding < 0:
            raise GraphError(f"over: a frame does not go {self.preceding} back; give 0 or more")
        for call in self.calls:
            by_rows = self.unit is FrameUnit.ROWS
            if call.function in NUMBERS and not (by_rows and self.preceding is None):
                raise GraphError(f"over {call.name!r}: {call.function} takes a frame of ROWS without bound")
            if call.function == "lag" and (not by_rows or self.preceding is None or self.preceding < call.offset):
                raise GraphError(f"over {call.name!r}: lag takes a frame of {call.offset} ROWS or more, with a bound")

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result: those that come, then the results."""
        return pa.schema([*plain_columns(self.input), *((call.name, call.type) for call in self.calls)])

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(keys=(self.partition,), order=RowOrder.WITHIN_INPUTS)

    def describe(self) -> str:
        bound = "unbounded" if self.preceding is None else str(self.preceding)
        calls = ", ".join(call.describe() for call in self.calls)
        return f"over(by=[{', '.join(self.partition)}], {self.unit.value} {bound} preceding, [{calls}])"

    def create(self) -> Over:
        return Over(self)


class Over(Operator):
    """Keeps rows that the watermark has not passed, and what frames need of those that it has."""

    def __init__(self, spec: OverSpec) -> None:
        self._spec = spec
        self._input = plain_columns(spec.input)
        self._keys = pa.schema([self._input.field(name) for name in spec.partition])
        self._functions = [
            FrameFunction(call, free_prefix(place, spec.partition), self._input)
            for place, call in enumerate(spec.calls)
        ]
        self._is_running = spec.preceding is None
        self._time = free_name(_TIME, self._keys.names)
        self._pending_time = free_name(_TIME, self._input.names)
        self._pending = TimeSegments()
        self._watermark = MIN_TIMESTAMP

    def open(self, context: OperatorContext) -> None:
        self._context = context
        parts = [field for function in self._functions for field in function.fields]
        number = None if self._is_running else free_name(NUMBER, self._keys.names)
        identity = pa.schema({} if number is None else {number: pa.int64()})
        values = pa.schema([*parts, (self._time, pa.int64())])
        layout = RowsLayout(_HELD, self._keys, identity, values, self._spec.ttl_ms, number)
        self._states: RowStates | None = None
        if self._spec.unit is FrameUnit.RANGE and not self._is_running:
            # By the watermark rows are forgotten of keys that do not come any more, and RocksDB has no such clock.
            self._held = RowState(replace(layout, ttl_ms=self._spec.preceding))
        else:
            self._states = RowStates(context, [layout])
            self._held = self._states[_HELD]

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        if self._spec.time is OverTime.PROCESSING:
            rows = conformed(batch.data, self._input)
            now = self._context.clock.now_ms()
            self._forget(now - 1)
            out.collect(Batch(self._results(rows, np.full(rows.num_rows, now)), batch.timestamps))
            return
        rows, times = on_time(batch, self._input, self._watermark, self._context)
        if len(times):
            self._pending.append(rows, times)

    def on_watermark(self, watermark: Watermark, out: Collector) -> Watermark | None:
        behind = min(watermark.timestamp + 1, _LARGEST)
        due = self._pending.between(MIN_TIMESTAMP, behind)
        if due:
            rows, times = (
                concat_record_batches([part.rows for part in due]),
                np.concatenate([p.timestamps for p in due]),
            )
            order = np.argsort(times, kind="stable")
            out.collect(Batch(self._results(rows.take(pa.array(order)), times[order]), pa.array(times[order])))
            self._pending.drop_before(behind)
        self._watermark = watermark.timestamp
        self._forget(min(self._watermark, _LARGEST))
        return watermark

    def _forget(self, now: int) -> None:
        """Forget what no frame of a row behind `now` reaches."""
        if self._states is None:
            self._held.begin([], None, now)

    def _results(self, rows: pa.RecordBatch, times: Int64s) -> pa.RecordBatch:
        """The results of rows that come in the order of their times, which is also that of the results."""
        numbers, keys = distinct_keys([rows.column(name) for name in self._keys.names], len(times))
        if self._states is not None:
            self._states.begin(_HELD, keys)
        of, slots = self._held.rows.of_keys(keys)
        if not self._is_running:
            order = np.lexsort([self._held.rows.columns(slots, self._held.layout.identity.names)[0].to_numpy(), of])
            of, slots = of[order], slots[order]
        held = [self._held.rows.columns(slots, [field.name])[0] for one in self._functions for field in one.fields]
        came = [part for one in self._functions for part in one.parts(rows)]
        every_of = np.concatenate([of, numbers])
        every_time = np.concatenate([self._held.rows.numbers(slots, self._time), times])
        order = np.argsort(every_of, kind="stable")
        ordered = self._framed(every_of[order], every_time[order], (order < len(of)) & self._is_running)
        parts = [pa.concat_arrays([h, c]).take(pa.array(order)) for h, c in zip(held, came, strict=True)]
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        results, reduced = [], []
        for one in self._functions:
            own, parts = parts[: len(one.fields)], parts[len(one.fields) :]
            sums = one.reduced(own, ordered)
            reduced += sums
            results.append(one.finish(sums, ordered).take(pa.array(place[len(of) :])))
        if self._is_running:
            self._carry(keys, ordered, reduced)
        else:
            self._keep(keys, slots, numbers, came, times)
        if self._states is not None:
            self._states.end()
        return pa.RecordBatch.from_arrays([*rows.columns, *results], schema=self._spec.schema)

    def _framed(self, of: Int64s, times: Int64s, is_carry: Mask) -> Ordered:
        places = np.arange(len(of))
        begins = places - within_runs(of)
        highs = places
        if self._spec.unit is FrameUnit.RANGE and self._spec.time is OverTime.EVENT:
            is_last = np.ones(len(of), np.bool_)
            is_last[:-1] = (of[1:] != of[:-1]) | (times[1:] != times[:-1]) | is_carry[:-1]
            highs = np.minimum.accumulate(np.where(is_last, places, len(of))[::-1])[::-1]
        preceding = self._spec.preceding
        if preceding is None:
            lows = begins
        elif self._spec.unit is FrameUnit.ROWS:
            lows = np.maximum(begins, places - preceding)
        else:
            lows = first_at(of, times, np.maximum(times, MIN_TIMESTAMP + preceding) - preceding)
        return Ordered(of, times, lows, highs, is_carry, self._is_running)

    def _carry(self, keys: list[pa.Array], ordered: Ordered, reduced: list[pa.Array]) -> None:
        """Keep what the last row of each partition has come to."""
        lasts = np.flatnonzero(np.diff(ordered.of, append=-1))
        slots, _ = self._held.add(keys)
        for field, sums in zip(self._held.layout.values, reduced, strict=False):
            self._held.write(slots, field.name, sums.take(pa.array(lasts)))
        self._held.write(slots, self._time, ordered.times[lasts])

    def _keep(self, keys: list[pa.Array], slots: Int64s, numbers: Int64s, came: list[pa.Array], times: Int64s) -> None:
        """Keep the rows that later frames may need, and no others."""
        arrivals = self._held.take_numbers(len(times))
        added, _ = self._held.add([key.take(pa.array(numbers)) for key in keys], [pa.array(arrivals)])
        for field, part in zip(self._held.layout.values, came, strict=False):
            self._held.write(added, field.name, part)
        self._held.write(added, self._time, times)
        if self._states is None:
            self._held.rows.set_times(added, times)
            return
        of, every = self._held.rows.of_keys(keys)
        order = np.lexsort([self._held.rows.columns(every, self._held.layout.identity.names)[0].to_numpy(), of])
        from_end = within_runs(of[order][::-1])[::-1]
        assert self._spec.preceding is not None
        self._held.remove(every[order][from_end >= self._spec.preceding])

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        most = self._context.config.max_parallelism
        if self._states is None:
            held = OperatorCapture({_HELD: self._held.capture(request.scope, most)})
        else:
            held = self._states.capture(request)
        rows = self._pending.captured()
        tables = dict(held.tables)
        if rows is not None:
            tables[_PENDING] = TableCapture(Redistribution.KEYED, self._pending_table(rows, most))
        return OperatorCapture(tables, self._watermark, held.native)

    def _pending_table(
        self, rows: Callable[[], tuple[list[pa.RecordBatch], Int64s]], max_parallelism: int
    ) -> Callable[[], pa.Table]:
        def table() -> pa.Table:
            parts, times = rows()
            return waiting_table(parts, self._pending_time, times, self._keys, max_parallelism)

        return table

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._watermark = snapshot.watermark
        tables = dict(snapshot.tables)
        pending = tables.pop(_PENDING, None)
        if pending is not None and pending.data.num_rows:
            self._pending.append(*waiting_rows(pending.data, self._pending_time))
        if self._states is not None:
            self._states.restore(replace(snapshot, tables=tables))
        elif _HELD in tables:
            self._held.restore(tables[_HELD].data, 0)

    def close(self) -> None:
        if self._states is not None:
            self._states.close()


def first_at(of: Int64s, times: Int64s, lows: Int64s) -> Int64s:
    """The first row of each row's partition with a time of `lows` or above, of rows sorted by partition and time."""
    distinct, codes = np.unique(np.concatenate([times, lows]), return_inverse=True)
    span = len(distinct) + 1
    first: Int64s = np.searchsorted(of * span + codes[: len(times)], of * span + codes[len(times) :])
    return first
