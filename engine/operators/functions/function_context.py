"""The `RuntimeContext` that functions of users are given in `open`: where they run, and their state.

Made by the operators of process functions. It guarantees that a state is declared in `open` or not at all, under one
name, and that keyed state is refused, with the remedy, where there are no keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from penstock.engine.errors import ConfigurationError, StateError
from penstock.engine.metric_types import MetricGroup
from penstock.engine.operators.base import OperatorContext
from penstock.engine.operators.keyed import KeyedServices
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
from penstock.engine.state.operator_state import OperatorState

_State = TypeVar("_State")


_GETTERS: Final[Mapping[str, type]] = {
    "get_state": ValueStateDescriptor,
    "get_list_state": ListStateDescriptor,
    "get_map_state": MapStateDescriptor,
    "get_reducing_state": ReducingStateDescriptor,
    "get_aggregating_state": AggregatingStateDescriptor,
}


class FunctionRuntime:
    """The `RuntimeContext` of one function.

    Args:
        context: where the operator runs.
        services: its keyed state, or None where the stream is not keyed.
        operator_state: its state without keys.
    """

    def __init__(self, context: OperatorContext, services: KeyedServices | None, operator_state: OperatorState) -> None:
        self._context = context
        self._services = services
        self._operator_state = operator_state
        self._kinds: dict[str, str] = {}
        self._sealed = False
        self.keyed_states: dict[str, tuple[KeyedDescriptor, Any]] = {}
        """The keyed states that were declared, by name, with their descriptors."""

    def __repr__(self) -> str:
        return f"RuntimeContext({self._context.where})"

    @property
    def operator(self) -> str:
        return self._context.operator

    @property
    def subtask(self) -> int:
        return self._context.subtask

    @property
    def parallelism(self) -> int:
        return self._context.parallelism

    @property
    def is_restored(self) -> bool:
        return self._context.restored is not None

    @property
    def metrics(self) -> MetricGroup:
        return self._context.metrics.group

    def cached_file(self, name: str) -> Path:
        return self._context.cached_file(name)

    def seal(self) -> None:
        """From now on, declaring a state is an error."""
        self._sealed = True

    def get_state(self, descriptor: ValueStateDescriptor) -> ValueState:
        self._check("get_state", descriptor, ValueStateDescriptor)
        return self._keyed("get_state", descriptor, lambda backend: backend.value_state(descriptor))

    def get_list_state(self, descriptor: ListStateDescriptor) -> ListState:
        self._check("get_list_state", descriptor, ListStateDescriptor)
        return self._keyed("get_list_state", descriptor, lambda backend: backend.list_state(descriptor))

    def get_map_state(self, descriptor: MapStateDescriptor) -> MapState:
        self._check("get_map_state", descriptor, MapStateDescriptor)
        return self._keyed("get_map_state", descriptor, lambda backend: backend.map_state(descriptor))

    def get_reducing_state(self, descriptor: ReducingStateDescriptor) -> ReducingState:
        self._check("get_reducing_state", descriptor, ReducingStateDescriptor)
        return self._keyed("get_reducing_state", descriptor, lambda backend: backend.reducing_state(descriptor))

    def get_aggregating_state(self, descriptor: AggregatingStateDescriptor) -> AggregatingState:
        self._check("get_aggregating_state", descriptor, AggregatingStateDescriptor)
        return self._keyed("get_aggregating_state", descriptor, lambda backend: backend.aggregating_state(descriptor))

    def get_operator_list_state(self, descriptor: ListStateDescriptor) -> ListState:
        self._check("get_operator_list_state", descriptor, ListStateDescriptor)
        self._name_once(descriptor.name, "state of the subtask")
        return self._operator_state.list_state(descriptor)

    def get_union_list_state(self, descriptor: ListStateDescriptor) -> ListState:
        self._check("get_union_list_state", descriptor, ListStateDescriptor)
        self._name_once(descriptor.name, "state of the subtask")
        return self._operator_state.union_list_state(descriptor)

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> MapState:
        """The map that all subtasks hold alike; for the operator, not for users."""
        self._name_once(descriptor.name, "broadcast state")
        return self._operator_state.broadcast_state(descriptor)

    def _check(self, method: str, descriptor: object, kind: type) -> None:
        where = self._context.where
        if not isinstance(descriptor, kind):
            getters = [getter for getter, of in _GETTERS.items() if isinstance(descriptor, of)]
            hint = f"; {' or '.join(getters)} takes that" if getters else ""
            raise ConfigurationError(f"{where}: {method} takes a {kind.__name__}, not {descriptor!r:.200}{hint}")
        if self._sealed:
            raise StateError(
                f"{where}: {method}({descriptor.name!r}) was called after open; declare every state in "  # type: ignore[attr-defined]
                "open(self, context), and keep it: self.count = context.get_state(...)"
            )

    def _keyed(
        self, method: str, descriptor: KeyedDescriptor, declare: Callable[[KeyedStateBackend], _State]
    ) -> _State:
        if self._services is None:
            raise StateError(
                f"{self._context.where}: {method}({descriptor.name!r}) needs keyed state, and the stream has no keys; "
                "call key_by first, or use get_operator_list_state for state of the subtask"
            )
        self._name_once(descriptor.name, "keyed state")
        state = declare(self._services.backend)
        self.keyed_states[descriptor.name] = descriptor, state
        return state

    def _name_once(self, name: str, kind: str) -> None:
        """A snapshot holds states of all kinds by name."""
        other = self._kinds.setdefault(name, kind)
        if other != kind:
            raise StateError(
                f"{self._context.where}: {name!r} is the name of {other} already, not of {kind}; rename one"
            )
