"""The operators of `KeyedStream.process`: a `KeyedProcessFunction` called row by row, or with whole batches.

The stream API makes their spec. Results keep the order of the rows that they come from; what timers emit at one
watermark goes in order of time, ahead of the watermark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.engine.aggregates.accumulators import plain
from penstock.engine.elements import Batch
from penstock.engine.errors import GraphError, PenstockError, RecordError
from penstock.engine.functions import KeyedBatch, KeyedProcessFunction
from penstock.engine.operators.base import USER_FAILURES, Collector, Operator, OperatorContext, SchemaOrUnknown
from penstock.engine.operators.batches import BatchSummary, ResultColumns
from penstock.engine.operators.functions.element_context import NO_KEY
from penstock.engine.operators.functions.function_operator import FunctionOperator, key_values, rows_and_keys
from penstock.engine.operators.functions.user_functions import check_function, implements
from penstock.engine.operators.keyed import backend_context
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits
from penstock.engine.row_numbers import distinct_of
from penstock.engine.rows import batch_rows
from penstock.engine.state.backend import KeyedStateBackend
from penstock.engine.state.backends import create_backend, create_columnar_backend
from penstock.engine.texts import function_name


@dataclass(frozen=True, slots=True)
class KeyedProcessSpec(OperatorSpec):
    """Creates the operator that calls a `KeyedProcessFunction`.

    Args:
        function: the function, of which each subtask has a copy, or its class.
        keys: the key columns.
        schema: the declared columns of its result, or None to infer them.
        timed: whether the stream has event timestamps.

    Raises:
        GraphError: `function` is no such function, or implements none or both of `process_element` and `process_batch`.

    Example:
        `KeyedProcessSpec(Count(), ("user",))`
    """

    function: KeyedProcessFunction | type[KeyedProcessFunction]
    keys: tuple[str, ...]
    schema: SchemaOrUnknown = None
    timed: bool = False

    def __post_init__(self) -> None:
        remedy = "streams with keys take a KeyedProcessFunction"
        check_function("process", self.function, KeyedProcessFunction, [], remedy)
        if self._by_rows == self._by_batches:
            function = self.function if isinstance(self.function, type) else type(self.function)
            raise GraphError(
                f"process: {function.__name__} implements {'both' if self._by_rows else 'neither'} process_element "
                f"(row by row) {'and' if self._by_rows else 'nor'} process_batch (whole batches); implement one of them"
            )

    @property
    def _by_rows(self) -> bool:
        return implements(self.function, KeyedProcessFunction, "process_element")

    @property
    def _by_batches(self) -> bool:
        return implements(self.function, KeyedProcessFunction, "process_batch")

    def create(self) -> Operator:
        kind = KeyedProcessOperator if self._by_rows else KeyedBatchOperator
        return kind(self.function, self.keys, self.schema, self.timed)

    def describe(self) -> str:
        return f"process({function_name(self.function)})"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(keys=(self.keys,))


class KeyedProcessOperator(FunctionOperator):
    """Calls `process_element` with each row."""

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        self._bind(input_index, batch.data.schema, self._keys)
        rows, keys = rows_and_keys(batch.data, self._keys, self._context.where)
        self._process_rows(self._function.process_element, self._element, batch, keys, rows, out)


class KeyedBatchOperator(FunctionOperator):
    """Calls `process_batch` with each batch."""

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._columns = ResultColumns(self._schema, context.where, "process_batch")

    def _create_backend(self, context: OperatorContext) -> KeyedStateBackend:
        return columnar_backend(context, self._keys)

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        self._bind(input_index, batch.data.schema, self._keys)
        given = keyed_batch(batch, self._keys)
        result = self._results(given)
        self._sides.flush()
        if result is None:
            return
        data = self._converted(result)
        if data.num_rows:
            out.collect(Batch(data, self._result_times(given, data)))

    def _results(self, given: KeyedBatch) -> Any:
        """What the function returns for the batch."""
        element, backend = self._element, self._keyed.backend
        element.key = NO_KEY
        element.timestamp = None
        element.batch_keys = lambda: key_values(batch_rows(given.keys, self._context.where), self._keys)
        backend.clear_current_key()
        backend.set_current_keys(given.keys)
        try:
            return self._function.process_batch(given, element)
        except USER_FAILURES as error:
            raise self._context.user_code_error(error, BatchSummary(given.data)) from error
        finally:
            element.batch_keys = element.no_batch
            backend.clear_current_key()

    def _converted(self, result: object) -> pa.RecordBatch:
        try:
            return self._columns.convert(result)
        except PenstockError:
            raise
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise RecordError(
                f"{self._context.where}: process_batch returned no usable columns: {error}; return a pyarrow "
                "RecordBatch or Table, or a dict of column name to array, or None"
            ) from error

    def _result_times(self, given: KeyedBatch, results: pa.RecordBatch) -> pa.Int64Array | None:
        """The timestamps of the results: one a row, or the largest of each key where the results show the keys."""
        if not self._timed or given.timestamps is None:
            return None
        rows = results.num_rows
        if rows == given.num_rows:
            return given.timestamps
        if not _are_of_keys(results, given.keys):
            raise RecordError(
                f"{self._context.where}: process_batch returned {rows} rows for a batch of {given.num_rows} rows with "
                f"{given.keys.num_rows} keys, so their timestamps are not known; return a row for each row, in their "
                f"order, or a row for each of batch.keys, in their order and with the columns "
                f"{', '.join(given.keys.schema.names)}; filter behind the function, or implement process_element "
                "instead"
            )
        largest = np.full(rows, np.iinfo(np.int64).min)
        np.maximum.at(largest, given.groups, given.timestamps.to_numpy())
        return pa.array(largest)


def columnar_backend(context: OperatorContext, keys: tuple[str, ...]) -> KeyedStateBackend:
    """The state of a function that works on whole batches."""
    kind, given = context.config.state_backend, backend_context(context, keys)
    return create_columnar_backend(given) if kind == "heap" else create_backend(kind, given)


def _are_of_keys(results: pa.RecordBatch, keys: pa.RecordBatch) -> bool:
    """Whether the results are one row for each key, in their order."""
    if results.num_rows != keys.num_rows or not set(keys.schema.names) <= set(results.schema.names):
        return False
    return all(_are_equal(plain(results.column(name)), keys.column(name)) for name in keys.schema.names)


def _are_equal(one: pa.Array, other: pa.Array) -> bool:
    try:
        return bool(one.equals(other.cast(one.type)))
    except pa.ArrowException:
        return False


def keyed_batch(batch: Batch, keys: tuple[str, ...]) -> KeyedBatch:
    """The batch with its distinct keys, in order of first occurrence, and the index of each row's key."""
    columns = [plain(batch.data.column(name)) for name in keys]
    ids, distinct = distinct_of(columns)
    return KeyedBatch(batch.data, batch.timestamps, pa.RecordBatch.from_arrays(distinct, names=list(keys)), ids)
