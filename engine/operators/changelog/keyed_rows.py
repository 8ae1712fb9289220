"""Rows that an operator keeps by key, in memory, as columns by slot.

All state of the changelog operators has this form: for each key some rows, told apart by their identity, with values
beside them. `row_states.py` makes it, and keeps it on disk where the job's backend does. Reading and writing cost in
proportion to the rows touched.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.columns import with_numbers
from penstock.engine.operators.changelog.chains import Chains
from penstock.engine.row_numbers import first_places
from penstock.engine.state.keys.codec import grown
from penstock.engine.state.keys.identity import coded_columns, decoded, is_reversible
from penstock.engine.state.keys.index import KeyIndex, Search
from penstock.engine.state.slots import SlotColumn

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_ONLY_ROW: Final = [pa.array([0])]
"""What stands for the row of a state without key and identity."""
_SLACK: Final = 4096


@dataclass(frozen=True, slots=True)
class RowsLayout:
    """The form of one state.

    Args:
        name: of the state, unique in its operator.
        keys: the key columns; none where all rows belong together.
        identity: columns that, with the key, tell rows apart; none where a key has one row.
        values: columns beside them, whose names no other column has.
        ttl_ms: how long a row lives after it was written, in milliseconds of processing time; None: for ever.
        arrival: which of these columns (int64) puts rows in order of arrival; None: none does.
    """

    name: str
    keys: pa.Schema
    identity: pa.Schema
    values: pa.Schema
    ttl_ms: int | None = None
    arrival: str | None = None

    @property
    def schema(self) -> pa.Schema:
        """All columns."""
        return pa.schema([*self.keys, *self.identity, *self.values])


@dataclass(frozen=True, slots=True)
class _Due:
    """Rows with the times at which they were written, ascending; it is looked at when the first may be over."""

    times: Int64s
    slots: Int64s

    def __lt__(self, other: _Due) -> bool:
        return bool(self.times[0] < other.times[0])


class KeyedRows:
    """Rows by key.

    Args:
        layout: their form.

    Example:
        >>> layout = RowsLayout("bids", pa.schema({"k": pa.int64()}), pa.schema({"v": pa.string()}), pa.schema({}))
        >>> rows = KeyedRows(layout)
        >>> slots, _ = rows.add([pa.array([1, 1, 2])], [pa.array(["a", "b", "a"])], now=0)
        >>> of, slots = rows.of_keys([pa.array([2, 1])])
        >>> of.tolist(), rows.columns(slots, ["v"])[0].to_pylist()
        ([0, 1, 1], ['a', 'b', 'a'])
    """

    def __init__(self, layout: RowsLayout) -> None:
        self.layout = layout
        own = [*layout.keys, *layout.identity]
        self._own = {field.name: (place, field.type) for place, field in enumerate(own)}
        self._stored_names = [field.name for field in own if not is_reversible(field.type)]
        self._has_chains = bool(layout.keys.names and layout.identity.names)
        self.clear()

    def clear(self) -> None:
        """Hold nothing."""
        kept = [*(name for name in self._stored_names), *self.layout.values.names]
        self._index, self._groups, self._chains = KeyIndex(), KeyIndex(), Chains()
        self._columns = {name: SlotColumn(self.layout.schema.field(name).type) for name in kept}
        self._touched = np.zeros(0, np.int64)
        self._due: list[_Due] = []
        self._watched = 0

    def __len__(self) -> int:
        return len(self._index)

    @property
    def keys(self) -> int:
        """How many keys have rows."""
        return len(self._groups if self._has_chains else self._index)

    @property
    def end(self) -> int:
        """All slots are below this."""
        return self._index.end

    def slots(self) -> Int64s:
        """The slots of all rows."""
        return self._index.slots()

    def find(self, keys: Sequence[pa.Array], identity: Sequence[pa.Array] = ()) -> Int64s:
        """The slot of each row, or -1."""
        return self.search(keys, identity).slots

    def search(self, keys: Sequence[pa.Array], identity: Sequence[pa.Array] = ()) -> Search:
        """As `find`, to be followed by `enter`."""
        return self._index.search(coded_columns([*keys, *identity]) or _ONLY_ROW)

    def add(
        self, keys: Sequence[pa.Array], identity: Sequence[pa.Array] = (), *, now: int | None = None
    ) -> tuple[Int64s, Mask]:
        """The slot of each of these rows, and whether it is new; new rows have no values yet.

        Args:
            keys, identity: columns; none of either is one row, that of a global aggregate.
            now: the time (int64 ms) at which they are written; None where `set_times` is to follow.
        """
        own, before = [*keys, *identity], len(self)
        coded = coded_columns(own) or _ONLY_ROW
        slots, is_new = self._index.place(coded)
        new = np.flatnonzero(is_new)
        if len(new) > len(self) - before:
            new = new[first_places(slots[new])]
        self._admit(slots[new], new, coded[: len(keys)], own)
        if now is not None:
            self.touch(slots, now)
        return slots, is_new

    def enter(self, search: Search, chosen: Mask, own: Sequence[pa.Array], *, now: int | None = None) -> Int64s:
        """As `add`, of rows that were searched for: their slots.

        Args:
            search: of rows that all differ, since when none was added.
            chosen: which of them are added.
            own: their columns, those of the key and then those of the identity.
            now: as for `add`.
        """
        slots = self._index.enter(search, chosen)
        new = search.slots[chosen] < 0
        rows = np.flatnonzero(chosen & (search.slots < 0))
        self._admit(slots[new], rows, search.columns[: len(self.layout.keys)], own)
        if now is not None:
            self.touch(slots, now)
        return slots

    def _admit(self, slots: Int64s, rows: Int64s, coded_keys: list[pa.Array], own: Sequence[pa.Array]) -> None:
        """Hold the rows at some places of `own`, which all differ, at `slots`."""
        if not len(rows):
            return
        for name in self._stored_names:
            self.write(slots, name, _chosen(own[self._own[name][0]], rows))
        if self._has_chains:
            self._chains.add(slots, self._groups.lookup([_chosen(column, rows) for column in coded_keys]))

    def of_keys(self, keys: Sequence[pa.Array]) -> tuple[Int64s, Int64s]:
        """All rows of some keys.

        Args:
            keys: columns, whose rows differ; none for the rows of all.

        Returns:
            for each row the number of its key among `keys`, ascending, and its slot.
        """
        if not keys:
            slots = self.slots()
            return np.zeros(len(slots), np.int64), slots
        if not self._has_chains:
            found = self.find(keys)
            held = np.flatnonzero(found >= 0)
            return held, found[held]
        groups = self._groups.find(coded_columns(keys))
        held = np.flatnonzero(groups >= 0)
        of, slots = self._chains.of(groups[held])
        return held[of], slots

    def columns(self, slots: Int64s, names: Sequence[str]) -> list[pa.Array]:
        """The values of some columns at `slots`."""
        if not len(slots):
            return [pa.array([], self.layout.schema.field(name).type) for name in names]
        own = {name: self._own[name] for name in names if name not in self._columns}
        codes = self._index.keys(slots, [place for place, _ in own.values()]) if own else []
        found = {name: decoded(array, kind) for (name, (_, kind)), array in zip(own.items(), codes, strict=True)}
        return [found[name] if name in found else self._columns[name].get(slots) for name in names]

    def rows(self, slots: Int64s, schema: pa.Schema) -> pa.RecordBatch:
        """The rows at `slots` with the columns of `schema`, of this state's types."""
        if not schema.names:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(slots), pa.struct([])))
        return pa.RecordBatch.from_arrays(self.columns(slots, schema.names), schema=schema)

    def numbers(self, slots: Int64s, name: str) -> Int64s:
        """An int64 column's values at `slots`, 0 where none was written."""
        values = self._columns[name].get(slots)
        numbers: Int64s = (values.fill_null(0) if values.null_count else values).to_numpy()
        return numbers

    def write(self, slots: Int64s, name: str, values: pa.Array | Int64s) -> None:
        """Set a column of values at `slots`, each of them given once."""
        # Nested values lie there as Python's, whose times have no nanoseconds.
        self._columns[name].set(slots, with_numbers(values if isinstance(values, pa.Array) else pa.array(values)))

    def increase(self, slots: Int64s, name: str, amounts: Int64s) -> None:
        """Add to an int64 column's values at `slots`, which may repeat; where none was written, to 0."""
        self._columns[name].increase(slots, amounts)

    def touch(self, slots: Int64s, now: int) -> None:
        """The rows at `slots` are written at time `now`."""
        if self.layout.ttl_ms is not None:
            self.set_times(slots, np.full(len(slots), now))

    def set_times(self, slots: Int64s, times: Int64s) -> None:
        """The rows at `slots`, of a state with a time to live, were written at `times` (int64 ms)."""
        if not len(slots):
            return
        self._touched = grown(self._touched, self.end)
        self._touched[slots] = times
        self._watch(slots, times)
        if self._watched > 2 * len(self) + _SLACK:
            # Most of what is watched was written again meanwhile.
            self._due, self._watched = [], 0
            held = self.slots()
            self._watch(held, self._touched[held])

    def _watch(self, slots: Int64s, times: Int64s) -> None:
        order = np.argsort(times, kind="stable")
        heapq.heappush(self._due, _Due(times[order], slots[order]))
        self._watched += len(slots)

    def touched(self, slots: Int64s) -> Int64s:
        """When the rows at `slots` were last written."""
        self._touched = grown(self._touched, self.end)
        return self._touched[slots]

    def are_held(self, slots: Int64s) -> Mask:
        """Whether there is a row at each of `slots`, which were given once."""
        return self._index.holds(slots)

    def expired(self, now: int) -> Int64s:
        """The rows whose time to live is over at `now`; to be removed then."""
        if self.layout.ttl_ms is None:
            return np.empty(0, np.int64)
        over: list[Int64s] = []
        last = now - self.layout.ttl_ms
        while self._due and self._due[0].times[0] <= last:
            due = heapq.heappop(self._due)
            count = int(np.searchsorted(due.times, last, side="right"))
            slots = due.slots[:count]
            over.append(slots[self._index.holds(slots) & (self._touched[slots] == due.times[:count])])
            self._watched -= count
            if count < len(due.times):
                heapq.heappush(self._due, _Due(due.times[count:], due.slots[count:]))
        return np.unique(np.concatenate(over)) if over else np.empty(0, np.int64)

    def remove(self, slots: Int64s) -> None:
        """Forget the rows at `slots`, each of them given once."""
        if not len(slots):
            return
        if self._has_chains:
            self._groups.remove(self._chains.remove(slots))
        self._index.remove(slots)
        for column in self._columns.values():
            column.clear(slots)

    def taken(self, slots: Int64s) -> Callable[[], pa.Table]:
        """The rows at `slots` as they are now, by reference: what is called, in any thread, makes the table."""
        if not len(slots):
            nothing = self.layout.schema.empty_table()
            return lambda: nothing
        codes = self._index.take(slots)
        values = {name: column.take(slots) for name, column in self._columns.items()}
        schema, own = self.layout.schema, self._own

        def table() -> pa.Table:
            coded = codes()
            columns = [
                values[name]() if name in values else decoded(coded[own[name][0]], own[name][1])
                for name in schema.names
            ]
            return pa.table(columns, schema=schema)

        return table


def _chosen(column: pa.Array, rows: Int64s) -> pa.Array:
    """The values at `rows`, ascending: all of them where there are as many."""
    return column if len(rows) == len(column) else column.take(pa.array(rows))
