"""The elements that travel on a channel, in order.

Sources, operators and routers exchange these and nothing else. All of them are immutable, so an element may be handed
to several consumers without a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import pyarrow as pa

MIN_TIMESTAMP: Final = -(2**63)
"""The watermark before any was seen."""
MAX_TIMESTAMP: Final = 2**63 - 1
"""The watermark behind the last row of a bounded stream: event time is complete."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of the user's columns, with their event timestamps and changelog row kinds beside them.

    Args:
        data: the user's columns.
        timestamps: int64 milliseconds since the epoch (UTC), one a row, no nulls; None before timestamps are assigned.
        kinds: int8 changelog row kinds, one a row; None means that every row is an insert.
    """

    data: pa.RecordBatch
    timestamps: pa.Int64Array | None = None
    kinds: pa.Int8Array | None = None

    @property
    def num_rows(self) -> int:
        return int(self.data.num_rows)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows themselves (a slice counts only its own rows)."""
        beside = sum(array.nbytes for array in (self.timestamps, self.kinds) if array is not None)
        return int(self.data.nbytes + beside)

    def slice(self, offset: int, length: int | None = None) -> Batch:
        """A zero-copy view of `length` rows from `offset`."""
        return Batch(
            self.data.slice(offset, length),
            None if self.timestamps is None else self.timestamps.slice(offset, length),
            None if self.kinds is None else self.kinds.slice(offset, length),
        )

    def take(self, indices: pa.Array) -> Batch:
        """A copy of the rows at `indices`, in that order."""
        return Batch(
            self.data.take(indices),
            None if self.timestamps is None else self.timestamps.take(indices),
            None if self.kinds is None else self.kinds.take(indices),
        )

    def filter(self, mask: pa.BooleanArray) -> Batch:
        """A copy of the rows where `mask` is true (a null counts as false, as in SQL)."""
        return Batch(
            self.data.filter(mask),
            None if self.timestamps is None else self.timestamps.filter(mask),
            None if self.kinds is None else self.kinds.filter(mask),
        )

    def with_data(self, data: pa.RecordBatch) -> Batch:
        """The same rows with other columns."""
        return Batch(data, self.timestamps, self.kinds)


def concat_batches(batches: Sequence[Batch]) -> Batch:
    """One batch with the rows of all `batches`, in order; a column of nulls takes the type that others give it.

    All must have the same column names, and either all or none must carry timestamps (likewise kinds).

    Raises:
        pyarrow.ArrowInvalid, pyarrow.ArrowTypeError: the columns do not fit each other.
    """
    if len(batches) == 1:
        return batches[0]
    return Batch(
        concat_record_batches([batch.data for batch in batches]),
        _concat_optional([batch.timestamps for batch in batches]),
        _concat_optional([batch.kinds for batch in batches]),
    )


def concat_record_batches(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One contiguous record batch with the rows of all `batches`, in order (null columns are promoted)."""
    schema = batches[0].schema
    if all(batch.schema.equals(schema) for batch in batches):
        return pa.concat_batches(batches)
    return table_to_record_batch(
        pa.concat_tables([pa.Table.from_batches([batch]) for batch in batches], promote_options="default")
    )


def table_to_record_batch(table: pa.Table) -> pa.RecordBatch:
    """The table's rows as one contiguous record batch (zero-copy where every column has one chunk)."""
    columns = [column.chunk(0) if column.num_chunks == 1 else _combine(column) for column in table.itercolumns()]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


def _combine(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined


def _concat_optional(arrays: Sequence[pa.Array | None]) -> pa.Array | None:
    present = [array for array in arrays if array is not None]
    if not present:
        return None
    if len(present) != len(arrays):
        raise pa.ArrowInvalid("some of the batches carry timestamps or row kinds and others do not")
    return pa.concat_arrays(present)


@dataclass(frozen=True, slots=True)
class Watermark:
    """Promise that no row with a timestamp at or below `timestamp` (int64 ms) follows on this channel."""

    timestamp: int


@dataclass(frozen=True, slots=True)
class WatermarkStatus:
    """Says whether the channel takes part in event time: an idle one holds no watermark back."""

    idle: bool


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """Nothing follows on this channel. A bounded source sends `Watermark(MAX_TIMESTAMP)` before it."""


Control: TypeAlias = Watermark | WatermarkStatus | EndOfInput
Element: TypeAlias = Batch | Control
