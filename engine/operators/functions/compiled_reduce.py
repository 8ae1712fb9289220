"""The operator of `KeyedStream.reduce` with a compiled function: whole batches, with results and state of row by row.

The stream API makes its spec. State is that of `keyed_reduce.py`, so that a job may go from one to the other by a
savepoint; batches that compiled code cannot take are given to the plain function, row by row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from penstock.engine.compiled.folding import FoldTranslation, translate_reduce
from penstock.engine.compiled.folding_program import FoldProgram
from penstock.engine.compiled.functions import CompiledFunction
from penstock.engine.elements import Batch
from penstock.engine.functions import Row
from penstock.engine.operators.base import Collector, Operator, OperatorContext, SchemaOrUnknown
from penstock.engine.operators.functions.keyed_process import KeyedProcessOperator, columnar_backend, keyed_batch
from penstock.engine.operators.functions.keyed_reduce import KeyedReduceOperator, KeyedReduceSpec, RunningReduce
from penstock.engine.operators.functions.row_results import unknown_timestamp
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits
from penstock.engine.state.backend import KeyedStateBackend

FEW_ROWS: Final = 192
"""Batches of fewer rows cost less one by one (`python -m perf.compiled`)."""


@dataclass(frozen=True, slots=True)
class CompiledReduceSpec(OperatorSpec):
    """Creates the operator that reduces the rows of each key by a compiled function.

    Args:
        function: takes the row so far and the next one, and returns the new one.
        plan: of the same without compiling.

    Example:
        `CompiledReduceSpec(compiled(later), KeyedReduceSpec(later, ("user",)))`
    """

    function: CompiledFunction[Row]
    plan: KeyedReduceSpec

    def create(self) -> Operator:
        return CompiledReduceOperator(self.function, self.plan)

    def describe(self) -> str:
        return f"{self.plan.describe().removesuffix(')')}, compiled)"

    @property
    def traits(self) -> OperatorTraits:
        return self.plan.traits


def reduce_spec(
    function: CompiledFunction[Row], keys: tuple[str, ...], given: pa.Schema | None, made: SchemaOrUnknown, timed: bool
) -> OperatorSpec:
    """The spec, checked where the columns of its input are known.

    Args:
        function: of two rows.
        keys: the key columns.
        given: the columns of the input, if they are known.
        made: those of the results, if they are known.
        timed: whether the stream has event timestamps.

    Raises:
        GraphError: the function cannot be compiled; not with `fallback`.
    """
    plan = KeyedReduceSpec(function.function, keys, made, timed)

    def checked() -> OperatorSpec:
        if given is not None and made is not None:
            translate_reduce(function.function, given, made)
        return CompiledReduceSpec(function, plan)

    return function.unless_refused(checked) or plan


class CompiledReduceOperator(KeyedReduceOperator):
    """Makes the operator on whole batches once the columns are known."""

    def __init__(self, function: CompiledFunction[Row], plan: KeyedReduceSpec) -> None:
        super().__init__(plan)
        self._compiled = function

    def _made(self, schema: pa.Schema) -> KeyedProcessOperator:
        return _ReduceBatches(self._compiled, self._plan, schema)


class _ReduceBatches(KeyedProcessOperator):
    """Reduces all rows of a batch at once; `KeyedProcessOperator` is its way row by row."""

    _program: FoldProgram | None = None
    _given_schema: pa.Schema | None = None

    def __init__(self, function: CompiledFunction[Row], plan: KeyedReduceSpec, schema: pa.Schema) -> None:
        super().__init__(RunningReduce(function.function, schema), plan.keys, schema, plan.timed)
        self._compiled = function
        self._reduced_schema = schema

    def _create_backend(self, context: OperatorContext) -> KeyedStateBackend:
        return columnar_backend(context, self._keys)

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        schema = batch.data.schema
        self._bind(input_index, schema, self._keys)
        if self._given_schema != schema:
            self._given_schema = schema
            translation = self._compiled.unless_refused(lambda: self._translated(schema))
            self._program = None if translation is None else FoldProgram(translation, schema)
        made = None if self._program is None or len(batch.data) < FEW_ROWS else self._reduced(self._program, batch)
        if made is None:
            super().process_batch(batch, input_index, out)
            return
        if self._timed and batch.timestamps is None:
            raise unknown_timestamp(self._context.where)
        times, limit = batch.timestamps if self._timed else None, self._context.config.max_batch_rows
        for start in range(0, len(made), limit):
            out.collect(Batch(made.slice(start, limit), None if times is None else times.slice(start, limit)))

    def _translated(self, schema: pa.Schema) -> FoldTranslation:
        return translate_reduce(self._compiled.function, schema, self._reduced_schema)

    def _reduced(self, program: FoldProgram, batch: Batch) -> pa.RecordBatch | None:
        """The rows that come out, with the state behind them; None, and nothing has changed, where Python must run."""
        backend, state = self._keyed.backend, self._function.reduced
        given = keyed_batch(batch, self._keys)
        backend.clear_current_key()
        backend.set_current_keys(given.keys)
        try:
            folded = program.run(given.data, given.groups, state.values())
            if folded is None:
                return None
            state.update_values(folded.accumulators)
        finally:
            backend.clear_current_key()
        columns: dict[str, Any] = dict(folded.behind_rows())
        return pa.RecordBatch.from_arrays(
            [columns[name] for name in self._reduced_schema.names], schema=self._reduced_schema
        )
