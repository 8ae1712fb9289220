"""Reducing and aggregating state on top of the value state of any backend.

Backends make them, functions use them. They keep nothing themselves: time to live and snapshots are the value state's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.engine.errors import RecordError
from penstock.engine.state.backend import AggregatingState, ReducingState, ValueState
from penstock.engine.state.descriptors import AggregateFunction


class ReducingOverValue(ReducingState):
    """Reducing state on top of a value state of any backend.

    Args:
        value: holds the value; its default is None.
        function: of the value so far and the new one.
        place: names the state, for messages.
    """

    def __init__(self, value: ValueState, function: Callable[[Any, Any], Any], place: str) -> None:
        self._value = value
        self._function = function
        self._place = place

    def get(self) -> Any:
        return self._value.value()

    def add(self, value: Any) -> None:
        held = self._value.value()
        reduced = value if held is None else self._function(held, value)
        if reduced is None:
            raise RecordError(
                f"{self._place}: {'add(None)' if value is None else 'its function returned None'}; None stands for no "
                "value, and cannot be kept: call clear() to forget the value"
            )
        self._value.update(reduced)

    def clear(self) -> None:
        self._value.clear()


class AggregatingOverValue(AggregatingState):
    """Aggregating state on top of a value state of any backend, which holds the accumulator."""

    def __init__(self, accumulator: ValueState, function: AggregateFunction, place: str) -> None:
        self._accumulator = accumulator
        self._function = function
        self._place = place

    def get(self) -> Any:
        accumulator = self._accumulator.value()
        return None if accumulator is None else self._function.get_result(accumulator)

    def add(self, value: Any) -> None:
        accumulator = self._accumulator.value()
        if accumulator is None:
            accumulator = self._function.create_accumulator()
        added = self._function.add(value, accumulator)
        if added is None:
            raise RecordError(
                f"{self._place}: {type(self._function).__name__}.add returned None; return the accumulator"
            )
        self._accumulator.update(added)

    def clear(self) -> None:
        self._accumulator.clear()
