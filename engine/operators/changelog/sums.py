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

from penstock.engine.operators.changelog.calls import AggregateCall
from penstock.engine.operators.changelog.finishing import EXACT, finished, sum_type
from penstock.engine.operators.changelog.grouped_rows import GroupedRows, Values
from penstock.engine.operators.changelog.row_states import RowState

Int64s = npt.NDArray[np.int64]

_ZERO: Final = decimal.Decimal(0)


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
        prefix: what the names of its columns begin with, which tells them apart from others.
        state: of the groups.
        kind: the argument's type; None where rows are counted.
        values: which values come and go in a batch.
    """

    def __init__(
        self,
        call: AggregateCall,
        prefix: str,
        kind: pa.DataType | None,
        state: Callable[[], RowState],
        values: Callable[[GroupedRows], Values],
    ) -> None:
        self._call = call
        self._count, self._sum, self._squares = (prefix + part for part in ("count", "sum", "squares"))
        self._state = state
        self._values = values
        self._kind = sum_type(kind, call.function)

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
        numbers = values.array.cast(self._kind, safe=False).to_numpy()
        self._add(slots, self._sum, values, numbers, counts)
        if self._squares in self._state().layout.values.names:
            self._add(slots, self._squares, values, numbers * numbers, counts)

    def _add(self, slots: Int64s, name: str, values: Values, numbers: npt.NDArray[Any], counts: Int64s) -> None:
        sums = self._held(slots, name)
        with np.errstate(over="ignore", invalid="ignore"):
            np.add.at(sums, values.of, numbers * values.signs)
        # The sum of no rows is zero, whatever rounding has left.
        sums[counts == 0] = 0
        self._state().write(slots, name, pa.array(sums))

    def _held(self, slots: Int64s, name: str) -> npt.NDArray[Any]:
        column = self._state().rows.columns(slots, [name])[0]
        if pa.types.is_decimal(column.type):
            return np.array([_ZERO if one is None else one for one in column.to_pylist()], np.object_)
        return np.array((column.fill_null(0) if column.null_count else column).to_numpy())

    def _merge_decimals(self, values: Values, slots: Int64s, counts: Int64s) -> None:
        sums = self._held(slots, self._sum)
        for row, sign, value in zip(values.of.tolist(), values.signs.tolist(), values.array.to_pylist(), strict=True):
            sums[row] = EXACT.add(sums[row], value if sign > 0 else EXACT.minus(value))
        sums[counts == 0] = _ZERO
        self._state().write(slots, self._sum, pa.array(sums.tolist(), self._kind))

    def results(self, slots: Int64s, keys: list[pa.Array]) -> pa.Array:
        """See `Accumulator`."""
        counts = self._state().rows.numbers(slots, self._count)
        if self._kind is None:
            return finished(self._call.function, self._call.type, counts)
        squares = None
        if self._squares in self._state().layout.values.names:
            squares = self._held(slots, self._squares)
        return finished(self._call.function, self._call.type, counts, self._held(slots, self._sum), squares)
