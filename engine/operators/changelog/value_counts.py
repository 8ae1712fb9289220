"""Values by group with how often each is there: what distinct aggregates, and extremes that may go, stand on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.columns import one_array
from penstock.engine.operators.changelog.calls import AggregateCall
from penstock.engine.operators.changelog.column_names import free_name
from penstock.engine.operators.changelog.grouped_rows import GroupedRows, Values
from penstock.engine.operators.changelog.keyed_rows import RowsLayout
from penstock.engine.operators.changelog.ranks import rank_codes
from penstock.engine.operators.changelog.row_states import RowState
from penstock.engine.state.keys.identity import coded
from penstock.engine.state.keys.numbering import row_numbers

Int64s = npt.NDArray[np.int64]

_VALUE: Final = "__value"
_COUNT: Final = "__count"


def counts_layout(name: str, keys: pa.Schema, kind: pa.DataType, ttl_ms: int | None) -> RowsLayout:
    """The form of such a state."""
    value, count = free_name(_VALUE, keys.names), free_name(_COUNT, keys.names)
    return RowsLayout(name, keys, pa.schema({value: kind}), pa.schema({count: pa.int64()}), ttl_ms)


class ValueCounts:
    """The values of one column, of the rows that one filter passes, by group.

    Args:
        call: one of those that share it.
        state: holds them.
    """

    def __init__(self, call: AggregateCall, state: Callable[[], RowState]) -> None:
        self._call = call
        self._state = state
        self._last: tuple[GroupedRows, Values] | None = None

    def merge(self, groups: GroupedRows) -> Values:
        """Take in a batch, once however many calls ask for it: the values that have come (1) or gone (-1) with it."""
        if self._last is None or self._last[0] is not groups:
            self._last = groups, self._merge(groups)
        return self._last[1]

    def _merge(self, groups: GroupedRows) -> Values:
        came = groups.values(self._call)
        numbers = row_numbers([pa.array(came.of), coded(came.array)]) if len(came.of) else came.of
        count = int(numbers.max(initial=-1)) + 1
        net, first = np.zeros(count, np.int64), np.zeros(count, np.int64)
        np.add.at(net, numbers, came.signs)
        first[numbers[::-1]] = np.arange(len(numbers))[::-1]
        first = first[net != 0]
        return self._add(groups, came.of[first], came.array.take(pa.array(first)), net[net != 0])

    def _add(self, groups: GroupedRows, of: Int64s, values: pa.Array, net: Int64s) -> Values:
        state, keys = self._state(), _keys(groups, of)
        search = state.rows.search(keys, [values])
        held = search.slots >= 0
        before = np.zeros(len(of), np.int64)
        before[held] = _counts(state, search.slots[held])
        # A value that is not there cannot be deleted.
        after = np.maximum(before + net, 0)
        stay = after > 0
        if stay.any():
            kept = state.enter(search, stay, [*keys, values])
            state.write(kept, state.layout.values.names[0], after[stay])
        state.remove(search.slots[~stay & held])
        changed = (before > 0) != stay
        return Values(of[changed], values.filter(pa.array(changed)), np.where(stay[changed], 1, -1))

    def of_groups(self, keys: list[pa.Array]) -> tuple[Int64s, pa.Array, Int64s]:
        """All values of some groups: the number of each one's group, ascending, the value, and its count."""
        state = self._state()
        of, slots = state.rows.of_keys(keys)
        return of, state.rows.columns(slots, state.layout.identity.names)[0], _counts(state, slots)


def _counts(state: RowState, slots: Int64s) -> Int64s:
    return state.rows.numbers(slots, state.layout.values.names[0])


def _keys(groups: GroupedRows, of: Int64s) -> list[pa.Array]:
    return [key.take(pa.array(of)) for key in groups.keys]


class Multisets:
    """The values themselves: `collect`, as a map of values and counts.

    Args:
        call: the aggregate.
        counts: the values by group.
    """

    def __init__(self, call: AggregateCall, counts: ValueCounts) -> None:
        self._call = call
        self._counts = counts

    @property
    def fields(self) -> list[pa.Field]:
        """None: everything is in the counts."""
        return []

    def merge(self, groups: GroupedRows) -> None:
        """See `Accumulator`."""
        self._counts.merge(groups)

    def results(self, slots: Int64s, keys: list[pa.Array]) -> pa.Array:
        """See `Accumulator`."""
        of, values, counts = self._counts.of_groups(keys)
        order = np.lexsort([rank_codes(values), of])
        if self._call.distinct:
            counts = np.ones_like(counts)
        offsets = np.searchsorted(of[order], np.arange(len(slots) + 1)).astype(np.int32)
        kind = self._call.type
        return pa.MapArray.from_arrays(
            pa.array(offsets),
            values.take(pa.array(order)).cast(kind.key_type),
            pa.array(counts[order]).cast(kind.item_type),
        ).cast(kind)


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Values that may be extremes of their groups."""

    of: list[Int64s]
    values: list[pa.Array]


class Extremes:
    """The least or the largest value.

    Args:
        call: `min` or `max`.
        prefix: what the name of its column begins with.
        state: of the groups.
        counts: the values by group; None where nothing goes.
    """

    def __init__(
        self,
        call: AggregateCall,
        prefix: str,
        kind: pa.DataType,
        state: Callable[[], RowState],
        counts: ValueCounts | None,
    ) -> None:
        self._call = call
        self._kind = kind
        self._name = prefix + call.function
        self._state = state
        self._counts = counts

    @property
    def fields(self) -> list[pa.Field]:
        """The extreme itself."""
        return [pa.field(self._name, self._kind)]

    def merge(self, groups: GroupedRows) -> None:
        """See `Accumulator`."""
        state, slots = self._state(), groups.slots
        held = state.rows.columns(slots, [self._name])[0]
        came = groups.values(self._call) if self._counts is None else self._counts.merge(groups)
        lost = np.zeros(len(slots), np.bool_)
        if (came.signs < 0).any():
            lost = self._lost(held, came.filter(came.signs < 0))
            came = came.filter((came.signs > 0) & ~lost[came.of])
        candidates = _Candidates([np.flatnonzero(~lost), came.of], [held.filter(pa.array(~lost)), came.array])
        if lost.any():
            assert self._counts is not None
            of, values, _ = self._counts.of_groups([key.filter(pa.array(lost)) for key in groups.keys])
            candidates.of.append(np.flatnonzero(lost)[of])
            candidates.values.append(values)
        state.write(slots, self._name, self._best(candidates, len(slots)))

    def _lost(self, held: pa.Array, gone: Values) -> npt.NDArray[np.bool_]:
        """The groups whose extreme is among the values that have gone."""
        were = coded(held.take(pa.array(gone.of)))
        equal = pc.equal(were, coded(gone.array)).fill_null(False).to_numpy(zero_copy_only=False)
        lost = np.zeros(len(held), np.bool_)
        lost[gone.of[equal]] = True
        return lost

    def _best(self, candidates: _Candidates, groups: int) -> pa.Array:
        values = pa.concat_arrays(candidates.values)
        if pa.types.is_integer(self._kind):
            return self._best_number(np.concatenate(candidates.of), values, groups)
        if pa.types.is_duration(self._kind):
            # Arrow finds no extremes of durations.
            values = values.view(pa.int64())
        table = pa.table({"g": np.concatenate(candidates.of), "v": values})
        best = table.group_by("g", use_threads=False).aggregate([("v", self._call.function)])
        places = np.zeros(groups, np.int64)
        places[best.column("g").to_numpy()] = np.arange(len(best))
        found = np.zeros(groups, np.bool_)
        found[best.column("g").to_numpy()] = True
        extremes = one_array(best.column(f"v_{self._call.function}")).take(pa.array(places, mask=~found))
        return extremes.view(self._kind) if pa.types.is_duration(self._kind) else extremes

    def _best_number(self, of: Int64s, values: pa.Array, groups: int) -> pa.Array:
        if values.null_count:
            valid = values.is_valid()
            of, values = of[valid.to_numpy(zero_copy_only=False)], values.filter(valid)
        numbers = values.to_numpy()
        limits, is_least = np.iinfo(numbers.dtype), self._call.function == "min"
        best = np.full(groups, limits.max if is_least else limits.min, numbers.dtype)
        (np.minimum if is_least else np.maximum).at(best, of, numbers)
        found = np.zeros(groups, np.bool_)
        found[of] = True
        return pa.array(best, self._kind, mask=~found)

    def results(self, slots: Int64s, keys: list[pa.Array]) -> pa.Array:
        """See `Accumulator`."""
        return self._state().rows.columns(slots, [self._name])[0].cast(self._call.type)
