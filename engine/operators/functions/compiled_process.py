"""The operator of compiled `KeyedProcessFunction`s: whole batches, with the results and the state of row by row.

`KeyedStream.process` makes its spec. State is what `keyed_process.py` keeps, so that a job may go from one to the other
by a savepoint; batches that compiled code cannot take are given to the plain function, row by row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.compiled.keyed_program import KeyedProgram
from penstock.engine.compiled.keyed_translation import KeyedTranslation, translate_keyed
from penstock.engine.compiled.kinds import check_declared
from penstock.engine.compiled.program import as_declared
from penstock.engine.elements import Batch
from penstock.engine.errors import GraphError
from penstock.engine.functions import KeyedBatch, KeyedProcessFunction
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.operators.functions.keyed_process import KeyedProcessOperator, columnar_backend, keyed_batch
from penstock.engine.operators.functions.row_results import unknown_timestamp
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits
from penstock.engine.state.backend import KeyedStateBackend
from penstock.engine.texts import function_name


@dataclass(frozen=True, slots=True)
class CompiledProcessSpec(OperatorSpec):
    """Creates the operator of a compiled `KeyedProcessFunction`.

    Args:
        function: the function, of which each subtask has a copy, or its class.
        keys: the key columns.
        schema: the declared columns of its result.
        timed: whether the stream has event timestamps.

    Example:
        `CompiledProcessSpec(Count, ("user",), pa.schema([("n", pa.int64())]))`
    """

    function: KeyedProcessFunction | type[KeyedProcessFunction]
    keys: tuple[str, ...]
    schema: pa.Schema
    timed: bool = False

    def create(self) -> Operator:
        return CompiledProcessOperator(self.function, self.keys, self.schema, self.timed)

    def describe(self) -> str:
        return f"process({function_name(self.function)}, compiled)"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(keys=(self.keys,))


def process_spec(
    function: KeyedProcessFunction | type[KeyedProcessFunction],
    keys: tuple[str, ...],
    given: pa.Schema | None,
    made: pa.Schema | None,
    timed: bool,
) -> CompiledProcessSpec:
    """The spec, checked where the columns of its input are known.

    Raises:
        GraphError: `made` is not declared, or the function cannot be compiled to give it.
    """
    if made is None:
        raise GraphError(f"compiled: process({function_name(function)}) needs `returns`: declare its columns")
    if given is not None:
        _translated(function, given, keys, made)
    return CompiledProcessSpec(function, keys, made, timed)


def _translated(
    function: KeyedProcessFunction | type[KeyedProcessFunction],
    given: pa.Schema,
    keys: tuple[str, ...],
    made: pa.Schema,
) -> KeyedTranslation:
    translation = translate_keyed(function, given, keys)
    check_declared(function_name(function), translation.results, given, made)
    return translation


class CompiledProcessOperator(KeyedProcessOperator):
    """Runs `process_element` for all rows of a batch at once; `KeyedProcessOperator` is its way row by row."""

    _schema: pa.Schema
    _given_schema: pa.Schema | None = None

    def _create_backend(self, context: OperatorContext) -> KeyedStateBackend:
        return columnar_backend(context, self._keys)

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        self._bind(input_index, batch.data.schema, self._keys)
        if self._given_schema != batch.data.schema:
            self._given_schema = batch.data.schema
            self._translation = _translated(self._given, batch.data.schema, self._keys, self._schema)
            self._program = KeyedProgram(self._translation, batch.data.schema)
        data = self._processed(keyed_batch(batch, self._keys))
        if data is None:
            super().process_batch(batch, input_index, out)
            return
        results, origin = data
        if not len(results):
            return
        if self._timed and batch.timestamps is None:
            raise unknown_timestamp(self._context.where)
        times = batch.timestamps.take(pa.array(origin)) if self._timed and batch.timestamps is not None else None
        limit = self._context.config.max_batch_rows
        for start in range(0, len(results), limit):
            out.collect(Batch(results.slice(start, limit), None if times is None else times.slice(start, limit)))

    def _processed(self, given: KeyedBatch) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]] | None:
        """The results and the rows that they come from, once the states are updated; None if nothing was done."""
        backend = self._keyed.backend
        backend.clear_current_key()
        backend.set_current_keys(given.keys)
        try:
            handles = [getattr(self._function, name) for name in self._translation.states]
            values = [np.array(handle.values().to_numpy(zero_copy_only=False)) for handle in handles]
            processed = self._program.run(given.data, given.groups, values)
            results = None if processed is None else as_declared(processed.results, self._schema)
            if processed is None or results is None:
                return None
            for handle, state, written in zip(handles, processed.states, processed.written, strict=True):
                if written.any():
                    backend.set_current_keys(given.keys.filter(pa.array(written)))
                    handle.update_values(pa.array(state[written]))
            return results, processed.origin
        finally:
            backend.clear_current_key()
