"""The operator of `DataStream.process`: a `ProcessFunction` called with each row of a stream without keys.

The stream API makes its spec. Results keep the order and the timestamps of the rows that they come from.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.elements import Batch
from penstock.engine.functions import ProcessFunction
from penstock.engine.operators.base import Collector, Operator, SchemaOrUnknown
from penstock.engine.operators.functions.function_operator import FunctionOperator, rows_and_keys
from penstock.engine.operators.functions.user_functions import check_function
from penstock.engine.operators.spec import OperatorSpec
from penstock.engine.texts import function_name


@dataclass(frozen=True, slots=True)
class ProcessSpec(OperatorSpec):
    """Creates the operator that calls a `ProcessFunction`.

    Args:
        function: the function, of which each subtask has a copy, or its class.
        schema: the declared columns of its result, or None to infer them.
        timed: whether the stream has event timestamps.

    Raises:
        GraphError: `function` is no such function, or does not implement `process_element`.

    Example:
        `ProcessSpec(Split(), None, timed=False)`
    """

    function: ProcessFunction | type[ProcessFunction]
    schema: SchemaOrUnknown = None
    timed: bool = False

    def __post_init__(self) -> None:
        remedy = "a KeyedProcessFunction goes behind key_by(...), a plain function into map(...) or flat_map(...)"
        check_function("process", self.function, ProcessFunction, ["process_element"], remedy)

    def create(self) -> Operator:
        return ProcessOperator(self.function, (), self.schema, self.timed)

    def describe(self) -> str:
        return f"process({function_name(self.function)})"


class ProcessOperator(FunctionOperator):
    """Calls `process_element` with each row."""

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        rows, keys = rows_and_keys(batch.data, (), self._context.where)
        self._process_rows(self._function.process_element, self._element, batch, keys, rows, out)
