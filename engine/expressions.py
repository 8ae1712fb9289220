"""Column expressions: what users write in `filter`, `select` and `with_columns`, checked and run.

The stream API builds the steps and binds them to a schema; `operators/expressions.py` applies them to
batches. An expression that passes is row-wise: its result never depends on where batches are cut. Importing
this costs 0.15 s.
"""

from __future__ import annotations

import ast
import enum
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import narwhals.stable.v2 as nw
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from narwhals import Expr, Series
from narwhals.exceptions import ColumnNotFoundError, DuplicateError, InvalidOperationError
from narwhals.stable.v2 import (
    all_horizontal,
    any_horizontal,
    coalesce,
    col,
    concat_str,
    lit,
    max_horizontal,
    mean_horizontal,
    min_horizontal,
    sum_horizontal,
    when,
)

from penstock.engine.elements import Batch, table_to_record_batch
from penstock.engine.errors import ColumnTypeError, GraphError, missing_column

__all__ = [
    "Expr",
    "Filter",
    "RowColumn",
    "Select",
    "Step",
    "WithColumns",
    "all_horizontal",
    "any_horizontal",
    "apply",
    "bind",
    "coalesce",
    "col",
    "concat_str",
    "describe",
    "failing_row",
    "lit",
    "max_horizontal",
    "mean_horizontal",
    "min_horizontal",
    "operations",
    "select",
    "sum_horizontal",
    "when",
    "with_columns",
]

_ROW_WISE_KINDS: Final = frozenset({"ALL", "COL", "ELEMENTWISE", "EXCLUDE", "LITERAL", "NTH", "SELECTOR", "WHEN_THEN"})
_GUESSES_FORMAT: Final = frozenset({"str.to_datetime", "str.to_date", "str.to_time"})
_ARRAYS: Final = (np.ndarray, pa.Array, pa.ChunkedArray, Series)
_INFIX: Final = {
    "__add__": "+",
    "__sub__": "-",
    "__mul__": "*",
    "__truediv__": "/",
    "__floordiv__": "//",
    "__mod__": "%",
    "__pow__": "**",
    "__and__": "&",
    "__or__": "|",
    "__eq__": "==",
    "__ne__": "!=",
    "__lt__": "<",
    "__le__": "<=",
    "__gt__": ">",
    "__ge__": ">=",
}
_SHOWN_STEP: Final = 160
_SHOWN_VALUE: Final = 60


@dataclass(frozen=True, slots=True, eq=False)
class RowColumn:
    """A column that a Python function computes from the row (a dict).

    Args:
        name: the column's name.
        function: called with each row; returns the value.
    """

    name: str
    function: Callable[[dict[str, Any]], object]


Column: TypeAlias = Expr | RowColumn


@dataclass(frozen=True, slots=True, eq=False)
class Filter:
    """Keeps the rows where `predicate` is true (null counts as false); the name of a boolean column will do.

    Raises:
        GraphError: the predicate is not a row-wise expression.

    Example:
        `Filter(col("delay") > 15)`
    """

    predicate: Expr

    def __post_init__(self) -> None:
        if isinstance(self.predicate, str):
            object.__setattr__(self, "predicate", col(self.predicate))
        if not isinstance(self.predicate, Expr):
            raise GraphError(
                f"filter: the predicate is {_text(self.predicate)}, not an expression; write for example "
                'filter(col("x") > 3), and col("x").is_null() instead of col("x") is None'
            )
        _check_row_wise("filter", (self.predicate,))


@dataclass(frozen=True, slots=True, eq=False)
class Select:
    """The stream has these columns and no others. Made by `select`."""

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        _check_row_wise("select", self.columns)

    @property
    def row_columns(self) -> tuple[RowColumn, ...]:
        """The columns that Python functions compute; empty where Arrow alone can do it."""
        return _row_columns(self.columns)


@dataclass(frozen=True, slots=True, eq=False)
class WithColumns:
    """Adds columns, or replaces them in their place. Made by `with_columns`."""

    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        _check_row_wise("with_columns", self.columns)

    @property
    def row_columns(self) -> tuple[RowColumn, ...]:
        """The columns that Python functions compute; empty where Arrow alone can do it."""
        return _row_columns(self.columns)


Step: TypeAlias = Filter | Select | WithColumns


def select(*columns: object, **named: object) -> Select:
    """The step that keeps or computes these columns, in this order.

    Args:
        columns: names, or expressions (they keep their own name or alias).
        named: the column's name = an expression, a column's name, a Python function of the row, or a
            constant.

    Raises:
        GraphError: nothing given, a value that is no column, or an expression that is not row-wise.

    Example:
        `select("carrier", total=col("delay") + 1, source=lit("nyc"))`
    """
    return Select(_columns("select", columns, named))


def with_columns(*columns: object, **named: object) -> WithColumns:
    """The step that adds or replaces columns; all of them see the columns as they were before.

    Args:
        columns: expressions with their own name or alias.
        named: the column's name = an expression, a column's name, a Python function of the row, or a
            constant.

    Raises:
        GraphError: nothing given, a value that is no column, or an expression that is not row-wise.

    Example:
        `with_columns(total=col("delay") + 1, name=lambda row: row["name"].title())`
    """
    return WithColumns(_columns("with_columns", columns, named))


def bind(steps: Sequence[Step], schema: pa.Schema, where: str) -> pa.Schema:
    """The schema that `steps` make of `schema`; found by running them on no rows.

    Args:
        steps: without Python functions.
        schema: the columns before the first step.
        where: the operation, for messages.

    Raises:
        MissingColumnError: a column that is not there (the message has the nearest name).
        ColumnTypeError: a column's type does not fit, or a predicate is not boolean.
        GraphError: two columns of one name, or an expression that Arrow cannot run.

    Example:
        `bind((Filter(col("x") > 3),), pa.schema([("x", pa.int64())]), "filter")`
    """
    table = schema.empty_table()
    for step in steps:
        place = f"{where}: {_step_text(step)}"
        try:
            frame = _frame(table)
            computed = _select(frame, _expressions(step))
            _check_behaviour(_expressions(step), table.schema, place)
            if isinstance(step, Filter):
                _check_predicate(computed, place)
            else:
                table = computed if isinstance(step, Select) else _with_columns(frame, step.columns)
        except GraphError:
            raise
        except Exception as error:
            raise _graph_error(error, table.schema, place) from error
    return table.schema


def apply(steps: Sequence[Step], batch: Batch, schema: pa.Schema | None = None) -> Batch:
    """The rows of `batch` after `steps`, as one contiguous record batch; timestamps and row kinds follow
    filters.

    Args:
        steps: without Python functions.
        batch: any number of rows.
        schema: what `bind` gave for the batch's schema; None binds here.

    Raises:
        Exception: of Arrow or narwhals, where a value cannot be computed (`failing_row` finds it); those of
            `bind`.

    Example:
        `apply((Filter(col("x") > 3), select("x")), batch)`
    """
    if schema is None:
        schema = bind(steps, batch.data.schema, "apply")
    table = pa.Table.from_batches([batch.data])
    timestamps, kinds = batch.timestamps, batch.kinds
    for step in steps:
        if isinstance(step, Filter):
            mask = table_to_record_batch(_select(_frame(table), (step.predicate,))).column(0)
            if mask.true_count == len(mask):
                continue
            table = table.filter(mask)
            timestamps = None if timestamps is None else timestamps.filter(mask)
            kinds = None if kinds is None else kinds.filter(mask)
        elif isinstance(step, Select):
            table = _select(_frame(table), _expressions(step))
        else:
            table = _with_columns(_frame(table), step.columns)
    data = table_to_record_batch(table)
    return Batch(data if data.schema.equals(schema) else data.cast(schema), timestamps, kinds)


def failing_row(steps: Sequence[Step], batch: Batch, schema: pa.Schema) -> tuple[int, Exception] | None:
    """The index of the first row on which `apply` raises, and what it raises there; None where no row fails alone."""
    low, high = 0, batch.num_rows
    while high - low > 1:
        middle = (low + high) // 2
        if _error_on(steps, batch.slice(low, middle - low), schema):
            high = middle
        else:
            low = middle
    # Arrow's message about a whole batch may be of another row.
    error = _error_on(steps, batch.slice(low, high - low), schema)
    return (low, error) if error else None


def describe(steps: Sequence[Step]) -> str:
    """A short text that is the same on each run, such as `filter(col(x) > 3).select(a, total=col(x) + 1)`."""
    texts = [_step_text(step) for step in steps]
    return ".".join(text if len(text) <= _SHOWN_STEP else f"{text[: _SHOWN_STEP - 4]}...)" for text in texts)


def operations(expression: Expr) -> tuple[Any, ...] | None:
    """The operations of an expression in order, each with `name`, `exprs` (arguments), `kwargs`; None: not known."""
    return _nodes(expression)


def conjuncts(expression: Expr) -> list[Expr]:
    """The expressions that `&` joins in this one, in order: two for `(col("a") == 1) & col("b")`; else itself."""
    nodes = _nodes(expression)
    if not nodes or nodes[-1].name != "__and__" or not isinstance(nodes[-1].exprs[0], Expr):
        return [expression]
    return [*conjuncts(type(expression)(*nodes[:-1])), *conjuncts(nodes[-1].exprs[0])]


def _error_on(steps: Sequence[Step], batch: Batch, schema: pa.Schema) -> Exception | None:
    try:
        apply(steps, batch, schema)
    except Exception as error:
        return error
    return None


def _columns(verb: str, columns: tuple[object, ...], named: dict[str, object]) -> tuple[Column, ...]:
    if not columns and not named:
        raise GraphError(f'{verb}: no columns given; write for example {verb}(total=col("x") + 1)')
    positional = [_positional(verb, column) for column in columns]
    return (*positional, *(_named(verb, name, value) for name, value in named.items()))


def _positional(verb: str, column: object) -> Expr:
    if isinstance(column, str):
        return col(column)
    if isinstance(column, Expr):
        return column
    what = "a function" if callable(column) else _text(column)
    raise GraphError(
        f"{verb}: {what} has no name; give it one, {verb}(name=...), or pass the name of a column or an expression"
    )


def _named(verb: str, name: str, value: object) -> Column:
    if isinstance(value, str):
        return col(value).alias(name)
    if isinstance(value, Expr):
        return value.alias(name)
    if callable(value):
        return RowColumn(name, value)
    if isinstance(value, _ARRAYS):
        raise GraphError(f"{verb}: column {name!r} is {_array_text(value)}; {_ARRAY_REMEDY}")
    constant: Any = value
    return lit(constant).alias(name)


def _row_columns(columns: tuple[Column, ...]) -> tuple[RowColumn, ...]:
    return tuple(column for column in columns if isinstance(column, RowColumn))


def _expressions(step: Step) -> tuple[Expr, ...]:
    if isinstance(step, Filter):
        return (step.predicate,)
    return tuple(column for column in step.columns if isinstance(column, Expr))


# --- running ------------------------------------------------------------------------------------------------


def _frame(table: pa.Table) -> nw.DataFrame[Any]:
    return nw.from_native(table, eager_only=True)


def _select(frame: nw.DataFrame[Any], expressions: Iterable[Expr]) -> pa.Table:
    """The expressions' columns with one value a row; narwhals gives a single row where all are constants."""
    table = frame.select(*expressions).to_native()
    if table.num_rows == len(frame):
        return table
    return table.take(pa.array(np.zeros(len(frame), dtype=np.int64)))


def _with_columns(frame: nw.DataFrame[Any], columns: Iterable[Column]) -> pa.Table:
    expressions: Any = columns
    return frame.with_columns(*expressions).to_native()


# --- checking -----------------------------------------------------------------------------------------------


def _check_predicate(computed: pa.Table, place: str) -> None:
    if computed.num_columns != 1:
        raise GraphError(
            f"{place}: the predicate gives {computed.num_columns} columns; join them with "
            "all_horizontal(..., ignore_nulls=False)"
        )
    kind = computed.schema.types[0]
    if not pa.types.is_boolean(kind):
        raise ColumnTypeError(f"{place}: the predicate must be boolean, not {kind}; compare it, for example `> 0`")


def _graph_error(error: Exception, schema: pa.Schema, place: str) -> GraphError:
    """What narwhals' or Arrow's `error` on no rows says about the program."""
    if isinstance(error, ColumnNotFoundError):
        found = re.search(r"not found: (\[.*?\])\n", f"{error}\n")
        for name in ast.literal_eval(found.group(1)) if found else ():
            return missing_column(name, schema.names, place)
    reason = " ".join(str(error).split())
    if isinstance(error, DuplicateError):
        return GraphError(f"{place}: {reason}; give one of them another name with .alias(name)")
    if isinstance(error, (pa.ArrowException, InvalidOperationError, TypeError)):
        types = ", ".join(f"{field.name} {field.type}" for field in schema)
        unknown = [field.name for field in schema if pa.types.is_null(field.type)]
        hint = f" (only nulls came in {', '.join(map(repr, unknown))} so far: declare returns=...)" if unknown else ""
        return ColumnTypeError(f"{place}: {reason}; the stream has {types}{hint}; .cast(...) changes a type")
    return GraphError(f"{place}: {reason}")


_ARRAY_REMEDY: Final = "it has a length of its own, and a stream has none; join the data in, or use a function"


def _array_text(value: object) -> str:
    return f"an array ({type(value).__module__}.{type(value).__qualname__})"


def _check_row_wise(verb: str, columns: Iterable[Column]) -> None:
    for column in columns:
        if isinstance(column, Expr) and (problem := _row_dependence(column)):
            raise GraphError(f"{verb}({_text(column)}): {problem}")


def _nodes(expression: Expr) -> tuple[Any, ...] | None:
    """The operations that narwhals recorded, or None where this version of narwhals keeps them elsewhere.

    The one place that touches narwhals' private attributes. Each node has a kind (an enum, by name), a name,
    `exprs` (arguments that may be expressions) and `kwargs`.
    """
    nodes = getattr(expression, "_nodes", None)
    if not isinstance(nodes, tuple):
        return None
    known = all(hasattr(node, part) for node in nodes for part in ("kind", "name", "exprs", "kwargs"))
    return nodes if known else None


def _walk(value: object) -> Iterator[Any]:
    """Every operation in an expression, those inside of arguments too."""
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _walk(item)
    elif isinstance(value, Expr):
        for node in _nodes(value) or ():
            yield from _walk((*node.exprs, *node.kwargs.values()))
            yield node


def _row_dependence(expression: Expr) -> str | None:
    """Why the expression's result would depend on other rows of the batch; None where it does not."""
    for node in _walk(expression):
        for argument in node.exprs:
            if isinstance(argument, _ARRAYS):
                return f"{_array_text(argument)} is an operand: {_ARRAY_REMEDY}"
        if node.name == "map_batches":
            return (
                "map_batches() inside of an expression may look at other rows; use map_batches(function) of "
                "the stream, or a Python function of the row"
            )
        if node.name in _GUESSES_FORMAT and node.kwargs.get("format") is None:
            return f"{node.name}() guesses the format from the values of a batch; give it one, format='%Y-%m-%d'"
        if node.kind.name not in _ROW_WISE_KINDS:
            return (
                f"{node.name}() looks at other rows, so its result would depend on where batches are cut; "
                "use key_by(...).aggregate(...) for what concerns several rows"
            )
    return None


def _check_behaviour(expressions: Iterable[Expr], schema: pa.Schema, place: str) -> None:
    """In place of `_row_dependence` where narwhals hides its operations: tries whether other rows matter."""
    for expression in expressions:
        if _nodes(expression) is None and not _behaves_row_wise(expression, schema):
            raise GraphError(
                f"{place}: the result would depend on where batches are cut; use key_by(...).aggregate(...) "
                "for what concerns several rows"
            )


def _behaves_row_wise(expression: Expr, schema: pa.Schema) -> bool:
    sample = pa.table([_sample(field.type) for field in schema], schema=schema)
    try:
        whole = _select(_frame(sample), (expression,))
        rows = [_select(_frame(sample.slice(row, 1)), (expression,)) for row in range(sample.num_rows)]
    except (pa.ArrowException, ValueError):
        return True
    return bool(whole.combine_chunks().equals(pa.concat_tables(rows).combine_chunks()))


def _sample(kind: pa.DataType) -> pa.Array:
    """Three values, two of them equal, of a type; nulls where numbers say nothing in it."""
    try:
        return pc.cast(pa.array([1, 2, 2]), kind)
    except pa.ArrowException:
        return pa.nulls(3, kind)


# --- text ---------------------------------------------------------------------------------------------------


def _step_text(step: Step) -> str:
    if isinstance(step, Filter):
        return f"filter({_text(step.predicate)})"
    verb = "select" if isinstance(step, Select) else "with_columns"
    return f"{verb}({', '.join(_column_text(column) for column in step.columns)})"


def _column_text(column: Column) -> str:
    if isinstance(column, RowColumn):
        return f"{column.name}={_value_text(column.function)}"
    nodes = _nodes(column) or ()
    if len(nodes) == 1 and nodes[0].name == "col":
        return ", ".join(nodes[0].kwargs["names"])
    return _text(column)


def _text(value: object) -> str:
    if not isinstance(value, Expr):
        return _value_text(value)
    nodes = _nodes(value)
    if nodes is None:
        return _stable(repr(value))
    if nodes[-1].name == "alias" and nodes[-1].kwargs["name"] != "literal":
        return f"{nodes[-1].kwargs['name']}={_chain_text(nodes[:-1])[0]}"
    return _chain_text(nodes)[0]


def _chain_text(nodes: Iterable[Any]) -> tuple[str, bool]:
    """The text of a chain of operations, and whether it needs parentheses as an operand."""
    text, open_ended = "", False
    for node in nodes:
        left = f"({text})" if open_ended else text
        arguments = [_operand(argument) for argument in node.exprs]
        plain = node.name.replace("__r", "__", 1)
        if node.name == "alias" and node.kwargs["name"] == "literal":
            continue
        if node.name in _INFIX:
            text, open_ended = f"{left} {_INFIX[node.name]} {arguments[0]}", True
        elif plain in _INFIX:
            text, open_ended = f"{arguments[0]} {_INFIX[plain]} {left}", True
        elif node.name in ("__invert__", "__neg__"):
            text, open_ended = f"{'~' if node.name == '__invert__' else '-'}{left}", False
        else:
            text, open_ended = f"{left}.{_call_text(node)}" if left else _call_text(node), False
    return text, open_ended


def _operand(argument: object) -> str:
    nodes = _nodes(argument) if isinstance(argument, Expr) else None
    if nodes is None:
        return _text(argument)
    text, open_ended = _chain_text(nodes)
    return f"({text})" if open_ended else text


def _call_text(node: Any) -> str:
    arguments = [_text(argument) for argument in node.exprs]
    if node.name == "col":
        return f"col({', '.join(node.kwargs['names'])})"
    if node.name == "lit":
        return f"lit({_value_text(node.kwargs['value'])})"
    if node.name == "when_then":
        otherwise = f".otherwise({arguments[2]})" if len(arguments) > 2 else ""
        return f"when({_condition(node.exprs[0])}).then({arguments[1]}){otherwise}"
    # Left out are options that are off; narwhals marks those not given by a member of an enum.
    options = {
        name: value
        for name, value in node.kwargs.items()
        if value is not None and value is not False and not isinstance(value, enum.Enum)
    }
    if len(options) == 1 and not arguments:
        arguments = [_value_text(value) for value in options.values()]
    else:
        arguments += [f"{name}={_value_text(value)}" for name, value in options.items()]
    return f"{node.name}({', '.join(arguments)})"


def _condition(argument: object) -> str:
    """A condition without the `all_horizontal` that narwhals wraps around it."""
    nodes = _nodes(argument) if isinstance(argument, Expr) else None
    if nodes and len(nodes) == 1 and nodes[0].name == "all_horizontal" and len(nodes[0].exprs) == 1:
        return _condition(nodes[0].exprs[0])
    return _text(argument)


def _value_text(value: object) -> str:
    if isinstance(value, type) or (callable(value) and hasattr(value, "__name__")):
        return str(getattr(value, "__name__", value))
    return _SHORT.repr(value)


def _stable(text: str) -> str:
    """The text in one line, without memory addresses."""
    return " ".join(re.sub(r" at 0x[0-9a-fA-F]+", "", text).split())


class _Short(reprlib.Repr):
    """Shortens long lists and texts; other objects have one line, without their address."""

    def repr_instance(self, x: object, level: int) -> str:
        text = _stable(repr(x))
        return text if len(text) <= _SHOWN_VALUE else f"{text[: _SHOWN_VALUE - 3]}..."


_SHORT: Final = _Short()
