"""The states that one operator has declared, by name, what its backend needs of each, and what nobody has declared yet.

Backends and operator state keep one such list each; a name stands for one state only. Restored state that no program
declares is not lost: it resumes from snapshot to snapshot, until a program declares it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar, cast

import pyarrow as pa

from penstock.engine.errors import StateError
from penstock.engine.state.capture import DELETED, CaptureScope, TableCapture, complete_table
from penstock.engine.state.changes import CapturedRows
from penstock.engine.state.cursor import Place
from penstock.engine.state.descriptors import (
    AggregatingStateDescriptor,
    KeyedDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.engine.state.snapshot import StateTable
from penstock.engine.state.state_tables import StateRows

_S = TypeVar("_S")
_K = TypeVar("_K")


class Kept(Protocol):
    """What a backend needs of a state beside what users do."""

    def count(self) -> int:
        """At how many places it holds something, known at once. May be called from another thread."""
        ...

    def places(self) -> list[Place]:
        """Where it holds something."""
        ...

    def capture(self, scope: CaptureScope) -> CapturedRows:
        """What it holds, or what of it has changed; later changes do not show in it."""
        ...

    def at(self, places: Sequence[Place]) -> CapturedRows:
        """What it holds at these places, with what may have expired; nothing changes by it."""
        ...

    def load(self, rows: StateRows) -> None:
        """Hold `rows`; there is nothing else yet."""
        ...

    def track(self) -> None:
        """What there is now has not changed. Called before `load` where a capture may give changes of what it loads."""
        ...


class Declared(Generic[_K]):
    """The states of one backend by name, so that each is declared in one way only; what it keeps of each is its own.

    Args:
        where: operator and subtask, for messages.
        load: gives a state the table that was restored for it.

    Attributes:
        undeclared: the restored tables of states that have not been declared.
    """

    def __init__(self, where: str, load: Callable[[KeyedDescriptor, _K, StateTable], None]) -> None:
        self._where = where
        self._load = load
        self._states: dict[str, tuple[KeyedDescriptor, object, _K]] = {}
        self.undeclared: dict[str, StateTable] = {}

    def get(self, descriptor: KeyedDescriptor, make: Callable[[], tuple[_S, _K]]) -> _S:
        """The state of `descriptor`, made if it is new, with what was restored for it.

        Raises:
            StateError: its name was declared otherwise, also in what was restored.
        """
        known = self._states.get(descriptor.name)
        if known is None:
            state, kept = make()
            if descriptor.name in self.undeclared:
                self._load(descriptor, kept, self.undeclared[descriptor.name])
                del self.undeclared[descriptor.name]
            self._states[descriptor.name] = (descriptor, state, kept)
            return state
        if not same_descriptor(known[0], descriptor):
            raise StateError(
                f"{self._where}: state {descriptor.name!r} is declared twice, as {known[0]} and as {descriptor}; give "
                "each state a name of its own"
            )
        return cast(_S, known[1])

    def kept(self, name: str) -> _K:
        """The state of a name.

        Raises:
            StateError: no such state.
        """
        if name not in self._states:
            raise StateError(
                f"{self._where}: no state {name!r} is declared; there are {', '.join(self._states) or 'none'}"
            )
        return self._states[name][2]

    def find(self, name: str) -> tuple[KeyedDescriptor, _K] | None:
        """The descriptor and the state of a name; None: none was declared."""
        known = self._states.get(name)
        return None if known is None else (known[0], known[2])

    def restore(self, tables: Mapping[str, StateTable]) -> None:
        """Give each state its table, and keep the others until their states are declared.

        Raises:
            StateError: a table does not fit its state.
        """
        for name, table in tables.items():
            if name in self._states:
                descriptor, _, kept = self._states[name]
                self._load(descriptor, kept, table)
            else:
                self.undeclared[name] = table

    def capture_undeclared(self, scope: CaptureScope, identity: Sequence[str]) -> dict[str, TableCapture]:
        """What is carried over unchanged from one snapshot to the next: nothing of it, where changes are asked for.

        Args:
            scope: how much.
            identity: names of the columns that tell rows apart, where a table has them.
        """
        return {name: _unchanged(table, scope, identity) for name, table in self.undeclared.items()}

    def __iter__(self) -> Iterator[tuple[KeyedDescriptor, _K]]:
        return ((descriptor, kept) for descriptor, _, kept in self._states.values())

    def forget(self) -> None:
        """Drop all states and what they hold."""
        self._states.clear()
        self.undeclared.clear()


def _unchanged(table: StateTable, scope: CaptureScope, identity: Sequence[str]) -> TableCapture:
    if not scope.takes_changes:
        return complete_table(table)
    none = table.data.slice(0, 0).append_column(DELETED, pa.array([], pa.bool_()))
    own = tuple(name for name in identity if name in table.data.column_names)
    return TableCapture(table.redistribution, lambda: none, own, is_changes=True)


def same_descriptor(one: KeyedDescriptor, other: KeyedDescriptor) -> bool:
    """Whether two descriptors declare the same state; two serializers of one class are alike."""
    return _essence(one) == _essence(other)


class _Default:
    """A default that equals another of a like state: NumPy's arrays, and others, do not say so plainly."""

    def __init__(self, descriptor: ValueStateDescriptor) -> None:
        self._default = descriptor.default
        self._serializer = descriptor.serializer

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Default):
            return NotImplemented
        if self._serializer is None or self._default is None or other._default is None:
            # They are in the form of their type. Written out, NaN is NaN, and 1 is not True.
            return repr(self._default) == repr(other._default)
        try:
            return bool(self._default == other._default)
        except (ValueError, TypeError):
            return self._serializer.dumps(self._default) == self._serializer.dumps(other._default)

    __hash__ = None  # type: ignore[assignment]


def _essence(descriptor: KeyedDescriptor) -> tuple[Any, ...]:
    more: Any = None
    match descriptor:
        case ValueStateDescriptor():
            more = _Default(descriptor)
        case MapStateDescriptor():
            more = descriptor.map_key_type
        case ReducingStateDescriptor() | AggregatingStateDescriptor():
            more = descriptor.function
    return type(descriptor), descriptor.value_type, descriptor.ttl, type(descriptor.serializer), more
