"""Aggregates that a retraction simply undoes: counts, sums, averages, variances and deviations.

Each keeps how many values there are, and their sum (and that of their squares), in columns of the group's state.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.number_types import numpy_type
from penstock.engine.operators.changelog.calls import AggregateCall
from penstock.engine.operators.changelog.grouped_rows import GroupedRows, Values
from penstock.engine.operators.changelog.row_states import RowState

Int64s = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_EXACT: Final = decimal.Context(prec=76, rounding=decimal.ROUND_HALF_UP)
_WIDE_DIGITS: Final = 76


class Accumulator(Protocol):
    """One call's share of a group aggregate."""

    @property
    def fields(self) -> list[pa.Field]:
        """The columns of the group's state that are its own."""
        ...

    def merge(self, groups: GroupedRows) -> None:
        """Take in the rows of a batch; the groups have a slot each."""
        ...

    def results(self, slots: Int64s, keys: list[pa.Array]) -> pa.Array:
        """The results of the groups at `slots`, which have these keys."""
        ...


class Sums:
    """Counts and sums.

    Args:
        call: count, sum, average, variance or deviation.
        place: of the call among those of its operator, which tells its columns apart.
        state: of the groups.
        kind: the argument's type; None where rows are counted.
        values: which values come and go in a batch.
    """

    def __init__(
        self,
        call: AggregateCall,
        place: int,
        kind: pa.DataType | None,
        state: Callable[[], RowState],
        values: Callable[[GroupedRows], Values],
    ) -> None:
        self._call = call
        self._count, self._sum, self._squares = (f"__{place}_{part}" for part in ("count", "sum", "squares"))
        self._state = state
        self._values = values
        self._kind = _sum_type(kind, call.function)

    @property
    def fields(self) -> list[pa.Field]:
        """A count, and a sum (and one of squares) where the function needs it."""
        fields = [pa.field(self._count, pa.int64())]
        if self._kind is not None:
            fields.append(pa.field(self._sum, self._kind))
        if self._call.function.startswith(("var", "stddev")):
            fields.append(pa.field(self._squares, pa.float64()))
        return fields

    def merge(self, groups: GroupedRows) -> None:
        """See `Accumulator`."""
        values, state, slots = self._values(groups), self._state(), groups.slots
        counts = np.zeros(len(slots), np.int64)
        np.add.at(counts, values.of, values.signs)
        counts += state.rows.numbers(slots, self._count)
        state.write(slots, self._count, counts)
        if self._kind is None:
            return
        if pa.types.is_decimal(self._kind):
            self._merge_decimals(values, slots, counts)
            return
        numbers = _numbers(values.array, self._kind)
        self._add(slots, self._sum, values, numbers, counts)
        if self._squares in self._state().layout.values.names:
            self._add(slots, self._squares, values, numbers * numbers, counts)

    def _add(self, slots: Int64s, name: str, values: Values, numbers: npt.NDArray[Any], counts: Int64s) -> None:
        sums = self._held(slots, name)
        with np.errstate(over="ignore", invalid="ignore"):
            np.add.at(sums, values.of, numbers * values.signs)
        # Of nothing the sum is nothing, whatever rounding has left.
        sums[counts == 0] = 0
        self._state().write(slots, name, pa.array(sums))

    def _held(self, slots: Int64s, name: str) -> npt.NDArray[Any]:
        column = self._state().rows.columns(slots, [name])[0]
        return np.array((column.fill_null(0) if column.null_count else column).to_numpy())

    def _merge_decimals(self, values: Values, slots: Int64s, counts: Int64s) -> None:
        held = self._state().rows.columns(slots, [self._sum])[0].to_pylist()
        sums = [decimal.Decimal(0) if one is None else one for one in held]
        for row, sign, value in zip(values.of.tolist(), values.signs.tolist(), values.array.to_pylist(), strict=True):
            sums[row] = _EXACT.add(sums[row], value if sign > 0 else _EXACT.minus(value))
        sums = [one if count else decimal.Decimal(0) for one, count in zip(sums, counts.tolist(), strict=True)]
        self._state().write(slots, self._sum, pa.array(sums, self._kind))

    def results(self, slots: Int64s, keys: list[pa.Array]) -> pa.Array:
        """See `Accumulator`."""
        function, kind = self._call.function, self._call.type
        counts = self._state().rows.numbers(slots, self._count)
        if function == "count":
            return pa.array(counts).cast(kind)
        if pa.types.is_decimal(self._kind):
            return self._decimal_results(slots, counts)
        sums = self._held(slots, self._sum)
        empty = np.zeros(len(slots), np.bool_) if function == "sum0" else counts == 0
        if function in ("sum", "sum0"):
            return _as_type(sums, empty, kind)
        if function == "avg":
            return self._averages(sums, counts, kind)
        return self._deviations(sums.astype(np.float64), self._held(slots, self._squares), counts)

    def _averages(self, sums: npt.NDArray[Any], counts: Int64s, kind: pa.DataType) -> pa.Array:
        some = np.maximum(counts, 1)
        if pa.types.is_integer(kind):
            # Towards zero, as SQL divides integers.
            quotients = np.sign(sums) * (np.abs(sums) // some)
        elif pa.types.is_decimal(kind):
            return self._quotients([decimal.Decimal(int(one)) for one in sums], counts)
        else:
            quotients = sums / some
        return _as_type(quotients, counts == 0, kind)

    def _deviations(self, sums: Floats, squares: Floats, counts: Int64s) -> pa.Array:
        function = self._call.function
        sample = function.endswith("samp")
        divisors = counts - 1 if sample else counts
        with np.errstate(invalid="ignore", divide="ignore"):
            variances = np.maximum((squares - sums * sums / counts) / divisors, 0.0)
        results = np.sqrt(variances) if function.startswith("stddev") else variances
        return _as_type(results, divisors <= 0, self._call.type)

    def _decimal_results(self, slots: Int64s, counts: Int64s) -> pa.Array:
        sums = self._state().rows.columns(slots, [self._sum])[0].to_pylist()
        kind = self._call.type
        if self._call.function == "avg":
            return self._quotients(sums, counts)
        if self._call.function in ("sum", "sum0"):
            blank = decimal.Decimal(0) if self._call.function == "sum0" else None
            held = [one if count else blank for one, count in zip(sums, counts.tolist(), strict=True)]
            return pa.array(held, self._kind).cast(kind)
        raise AssertionError("deviations are of floating numbers")

    def _quotients(self, sums: list[decimal.Decimal], counts: Int64s) -> pa.Array:
        kind = self._call.type
        quotients = [
            _EXACT.divide(one, decimal.Decimal(count)) if count else None
            for one, count in zip(sums, counts.tolist(), strict=True)
        ]
        if not pa.types.is_decimal(kind):
            return pa.array([None if one is None else float(one) for one in quotients]).cast(kind)
        unit = decimal.Decimal(1).scaleb(-kind.scale)
        rounded = [None if one is None else one.quantize(unit, context=_EXACT) for one in quotients]
        return pa.array(rounded, kind)


def _sum_type(kind: pa.DataType | None, function: str) -> pa.DataType | None:
    """The type in which sums are kept."""
    if function == "count" or kind is None:
        return None
    if function.startswith(("var", "stddev")) or pa.types.is_floating(kind):
        return pa.float64()
    return pa.decimal256(_WIDE_DIGITS, kind.scale) if pa.types.is_decimal(kind) else pa.int64()


def _numbers(column: pa.Array, kind: pa.DataType) -> npt.NDArray[Any]:
    numbers: npt.NDArray[Any] = column.cast(kind, safe=False).to_numpy()
    return numbers


def _as_type(numbers: npt.NDArray[Any], nulls: npt.NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    plain = numbers if pa.types.is_decimal(kind) else numbers.astype(numpy_type(kind), copy=False)
    return pa.array(plain, mask=nulls if nulls.any() else None).cast(kind)
