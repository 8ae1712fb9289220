"""Accumulators: what an aggregate remembers of the rows of a group, as columns with one row a group.

`aggregates` names those that an aggregate needs; `aggregation` lifts rows to them and combines them.
Combining is associative over consecutive parts, takes null for "nothing seen yet", and keeps column types.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.aggregates import scalar_forms
from penstock.engine.aggregates.scalar_forms import Combine
from penstock.engine.columns import one_array
from penstock.engine.errors import RecordError
from penstock.engine.row_numbers import Groups

Fold: TypeAlias = Literal["sum", "min", "max"]
_Int64s: TypeAlias = npt.NDArray[np.int64]
_Float64s: TypeAlias = npt.NDArray[np.float64]

INTERNAL: Final = "__"
"""How the names of columns begin that users do not see."""
_DECIMAL_DIGITS: Final = {128: 38, 256: 76}
"""The digits that a decimal type of that many bits holds."""
_HALF: Final = 32
_LOW_HALF: Final = 2**32 - 1


class FoldAccumulator(ABC):
    """One column, combined by one of Arrow's grouped functions; a single pass does all of a table's.

    `column` names the column whose values it sees; None for count(*).
    """

    __slots__ = ()
    column: str | None

    @property
    @abstractmethod
    def name(self) -> str:
        """The accumulator's own column."""

    @property
    @abstractmethod
    def function(self) -> Fold:
        """How rows of a group are combined."""

    @abstractmethod
    def lift(self, values: pa.Array) -> pa.Array:
        """The accumulator of each row; `values` are plain (see `plain`)."""

    @property
    def nothing(self) -> Any:
        """The accumulator of no rows."""
        return None

    @abstractmethod
    def scalar(self, kind: pa.DataType, where: str) -> Combine:
        """The same combination row by row.

        Args:
            kind: the type of the accumulator.
            where: operator and subtask, for messages.
        """

    def restored(self, values: pa.ChunkedArray) -> pa.ChunkedArray:
        """Accumulators that an earlier version may have saved, as they are now."""
        return values

    def check(self, table: pa.Table, by: Sequence[str]) -> None:  # noqa: B027 - few can overflow
        """Make sure that the accumulator of every group will fit its type.

        Raises:
            RecordError: it will not.
        """


class GroupAccumulator(ABC):
    """Columns that are combined by group ids. `column` names the column whose values it sees."""

    __slots__ = ()
    column: str

    @property
    def weights(self) -> str | None:
        """The name of the count that `combine` weighs rows by, where it does."""
        return None

    @property
    def is_mergeable(self) -> bool:
        """Whether it may be combined in any order, and is no larger for many rows than for one."""
        return False

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The accumulator's own columns."""

    @abstractmethod
    def lift(self, values: pa.Array, timestamps: pa.Int64Array | None) -> list[pa.Array]:
        """The accumulators of each row, an array for each of `names`; `values` are plain (see `plain`)."""

    @abstractmethod
    def combine(self, table: pa.Table, groups: Groups) -> list[pa.Array]:
        """The accumulators of each group, from rows of `table` in arrival order."""

    @abstractmethod
    def scalar(self) -> Combine:
        """The same combination row by row."""


Accumulator: TypeAlias = FoldAccumulator | GroupAccumulator


@dataclass(frozen=True, slots=True)
class CountAccumulator(FoldAccumulator):
    """Number of rows (column None) or of values that are not null: int64."""

    column: str | None

    @property
    def name(self) -> str:
        return f"__count({self.column or '*'})"

    @property
    def function(self) -> Fold:
        return "sum"

    def lift(self, values: pa.Array) -> pa.Array:
        if self.column is None or values.null_count == 0:
            return pa.array(np.ones(len(values), np.int64))
        return values.is_valid().cast(pa.int64())

    @property
    def nothing(self) -> int:
        return 0

    def scalar(self, kind: pa.DataType, where: str) -> Combine:
        return scalar_forms.counts(self.name)


@dataclass(frozen=True, slots=True)
class SumAccumulator(FoldAccumulator):
    """The sum of a column of numbers.

    Args:
        column: integers, floats or decimals.
        exact: add integers and decimals in their own widest type, and fail where that is too narrow; if not,
            add float64 values. Both have the same name, so that a mean can use the sum next to it.
    """

    column: str
    exact: bool

    @property
    def name(self) -> str:
        return f"__sum({self.column})"

    @property
    def function(self) -> Fold:
        return "sum"

    def lift(self, values: pa.Array) -> pa.Array:
        kind = sum_type(values.type) if self.exact else pa.float64()
        return values if values.type == kind else values.cast(kind, safe=False)

    def scalar(self, kind: pa.DataType, where: str) -> Combine:
        return scalar_forms.sums(self.name, self.column, kind, where)

    def check(self, table: pa.Table, by: Sequence[str]) -> None:
        values = table.column(self.name)
        kind = values.type
        rows = len(values) - values.null_count
        if rows == 0 or pa.types.is_floating(kind) or _sums_fit(values, rows):
            return
        if pa.types.is_decimal(kind):
            overflowing = _decimal_overflows(table, self.name, by)
        else:
            overflowing = _integer_overflows(table, self.name, by)
        if overflowing.num_rows:
            shown = [name for name in by if not name.startswith(INTERNAL)]
            group = ", ".join(f"{name}={overflowing.column(name)[0].as_py()!r}" for name in shown)
            remedy = "float64" if pa.types.is_decimal(kind) else "float64 or decimal128"
            raise RecordError(
                f"sum of column {self.column!r}{f' for {group}' if group else ''} does not fit {kind}; "
                f"cast the column to {remedy} first"
            )


@dataclass(frozen=True, slots=True)
class WideSumAccumulator(SumAccumulator):
    """As the sum, of decimals, in as many digits as Arrow has: of what has 38 none is too large."""

    def lift(self, values: pa.Array) -> pa.Array:
        return values.cast(wide_type(values.type))

    def restored(self, values: pa.ChunkedArray) -> pa.ChunkedArray:
        # Such sums had 38 digits; those of other types are refused when rows come.
        return values.cast(wide_type(values.type)) if pa.types.is_decimal(values.type) else values


@dataclass(frozen=True, slots=True)
class ExtremeAccumulator(FoldAccumulator):
    """The smallest or largest value; NaN is passed over like null."""

    column: str
    extreme: Literal["min", "max"]

    @property
    def name(self) -> str:
        return f"__{self.extreme}({self.column})"

    @property
    def function(self) -> Fold:
        return self.extreme

    def lift(self, values: pa.Array) -> pa.Array:
        if pa.types.is_floating(values.type) and _may_have_nan(values):
            nan = values.is_nan()
            if pc.any(nan).as_py():
                return pc.if_else(nan, pa.scalar(None, values.type), values)
        return values

    def scalar(self, kind: pa.DataType, where: str) -> Combine:
        return scalar_forms.extremes(self.name, self.extreme == "min")


@dataclass(frozen=True, slots=True)
class MomentsAccumulator(GroupAccumulator):
    """Mean and sum of squared deviations from it (M2), weighted by the count next to them: float64.

    Partials are merged around the mean of their group, which is found in two passes; sums of squares, which
    cancel where the mean is large, are never formed. Source: Chan, Golub, LeVeque, "Algorithms for computing
    the sample variance", 1983.
    """

    column: str

    @property
    def names(self) -> tuple[str, str]:
        return f"__mean({self.column})", f"__m2({self.column})"

    @property
    def weights(self) -> str:
        return CountAccumulator(self.column).name

    @property
    def is_mergeable(self) -> bool:
        return True

    def lift(self, values: pa.Array, timestamps: pa.Int64Array | None) -> list[pa.Array]:
        return [values.cast(pa.float64(), safe=False), pa.array(np.zeros(len(values)))]

    def combine(self, table: pa.Table, groups: Groups) -> list[pa.Array]:
        def by_group(weights: _Float64s) -> _Float64s:
            return np.bincount(groups.ids, weights, minlength=groups.count).astype(np.float64, copy=False)

        mean_name, m2_name = self.names
        count = _floats(table.column(self.weights))
        mean, m2 = _floats(table.column(mean_name)), _floats(table.column(m2_name))
        # Groups of nothing divide by zero, and infinite values have no deviation: both end as NaN.
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            total = by_group(count)
            rough = by_group(count * mean) / total
            deviation = mean - rough[groups.ids]
            correction = by_group(count * deviation) / total
            spread = by_group(m2 + count * deviation**2) - total * correction**2
            exact = rough + correction
        empty = total == 0
        return [pa.array(exact, mask=empty), pa.array(np.maximum(spread, 0), mask=empty)]

    def scalar(self) -> Combine:
        return scalar_forms.moments(*self.names, self.weights)


@dataclass(frozen=True, slots=True)
class EdgeAccumulator(GroupAccumulator):
    """The first or last value by event timestamp, and that timestamp; among equal ones by arrival."""

    column: str
    edge: Literal["first", "last"]

    @property
    def names(self) -> tuple[str, str]:
        return f"__{self.edge}({self.column})", f"__{self.edge}_at({self.column})"

    def lift(self, values: pa.Array, timestamps: pa.Int64Array | None) -> list[pa.Array]:
        return [values, pa.array(np.zeros(len(values), np.int64)) if timestamps is None else timestamps]

    def combine(self, table: pa.Table, groups: Groups) -> list[pa.Array]:
        values, timestamps = (one_array(table.column(name)) for name in self.names)
        rows = np.flatnonzero(_bools(values.is_valid()))
        times = _ints(timestamps)[rows]
        if (times[1:] < times[:-1]).any():
            rows = rows[self._at_edge(times, groups.ids[rows], groups.count)]
        if self.edge == "first":
            rows = rows[::-1]
        chosen = np.full(groups.count, -1, np.int64)
        # Of several rows for one group the last assignment stays.
        chosen[groups.ids[rows]] = rows
        indices = pa.array(chosen, mask=chosen < 0)
        return [values.take(indices), timestamps.take(indices)]

    def scalar(self) -> Combine:
        return scalar_forms.edges(*self.names, self.edge == "first")

    def _at_edge(self, times: _Int64s, ids: _Int64s, count: int) -> npt.NDArray[np.bool_]:
        """Which rows have the earliest (latest) time of their group."""
        limits = np.iinfo(np.int64)
        edges = np.full(count, limits.max if self.edge == "first" else limits.min)
        (np.minimum if self.edge == "first" else np.maximum).at(edges, ids, times)
        at_edge: npt.NDArray[np.bool_] = times == edges[ids]
        return at_edge


@dataclass(frozen=True, slots=True)
class ValuesAccumulator(GroupAccumulator):
    """The values that are not null, as a list: all of them in arrival order, or each distinct one once.

    A column of type null stays one, instead of lists of it, so that it can be promoted to any other type.
    """

    column: str
    distinct: bool

    @property
    def names(self) -> tuple[str]:
        return (f"__{'distinct' if self.distinct else 'list'}({self.column})",)

    def lift(self, values: pa.Array, timestamps: pa.Int64Array | None) -> list[pa.Array]:
        if pa.types.is_null(values.type):
            return [values]
        if self.distinct and pa.types.is_floating(values.type):
            # Arrow groups by bits, in which 0.0 and -0.0 differ, and the NaN of infinity less infinity from Python's.
            values = pc.add(values, pa.scalar(0.0, values.type))
            if _may_have_nan(values):
                values = pc.if_else(values.is_nan(), pa.scalar(math.nan, values.type), values)
        return [lists_of(values.drop_null(), _bools(values.is_valid()).astype(np.int64))]

    def combine(self, table: pa.Table, groups: Groups) -> list[pa.Array]:
        lists = one_array(table.column(self.names[0]))
        if pa.types.is_null(lists.type):
            return [pa.nulls(groups.count)]
        ids, values = np.repeat(groups.ids, list_lengths(lists)), lists.flatten()
        if self.distinct:
            pairs = pa.table({"id": ids, "value": values}).group_by(["id", "value"], use_threads=False).aggregate([])
            ids, values = pairs.column("id").to_numpy(), one_array(pairs.column("value"))
        if (ids[1:] < ids[:-1]).any():
            values = values.take(pa.array(stable_order(ids)))
        return [lists_of(values, np.bincount(ids, minlength=groups.count))]

    def scalar(self) -> Combine:
        return (scalar_forms.distinct_values if self.distinct else scalar_forms.all_values)(self.names[0])


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type with the same values that Arrow's grouped functions take (see `plain`)."""
    types = pa.types
    if types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if types.is_string_view(kind):
        return pa.string()
    if types.is_binary_view(kind):
        return pa.binary()
    if types.is_float16(kind):
        return pa.float32()
    if types.is_decimal32(kind) or types.is_decimal64(kind):
        return pa.decimal128(kind.precision, kind.scale)
    return kind


def plain(values: pa.Array) -> pa.Array:
    """The values in a type that Arrow's grouped functions take: no dictionaries, views or narrow decimals."""
    kind = plain_type(values.type)
    if kind == values.type:
        return values
    return (values.dictionary_decode() if pa.types.is_dictionary(values.type) else values).cast(kind)


def sum_type(kind: pa.DataType) -> pa.DataType:
    """The type of an exact sum of plain values."""
    if pa.types.is_decimal(kind):
        widest = pa.decimal256 if pa.types.is_decimal256(kind) else pa.decimal128
        return widest(_DECIMAL_DIGITS[kind.bit_width], kind.scale)
    if pa.types.is_null(kind):
        return kind
    if pa.types.is_floating(kind):
        return pa.float64()
    return pa.uint64() if pa.types.is_unsigned_integer(kind) else pa.int64()


def wide_type(kind: pa.DataType) -> pa.DataType:
    """The type of the sum of decimals that has the most digits; nulls stay nulls."""
    return kind if pa.types.is_null(kind) else pa.decimal256(_DECIMAL_DIGITS[256], kind.scale)


def lists_of(values: pa.Array, lengths: _Int64s) -> pa.ListArray:
    """Lists of the given lengths, cut from `values` one behind the other."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def list_lengths(lists: pa.ListArray) -> _Int64s:
    """The length of each list; 0 for null."""
    return _ints(pc.list_value_length(lists)).astype(np.int64)


def _sums_fit(values: pa.ChunkedArray, rows: int) -> bool:
    """Whether no sum of any of these values can leave the type; False where that is not sure."""
    bounds = pc.min_max(values).as_py()
    farthest = max(abs(bounds["min"]), abs(bounds["max"]))
    if pa.types.is_decimal(values.type):
        # A float is near enough with a tenth of the range to spare.
        limit = 0.9 * 10.0 ** (_DECIMAL_DIGITS[values.type.bit_width] - values.type.scale)
        return bool(float(farthest) * rows < limit)
    return bool(farthest * rows < (2**64 if pa.types.is_uint64(values.type) else 2**63))


def _integer_overflows(table: pa.Table, name: str, by: Sequence[str]) -> pa.Table:
    """The groups whose sum does not fit: upper and lower 32 bits are summed apart, where they have room."""
    values = table.column(name)
    unsigned = pa.types.is_uint64(values.type)
    halves = table.select(by)
    halves = halves.append_column("__high", pc.shift_right(values, pa.scalar(_HALF, values.type)))
    halves = halves.append_column("__low", pc.bit_wise_and(values, pa.scalar(_LOW_HALF, values.type)))
    sums = halves.group_by(list(by), use_threads=False).aggregate([("__high", "sum"), ("__low", "sum")])
    high = _ints(sums.column("__high_sum")).astype(np.int64)
    high += _ints(sums.column("__low_sum")).astype(np.int64) >> _HALF
    fits = (high >= (0 if unsigned else -(2**31))) & (high < (2**32 if unsigned else 2**31))
    return sums.filter(pa.array(~fits))


def _decimal_overflows(table: pa.Table, name: str, by: Sequence[str]) -> pa.Table:
    """The groups whose sum does not fit, by sums in the wider type; where there is none, all are suspect."""
    values = table.column(name)
    if pa.types.is_decimal256(values.type):
        return table.select([*by, name])
    wide = table.select(by).append_column(name, values.cast(pa.decimal256(_DECIMAL_DIGITS[256], values.type.scale)))
    sums = wide.group_by(list(by), use_threads=False).aggregate([(name, "sum")])
    limit = Decimal(10 ** _DECIMAL_DIGITS[128]).scaleb(-values.type.scale)
    # Not abs(), which rounds to the digits of Python's decimal context.
    large = [value is not None and value.copy_abs() >= limit for value in sums.column(f"{name}_sum").to_pylist()]
    return sums.filter(pa.array(large, pa.bool_()))


def stable_order(ids: _Int64s) -> _Int64s:
    """What `argsort(kind="stable")` gives for group ids, five times as fast: numpy sorts 16 bits by radix."""
    order = np.argsort(ids.astype(np.uint16), kind="stable")
    high = ids >> 16
    return order[np.argsort(high[order].astype(np.uint16), kind="stable")] if high.any() else order


def _may_have_nan(values: pa.Array) -> bool:
    """False only if there is none; NumPy's minimum finds that out at once."""
    if values.null_count or not len(values):
        return True
    return bool(np.isnan(values.to_numpy().min()))


def _bools(array: pa.BooleanArray) -> npt.NDArray[np.bool_]:
    bools: npt.NDArray[np.bool_] = array.to_numpy(zero_copy_only=False)
    return bools


def _ints(array: pa.Array | pa.ChunkedArray) -> _Int64s:
    filled = array.fill_null(0) if array.null_count else array
    ints: _Int64s = filled.to_numpy()
    return ints


def _floats(column: pa.ChunkedArray) -> _Float64s:
    filled = column.fill_null(0) if column.null_count else column
    floats: _Float64s = filled.to_numpy().astype(np.float64, copy=False)
    return floats
