"""Sorts a stream by event time, and rows of one time by other columns: rows wait until the watermark has passed them.

SQL's ORDER BY of a time attribute becomes it. All rows come to one subtask; those that would belong in front of a row
that has been given are late, counted and dropped.

Source: Flink's documentation, "ORDER BY clause", and its `RowTimeSortOperator`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.engine.changelog import APPEND_ONLY
from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, Batch, Watermark, concat_record_batches
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.changelog.column_names import free_name, own_names, saved_names
from penstock.engine.operators.changelog.inputs import on_time, plain_columns
from penstock.engine.operators.changelog.ranks import Order, sorted_places
from penstock.engine.operators.joins.join_buffers import TimeSegments
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder
from penstock.engine.state.capture import CaptureRequest, OperatorCapture, TableCapture
from penstock.engine.state.snapshot import OperatorSnapshot, Redistribution

_PENDING: Final = "pending"
_TIME: Final = "__time"
_LAST: Final = "last"


@dataclass(frozen=True, slots=True)
class TimeSortSpec(OperatorSpec):
    """Creates the operator.

    Args:
        schema: the columns that come; rows carry timestamps.
        order: by what rows with one timestamp are ordered; of equal ones the first to come is the first.
    """

    schema: pa.Schema
    order: tuple[Order, ...]

    def create(self) -> Operator:
        return TimeSort(self)

    def describe(self) -> str:
        return f"time_sort({', '.join(['timestamp', *(one.describe() for one in self.order)])})"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(keys=((),), order=RowOrder.WITHIN_INPUTS, accepts=(APPEND_ONLY,))


class TimeSort(Operator):
    """Keeps the rows that the watermark has not passed."""

    def __init__(self, spec: TimeSortSpec) -> None:
        self._spec = spec
        self._input = plain_columns(spec.schema)
        self._time = free_name(_TIME, self._input.names)
        self._pending = TimeSegments()
        self._watermark = self._last = MIN_TIMESTAMP

    def open(self, context: OperatorContext) -> None:
        self._context = context

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        rows, times = on_time(batch, self._input, self._last, self._context)
        if len(times):
            self._pending.append(rows, times)

    def on_watermark(self, watermark: Watermark, out: Collector) -> Watermark | None:
        behind = min(watermark.timestamp + 1, MAX_TIMESTAMP)
        due = self._pending.between(MIN_TIMESTAMP, behind)
        if due:
            rows = concat_record_batches([part.rows for part in due])
            times = np.concatenate([part.timestamps for part in due])
            _, codes = np.unique(times, return_inverse=True)
            sorts = [one.codes(rows.column(one.column)) for one in self._spec.order]
            places = sorted_places([codes, *sorts, np.arange(len(times))])
            out.collect(Batch(rows.take(pa.array(places)), pa.array(times[places])))
            self._pending.drop_before(behind)
            self._last = int(times.max())
        self._watermark = watermark.timestamp
        return watermark

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        # All rows are those of one subtask, and must be again.
        last = pa.table({_TIME: pa.array([self._last])})
        tables = {_LAST: TableCapture(Redistribution.WHOLE, lambda: last)} if self._last > MIN_TIMESTAMP else {}
        rows = self._pending.captured()
        if rows is None:
            return OperatorCapture(tables, self._watermark)

        def table() -> pa.Table:
            parts, times = rows()
            made = pa.Table.from_batches(parts)
            return made.rename_columns(saved_names(made.column_names)).append_column(self._time, pa.array(times))

        return OperatorCapture({**tables, _PENDING: TableCapture(Redistribution.WHOLE, table)}, self._watermark)

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._watermark = snapshot.watermark
        if _LAST in snapshot.tables and snapshot.tables[_LAST].data.num_rows:
            self._last = snapshot.tables[_LAST].data.column(_TIME)[0].as_py()
        pending = snapshot.tables.get(_PENDING)
        if pending is not None and pending.data.num_rows:
            rows = pending.data.drop_columns([self._time]).combine_chunks()
            rows = rows.rename_columns(own_names(rows.column_names))
            self._pending.append(rows.to_batches()[0], pending.data.column(self._time).to_numpy())
