"""Assigns event timestamps from a column, and emits watermarks behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.engine.elements import MAX_TIMESTAMP, Batch, Watermark
from penstock.engine.errors import ColumnTypeError, RecordError, missing_column
from penstock.engine.operators.base import Collector, Operator, OperatorContext, SchemaOrUnknown
from penstock.engine.rows import shown_row
from penstock.engine.windows.watermarks import WatermarkGenerator, WatermarkStrategy

_LARGEST = 2**62
"""Timestamps are kept this far from the ends of int64, so that window arithmetic cannot overflow."""
_UNITS_IN_A_MILLISECOND: Final = {"us": 1_000, "ns": 1_000_000}


def check_timestamp_column(schema: pa.Schema, column: str, where: str) -> None:
    """Check that `column` can hold event time.

    Raises:
        MissingColumnError, ColumnTypeError: it is not there, or is no timestamp, date or integer.
    """
    index = schema.get_field_index(column)
    if index < 0:
        raise missing_column(column, schema.names, where)
    kind = schema.field(index).type
    if not (pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_integer(kind)):
        raise ColumnTypeError(
            f"{where}: column {column!r} is of type {kind} and holds no event time; "
            "give a timestamp, a date, or an integer of milliseconds since the epoch"
        )


def event_times(values: pa.Array) -> pa.Int64Array:
    """The column as int64 milliseconds since the epoch; finer units are cut down to the millisecond, towards the past.

    Raises:
        pyarrow.ArrowInvalid: a value does not fit.
    """
    kind = values.type
    if pa.types.is_date(kind):
        return values.cast(pa.timestamp("ms")).cast(pa.int64())
    if not pa.types.is_timestamp(kind):
        return values.cast(pa.int64())
    if kind.unit in _UNITS_IN_A_MILLISECOND:
        # By arithmetic: Arrow's floor_temporal refuses times in the hour that a zone has twice in autumn.
        return pa.array(values.cast(pa.int64()).to_numpy() // _UNITS_IN_A_MILLISECOND[kind.unit])
    return values.cast(pa.timestamp("ms", kind.tz)).cast(pa.int64())


@dataclass(frozen=True, slots=True)
class TimestampFactory:
    """Creates the operator that reads event time from `column`."""

    column: str
    strategy: WatermarkStrategy

    def __call__(self) -> TimestampOperator:
        return TimestampOperator(self.column, self.strategy)

    def bind(self, schema: SchemaOrUnknown, where: str) -> None:
        """Check the stream's columns, where they are known."""
        if schema is not None:
            check_timestamp_column(schema, self.column, where)


class TimestampOperator(Operator):
    """Replaces the timestamps of its input, and the watermarks: only the last one passes."""

    def __init__(self, column: str, strategy: WatermarkStrategy) -> None:
        self._column = column
        self._generator = WatermarkGenerator(strategy)

    def open(self, context: OperatorContext) -> None:
        self._where = f"operator {context.operator!r}, subtask {context.subtask}"

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        check_timestamp_column(batch.data.schema, self._column, self._where)
        values = batch.data.column(self._column)
        if values.null_count:
            row = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
            raise self._bad_row(batch, row, "is null")
        try:
            timestamps = event_times(values)
        except pa.ArrowInvalid as error:
            raise RecordError(f"{self._where}: column {self._column!r} holds a time out of range: {error}") from error
        milliseconds = timestamps.to_numpy()
        smallest, largest = int(milliseconds.min()), int(milliseconds.max())
        if largest > _LARGEST or smallest < -_LARGEST:
            row = int(np.flatnonzero((milliseconds > _LARGEST) | (milliseconds < -_LARGEST))[0])
            raise self._bad_row(batch, row, "is out of the range of event time")
        out.collect(Batch(batch.data, timestamps, batch.kinds))
        watermark = self._generator.advance(largest)
        if watermark is not None:
            out.broadcast(Watermark(watermark))

    def on_watermark(self, watermark: Watermark, out: Collector) -> Watermark | None:
        return watermark if watermark.timestamp == MAX_TIMESTAMP else None

    def _bad_row(self, batch: Batch, row: int, what: str) -> RecordError:
        return RecordError(
            f"{self._where}: the event time in column {self._column!r} {what} in row "
            f"{shown_row(batch.data, row)}; filter such rows out before assign_timestamps"
        )
