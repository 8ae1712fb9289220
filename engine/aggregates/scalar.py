"""Named aggregates, computed row by row: what `GroupedAggregation` does for whole batches, for one group at a time.

The general window operator uses it. Rows are lifted, and results lowered, by the same code as on whole batches, so
both give the same values, types and errors; only the combination of accumulators is Python's here (`scalar_forms.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.aggregates.scalar_forms import Accumulators
from penstock.engine.columns import one_array
from penstock.engine.rows import batch_rows


class ScalarAggregation:
    """Aggregates of one group, bound to the columns of a stream.

    Args:
        aggregation: what to compute.
        schema: the stream's columns; those of type null had no value yet.
        where: operator and subtask, for messages.

    Raises:
        MissingColumnError, ColumnTypeError: the columns do not fit the aggregates.

    Example:
        `scalar.result([scalar.combine(scalar.empty(), lifted) for lifted in scalar.lift(batch, None)])`
    """

    def __init__(self, aggregation: GroupedAggregation, schema: pa.Schema, where: str) -> None:
        self._aggregation = aggregation
        self._where = where
        no_rows = pa.RecordBatch.from_arrays([pa.array([], kind) for kind in schema.types], names=schema.names)
        lifted = aggregation.lift(no_rows, None).schema
        self._kinds = {field.name: field.type for field in lifted if field.name not in aggregation.keys}
        # Those by group first: some weigh by counts, which are folds.
        self._combine = (
            *(part.scalar() for part in aggregation.grouped),
            *(fold.scalar(self._kinds[fold.name], where) for fold in aggregation.folds),
        )
        self._empty: Accumulators = dict.fromkeys(self._kinds) | {fold.name: fold.nothing for fold in aggregation.folds}

    @property
    def schema(self) -> pa.Schema:
        """The accumulators with their types."""
        return pa.schema(list(self._kinds.items()))

    @property
    def state_type(self) -> pa.StructType:
        """The Arrow type of accumulators as state, where times are numbers."""
        return pa.struct([(name, _raw_type(kind)) for name, kind in self._kinds.items()])

    def lift(self, data: pa.RecordBatch, timestamps: pa.Int64Array | None) -> list[Accumulators]:
        """The accumulators of each row."""
        table = self._aggregation.lift(data, timestamps)
        columns = [_raw_values(one_array(table.column(name))) for name in self._kinds]
        return [dict(zip(self._kinds, values)) for values in zip(*columns)]  # noqa: B905 - a third slower with strict

    def empty(self) -> Accumulators:
        """The accumulators of no rows."""
        return self._empty.copy()

    def combine(self, into: Accumulators, other: Accumulators) -> Accumulators:
        """Add the accumulators `other` of later rows, or of one lifted row, to `into`, which is returned.

        Raises:
            RecordError: a sum does not fit its type.
        """
        for combine in self._combine:
            combine(into, other)
        return into

    def table(self, groups: Sequence[Accumulators]) -> pa.Table:
        """The results: one row a group, one column for each aggregate."""
        columns = {name: _array([group[name] for group in groups], kind) for name, kind in self._kinds.items()}
        return self._aggregation.lower(pa.table(columns))

    def row(self, group: Accumulators) -> dict[str, Any]:
        """The results of one group, as a row."""
        (row,) = batch_rows(self.table([group]).combine_chunks().to_batches()[0], self._where)
        return row


# --- values --------------------------------------------------------------------------------------------------


def are_numbers_of_times(kind: pa.DataType) -> bool:
    """Whether values of an accumulator of this type lie in state as numbers, since they are, or hold, times."""
    if pa.types.is_list(kind):
        return are_numbers_of_times(kind.value_type)
    return bool(pa.types.is_temporal(kind)) and not pa.types.is_interval(kind)


def _raw_type(kind: pa.DataType) -> pa.DataType:
    """The type whose Python values hold all that `kind` holds: whole numbers for times, which may have nanoseconds."""
    if pa.types.is_list(kind):
        return pa.list_(_raw_type(kind.value_type))
    if are_numbers_of_times(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    return kind


def _raw_values(array: pa.Array) -> list[Any]:
    raw = _raw_type(array.type)
    values: list[Any] = (array if raw == array.type else array.cast(raw)).to_pylist()
    return values


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """An array of type `kind` of values that `_raw_values` gave."""
    raw = _raw_type(kind)
    array = pa.array(values, raw)
    return array if raw == kind else array.cast(kind)
