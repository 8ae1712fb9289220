"""The operators that call a Python function for each row: map, flat_map, filter, and computed columns.

The stream API makes their specs. Each row keeps its timestamp and row kind; what a function raises
becomes a `UserCodeError` with the row, and what it returns wrongly a `ResultError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.engine.changelog import ANY_MODE, WITH_BEFORE_IMAGES
from penstock.engine.elements import Batch
from penstock.engine.errors import ConfigurationError, GraphError, ResultError
from penstock.engine.operators.base import USER_FAILURES, Collector, Operator, OperatorContext, SchemaOrUnknown
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits, RowOrder
from penstock.engine.row_buffer import RowBuffer, owned_value
from penstock.engine.rows import ColumnConverter, batch_columns, batch_rows, rows_of
from penstock.engine.texts import function_name

if TYPE_CHECKING:
    from penstock.engine.expressions import RowColumn, Select, WithColumns
    from penstock.engine.operators.expressions import BoundSteps

Row: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RowMapSpec(OperatorSpec):
    """Creates the operator that makes one row of each row.

    Args:
        function: called with a dict, which it may change and return; returns a dict.
        schema: the declared columns of its result, or None to infer them.

    Raises:
        GraphError: `function` cannot be called.

    Example:
        `RowMapSpec(lambda row: {"double": row["x"] * 2}, None)`
    """

    function: Callable[[Row], Mapping[str, Any]]
    schema: SchemaOrUnknown = None

    def __post_init__(self) -> None:
        _check_function("map", self.function, "a dict")

    def create(self) -> Operator:
        return RowMapOperator(self.function, self.schema)

    def describe(self) -> str:
        return f"map({function_name(self.function)})"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(order=RowOrder.NONE, accepts=(ANY_MODE,), emits=None)


@dataclass(frozen=True, slots=True)
class RowFlatMapSpec(OperatorSpec):
    """Creates the operator that makes any number of rows of each row.

    Args:
        function: called with a dict; returns an iterable of dicts (a list, or a generator).
        schema: the declared columns of its result, or None to infer them.

    Raises:
        GraphError: `function` cannot be called.

    Example:
        `RowFlatMapSpec(lambda row: [{"word": word} for word in row["line"].split()], None)`
    """

    function: Callable[[Row], Iterable[Mapping[str, Any]]]
    schema: SchemaOrUnknown = None

    def __post_init__(self) -> None:
        _check_function("flat_map", self.function, "an iterable of dicts")

    def create(self) -> Operator:
        return RowFlatMapOperator(self.function, self.schema)

    def describe(self) -> str:
        return f"flat_map({function_name(self.function)})"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(order=RowOrder.NONE, accepts=(WITH_BEFORE_IMAGES,), emits=None)


@dataclass(frozen=True, slots=True)
class RowFilterSpec(OperatorSpec):
    """Creates the operator that keeps the rows for which `function` returns something true.

    Args:
        function: called with a dict; None, False, 0 and what else is false drop the row.

    Example:
        `RowFilterSpec(lambda row: row["x"] > 3)`
    """

    function: Callable[[Row], object]

    def create(self) -> Operator:
        return RowFilterOperator(self.function)

    def describe(self) -> str:
        return f"filter({function_name(self.function)})"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(order=RowOrder.NONE, accepts=(WITH_BEFORE_IMAGES,), emits=None)


@dataclass(frozen=True, slots=True, eq=False)
class RowColumnsSpec(OperatorSpec):
    """Creates the operator of a `select` or `with_columns` some of whose columns are Python functions of the
    row.

    All columns see the columns of the input, and none of each other.

    Args:
        step: made by `expressions.select` or `expressions.with_columns`.
        declared: types of columns that functions compute; the types of the others are inferred.

    Raises:
        ConfigurationError: a declared column is not one of those that a function computes.

    Example:
        `RowColumnsSpec(with_columns(n=lambda row: len(row["word"])), pa.schema([("n", pa.int64())]))`
    """

    step: Select | WithColumns
    declared: SchemaOrUnknown = None

    def __post_init__(self) -> None:
        computed = [column.name for column in self.step.row_columns]
        for name in () if self.declared is None else self.declared.names:
            if name not in computed:
                raise ConfigurationError(
                    f"returns declares the column {name!r}, which no function computes; those are "
                    f"{', '.join(computed) or 'none'}"
                )

    def create(self) -> Operator:
        return RowColumnsOperator(self.step, self.declared)

    def describe(self) -> str:
        from penstock.engine.expressions import describe

        return describe((self.step,))

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(order=RowOrder.NONE, accepts=(ANY_MODE,), emits=None)

    def output_schema(self, schema: SchemaOrUnknown, where: str) -> SchemaOrUnknown:
        """The columns behind the operator, or None where a function's type is not declared or `schema` not
        known.

        Raises:
            GraphError: an expression does not fit the schema, or two columns have one name.
        """
        from penstock.engine.expressions import RowColumn, Select, bind

        if schema is None:
            return None
        fields: list[pa.Field] = []
        for column in self.step.columns:
            if isinstance(column, RowColumn):
                fields.append(self._declared_field(column.name))
            else:
                fields.extend(bind((Select((column,)),), schema, where))
        names = [field.name for field in fields]
        _check_unique(names, where)
        if isinstance(self.step, Select):
            result = dict(zip(names, fields, strict=True))
        else:
            result = {field.name: field for field in schema} | dict(zip(names, fields, strict=True))
        known = self.declared is not None and all(c.name in self.declared.names for c in self.step.row_columns)
        return pa.schema(list(result.values())) if known else None

    def _declared_field(self, name: str) -> pa.Field:
        known = self.declared is not None and name in self.declared.names
        return self.declared.field(name) if self.declared is not None and known else pa.field(name, pa.null())


class _RowOperator(Operator):
    """What the operators below share: where they are, and the rows of a batch."""

    _context: OperatorContext
    _where: str

    def open(self, context: OperatorContext) -> None:
        self._context = context
        self._where = f"operator {context.operator!r}, subtask {context.subtask}"

    def _rows(self, batch: Batch) -> Iterator[Row]:
        """Each is made when it is asked for."""
        return rows_of(batch.data.schema.names, batch_columns(batch.data, self._where))

    def _call(self, function: Callable[[Row], Any], rows: Iterable[Row], take: Callable[[Any], None]) -> None:
        """Let `take` have what the function makes of each row."""
        row: Row = {}
        try:
            for row in rows:
                take(function(row))
        except USER_FAILURES as error:
            raise self._context.user_code_error(error, row) from error


class RowMapOperator(_RowOperator):
    """One row for each row."""

    def __init__(self, function: Callable[[Row], Mapping[str, Any]], schema: SchemaOrUnknown) -> None:
        self._function = function
        self._schema = schema

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._gathered = RowBuffer(self._schema, self._where)

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        self._gathered.clear()
        self._call(self._function, self._rows(batch), self._gathered.add)
        out.collect(batch.with_data(self._gathered.take()))


class RowFlatMapOperator(_RowOperator):
    """Any number of rows for each row; they have its timestamp and row kind."""

    def __init__(self, function: Callable[[Row], Iterable[Mapping[str, Any]]], schema: SchemaOrUnknown) -> None:
        self._function = function
        self._schema = schema

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._gathered = RowBuffer(self._schema, self._where)

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        ends = self._expand(self._rows(batch))
        if not len(self._gathered):
            return
        data = self._gathered.take()
        if batch.timestamps is None and batch.kinds is None:
            out.collect(Batch(data))
            return
        counts = np.diff(ends, prepend=0)
        out.collect(
            Batch(
                data,
                None if batch.timestamps is None else pa.array(np.repeat(batch.timestamps.to_numpy(), counts)),
                None if batch.kinds is None else pa.array(np.repeat(batch.kinds.to_numpy(), counts)),
            )
        )

    def _expand(self, rows: Iterable[Row]) -> list[int]:
        """Gather the function's rows; gives how many there were behind each row of the input."""
        self._gathered.clear()
        function, add = self._function, self._gathered.add
        ends: list[int] = []
        count = 0
        row: Row = {}
        try:
            for row in rows:
                made = function(row)
                if type(made) is not list:
                    self._check_iterable(made, row)
                for result in made:
                    add(result)
                    count += 1
                ends.append(count)
        except USER_FAILURES as error:
            raise self._context.user_code_error(error, row) from error
        return ends

    def _check_iterable(self, made: object, row: Row) -> None:
        if isinstance(made, (Mapping, str, bytes)) or not isinstance(made, Iterable):
            raise ResultError(
                f"{self._where}: the function of flat_map returned {made!r:.200} ({type(made).__name__}), "
                "not an iterable of dicts; return a list ([] for no rows), or yield the rows; called with "
                f"{row!r:.200}"
            )


class RowFilterOperator(_RowOperator):
    """The rows for which the function is true."""

    def __init__(self, function: Callable[[Row], object]) -> None:
        self._function = function

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        kept = self._keep(self._rows(batch))
        if all(kept):
            out.collect(batch)
        elif any(kept):
            out.collect(batch.filter(pa.array(kept, pa.bool_())))

    def _keep(self, rows: Iterable[Row]) -> list[bool]:
        function = self._function
        kept: list[bool] = []
        row: Row = {}
        try:
            for row in rows:
                # The truth of some objects is an error, and that is the function's.
                kept.append(bool(function(row)))
        except USER_FAILURES as error:
            raise self._context.user_code_error(error, row) from error
        return kept


class RowColumnsOperator(_RowOperator):
    """`select` or `with_columns` with Python functions among the columns."""

    def __init__(self, step: Select | WithColumns, declared: SchemaOrUnknown) -> None:
        self._step = step
        self._declared = declared

    def open(self, context: OperatorContext) -> None:
        from penstock.engine.expressions import RowColumn, Select
        from penstock.engine.operators.expressions import BoundSteps

        super().open(context)
        self._keeps_input = not isinstance(self._step, Select)
        self._parts: list[tuple[RowColumn, ColumnConverter] | BoundSteps] = []
        for column in self._step.columns:
            if isinstance(column, RowColumn):
                self._parts.append((column, self._converter(column.name)))
            else:
                bound = BoundSteps((Select((column,)),))
                bound.open(context)
                self._parts.append(bound)

    def _converter(self, name: str) -> ColumnConverter:
        declared = self._declared
        field = declared.field(name) if declared is not None and name in declared.names else None
        return ColumnConverter(name, field, self._where)

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        computed: list[tuple[pa.Field, pa.Array]] = []
        for part in self._parts:
            if isinstance(part, tuple):
                column, converter = part
                # Fresh rows for each function: what one does to them must not be seen by the next.
                rows = batch_rows(batch.data, self._where)
                values: list[Any] = []
                self._call(column.function, rows, _keeper(values, converter.field.type))
                array = converter.convert(values, rows)
                computed.append((converter.field, array))
            else:
                data = part.apply(batch).data
                computed.extend(zip(data.schema, data.columns, strict=True))
        names = [field.name for field, _ in computed]
        _check_unique(names, self._where)
        columns = dict(
            zip(batch.data.schema.names, zip(batch.data.schema, batch.data.columns, strict=True), strict=True)
        )
        columns = (columns if self._keeps_input else {}) | dict(zip(names, computed, strict=True))
        schema = pa.schema([field for field, _ in columns.values()])
        out.collect(
            batch.with_data(pa.RecordBatch.from_arrays([array for _, array in columns.values()], schema=schema))
        )


def _keeper(values: list[Any], kind: pa.DataType) -> Callable[[Any], None]:
    """Appends values of a column as they are now; those of most types nobody can change, and they cost nothing."""
    if pa.types.is_primitive(kind) or pa.types.is_string(kind):
        return values.append
    return lambda value: values.append(owned_value(value))


def _check_function(verb: str, function: object, result: str) -> None:
    if not callable(function):
        raise GraphError(
            f"{verb}: needs a function that takes a row (a dict) and returns {result}, not {function!r}; "
            "columns are computed from expressions with select(...) or with_columns(...)"
        )


def _check_unique(names: list[str], where: str) -> None:
    double = sorted({name for name in names if names.count(name) > 1})
    if double:
        raise GraphError(
            f"{where}: more than one column is named {', '.join(map(repr, double))}; rename one with .alias(name)"
        )
