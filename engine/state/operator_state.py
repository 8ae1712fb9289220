"""State of a subtask without keys: lists that are dealt out or given to all after a rescale, and broadcast maps.

Operators own one `OperatorState`; broadcast functions keep their rules in its maps. It lives on the heap with every
backend, and is saved and shared out as the kind of each state says.

Source: Flink's documentation, "Working with State" (operator state) and "The Broadcast State Pattern".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

import pyarrow as pa

from penstock.engine.errors import RestoreError, StateError
from penstock.engine.state.backend import ListState, MapState
from penstock.engine.state.capture import CaptureScope, TableCapture, complete_table
from penstock.engine.state.changes import CapturedRows
from penstock.engine.state.cursor import Cursor
from penstock.engine.state.declared import Declared, Kept
from penstock.engine.state.descriptors import KeyedDescriptor, ListStateDescriptor, MapStateDescriptor
from penstock.engine.state.heap import HeapListState, HeapMapState
from penstock.engine.state.schema_evolution import evolve
from penstock.engine.state.snapshot import EMPTY_SNAPSHOT, Redistribution, StateTable
from penstock.engine.state.state_tables import MAP_KEY, VALUE, StateRows, ValueCodec, decoded

_S = TypeVar("_S", bound=Kept)


class OperatorState:
    """The states of one operator in one subtask that belong to no key.

    Args:
        where: operator and subtask, for messages.
        restored: what a snapshot held of states by name; each is loaded where it is declared. Those that are not
            declared are carried over unchanged from snapshot to snapshot (those that every subtask has, in subtask 0).
        subtask: index of the subtask.

    Example:
        `OperatorState("operator 'f', subtask 0").list_state(ListStateDescriptor("positions", "int64")).add(7)`
    """

    def __init__(
        self, where: str, restored: Mapping[str, StateTable] = EMPTY_SNAPSHOT.tables, subtask: int = 0
    ) -> None:
        self._where = where
        self._subtask = subtask
        self._declared: Declared[Kept] = Declared(where, self._load)
        self._declared.restore(
            {name: table for name, table in restored.items() if table.redistribution is not Redistribution.KEYED}
        )
        self._kinds: dict[str, Redistribution] = {}
        # There is one place only, which looks like the key of no columns.
        self._cursor = Cursor(where)
        self._cursor.at = ()

    def list_state(self, descriptor: ListStateDescriptor) -> ListState:
        """A list whose values are dealt out evenly among the subtasks after a rescale.

        Raises:
            StateError: its name was declared otherwise, also in what is restored, or it has a time to live.
        """
        return self._list(descriptor, Redistribution.SPLIT)

    def union_list_state(self, descriptor: ListStateDescriptor) -> ListState:
        """A list of which every subtask gets the values of all subtasks after a restore.

        Raises:
            StateError: its name was declared otherwise, also in what is restored, or it has a time to live.
        """
        return self._list(descriptor, Redistribution.UNION)

    def broadcast_state(self, descriptor: MapStateDescriptor) -> MapState:
        """A map that all subtasks hold alike, because each does the same to it.

        Raises:
            StateError: its name was declared otherwise, also in what is restored, or it has a time to live.
        """

        def make() -> HeapMapState:
            return HeapMapState(self._cursor, self._codec(descriptor), self._key_codec(descriptor))

        return self._declare(descriptor, Redistribution.BROADCAST, make)

    def _list(self, descriptor: ListStateDescriptor, kind: Redistribution) -> ListState:
        return self._declare(descriptor, kind, lambda: HeapListState(self._cursor, self._codec(descriptor)))

    def _declare(
        self, descriptor: ListStateDescriptor | MapStateDescriptor, kind: Redistribution, make: Callable[[], _S]
    ) -> _S:
        if descriptor.ttl is not None:
            raise StateError(
                f"{self._where}: state {descriptor.name!r} belongs to no key, and such state has no time to live; "
                "leave ttl out, and clear what is too old yourself"
            )
        if self._kinds.setdefault(descriptor.name, kind) is not kind:
            raise StateError(
                f"{self._where}: state {descriptor.name!r} is declared as {self._kinds[descriptor.name].value} state "
                f"and as {kind.value} state; give each state a name of its own"
            )

        def both() -> tuple[_S, Kept]:
            state = make()
            return state, state

        return self._declared.get(descriptor, both)

    def _codec(self, descriptor: ListStateDescriptor | MapStateDescriptor) -> ValueCodec:
        return ValueCodec(descriptor.name, descriptor.value_type, descriptor.serializer, self._where)

    def _key_codec(self, descriptor: MapStateDescriptor) -> ValueCodec:
        return ValueCodec(descriptor.name, descriptor.map_key_type, None, self._where)

    def capture(self) -> dict[str, TableCapture]:
        """All states by name, at a barrier, by reference: always all, since a restore deals it out anew.

        They have a column `value`, one row a value; maps have a column `map_key` too.
        """
        tables = {
            name: complete_table(table)
            for name, table in self._declared.undeclared.items()
            if self._subtask == 0 or table.redistribution is not Redistribution.UNION
        }
        for descriptor, kept in self._declared:
            assert isinstance(descriptor, ListStateDescriptor | MapStateDescriptor)
            tables[descriptor.name] = self._table(descriptor, kept.capture(CaptureScope.COMPLETE))
        return tables

    def _table(self, descriptor: ListStateDescriptor | MapStateDescriptor, captured: CapturedRows) -> TableCapture:
        def rows() -> pa.Table:
            of = captured.rows()
            columns, values = {}, of.values
            if isinstance(descriptor, MapStateDescriptor):
                columns[MAP_KEY] = self._key_codec(descriptor).encode(of.map_keys)
            else:
                values = [value for each in of.values for value in each]
            columns[VALUE] = self._codec(descriptor).encode(values)
            return pa.table(columns)

        if descriptor.serializer is not None:
            # The objects may be changed in place as soon as the operator continues.
            return complete_table(StateTable(self._kinds[descriptor.name], rows()))
        return TableCapture(self._kinds[descriptor.name], rows)

    def _load(self, descriptor: KeyedDescriptor, kept: Kept, table: StateTable) -> None:
        assert isinstance(descriptor, ListStateDescriptor | MapStateDescriptor)
        values = decoded(self._codec(descriptor), self._checked(descriptor, table).chunks)
        if isinstance(descriptor, ListStateDescriptor):
            kept.load(StateRows([((), None)], [values]))
        else:
            map_keys = decoded(self._key_codec(descriptor), table.data.column(MAP_KEY).chunks)
            kept.load(StateRows([((), None)] * len(values), values, map_keys))

    def _checked(self, descriptor: ListStateDescriptor | MapStateDescriptor, table: StateTable) -> pa.ChunkedArray:
        """The values of a table, in the declared type.

        Raises:
            StateError: they are of another kind of state, or of a type that cannot become the declared one.
        """
        kind, expected = self._kinds[descriptor.name], {VALUE: descriptor.value_type}
        if isinstance(descriptor, MapStateDescriptor):
            expected[MAP_KEY] = descriptor.map_key_type
        saved = {field.name: field.type for field in table.data.schema}
        unlike = (
            f"{self._where}: state {descriptor.name!r} was saved as {table.redistribution.value} state of "
            f"{_shown(saved)}, and is declared now as {kind.value} state of {_shown(expected)}; "
        )
        if table.redistribution is not kind or {**saved, VALUE: expected[VALUE]} != expected:
            raise StateError(f"{unlike}declare it as before, or give the new state another name")
        try:
            return evolve(table.data.column(VALUE), expected[VALUE])
        except RestoreError as error:
            raise StateError(f"{unlike}{error}") from error


def _shown(columns: Mapping[str, pa.DataType]) -> str:
    return f"({', '.join(f'{name}: {kind}' for name, kind in columns.items())})"


class ReadOnlyMapState(MapState):
    """A view of a broadcast map that cannot be changed.

    Args:
        state: what it shows.
        name: the state's name, for messages.
        where: operator and subtask, for messages.
    """

    def __init__(self, state: MapState, name: str, where: str) -> None:
        self._state = state
        self._place = f"{where}: state {name!r}"

    def get(self, key: Any, default: Any = None) -> Any:
        return self._state.get(key, default)

    def contains(self, key: Any) -> bool:
        return self._state.contains(key)

    def items(self) -> list[tuple[Any, Any]]:
        return self._state.items()

    def is_empty(self) -> bool:
        return self._state.is_empty()

    def put(self, key: Any, value: Any) -> None:
        self._refuse()

    def put_all(self, entries: Mapping[Any, Any]) -> None:
        self._refuse()

    def remove(self, key: Any) -> None:
        self._refuse()

    def clear(self) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise StateError(
            f"{self._place} is broadcast state, which process_element and on_timer may only read, since the subtasks "
            "would come to differ; change it in process_broadcast_element"
        )
