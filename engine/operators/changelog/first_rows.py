"""The first row of each partition by time, once: deduplication that never takes a row back.

By event time a row comes when the watermark has passed it; until then the earliest one of its partition waits, of
equal times the first to come. Then the partition is known to have had its row, and what else comes of it is forgotten.
Late rows are counted and dropped.

Source: Flink's `RowTimeDeduplicateKeepFirstRowFunction` and `ProcTimeDeduplicateKeepFirstRowFunction`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.elements import MIN_TIMESTAMP, Batch, Watermark
from penstock.engine.errors import GraphError, missing_column
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.changelog.column_names import free_name, saved_names
from penstock.engine.operators.changelog.counted_rows import counted_layout
from penstock.engine.operators.changelog.inputs import conformed, distinct_keys, on_time, plain_columns
from penstock.engine.operators.changelog.keyed_rows import RowsLayout
from penstock.engine.operators.changelog.over import OverTime
from penstock.engine.operators.changelog.row_states import NUMBER, TOUCHED, RowState, RowStates
from penstock.engine.operators.changelog.stored_tables import flat_table
from penstock.engine.operators.changelog.top_n import ROWS
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder
from penstock.engine.state.capture import CaptureRequest, OperatorCapture
from penstock.engine.state.snapshot import KEY_GROUP, OperatorSnapshot, StateTable

Int64s = npt.NDArray[np.int64]

_GIVEN: Final = "given"
_PENDING: Final = "pending"
_TIME: Final = "__time"


@dataclass(frozen=True, slots=True)
class FirstRowsSpec(OperatorSpec):
    """Creates the operator.

    Args:
        input: the columns that come; rows carry timestamps where they are ordered by event time.
        partition: the columns whose values make a partition; none: all rows are one, in one subtask.
        rank_column: a column of the result behind the others, which is 1 (int64).
        time: by which rows are ordered.
        ttl_ms: how long it is known that a partition has had its row, in milliseconds of processing time; None: for
            ever.

    Raises:
        GraphError: a column that is not there, or one that is there already.

    Example:
        >>> clicks = pa.schema({"who": pa.string(), "page": pa.string()})
        >>> FirstRowsSpec(clicks, ("who",), "n").schema.names
        ['who', 'page', 'n']
    """

    input: pa.Schema
    partition: tuple[str, ...]
    rank_column: str
    time: OverTime = OverTime.EVENT
    ttl_ms: int | None = None

    def __post_init__(self) -> None:
        for name in self.partition:
            if name not in self.input.names:
                raise missing_column(name, self.input.names, "first_rows")
        if self.rank_column in self.input.names:
            raise GraphError(f"first_rows: there is a column {self.rank_column!r} already; give the rank another name")

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return plain_columns(self.input).append(pa.field(self.rank_column, pa.int64()))

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(keys=(self.partition,), order=RowOrder.WITHIN_INPUTS)

    def describe(self) -> str:
        return f"first_rows(by=[{', '.join(self.partition)}], {self.time.value})"

    def create(self) -> FirstRows:
        return FirstRows(self)


class FirstRows(Operator):
    """Keeps of each partition the earliest row that the watermark has not passed, then that it has had its row."""

    def __init__(self, spec: FirstRowsSpec) -> None:
        self._spec = spec
        self._input = plain_columns(spec.input)
        self._keys = pa.schema([self._input.field(name) for name in spec.partition])
        self._others = pa.schema([one for one in self._input if one.name not in spec.partition])
        self._time = free_name(_TIME, self._keys.names)
        self._watermark = MIN_TIMESTAMP

    def open(self, context: OperatorContext) -> None:
        self._context = context
        alone, when = pa.schema([]), pa.schema({self._time: pa.int64()})
        self._states = RowStates(context, [RowsLayout(_GIVEN, self._keys, alone, when, self._spec.ttl_ms)])
        # The watermark ends the life of rows, also where their keys do not come again; RocksDB has no such clock.
        self._number = free_name(NUMBER, self._input.names)
        values = self._others.append(pa.field(self._number, pa.int64()))
        self._pending = RowState(RowsLayout(_PENDING, self._keys, alone, values, 0, self._number))

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        if self._spec.time is OverTime.PROCESSING:
            rows = conformed(batch.data, self._input)
            places = self._firsts(rows, np.zeros(rows.num_rows, np.int64))
            if len(places):
                now = np.full(len(places), self._context.clock.now_ms())
                stamps = None if batch.timestamps is None else batch.timestamps.take(pa.array(places))
                self._give(rows.take(pa.array(places)), now, stamps, out)
            return
        # As in Flink, a row of the watermark's own time is not late.
        rows, times = on_time(batch, self._input, max(self._watermark - 1, MIN_TIMESTAMP), self._context)
        if not len(times):
            return
        places = self._firsts(rows, times)
        if len(places):
            self._wait(rows.take(pa.array(places)), times[places])

    def _firsts(self, rows: pa.RecordBatch, times: Int64s) -> Int64s:
        """The places of the first rows, by times and then by arrival, of partitions that have not had theirs yet."""
        of, keys = distinct_keys([rows.column(name) for name in self._keys.names], len(times))
        order = np.lexsort([times, of])
        firsts = order[np.flatnonzero(np.diff(of[order], prepend=-1))]
        state = self._states.begin(_GIVEN, keys, [])
        is_new = state.rows.find(keys) < 0
        self._states.end()
        in_order: Int64s = np.sort(firsts[is_new])
        return in_order

    def _wait(self, rows: pa.RecordBatch, times: Int64s) -> None:
        """Keep rows of different partitions, where none is kept that is as early."""
        pending = self._pending
        numbers = pending.take_numbers(len(times))
        found = pending.rows.find([rows.column(name) for name in self._keys.names])
        held = found >= 0
        earlier = ~held
        earlier[held] = times[held] < pending.rows.touched(found[held])
        if not earlier.any():
            return
        rows, times = rows.filter(pa.array(earlier)), times[earlier]
        slots, _ = pending.add([rows.column(name) for name in self._keys.names])
        for name in self._others.names:
            pending.write(slots, name, rows.column(name))
        pending.write(slots, self._number, numbers[earlier])
        pending.rows.set_times(slots, times)

    def on_watermark(self, watermark: Watermark, out: Collector) -> Watermark | None:
        due = self._pending.rows.expired(watermark.timestamp)
        if len(due):
            times = self._pending.rows.touched(due)
            order = np.lexsort([self._pending.rows.numbers(due, self._number), times])
            due, times = due[order], times[order]
            rows = self._pending.rows.rows(due, self._input)
            self._pending.remove(due)
            self._give(rows, times, pa.array(times), out)
        self._watermark = watermark.timestamp
        return watermark

    def _give(self, rows: pa.RecordBatch, times: Int64s, stamps: pa.Array | None, out: Collector) -> None:
        keys = [rows.column(name) for name in self._keys.names]
        state = self._states.begin(_GIVEN, keys, [])
        slots, _ = state.add(keys)
        state.write(slots, self._time, times)
        self._states.end()
        ranks = pa.array(np.ones(len(times), np.int64))
        out.collect(Batch(pa.RecordBatch.from_arrays([*rows.columns, ranks], schema=self._spec.schema), stamps))

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        given = self._states.capture(request)
        pending = self._pending.capture(request.scope, self._context.config.max_parallelism)
        return OperatorCapture({**given.tables, _PENDING: pending}, self._watermark, given.native)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._watermark = snapshot.watermark
        tables = dict(snapshot.tables)
        pending, ranked = tables.pop(_PENDING, None), tables.pop(ROWS, None)
        if pending is not None:
            self._pending.restore(pending.data, 0)
        if ranked is not None:
            tables[_GIVEN] = self._given_before(ranked)
        self._states.restore(replace(snapshot, tables=tables))

    def _given_before(self, ranked: StateTable) -> StateTable:
        """Which partitions have had their row, of the state of the Top-N that such queries had in older savepoints."""
        rows = flat_table(ranked.data, counted_layout(ROWS, self._keys, self._others, None), self._context.where)
        kept = [name for name in rows.column_names if name in (KEY_GROUP, TOUCHED, *saved_names(self._keys.names))]
        times = pa.nulls(rows.num_rows, pa.int64())
        return replace(ranked, data=rows.select(kept).append_column(self._time, times))

    def close(self) -> None:
        self._states.close()
