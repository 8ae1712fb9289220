"""Aggregates over groups of rows: `count`, `sum`, `min`, `max`, `mean`, `first`, `last`, `stddev`, ...

Users make them by the functions at the end of this module, under the names that the front door exports;
`aggregation` computes them. Nulls are skipped as in SQL, and all work is done on whole columns.

An aggregate is computed in three steps: *lift* turns rows into accumulators, *combine* merges the accumulators
of a group, *lower* turns them into the result; so parts of a group can be reduced apart and merged later. From
Tangwongsan et al., "General Incremental Sliding-Window Aggregation", VLDB 2015.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.aggregates.accumulators import (
    Accumulator,
    CountAccumulator,
    EdgeAccumulator,
    ExtremeAccumulator,
    MomentsAccumulator,
    SumAccumulator,
    ValuesAccumulator,
    WideSumAccumulator,
    list_lengths,
    lists_of,
    plain_type,
    sum_type,
    wide_type,
)
from penstock.engine.columns import one_array
from penstock.engine.errors import ColumnTypeError, GraphError, missing_column

_NUMBERS: Final = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)
_ORDERED: Final = (
    *_NUMBERS,
    pa.types.is_boolean,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_timestamp,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
)
_COMPARABLE: Final = (*_ORDERED, pa.types.is_duration)
_CAST_TO_NUMBER: Final = "cast it to an integer, a float or a decimal first"


@dataclass(frozen=True, slots=True)
class Aggregate(ABC):
    """What to compute over a column of each group: a value, to be compared, hashed and pickled.

    Args:
        function: the name of the function that made it.
        column: the column; None for the rows themselves (count only).
    """

    function: str
    column: str | None

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) and (self.function != "count" or self.column is not None):
            raise GraphError(f"{self.function}: the column must be given by its name, not by {self.column!r}")

    def __str__(self) -> str:
        return f"{self.function}({'*' if self.column is None else self.column})"

    @property
    @abstractmethod
    def accumulators(self) -> tuple[Accumulator, ...]:
        """What to remember of a group; aggregates share accumulators of the same name."""

    @abstractmethod
    def result_of(self, kind: pa.DataType) -> pa.DataType:
        """The type of the result for a column of plain type `kind`.

        Raises:
            TypeError: it does not take that type; the text says what to do.
        """

    @abstractmethod
    def lower(self, table: pa.Table) -> pa.Array | pa.ChunkedArray:
        """The result for each row of a table of accumulators."""

    def result_type(self, schema: pa.Schema, where: str) -> pa.DataType:
        """The type of the result for a stream of the columns in `schema`; a column of type null fits all.

        Args:
            schema: the stream's columns.
            where: the operation, for messages.

        Raises:
            MissingColumnError: no such column.
            ColumnTypeError: a column of a type that the aggregate does not take.
        """
        if self.column is None:
            return self.result_of(pa.null())
        if self.column not in schema.names:
            raise missing_column(self.column, schema.names, f"{where}: {self}")
        given = schema.field(self.column).type
        try:
            return self.result_of(plain_type(given))
        except TypeError as error:
            raise ColumnTypeError(f"{where}: {self} cannot take a column of type {given}; {error}") from None


@dataclass(frozen=True, slots=True)
class _Count(Aggregate):
    @property
    def accumulators(self) -> tuple[CountAccumulator]:
        return (CountAccumulator(self.column),)

    def result_of(self, kind: pa.DataType) -> pa.DataType:
        return pa.int64()

    def lower(self, table: pa.Table) -> pa.ChunkedArray:
        return table.column(self.accumulators[0].name)


@dataclass(frozen=True, slots=True)
class _Sum(Aggregate):
    column: str

    @property
    def accumulators(self) -> tuple[SumAccumulator]:
        return (SumAccumulator(self.column, exact=True),)

    def result_of(self, kind: pa.DataType) -> pa.DataType:
        _require(kind, _NUMBERS, _CAST_TO_NUMBER)
        return sum_type(kind)

    def lower(self, table: pa.Table) -> pa.ChunkedArray:
        return table.column(self.accumulators[0].name)


@dataclass(frozen=True, slots=True)
class _WideSum(_Sum):
    @property
    def accumulators(self) -> tuple[WideSumAccumulator]:
        return (WideSumAccumulator(self.column, exact=True),)

    def result_of(self, kind: pa.DataType) -> pa.DataType:
        _require(kind, (pa.types.is_decimal, pa.types.is_null), "cast it to a decimal first")
        return wide_type(kind)


@dataclass(frozen=True, slots=True)
class _Mean(Aggregate):
    column: str

    @property
    def accumulators(self) -> tuple[SumAccumulator, CountAccumulator]:
        return SumAccumulator(self.column, exact=False), CountAccumulator(self.column)

    def result_of(self, kind: pa.DataType) -> pa.DataType:
        _require(kind, _NUMBERS, _CAST_TO_NUMBER)
        return pa.float64()

    def lower(self, table: pa.Table) -> pa.ChunkedArray:
        total, count = (table.column(accumulator.name) for accumulator in self.accumulators)
        return pc.divide(total.cast(pa.float64(), safe=False), count.cast(pa.float64(), safe=False))


@dataclass(frozen=True, slots=True)
class _Extreme(Aggregate):
    function: Literal["min", "max"]
    column: str

    @property
    def accumulators(self) -> tuple[ExtremeAccumulator]:
        return (ExtremeAccumulator(self.column, self.function),)

    def result_of(self, kind: pa.DataType) -> pa.DataType:
        _require(kind, _ORDERED, "take a single field out of it, or cast it to a number or a string first")
        return kind

    def lower(self, table: pa.Table) -> pa.ChunkedArray:
        return table.column(self.accumulators[0].name)


@dataclass(frozen=True, slots=True)
class _Edge(Aggregate):
    function: Literal["first", "last"]
    column: str

    @property
    def accumulators(self) -> tuple[EdgeAccumulator]:
        return (EdgeAccumulator(self.column, self.function),)

    def result_of(self, kind: pa.DataType) -> pa.DataType:
        return kind

    def lower(self, table: pa.Table) -> pa.ChunkedArray:
        return table.column(self.accumulators[0].names[0])


@dataclass(frozen=True, slots=True)
class _Stddev(Aggregate):
    column: str
    ddof: int

    def __post_init__(self) -> None:
        Aggregate.__post_init__(self)
        if not isinstance(self.ddof, int) or isinstance(self.ddof, bool) or self.ddof < 0:
            raise GraphError(f"{self}: ddof must be a whole number of 0 or more, not {self.ddof!r}")

    @property
    def accumulators(self) -> tuple[CountAccumulator, MomentsAccumulator]:
        return CountAccumulator(self.column), MomentsAccumulator(self.column)

    def result_of(self, kind: pa.DataType) -> pa.DataType:
        _require(kind, _NUMBERS, _CAST_TO_NUMBER)
        return pa.float64()

    def lower(self, table: pa.Table) -> pa.ChunkedArray:
        count, moments = self.accumulators
        freedom = pc.subtract(table.column(count.name).cast(pa.float64(), safe=False), float(self.ddof))
        spread = table.column(moments.names[1])
        variance = pc.if_else(pc.greater(freedom, 0.0), pc.divide(spread, freedom), pa.scalar(None, pa.float64()))
        return pc.sqrt(variance)


@dataclass(frozen=True, slots=True)
class _CountDistinct(Aggregate):
    column: str

    @property
    def accumulators(self) -> tuple[ValuesAccumulator]:
        return (ValuesAccumulator(self.column, distinct=True),)

    def result_of(self, kind: pa.DataType) -> pa.DataType:
        _require(kind, _COMPARABLE, "take a single field out of it, or cast it to a number or a string first")
        return pa.int64()

    def lower(self, table: pa.Table) -> pa.Array:
        lists = table.column(self.accumulators[0].names[0])
        if pa.types.is_null(lists.type):
            return pa.array(np.zeros(len(lists), np.int64))
        return pa.array(list_lengths(one_array(lists)))


@dataclass(frozen=True, slots=True)
class _CollectList(Aggregate):
    column: str

    @property
    def accumulators(self) -> tuple[ValuesAccumulator]:
        return (ValuesAccumulator(self.column, distinct=False),)

    def result_of(self, kind: pa.DataType) -> pa.DataType:
        return pa.list_(kind)

    def lower(self, table: pa.Table) -> pa.Array:
        lists = one_array(table.column(self.accumulators[0].names[0]))
        if pa.types.is_null(lists.type):
            return lists_of(lists.slice(0, 0), np.zeros(len(lists), np.int64))
        return lists_of(lists.flatten(), list_lengths(lists)) if lists.null_count else lists


def _require(kind: pa.DataType, accepted: Sequence[Callable[[pa.DataType], bool]], remedy: str) -> None:
    if not any(is_kind(kind) for is_kind in accepted):
        raise TypeError(remedy)


def count(column: str | None = None) -> Aggregate:
    """Number of rows, or of values of `column` that are not null. Result: int64.

    Example:
        >>> str(count())
        'count(*)'
    """
    return _Count("count", column)


def sum(column: str) -> Aggregate:  # noqa: A001 - read as penstock.sum
    """Sum of the values; null if there is none.

    Result: int64 for integers, uint64 for unsigned ones, float64 for floats, a decimal of the most digits for
    decimals. A sum that does not fit fails the job with a `RecordError`; it never wraps. That is judged for
    every partial sum, so large values of both signs may fail although their total would fit.

    Args:
        column: integers, floats or decimals.

    Example:
        >>> str(sum("distance"))
        'sum(distance)'
    """
    return _Sum("sum", column)


def wide_sum(column: str) -> Aggregate:
    """Sum of decimals in more digits than they have; null if there is none. Result: decimal256 of 76 digits.

    SQL makes DECIMAL of it, and null of what has too many digits for that.

    Args:
        column: decimals of 38 digits at most.

    Example:
        >>> str(wide_sum("price"))
        'wide_sum(price)'
    """
    return _WideSum("wide_sum", column)


def min(column: str) -> Aggregate:  # noqa: A001 - read as penstock.min
    """Smallest value; null if there is none. NaN is passed over like null. Result: the column's type.

    Args:
        column: numbers, strings (by UTF-8 bytes), binary values, booleans, dates, times or timestamps.

    Example:
        >>> str(min("dep_delay"))
        'min(dep_delay)'
    """
    return _Extreme("min", column)


def max(column: str) -> Aggregate:  # noqa: A001 - read as penstock.max
    """Largest value; null if there is none. NaN is passed over like null. Result: the column's type.

    Args:
        column: numbers, strings (by UTF-8 bytes), binary values, booleans, dates, times or timestamps.

    Example:
        >>> str(max("dep_delay"))
        'max(dep_delay)'
    """
    return _Extreme("max", column)


def mean(column: str) -> Aggregate:
    """Arithmetic mean of the values; null if there is none. Result: float64.

    Values are added as float64, save where `sum` of the same column is computed too: then its sum is used.

    Args:
        column: integers, floats or decimals.

    Example:
        >>> str(mean("dep_delay"))
        'mean(dep_delay)'
    """
    return _Mean("mean", column)


def first(column: str) -> Aggregate:
    """The value with the earliest event timestamp; null if there is none. Result: the column's type.

    Of equal timestamps, and in a stream without timestamps, the one that arrived first.

    Args:
        column: any type.

    Example:
        >>> str(first("origin"))
        'first(origin)'
    """
    return _Edge("first", column)


def last(column: str) -> Aggregate:
    """The value with the latest event timestamp; null if there is none. Result: the column's type.

    Of equal timestamps, and in a stream without timestamps, the one that arrived last.

    Args:
        column: any type.

    Example:
        >>> str(last("dest"))
        'last(dest)'
    """
    return _Edge("last", column)


def stddev(column: str, ddof: int = 1) -> Aggregate:
    """Standard deviation of the values; null for `ddof` values or fewer. Result: float64.

    Args:
        column: integers, floats or decimals.
        ddof: what is taken off the number of values in the divisor: 1 for a sample, 0 for a whole population.

    Raises:
        GraphError: `ddof` is no whole number of 0 or more.

    Example:
        >>> str(stddev("air_time"))
        'stddev(air_time)'
    """
    return _Stddev("stddev", column, ddof)


def count_distinct(column: str) -> Aggregate:
    """Number of different values, without null; exact. Result: int64.

    The state of a group holds every value that it has seen. NaN is one value, and 0.0 equals -0.0.

    Args:
        column: any type that is not nested.

    Example:
        >>> str(count_distinct("tailnum"))
        'count_distinct(tailnum)'
    """
    return _CountDistinct("count_distinct", column)


def collect_list(column: str) -> Aggregate:
    """All values, without null; an empty list if there is none. Result: list.

    They are in order of arrival, but for sliding and cumulative windows (by slices of time, and by arrival in each; of
    windows of 16 slices and more, allowed late rows may stand behind later slices) and sessions that a later row made
    one (session by session, or by arrival where all came in one batch).

    The state of a group holds every value that it has seen.

    Args:
        column: any type.

    Example:
        >>> str(collect_list("flight"))
        'collect_list(flight)'
    """
    return _CollectList("collect_list", column)
