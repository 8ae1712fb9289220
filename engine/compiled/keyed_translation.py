"""Translates the `process_element` and `on_timer` of a keyed function into functions of columns and of states by key.

`operators/functions/compiled_process.py` calls it: when the graph is built, and once more in each subtask. Which states
there are, and what the object holds, is what `open` makes of a copy.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.engine.compiled.collected import KEY_KINDS
from penstock.engine.compiled.emitting import STATE_KINDS, EmittingTranslation, EmittingTranslator
from penstock.engine.compiled.sources import outer_names, source_of
from penstock.engine.errors import GraphError
from penstock.engine.functions import KeyedProcessFunction
from penstock.engine.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from penstock.engine.texts import function_name


@dataclass(frozen=True, slots=True)
class KeyedMethods:
    """Translates the methods of one keyed function.

    Args:
        function: the function, or its class.
        keys: the key columns.
        timed: whether the stream has event timestamps.

    Example:
        `KeyedMethods(Count, ("user",), False).process_element(schema)`
    """

    function: KeyedProcessFunction | type[KeyedProcessFunction]
    keys: tuple[str, ...]
    timed: bool

    @property
    def has_timers(self) -> bool:
        """Whether there is an `on_timer`."""
        return self._kind.on_timer is not KeyedProcessFunction.on_timer

    @property
    def _kind(self) -> type[KeyedProcessFunction]:
        return self.function if isinstance(self.function, type) else type(self.function)

    def process_element(self, schema: pa.Schema) -> EmittingTranslation:
        """The method in terms of the columns of a batch.

        Raises:
            GraphError: it does what compiled functions cannot; names the line, the reason and the remedy.
        """
        if self._kind.process_element is KeyedProcessFunction.process_element:
            raise GraphError(f"compiled: {function_name(self.function)} implements no process_element")
        return self._translated(self._kind.process_element, schema)

    def on_timer(self, key_schema: pa.Schema) -> EmittingTranslation:
        """The method in terms of the keys of timers.

        Raises:
            GraphError: as for `process_element`.
        """
        return self._translated(self._kind.on_timer, key_schema)

    def _translated(self, method: Callable[..., Any], schema: pa.Schema) -> EmittingTranslation:
        tree, place, lines_before = source_of(method, 3)
        this, given, context = (argument.arg for argument in tree.args.args)
        row, time = ("", given) if method is self._kind.on_timer else (given, "")
        translator = EmittingTranslator(
            schema,
            row,
            outer_names(method),
            place,
            lines_before,
            this=this,
            context=context,
            time=time,
            timed=self.timed,
            keys=self.keys,
            attributes=opened(self.function, _Descriptors()),
            handles_timers=self.has_timers,
        )
        return translator.emitting(tree)


def opened(function: Any, context: object) -> Mapping[str, Any]:
    """The attributes of a function, or of an object of its class, behind `open`.

    Args:
        function: with an `open`.
        context: stands for its argument, and may raise `NotCompiledError`.

    Raises:
        GraphError: `open` cannot be run, or asks for what compiled functions do not have.
    """
    name = function_name(function)
    try:
        made = function() if isinstance(function, type) else copy.deepcopy(function)
        made.open(context)
    except NotCompiledError as error:
        raise GraphError(f"compiled: {name}: {error}") from None
    except Exception as error:
        raise GraphError(
            f"compiled: {name}: open() could not be run to see which states there are ({type(error).__name__}: "
            f"{error}); let it declare states only, or drop @compiled"
        ) from error
    attributes: Mapping[str, Any] = vars(made)
    return attributes


class NotCompiledError(Exception):
    """`open` asks for what compiled functions do not have; the text says what, and the remedy."""


class _Descriptors:
    """Stands for the runtime context of `open`: a state is its descriptor."""

    def get_state(self, descriptor: ValueStateDescriptor) -> ValueStateDescriptor:
        self._check(descriptor)
        return descriptor

    def get_list_state(self, descriptor: ListStateDescriptor) -> ListStateDescriptor:
        self._check(descriptor)
        return descriptor

    def get_map_state(self, descriptor: MapStateDescriptor) -> MapStateDescriptor:
        self._check(descriptor)
        if descriptor.map_key_type not in KEY_KINDS:
            raise NotCompiledError(
                f"state {descriptor.name!r} has keys of {descriptor.map_key_type}; declare string, int64 or bool, or "
                "drop @compiled"
            )
        return descriptor

    def _check(self, descriptor: ValueStateDescriptor | ListStateDescriptor | MapStateDescriptor) -> None:
        remedy = "declare int64, float64, bool or string without a time to live, or drop @compiled"
        if descriptor.type is None or descriptor.value_type not in STATE_KINDS:
            raise NotCompiledError(f"state {descriptor.name!r} holds neither a number nor a text; {remedy}")
        if descriptor.ttl is not None:
            raise NotCompiledError(f"state {descriptor.name!r} has a time to live; {remedy}")

    def __getattr__(self, name: str) -> Any:
        raise NotCompiledError(
            f"open() uses {name}; compiled functions have value, list and map states only, so drop @compiled"
        )
