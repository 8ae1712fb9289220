"""The operators of the broadcast state pattern: a stream, with keys or without, meets a broadcast stream of rules.

The stream API makes their spec; input 0 is the stream, input 1 the broadcast stream, whose rows every subtask gets.
Each subtask holds its own copy of the broadcast state, and a restore gives every new subtask the copy of an old one.

Source: Flink's documentation, "The Broadcast State Pattern".
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.elements import Batch
from penstock.engine.functions import BroadcastProcessFunction, KeyedBroadcastProcessFunction
from penstock.engine.operators.base import Collector, Operator, OperatorContext, SchemaOrUnknown
from penstock.engine.operators.functions.element_context import (
    BroadcastMaps,
    ElementContext,
    ReadingContext,
    WritingContext,
)
from penstock.engine.operators.functions.function_operator import FunctionOperator, rows_and_keys
from penstock.engine.operators.functions.user_functions import check_function, refuse_keyed
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits
from penstock.engine.state.descriptors import MapStateDescriptor
from penstock.engine.state.operator_state import ReadOnlyMapState
from penstock.engine.texts import function_name

_METHODS = ("process_element", "process_broadcast_element")


@dataclass(frozen=True, slots=True)
class BroadcastProcessSpec(OperatorSpec):
    """Creates the operator that calls a function with the rows of a stream and of a broadcast stream.

    Args:
        function: the function, of which each subtask has a copy, or its class.
        descriptors: of the broadcast states.
        keys: the key columns of the stream; empty where it has no keys.
        schema: the declared columns of its result, or None to infer them.
        timed: whether the stream has event timestamps.

    Raises:
        GraphError: `function` is no `KeyedBroadcastProcessFunction` where there are keys, or no
            `BroadcastProcessFunction` (or one with keys) where there are none; or it lacks a method.

    Example:
        `BroadcastProcessSpec(Alert(), (RULES,), ("user",))`
    """

    function: BroadcastProcessFunction | type[BroadcastProcessFunction]
    descriptors: tuple[MapStateDescriptor, ...]
    keys: tuple[str, ...] = ()
    schema: SchemaOrUnknown = None
    timed: bool = False

    def __post_init__(self) -> None:
        if self.keys:
            remedy = "a stream with keys and a broadcast stream take a KeyedBroadcastProcessFunction"
            check_function("process", self.function, KeyedBroadcastProcessFunction, _METHODS, remedy)
            return
        remedy = "a stream and a broadcast stream take a BroadcastProcessFunction"
        check_function("process", self.function, BroadcastProcessFunction, _METHODS, remedy)
        refuse_keyed("process", self.function, KeyedBroadcastProcessFunction)

    def create(self) -> Operator:
        return BroadcastProcessOperator(self)

    def describe(self) -> str:
        return f"process({function_name(self.function)})"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(keys=(self.keys,) if self.keys else ())


class BroadcastProcessOperator(FunctionOperator):
    """Calls `process_element` or `process_broadcast_element` with each row."""

    def __init__(self, plan: BroadcastProcessSpec) -> None:
        super().__init__(plan.function, plan.keys, plan.schema, plan.timed)
        self._descriptors = plan.descriptors

    def _create_element(self, context: OperatorContext) -> ElementContext:
        maps = {d.name: self._runtime.get_broadcast_state(d) for d in self._descriptors}
        element = ReadingContext(context, self._given, self._services, self._sides, self._event_time)
        element.broadcast_maps = BroadcastMaps(
            context.where, {name: ReadOnlyMapState(state, name, context.where) for name, state in maps.items()}
        )
        self._writing = WritingContext(context, self._given, self._services, self._sides, self._event_time)
        self._writing.broadcast_maps = BroadcastMaps(context.where, maps)
        self._writing.keyed_states = self._runtime.keyed_states
        return element

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        names = () if input_index else self._keys
        rows, keys = rows_and_keys(batch.data, names, self._context.where)
        if input_index:
            self._process_rows(self._function.process_broadcast_element, self._writing, batch, None, rows, out)
            return
        if names:
            self._bind(0, batch.data.schema, names)
        self._process_rows(self._function.process_element, self._element, batch, keys, rows, out)
