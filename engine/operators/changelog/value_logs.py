"""Values by group in order of arrival: what first and last values, arrays and lists of texts stand on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.operators.changelog.calls import AggregateCall
from penstock.engine.operators.changelog.column_names import free_name
from penstock.engine.operators.changelog.grouped_rows import GroupedRows, Values
from penstock.engine.operators.changelog.keyed_rows import RowsLayout
from penstock.engine.operators.changelog.row_states import NUMBER, RowState
from penstock.engine.state.keys.identity import coded
from penstock.engine.state.keys.numbering import row_numbers

Int64s = npt.NDArray[np.int64]

_VALUE: Final = "__value"


def log_layout(name: str, keys: pa.Schema, kind: pa.DataType, ttl_ms: int | None) -> RowsLayout:
    """The form of such a state."""
    number, value = free_name(NUMBER, keys.names), free_name(_VALUE, keys.names)
    return RowsLayout(name, keys, pa.schema({number: pa.int64()}), pa.schema({value: kind}), ttl_ms, number)


class ValueLog:
    """The values of one column, of the rows that one filter passes, by group in order of arrival.

    A value that goes is the oldest that is like it, as in Flink.

    Args:
        call: one of those that share it.
        state: holds them.
    """

    def __init__(self, call: AggregateCall, state: Callable[[], RowState]) -> None:
        self._call = call
        self._state = state
        self._last: GroupedRows | None = None

    def merge(self, groups: GroupedRows) -> None:
        """Take in a batch, once however many calls ask for it."""
        if self._last is groups:
            return
        self._last = groups
        values = groups.values(self._call)
        comes, goes = values.filter(values.signs > 0), values.filter(values.signs < 0)
        numbers = self._state().take_numbers(len(comes.of))
        if len(goes.of):
            stays = self._without(groups, comes, goes)
            comes, numbers = comes.filter(stays), numbers[stays]
        keys = [key.take(pa.array(comes.of)) for key in groups.keys]
        slots, _ = self._state().add(keys, [pa.array(numbers)])
        self._state().write(slots, self._state().layout.values.names[0], comes.array)

    def _without(self, groups: GroupedRows, comes: Values, goes: Values) -> npt.NDArray[np.bool_]:
        """Forget the values that go; of those that come, the ones that stay."""
        of, values, slots = self._of_groups(groups.keys)
        every_of = np.concatenate([of, comes.of, goes.of])
        every = pa.concat_arrays([values, comes.array, goes.array])
        codes = row_numbers([pa.array(every_of), coded(every)])
        there = len(of) + len(comes.of)
        going = np.bincount(codes[there:], minlength=int(codes.max()) + 1)
        order = np.argsort(codes[:there], kind="stable")
        ordered = codes[order]
        place = np.empty(there, np.int64)
        place[order] = np.arange(there) - np.searchsorted(ordered, ordered)
        gone = place < going[codes[:there]]
        self._state().remove(slots[gone[: len(of)]])
        stays: npt.NDArray[np.bool_] = ~gone[len(of) :]
        return stays

    def _of_groups(self, keys: list[pa.Array]) -> tuple[Int64s, pa.Array, Int64s]:
        state = self._state()
        of, slots = state.rows.of_keys(keys)
        numbers = state.rows.columns(slots, state.layout.identity.names)[0].to_numpy()
        order = np.lexsort([numbers, of])
        return of[order], state.rows.columns(slots[order], state.layout.values.names)[0], slots[order]

    def of_groups(self, keys: list[pa.Array]) -> tuple[Int64s, pa.Array]:
        """All values of some groups: the number of each one's group, ascending, and the value; in order of arrival."""
        return self._of_groups(keys)[:2]


class LoggedValues:
    """First and last values of what may go, arrays, and lists of texts.

    Args:
        call: the aggregate.
        log: the values by group.
    """

    def __init__(self, call: AggregateCall, log: ValueLog) -> None:
        self._call = call
        self._log = log

    @property
    def fields(self) -> list[pa.Field]:
        """None: everything is in the log."""
        return []

    def merge(self, groups: GroupedRows) -> None:
        """See `Accumulator`."""
        self._log.merge(groups)

    def results(self, slots: Int64s, keys: list[pa.Array]) -> pa.Array:
        """See `Accumulator`."""
        of, values = self._log.of_groups(keys)
        if self._call.distinct and len(of):
            of, values = _first_of_each(of, values)
        offsets = np.searchsorted(of, np.arange(len(slots) + 1))
        some = np.diff(offsets) > 0
        match self._call.function:
            case "first_value":
                return values.take(pa.array(offsets[:-1], mask=~some)).cast(self._call.type)
            case "last_value":
                return values.take(pa.array(offsets[1:] - 1, mask=~some)).cast(self._call.type)
        lists = pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values, mask=pa.array(~some))
        if self._call.function == "listagg":
            return pc.binary_join(lists.cast(pa.list_(pa.string())), self._call.separator).cast(self._call.type)
        return lists.cast(self._call.type)


def _first_of_each(of: Int64s, values: pa.Array) -> tuple[Int64s, pa.Array]:
    codes = row_numbers([pa.array(of), coded(values)])
    _, first = np.unique(codes, return_index=True)
    first = np.sort(first)
    return of[first], values.take(pa.array(first))


class Ends:
    """The first or the last value of rows that stay.

    Args:
        call: `first_value` or `last_value`.
        prefix: what the name of its column begins with.
        kind: the argument's type.
        state: of the groups.
    """

    def __init__(self, call: AggregateCall, prefix: str, kind: pa.DataType, state: Callable[[], RowState]) -> None:
        self._call = call
        self._kind = kind
        self._name = prefix + call.function
        self._state = state

    @property
    def fields(self) -> list[pa.Field]:
        """The value itself."""
        return [pa.field(self._name, self._kind)]

    def merge(self, groups: GroupedRows) -> None:
        """See `Accumulator`."""
        came = groups.values(self._call)
        held = self._state().rows.columns(groups.slots, [self._name])[0]
        chosen = np.full(len(held), -1)
        numbers = np.arange(len(came.of))
        if self._call.function == "first_value":
            numbers = numbers[::-1]
        chosen[came.of[numbers]] = numbers
        if self._call.function == "first_value":
            chosen[held.is_valid().to_numpy(zero_copy_only=False)] = -1
        old = chosen < 0
        places = np.where(old, np.arange(len(held)), chosen + len(held))
        values = pa.concat_arrays([held, came.array]).take(pa.array(places))
        self._state().write(groups.slots, self._name, values)

    def results(self, slots: Int64s, keys: list[pa.Array]) -> pa.Array:
        """See `Accumulator`."""
        return self._state().rows.columns(slots, [self._name])[0].cast(self._call.type)
