"""Aggregates over frames: to each row of sorted partitions what the rows of its frame reduce to.

OVER windows compute by it. A frame that reaches back without bound begins with a row that stands for all that came
before (the carry), so that results do not depend on where firings cut the rows.
"""

from __future__ import annotations

import decimal
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.errors import GraphError, nearest
from penstock.engine.operators.changelog.calls import COUNTS, ENDS, EXTREMES, LISTS, MULTISETS, SUMS
from penstock.engine.operators.changelog.finishing import EXACT, finished, sum_type
from penstock.engine.operators.changelog.frame_lists import finished_lists, joined_lists, single_lists
from penstock.engine.operators.changelog.ranks import rank_codes, within_runs

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

NUMBERS: Final = ("row_number", "rank", "dense_rank")
FUNCTIONS: Final = (*COUNTS, *SUMS, *EXTREMES, *ENDS, *LISTS, *MULTISETS, *NUMBERS, "lag")


@dataclass(frozen=True, slots=True)
class OverCall:
    """One function over a frame.

    Args:
        function: one of `FUNCTIONS`. Aggregates skip nulls, also `first_value` and `last_value`. `row_number`, `rank`
            and `dense_rank` go with a frame of all rows up to the row; `lag` gives the value so many rows before.
        name: of the result's column.
        type: of the result, as for `AggregateCall`.
        argument: the column; None for `count` of all rows, and for numbers.
        offset: of `lag`, 1 or more.
        distinct: whether equal values of a frame count once.
        separator: between the texts of `listagg`.
        condition: a boolean column of `array_agg`: rows of which it is not true give no value, not even null.

    Raises:
        GraphError: no such function, or its argument is missing.
    """

    function: str
    name: str
    type: pa.DataType
    argument: str | None = None
    offset: int = 1
    distinct: bool = False
    separator: str = ","
    condition: str | None = None

    def __post_init__(self) -> None:
        if self.function not in FUNCTIONS:
            raise GraphError(
                f"over {self.name!r}: there is no function {self.function!r}{nearest(self.function, FUNCTIONS)}; there "
                f"are {', '.join(FUNCTIONS)}"
            )
        if self.argument is None and self.function not in (*COUNTS, *NUMBERS):
            raise GraphError(f"over {self.name!r}: {self.function} needs a column; give argument=...")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads."""
        return tuple(name for name in (self.argument, self.condition) if name is not None)

    @property
    def takes_lists(self) -> bool:
        """Whether it needs the values of its frame one by one."""
        return self.function in (*LISTS, *MULTISETS) or (self.distinct and self.function in (*COUNTS, *SUMS))

    def describe(self) -> str:
        """As `explain()` shows it."""
        distinct = "distinct " if self.distinct else ""
        return f"{self.name}={self.function}({distinct}{self.argument or ''})"


@dataclass(frozen=True, slots=True)
class Ordered:
    """Rows sorted by partition and time, and the frame of each.

    Args:
        of: the number of each row's partition, ascending.
        times: int64 ms.
        lows, highs: places of the first and the last row of each row's frame.
        is_carry: the rows that stand for all that came before.
        is_running: whether each frame begins where its partition does.
    """

    of: Int64s
    times: Int64s
    lows: Int64s
    highs: Int64s
    is_carry: Mask
    is_running: bool

    @property
    def is_new_time(self) -> Mask:
        """The rows that have another time than the one before them in their partition."""
        new = np.ones(len(self.of), np.bool_)
        new[1:] = (self.of[1:] != self.of[:-1]) | (self.times[1:] != self.times[:-1])
        return new


class FrameFunction:
    """One call, with what it adds up.

    Args:
        call: the function.
        prefix: what the names of its columns begin with, which tells them apart from others.
        columns: those that the operator takes.
    """

    def __init__(self, call: OverCall, prefix: str, columns: pa.Schema) -> None:
        self.call = call
        kind = None if call.argument is None else columns.field(call.argument).type
        self._sum = sum_type(kind, call.function) if call.function in SUMS else None
        parts = [("count", pa.int64())]
        if call.takes_lists:
            assert kind is not None
            parts = [("values", pa.list_(kind))]
        elif call.function in (*EXTREMES, *ENDS, "lag"):
            assert kind is not None
            parts = [("value", kind)]
        elif self._sum is not None:
            parts.append(("sum", self._sum))
            if call.function.startswith(("var", "stddev")):
                parts.append(("squares", pa.float64()))
        self.fields = [pa.field(prefix + name, part) for name, part in parts]
        """What the carry keeps, and rows add to."""

    def parts(self, rows: pa.RecordBatch) -> list[pa.Array]:
        """What each row adds: a column for each field."""
        column = None if self.call.argument is None else rows.column(self.call.argument)
        if self.call.takes_lists:
            assert column is not None, "such a call has an argument"
            kept = column.is_valid() if self.call.function != "array_agg" else None
            if self.call.condition is not None:
                kept = rows.column(self.call.condition).fill_null(False)
            return [single_lists(column, kept)]
        if self.call.function in (*EXTREMES, *ENDS, "lag"):
            return [column]
        if column is None:
            return [pa.array(np.ones(rows.num_rows, np.int64))]
        parts = [column.is_valid().cast(pa.int64())]
        if self._sum is not None:
            zero = pa.scalar(decimal.Decimal(0) if pa.types.is_decimal(self._sum) else 0, self._sum)
            values = column.cast(self._sum, safe=False).fill_null(zero)
            parts.append(values)
            if len(self.fields) > len(parts):
                parts.append(pc.multiply(values, values))
        return parts

    def reduced(self, parts: list[pa.Array], rows: Ordered) -> list[pa.Array]:
        """What the frame of each row adds up to: a column for each field.

        Args:
            parts: of all rows, also of those that are carried.
            rows: in the same order.
        """
        if self.call.takes_lists:
            return [joined_lists(parts[0], rows.lows, rows.highs, distinct=self.call.distinct)]
        if self.call.function in (*EXTREMES, *ENDS):
            return [parts[0].take(_places(self.call.function, parts[0], rows))]
        if self.call.function == "lag":
            places = np.arange(len(rows.of)) - self.call.offset
            return [parts[0].take(pa.array(places, mask=places < rows.lows))]
        if self.call.function == "dense_rank":
            parts = [pc.if_else(pa.array(rows.is_carry | rows.is_new_time), parts[0], 0)]
        return [_summed(part, rows) for part in parts]

    def finish(self, reduced: list[pa.Array], rows: Ordered) -> pa.Array:
        """The results of all rows."""
        function, kind = self.call.function, self.call.type
        if self.call.takes_lists:
            return finished_lists(function, kind, reduced[0], self.call.separator)
        if function in (*EXTREMES, *ENDS, "lag"):
            return reduced[0].cast(kind)
        counts = reduced[0].to_numpy()
        if function == "rank":
            counts = counts - within_runs(np.cumsum(rows.is_new_time))
        if function in (*NUMBERS, *COUNTS):
            return pa.array(counts).cast(kind)
        sums, *squares = [_numpy(part) for part in reduced[1:]]
        return finished(function, kind, counts, sums, squares[0] if squares else None)


def _numpy(column: pa.Array) -> npt.NDArray[Any]:
    if pa.types.is_decimal(column.type):
        return np.array(column.to_pylist(), np.object_)
    values: npt.NDArray[Any] = column.to_numpy()
    return values


def _summed(part: pa.Array, rows: Ordered) -> pa.Array:
    """The sum over each row's frame."""
    if pa.types.is_decimal(part.type):
        # As whole numbers of the smallest unit, which Python adds exactly.
        scale = part.type.scale
        units = np.array([int(EXACT.scaleb(one, scale)) for one in part.to_pylist()], np.object_)
        sums = _differences(units, rows)
        return pa.array([EXACT.scaleb(decimal.Decimal(one), -scale) for one in sums.tolist()], part.type)
    numbers = part.to_numpy()
    if numbers.dtype == np.int64:
        return pa.array(_differences(numbers, rows))
    return pa.array(_running(numbers, rows) if rows.is_running else _one_by_one(numbers, rows))


def _differences(numbers: npt.NDArray[Any], rows: Ordered) -> npt.NDArray[Any]:
    before = np.concatenate([np.zeros(1, numbers.dtype), np.cumsum(numbers)])
    sums: npt.NDArray[Any] = before[rows.highs + 1] - before[rows.lows]
    return sums


def _running(numbers: npt.NDArray[np.float64], rows: Ordered) -> npt.NDArray[np.float64]:
    """Sums of floating numbers row by row within each partition: rounded alike, wherever firings cut them."""
    sums = np.empty(len(numbers))
    bounds = np.flatnonzero(np.diff(rows.of, prepend=-1, append=-1))
    for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        np.cumsum(numbers[begin:end], out=sums[begin:end])
    summed: npt.NDArray[np.float64] = sums[rows.highs]
    return summed


def _one_by_one(numbers: npt.NDArray[np.float64], rows: Ordered) -> npt.NDArray[np.float64]:
    """Sums of floating numbers, each frame for itself: a difference of longer sums would be rounded otherwise."""
    bounds = np.stack([rows.lows, rows.highs + 1], axis=1).ravel()
    sums: npt.NDArray[np.float64] = np.add.reduceat(np.append(numbers, 0.0), bounds)[::2]
    return sums


def _places(function: str, values: pa.Array, rows: Ordered) -> pa.Array:
    """Where in `values` the extreme, the first or the last value of each frame is; null where it has none."""
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    every = np.arange(len(values))
    if function == "last_value":
        found = np.maximum.accumulate(np.where(valid, every, -1))[rows.highs]
        return pa.array(found, mask=found < rows.lows)
    if function == "first_value":
        following = np.minimum.accumulate(np.where(valid, every, len(values))[::-1])[::-1]
        found = following[rows.lows]
        return pa.array(found, mask=found > rows.highs)
    codes = rank_codes(values)
    if function == "min":
        # The least is that with the largest code, as with the other; 0 stays null.
        codes = np.where(valid, codes.max(initial=0) + 1 - codes, 0)
    place_of = np.zeros(int(codes.max(initial=0)) + 1, np.int64)
    place_of[codes] = every
    if rows.is_running:
        span = len(place_of)
        best = np.maximum.accumulate(rows.of * span + codes)[rows.highs] - rows.of * span
    else:
        bounds = np.stack([rows.lows, rows.highs + 1], axis=1).ravel()
        best = np.maximum.reduceat(np.append(codes, 0), bounds)[::2]
    return pa.array(place_of[best], mask=best == 0)
