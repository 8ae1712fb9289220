"""Named aggregates, computed row by row: what `GroupedAggregation` does for whole batches, for one group at a time.

The general window operator uses it. Rows are lifted, and results lowered, by the same code as on whole batches, so
both give the same values, types and errors; only the combination of accumulators is Python's here.

Source: Welford's and Chan, Golub and LeVeque's updating formulas for the moments, as in `accumulators`.
"""

from __future__ import annotations

import decimal
import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final, TypeAlias

import pyarrow as pa

from penstock.engine.aggregates.accumulators import (
    CountAccumulator,
    EdgeAccumulator,
    ExtremeAccumulator,
    FoldAccumulator,
    GroupAccumulator,
    MomentsAccumulator,
    SumAccumulator,
    ValuesAccumulator,
    one_array,
)
from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.errors import RecordError
from penstock.engine.rows import batch_rows

Accumulators: TypeAlias = dict[str, Any]
"""The accumulators of one group by their names; changed in place by `combine`."""
_Combine: TypeAlias = Callable[[Accumulators, Accumulators], None]

_DECIMALS: Final = decimal.Context(prec=200)
"""Wide enough for sums of any Arrow decimals: Python's own context rounds to 28 digits."""


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
        self._counts = frozenset(fold.name for fold in aggregation.folds if isinstance(fold, CountAccumulator))
        self._combine = tuple(self._combiners())

    @property
    def state_type(self) -> pa.StructType:
        """The Arrow type of accumulators as state."""
        return pa.struct([(name, _raw_type(kind)) for name, kind in self._kinds.items()])

    def _combiners(self) -> list[_Combine]:
        # The moments first: they weigh by counts, which are combined behind them.
        grouped = sorted(self._aggregation.grouped, key=lambda part: not isinstance(part, MomentsAccumulator))
        return [
            *(_grouped_combiner(part) for part in grouped),
            *(_fold_combiner(fold, self._kinds[fold.name], self._where) for fold in self._aggregation.folds),
        ]

    def lift(self, data: pa.RecordBatch, timestamps: pa.Int64Array | None) -> list[Accumulators]:
        """The accumulators of each row."""
        table = self._aggregation.lift(data, timestamps)
        columns = [_raw_values(one_array(table.column(name))) for name in self._kinds]
        return [dict(zip(self._kinds, values)) for values in zip(*columns)]  # noqa: B905 - a third slower with strict

    def empty(self) -> Accumulators:
        """The accumulators of no rows."""
        return {name: 0 if name in self._counts else None for name in self._kinds}

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


# --- combination ---------------------------------------------------------------------------------------------


def _fold_combiner(fold: FoldAccumulator, kind: pa.DataType, where: str) -> _Combine:
    match fold:
        case CountAccumulator():
            return _counts(fold.name)
        case SumAccumulator():
            return _sums(fold, kind, where)
        case ExtremeAccumulator():
            return _extremes(fold.name, fold.extreme == "min")
        case _:
            raise AssertionError(f"no scalar form of {fold}")


def _grouped_combiner(accumulator: GroupAccumulator) -> _Combine:
    match accumulator:
        case MomentsAccumulator():
            return _moments(accumulator)
        case EdgeAccumulator():
            return _edges(accumulator)
        case ValuesAccumulator():
            return _distinct_values(accumulator.names[0]) if accumulator.distinct else _all_values(accumulator.names[0])
        case _:
            raise AssertionError(f"no scalar form of {accumulator}")


def _counts(name: str) -> _Combine:
    def combine(into: Accumulators, other: Accumulators) -> None:
        into[name] += other[name]

    return combine


def _sums(fold: SumAccumulator, kind: pa.DataType, where: str) -> _Combine:
    name = fold.name
    add = _DECIMALS.add if pa.types.is_decimal(kind) else None
    bounds = _bounds(kind)

    def combine(into: Accumulators, other: Accumulators) -> None:
        value = other[name]
        if value is None:
            return
        held = into[name]
        if held is not None:
            value = held + value if add is None else add(held, value)
        if bounds is not None and not bounds[0] <= value <= bounds[1]:
            remedy = "float64" if add else "float64 or decimal128"
            raise RecordError(
                f"{where}: sum of column {fold.column!r} does not fit {kind}; cast the column to {remedy} first"
            )
        into[name] = value

    return combine


def _bounds(kind: pa.DataType) -> tuple[Any, Any] | None:
    """The smallest and the largest value of a type of sums; None for floats, which have none."""
    if pa.types.is_decimal(kind):
        largest = Decimal((0, (9,) * kind.precision, -kind.scale))
        return largest.copy_negate(), largest
    if pa.types.is_unsigned_integer(kind):
        return 0, 2**64 - 1
    return (-(2**63), 2**63 - 1) if pa.types.is_integer(kind) else None


def _extremes(name: str, smallest: bool) -> _Combine:
    def combine(into: Accumulators, other: Accumulators) -> None:
        value = other[name]
        if value is None:
            return
        held = into[name]
        if held is None or (value < held if smallest else value > held):
            into[name] = value

    return combine


def _moments(accumulator: MomentsAccumulator) -> _Combine:
    mean_name, m2_name = accumulator.names
    count_name = CountAccumulator(accumulator.column).name

    def combine(into: Accumulators, other: Accumulators) -> None:
        added = other[count_name]
        if not added:
            return
        held, mean, m2 = into[count_name], other[mean_name], other[m2_name]
        if not math.isfinite(mean):
            # As on whole batches: infinite values have no deviation.
            into[mean_name] = into[m2_name] = math.nan
        elif not held:
            into[mean_name], into[m2_name] = mean, m2
        else:
            share = added / (held + added)
            deviation = mean - into[mean_name]
            into[mean_name] += deviation * share
            into[m2_name] += m2 + deviation * deviation * held * share

    return combine


def _edges(accumulator: EdgeAccumulator) -> _Combine:
    name, at_name = accumulator.names
    is_first = accumulator.edge == "first"

    def combine(into: Accumulators, other: Accumulators) -> None:
        if other[name] is None:
            return
        at, held_at = other[at_name], into[at_name]
        if into[name] is None or (at < held_at if is_first else at >= held_at):
            into[name], into[at_name] = other[name], at

    return combine


def _all_values(name: str) -> _Combine:
    def combine(into: Accumulators, other: Accumulators) -> None:
        values = other[name]
        if values:
            if into[name] is None:
                into[name] = []
            into[name].extend(values)

    return combine


def _distinct_values(name: str) -> _Combine:
    """Keeps the distinct values sorted, NaN last: an Arrow list that is searched in logarithmic time."""

    def combine(into: Accumulators, other: Accumulators) -> None:
        values = other[name]
        if not values:
            return
        held = into[name]
        if held is None:
            held = into[name] = []
        has_nan = bool(held) and _is_nan(held[-1])
        for value in values:
            if _is_nan(value):
                if not has_nan:
                    held.append(value)
                    has_nan = True
                continue
            end = len(held) - has_nan
            place = bisect_left(held, value, 0, end)
            if place == end or held[place] != value:
                held.insert(place, value)

    return combine


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value


# --- values --------------------------------------------------------------------------------------------------


def _raw_type(kind: pa.DataType) -> pa.DataType:
    """The type whose Python values hold all that `kind` holds: whole numbers for times, which may have nanoseconds."""
    if pa.types.is_list(kind):
        return pa.list_(_raw_type(kind.value_type))
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
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
