"""Event timestamps of rows: from a column, from a Python function of the row, or from the clock.

Sources with a watermark strategy and the operator of `assign_timestamps` create one assigner for each input. Timestamps
come out as int64 milliseconds without nulls, far enough from the ends of int64 for window arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.engine.clock import Clock
from penstock.engine.errors import ColumnTypeError, RecordError, missing_column
from penstock.engine.operators.base import USER_FAILURES, OperatorContext, SchemaOrUnknown
from penstock.engine.rows import batch_rows, shown_row
from penstock.engine.windows.watermarks import ByClock, Row, WatermarkStrategy

Assign: TypeAlias = Callable[[pa.RecordBatch], pa.Int64Array]
"""The timestamps of a batch of one row or more."""

_LARGEST: Final = 2**62
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


def check_assigner(strategy: WatermarkStrategy, schema: SchemaOrUnknown, where: str) -> None:
    """Check the column that the strategy reads against the stream's columns, where both are known."""
    if isinstance(strategy.assigner, str) and schema is not None:
        check_timestamp_column(schema, strategy.assigner, where)


def event_times(values: pa.Array) -> pa.Int64Array:
    """The column as int64 milliseconds since the epoch; finer units are cut down to the millisecond, towards the past.

    Raises:
        pyarrow.ArrowInvalid: a value does not fit.
    """
    kind = values.type
    if pa.types.is_date(kind):
        return values.cast(pa.timestamp("ms")).cast(pa.int64())
    if not pa.types.is_timestamp(kind):
        return values if pa.types.is_int64(kind) else values.cast(pa.int64())
    if kind.unit == "ms":
        return values.view(pa.int64())
    if kind.unit in _UNITS_IN_A_MILLISECOND:
        # By arithmetic: Arrow's floor_temporal refuses times in the hour that a zone has twice in autumn.
        return pa.array(values.cast(pa.int64()).to_numpy() // _UNITS_IN_A_MILLISECOND[kind.unit])
    return values.cast(pa.timestamp("ms", kind.tz)).cast(pa.int64())


def create_assigner(strategy: WatermarkStrategy, context: OperatorContext, clock: Clock) -> Assign:
    """What gives the rows of one input their timestamps.

    Args:
        strategy: has an assigner, or is of ingestion time.
        context: whose rows they are.
        clock: of ingestion time; never goes back.
    """
    if isinstance(strategy.generation, ByClock):
        return lambda data: pa.array(np.full(data.num_rows, clock.now_ms(), np.int64))
    if isinstance(strategy.assigner, str):
        return _ColumnTimes(strategy.assigner, context.where, strategy.remedy)
    assert strategy.assigner is not None, "the API refuses a strategy that does not say where timestamps are"
    return _RowTimes(strategy.assigner, context, strategy.remedy)


class _ColumnTimes:
    """Timestamps out of a column."""

    def __init__(self, column: str, where: str, remedy: str) -> None:
        self._column = column
        self._where = where
        self._errors = _Errors(f"{where}: the event time in column {column!r}", remedy)

    def __call__(self, data: pa.RecordBatch) -> pa.Int64Array:
        check_timestamp_column(data.schema, self._column, self._where)
        values = data.column(self._column)
        if values.null_count:
            row = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
            raise self._errors.of(data, row, "is null")
        try:
            timestamps = event_times(values)
        except pa.ArrowInvalid as error:
            raise RecordError(f"{self._where}: column {self._column!r} holds a time out of range: {error}") from error
        milliseconds = timestamps.to_numpy()
        if int(milliseconds.max()) > _LARGEST or int(milliseconds.min()) < -_LARGEST:
            row = int(np.flatnonzero((milliseconds > _LARGEST) | (milliseconds < -_LARGEST))[0])
            raise self._errors.of(data, row, "is out of the range of event time")
        return timestamps


class _RowTimes:
    """Timestamps from the user's function, row by row."""

    def __init__(self, function: Callable[[Row], int], context: OperatorContext, remedy: str) -> None:
        self._function = function
        self._context = context
        time = f"{context.where}: the timestamp from the function given to with_timestamp_assigner"
        self._errors = _Errors(time, remedy)

    def __call__(self, data: pa.RecordBatch) -> pa.Int64Array:
        rows = batch_rows(data, self._context.where)
        times = [self._time_of(row, data, index) for index, row in enumerate(rows)]
        return pa.array(times, pa.int64())

    def _time_of(self, row: Row, data: pa.RecordBatch, index: int) -> int:
        try:
            time: Any = self._function(row)
        except USER_FAILURES as error:
            raise self._context.user_code_error(error, row) from error
        if not isinstance(time, int | np.integer) or isinstance(time, bool):
            raise self._errors.of(data, index, f"is {time!r}, no int of milliseconds since the epoch,")
        if not -_LARGEST <= time <= _LARGEST:
            raise self._errors.of(data, index, "is out of the range of event time")
        return int(time)


@dataclass(frozen=True, slots=True)
class _Errors:
    """What is said of rows whose time cannot be had.

    Args:
        time: where it is to be, in words.
        remedy: what to do.
    """

    time: str
    remedy: str

    def of(self, data: pa.RecordBatch, row: int, what: str) -> RecordError:
        """The error of a row."""
        return RecordError(f"{self.time} {what} in row {shown_row(data, row)}; {self.remedy}")
