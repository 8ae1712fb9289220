"""The state of window functions: that of a key and window, and that of a key, side by side.

A backend has one current key and namespace, and a function holds states of both kinds at once; so each state goes to
its own place before each use. The window operator makes the stores, and moves the place that they follow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from penstock.engine.errors import ConfigurationError, StateError, nearest
from penstock.engine.metric_types import MetricGroup
from penstock.engine.operators.base import OperatorContext
from penstock.engine.state.backend import (
    AggregatingState,
    KeyedStateBackend,
    ListState,
    MapState,
    ReducingState,
    ValueState,
)
from penstock.engine.state.descriptors import (
    AggregatingStateDescriptor,
    KeyedDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)

GoThere = Callable[[], None]
"""Makes the backend read and write at a state's place."""


def _placed(kind: type) -> Callable[[Any, GoThere], Any]:
    """A class of states of one kind that go to their place before each use."""

    def place(self: Any, state: Any, go: GoThere) -> None:
        self._state, self._go = state, go

    def going(method: str) -> Callable[..., Any]:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            self._go()
            return getattr(self._state, method)(*args, **kwargs)

        return call

    methods = {method: going(method) for method in vars(kind)["__abstractmethods__"]}
    return type(f"Placed{kind.__name__}", (kind,), {**methods, **_REFUSED.get(kind, {}), "__init__": place})


def _no_values(state: ValueState) -> Any:
    raise StateError("values() is for process_batch of keyed process functions; use value() in window functions")


def _no_update_values(state: ValueState, values: Any) -> None:
    raise StateError("update_values(...) is for process_batch of keyed process functions; use update(...)")


_REFUSED: Final[Mapping[type, Mapping[str, Any]]] = {
    ValueState: {"values": _no_values, "update_values": _no_update_values}
}
_KINDS: Final = (ValueState, ListState, MapState, ReducingState, AggregatingState)
_PLACED: Final[Mapping[type, Callable[[Any, GoThere], Any]]] = {kind: _placed(kind) for kind in _KINDS}


def prefixed(descriptor: KeyedDescriptor, prefix: str) -> KeyedDescriptor:
    """The descriptor under a name that no other part of the window operator uses."""
    return replace(descriptor, name=f"{prefix}-{descriptor.name}")


def declare(backend: KeyedStateBackend, descriptor: KeyedDescriptor, where: str) -> Any:
    """The backend's state of a descriptor of any kind.

    Raises:
        ConfigurationError: it is no descriptor.
    """
    match descriptor:
        case ValueStateDescriptor():
            return backend.value_state(descriptor)
        case ListStateDescriptor():
            return backend.list_state(descriptor)
        case MapStateDescriptor():
            return backend.map_state(descriptor)
        case ReducingStateDescriptor():
            return backend.reducing_state(descriptor)
        case AggregatingStateDescriptor():
            return backend.aggregating_state(descriptor)
        case _:
            raise ConfigurationError(f"{where}: state is declared by a descriptor, not by {descriptor!r:.200}")


class PlacedStore:
    """A `KeyedStateStore` whose states follow a place.

    Args:
        backend: holds the states.
        prefix: keeps their names apart from others.
        go: moves the backend to the place.
        where: operator and subtask, for messages.
        refusal: why there can be no state, or an empty text.
    """

    def __init__(self, backend: KeyedStateBackend, prefix: str, go: GoThere, where: str, refusal: str = "") -> None:
        self._backend = backend
        self._prefix = prefix
        self._go = go
        self._where = where
        self._refusal = refusal
        self._states: dict[str, tuple[KeyedDescriptor, Any]] = {}
        self._sealed = False

    def seal(self) -> None:
        """From now on, declaring a state is an error."""
        self._sealed = True

    def clear(self) -> None:
        """Clear all states at the place."""
        for _, state in self._states.values():
            state.clear()

    def get_state(self, descriptor: ValueStateDescriptor) -> ValueState:
        found = self._get("get_state", descriptor, ValueStateDescriptor, ValueState)
        assert isinstance(found, ValueState)
        return found

    def get_list_state(self, descriptor: ListStateDescriptor) -> ListState:
        found = self._get("get_list_state", descriptor, ListStateDescriptor, ListState)
        assert isinstance(found, ListState)
        return found

    def get_map_state(self, descriptor: MapStateDescriptor) -> MapState:
        found = self._get("get_map_state", descriptor, MapStateDescriptor, MapState)
        assert isinstance(found, MapState)
        return found

    def get_reducing_state(self, descriptor: ReducingStateDescriptor) -> ReducingState:
        found = self._get("get_reducing_state", descriptor, ReducingStateDescriptor, ReducingState)
        assert isinstance(found, ReducingState)
        return found

    def get_aggregating_state(self, descriptor: AggregatingStateDescriptor) -> AggregatingState:
        found = self._get("get_aggregating_state", descriptor, AggregatingStateDescriptor, AggregatingState)
        assert isinstance(found, AggregatingState)
        return found

    def _get(self, method: str, descriptor: KeyedDescriptor, kind: type, state: type) -> Any:
        if type(descriptor) is not kind:
            raise ConfigurationError(f"{self._where}: {method} takes a {kind.__name__}, not {descriptor!r:.200}")
        name = descriptor.name
        known = self._states.get(name)
        if known is not None and known[0] == descriptor:
            return known[1]
        if self._refusal:
            raise StateError(f"{self._where}: {method}({name!r}): {self._refusal}")
        if self._sealed:
            hint = nearest(name, self._states)
            raise StateError(
                f"{self._where}: {method}({name!r}): no such state was declared{hint}; declare every state in "
                "open(self, context), by context.window_state or context.global_state"
            )
        declared = declare(self._backend, prefixed(descriptor, self._prefix), self._where)
        self._states[name] = (descriptor, _PLACED[state](declared, self._go))
        return self._states[name][1]


class WindowRuntime:
    """The `WindowRuntimeContext` of one function.

    Args:
        context: where the operator runs.
        window_state, global_state: the stores of the function.
    """

    def __init__(self, context: OperatorContext, window_state: PlacedStore, global_state: PlacedStore) -> None:
        self._context = context
        self.window_state = window_state
        self.global_state = global_state
        self.get_state = global_state.get_state
        self.get_list_state = global_state.get_list_state
        self.get_map_state = global_state.get_map_state
        self.get_reducing_state = global_state.get_reducing_state
        self.get_aggregating_state = global_state.get_aggregating_state

    def __repr__(self) -> str:
        return f"WindowRuntimeContext({self._context.where})"

    @property
    def operator(self) -> str:
        return self._context.operator

    @property
    def is_restored(self) -> bool:
        return self._context.restored is not None

    @property
    def subtask(self) -> int:
        return self._context.subtask

    @property
    def parallelism(self) -> int:
        return self._context.parallelism

    @property
    def metrics(self) -> MetricGroup:
        return self._context.metrics.group

    def cached_file(self, name: str) -> Path:
        return self._context.cached_file(name)

    def get_operator_list_state(self, descriptor: ListStateDescriptor) -> ListState:
        raise self._no_operator_state("get_operator_list_state", descriptor)

    def get_union_list_state(self, descriptor: ListStateDescriptor) -> ListState:
        raise self._no_operator_state("get_union_list_state", descriptor)

    def _no_operator_state(self, method: str, descriptor: ListStateDescriptor) -> StateError:
        return StateError(
            f"{self._context.where}: {method}({descriptor.name!r}): window functions have keyed state alone; use "
            "context.global_state, or a process function behind the windows"
        )
