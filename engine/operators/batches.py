"""The operator of `map_batches`: a Python function, or an object with a life in the subtask, called with
whole batches.

The stream API makes its spec. It guarantees that timestamps and row kinds still belong to their rows, that
the columns stay the same from batch to batch, and that what the user's code raises is a `UserCodeError` with
the batch.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.engine.changelog import ANY_MODE
from penstock.engine.elements import Batch, table_to_record_batch
from penstock.engine.errors import GraphError, PenstockError, ResultError, SerializationError
from penstock.engine.operators.base import USER_FAILURES, Collector, Operator, OperatorContext, SchemaOrUnknown
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, Resources, RowOrder
from penstock.engine.rows import ColumnConverter, shown_row
from penstock.engine.texts import function_name

BatchResult: TypeAlias = pa.RecordBatch | pa.Table | Mapping[str, Any]
BatchFunction: TypeAlias = Callable[[pa.RecordBatch], BatchResult]

_REMEDY = "return a pyarrow RecordBatch or Table, or a dict of column name to array (pyarrow, numpy or list)"


@dataclass(frozen=True, slots=True)
class BatchMapSpec(OperatorSpec):
    """Creates the operator that calls `function` with each record batch.

    Args:
        function: a function, an object with `__call__`, or a class of such objects, which is created in each
            subtask. Objects may have `open(context)`, called before the first batch, and `close()`, called in
            the end. It returns a RecordBatch, a Table, or a mapping of column name to array; as many rows as
            it got where the rows have timestamps.
        schema: the declared columns of its result (cast to them), or None: then those of the first result are
            held.
        resources: what each subtask reserves on the cluster.

    Raises:
        GraphError: `function` cannot be called.

    Example:
        `BatchMapSpec(lambda batch: {"x2": pc.multiply(batch["x"], 2)}, None)`
    """

    function: BatchFunction | type
    schema: SchemaOrUnknown = None
    resources: Resources | None = None

    def __post_init__(self) -> None:
        function = self.function
        if inspect.isclass(function):
            if not any("__call__" in vars(base) for base in function.__mro__):
                raise GraphError(f"map_batches: class {function.__qualname__} needs a method __call__(self, batch)")
        elif not callable(function):
            raise GraphError(f"map_batches: needs a function of a batch, or a class with __call__, not {function!r}")

    def create(self) -> Operator:
        return BatchMapOperator(self.function, self.schema)

    def describe(self) -> str:
        return f"map_batches({function_name(self.function)})"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(order=RowOrder.NONE, accepts=(ANY_MODE,), emits=None, resources=self.resources)


class BatchMapOperator(Operator):
    """Calls the user's function, or the subtask's own copy of the user's object."""

    def __init__(self, function: BatchFunction | type, schema: SchemaOrUnknown) -> None:
        self._given = function
        self._schema = schema
        self._function: Any = None

    def open(self, context: OperatorContext) -> None:
        self._context = context
        self._where = f"operator {context.operator!r}, subtask {context.subtask}"
        self._columns = ResultColumns(self._schema, self._where, "map_batches")
        self._function = self._create(context)
        hook = getattr(self._function, "open", None)
        if callable(hook):
            try:
                hook(context)
            except USER_FAILURES as error:
                raise context.life_cycle_error(error, "open(context)") from error

    def _create(self, context: OperatorContext) -> Any:
        given = self._given
        if not inspect.isclass(given):
            try:
                return copy.deepcopy(given)
            except Exception as error:
                raise SerializationError(
                    f"{self._where}: {given!r} cannot be copied ({type(error).__name__}: {error}); each "
                    "subtask needs one of its own, so pass the class, or create in open(context) what cannot "
                    "be copied"
                ) from error
        try:
            return given()
        except USER_FAILURES as error:
            raise context.life_cycle_error(error, f"{given.__name__}()") from error

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        try:
            result = self._function(batch.data)
        except USER_FAILURES as error:
            raise self._context.user_code_error(error, BatchSummary(batch.data)) from error
        try:
            data = self._columns.convert(result)
        except PenstockError:
            raise
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise ResultError(f"{self._where}: map_batches returned no usable columns: {error}; {_REMEDY}") from error
        rows = data.num_rows
        if rows != batch.num_rows and (batch.timestamps is not None or batch.kinds is not None):
            raise ResultError(
                f"{self._where}: map_batches returned {rows} rows for {batch.num_rows}, and so their "
                "timestamps are not known; return a row for each row, use it before assign_timestamps, or "
                "use flat_map or filter"
            )
        if rows:
            out.collect(batch.with_data(data))

    def close(self) -> None:
        hook = getattr(self._function, "close", None)
        if callable(hook):
            try:
                hook()
            except USER_FAILURES as error:
                raise self._context.life_cycle_error(error, "close()") from error


class BatchSummary:
    """Shows a batch in an error by its size, its columns and its first row."""

    def __init__(self, data: pa.RecordBatch) -> None:
        self._data = data

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name} {field.type}" for field in self._data.schema)
        first = f", the first is {shown_row(self._data, 0)}" if self._data.num_rows else ""
        return f"batch of {self._data.num_rows} rows ({columns}){first}"


class ResultColumns:
    """Makes record batches of results, with the columns that are declared or that the first result had.

    Args:
        declared: the declared columns (cast to them), or None.
        where: operator and subtask, for messages.
        function: what the user calls the function that returned the result, for messages.
    """

    def __init__(self, declared: SchemaOrUnknown, where: str, function: str) -> None:
        self._where = where
        self._function = function
        self._declared = declared
        self._held = declared
        self._converters: dict[str, ColumnConverter] = {}

    def convert(self, result: object) -> pa.RecordBatch:
        data = self._record_batch(result)
        if data.num_rows == 0:
            return data
        if len(set(data.schema.names)) < data.num_columns:
            raise ResultError(f"{self._where}: {self._function} returned two columns of one name: {data.schema.names}")
        if self._held is None:
            self._held = pa.schema([(field.name, field.type) for field in data.schema])
        self._check_names(data.schema.names, self._held.names)
        if self._declared is None:
            self._held = self._merged(data.schema, self._held)
        columns = [self._cast(data.column(field.name), field) for field in self._held]
        return pa.RecordBatch.from_arrays(columns, schema=self._held)

    def _record_batch(self, result: object) -> pa.RecordBatch:
        if isinstance(result, pa.RecordBatch):
            return result
        if isinstance(result, pa.Table):
            return table_to_record_batch(result)
        if isinstance(result, Mapping):
            columns = {str(name): self._array(str(name), values) for name, values in result.items()}
            if len({len(column) for column in columns.values()}) > 1:
                lengths = ", ".join(f"{name} {len(column)}" for name, column in columns.items())
                raise ResultError(f"{self._where}: {self._function} returned columns of different lengths: {lengths}")
            return table_to_record_batch(pa.table(columns)) if columns else pa.RecordBatch.from_pydict({})
        raise ResultError(
            f"{self._where}: {self._function} returned {type(result).__module__}.{type(result).__qualname__}; {_REMEDY}"
        )

    def _array(self, name: str, values: object) -> pa.Array | pa.ChunkedArray:
        if isinstance(values, (pa.Array, pa.ChunkedArray)):
            return values
        if isinstance(values, np.ndarray) and values.dtype != object:
            if values.ndim != 1:
                raise ResultError(
                    f"{self._where}: column {name!r} is a numpy array of shape {values.shape}; return one of "
                    "one dimension, or a list of lists"
                )
            return pa.array(values)
        if isinstance(values, (np.ndarray, Sequence)) and not isinstance(values, (str, bytes)):
            return self._converter(name).convert(list(values))
        raise ResultError(f"{self._where}: column {name!r} is {values!r:.100} ({type(values).__name__}); {_REMEDY}")

    def _converter(self, name: str) -> ColumnConverter:
        if name not in self._converters:
            declared = self._declared
            field = declared.field(name) if declared is not None and name in declared.names else None
            self._converters[name] = ColumnConverter(name, field, self._where)
        return self._converters[name]

    def _check_names(self, names: list[str], wanted: list[str]) -> None:
        origin = "declared ones" if self._declared is not None else "ones of the first result"
        for problem, name in (
            *(("lacks the column", name) for name in wanted if name not in names),
            *(("has the unknown column", name) for name in names if name not in wanted),
        ):
            raise ResultError(
                f"{self._where}: the result of {self._function} {problem} {name!r}; return the {origin} each "
                f"time: {', '.join(wanted)}"
            )

    def _merged(self, schema: pa.Schema, held: pa.Schema) -> pa.Schema:
        """The held schema with types for columns that had only nulls until now."""
        fields = []
        for field in held:
            kind = schema.field(field.name).type
            try:
                fields.extend(pa.unify_schemas([pa.schema([field]), pa.schema([(field.name, kind)])]))
            except pa.ArrowException as error:
                raise ResultError(
                    f"{self._where}: column {field.name!r} of {self._function} is {kind} now and was {field.type} "
                    f"before; return one type, or declare it, returns={{{field.name!r}: ...}}"
                ) from error
        return pa.schema(fields)

    def _cast(self, column: pa.Array, field: pa.Field) -> pa.Array:
        try:
            cast = column if column.type == field.type else column.cast(field.type)
        except pa.ArrowException as error:
            raise ResultError(
                f"{self._where}: column {field.name!r} of {self._function} is {column.type} and does not fit "
                f"{field.type}: {error}; convert it in the function, or declare another type"
            ) from error
        if not field.nullable and cast.null_count:
            raise ResultError(f"{self._where}: column {field.name!r} of {self._function} has nulls, declared without")
        return cast
