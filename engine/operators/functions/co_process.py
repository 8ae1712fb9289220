"""The operators of connected streams: a function with one method for each of two inputs, with keys or without.

The stream API makes their spec. Rows of one input keep their order; there is none between the inputs. Keyed
functions see one state and one set of timers for each key, whichever input a row came on.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.elements import Batch
from penstock.engine.functions import CoProcessFunction, KeyedCoProcessFunction
from penstock.engine.operators.base import Collector, Operator, SchemaOrUnknown
from penstock.engine.operators.functions.function_operator import FunctionOperator, rows_and_keys
from penstock.engine.operators.functions.user_functions import check_function, refuse_broadcast, refuse_keyed
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits
from penstock.engine.texts import function_name

_METHODS = ("process_element1", "process_element2")


@dataclass(frozen=True, slots=True)
class CoProcessSpec(OperatorSpec):
    """Creates the operator that calls a function with the rows of two inputs.

    Args:
        function: the function, of which each subtask has a copy, or its class.
        keys: the key columns of the first and of the second input; empty where the streams have no keys.
        schema: the declared columns of its result, or None to infer them.
        timed: whether the streams have event timestamps.

    Raises:
        GraphError: `function` is no `KeyedCoProcessFunction` where there are keys, or no `CoProcessFunction` (or one
            with keys) where there are none; or it lacks a method.

    Example:
        `CoProcessSpec(Match(), (("id",), ("order_id",)))`
    """

    function: CoProcessFunction | type[CoProcessFunction]
    keys: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    schema: SchemaOrUnknown = None
    timed: bool = False

    def __post_init__(self) -> None:
        refuse_broadcast("process", self.function)
        if self.keys[0]:
            remedy = "streams with keys take a KeyedCoProcessFunction"
            check_function("process", self.function, KeyedCoProcessFunction, _METHODS, remedy)
            return
        remedy = "two streams take a function with process_element1 and process_element2"
        check_function("process", self.function, CoProcessFunction, _METHODS, remedy)
        refuse_keyed("process", self.function, KeyedCoProcessFunction)

    def create(self) -> Operator:
        return CoProcessOperator(self)

    def describe(self) -> str:
        return f"process({function_name(self.function)})"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(keys=self.keys if self.keys[0] else ())


class CoProcessOperator(FunctionOperator):
    """Calls `process_element1` or `process_element2` with each row."""

    def __init__(self, plan: CoProcessSpec) -> None:
        super().__init__(plan.function, plan.keys[0], plan.schema, plan.timed)
        self._input_keys = plan.keys

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        names = self._input_keys[input_index]
        rows, keys = rows_and_keys(batch.data, names, self._context.where)
        if names:
            self._bind(input_index, batch.data.schema, names)
        method = self._function.process_element2 if input_index else self._function.process_element1
        self._process_rows(method, self._element, batch, keys, rows, out)
