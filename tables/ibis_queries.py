"""Ibis: tables of the catalog as Ibis's tables, and its expressions as queries, by Ibis's own compiler for Flink's SQL.

`TableEnvironment.ibis_table` and `from_ibis` call it. Ibis is an extra, and is loaded here, when it is wanted.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.engine.errors import ConfigurationError, GraphError
from penstock.tables.types import Kind, SqlType

if TYPE_CHECKING:
    import ibis

_TYPES: Final = {
    Kind.BOOLEAN: "boolean",
    Kind.TINYINT: "int8",
    Kind.SMALLINT: "int16",
    Kind.INT: "int32",
    Kind.BIGINT: "int64",
    Kind.FLOAT: "float32",
    Kind.DOUBLE: "float64",
    Kind.CHAR: "string",
    Kind.VARCHAR: "string",
    Kind.BINARY: "binary",
    Kind.VARBINARY: "binary",
    Kind.DATE: "date",
    Kind.TIME: "time",
}
"""Kinds of SQL types that Ibis knows by a name alone."""


def unbound_table(parts: Sequence[str], columns: Mapping[str, SqlType]) -> ibis.Table:
    """A table of Ibis's that stands for one of SQL's.

    Args:
        parts: of its name: `[[catalog, ]database, ]table`.
        columns: of its rows.

    Raises:
        ConfigurationError: Ibis is not installed.
        GraphError: a column has a type that Ibis does not have.
    """
    types = {column: _of_type(kind, column) for column, kind in columns.items()}
    catalog, database, name = [None] * (3 - len(parts)) + list(parts)
    return _ibis().table(types, name=name, catalog=catalog, database=database)


def compiled(expression: ibis.Expr) -> str:
    """The query of SQL that says the same.

    Raises:
        ConfigurationError: Ibis is not installed, or this is no expression of its.
        GraphError: Ibis cannot say it in Flink's SQL, or it is not complete: a parameter, or data of its own.
    """
    ibis = _ibis()
    if not isinstance(expression, ibis.Expr):
        raise ConfigurationError(f"from_ibis takes an expression of Ibis's, not {expression!r}")
    operations: Any = importlib.import_module("ibis.expr.operations")
    _check(expression.op(), operations)
    try:
        return str(ibis.to_sql(_with_types_of_ibis(expression, operations), dialect="flink"))
    except Exception as error:  # Its compiler raises whatever it comes across.
        raise GraphError(f"from_ibis: Ibis cannot say this in Flink's SQL: {error}; write this part as SQL") from error


def _check(node: Any, operations: Any) -> None:
    if node.find(operations.InMemoryTable):
        raise GraphError(
            "from_ibis: the expression holds a memtable, whose rows no query can name: give them a name by "
            "tables.create_temporary_view(name, env.from_collection(...)), and take tables.ibis_table(name)"
        )
    if parameters := node.find(operations.ScalarParameter):
        raise GraphError(
            f"from_ibis: the expression holds ibis.param({str(parameters[0].dtype)!r}), which has no value: write the "
            "value in its place"
        )
    for window in node.find(operations.WindowAggregate):
        table = window.parent
        if isinstance(table, operations.UnboundTable) and table.namespace.database:
            raise GraphError(
                f"from_ibis: a window is over {table.name!r} of the database {table.namespace.database!r}, which Ibis "
                "leaves out: USE the database, and take ibis_table by the table's own name"
            )


def _with_types_of_ibis(expression: ibis.Expr, operations: Any) -> ibis.Expr:
    """The expression with casts where arithmetic of SQL has narrower types, or other numbers, than that of Ibis."""
    types: Any = importlib.import_module("ibis.expr.datatypes")
    aggregates = operations.Sum | operations.Mean | operations.StandardDev | operations.Variance
    arithmetic = operations.Add | operations.Subtract | operations.Multiply | operations.Modulus

    def cast(node: Any, kind: Any) -> Any:
        # Of literals and some functions, Ibis has wider types than SQL: only these are sure to be the same in both.
        is_known = isinstance(node, operations.Cast) or isinstance(getattr(node, "rel", None), operations.UnboundTable)
        return node if is_known and type(node.dtype) is type(kind) else operations.Cast(node, kind)

    def typed(node: Any, changed: Mapping[str, Any] | None) -> Any:
        kind = getattr(node, "dtype", types.null)
        node = node.__recreate__(changed) if changed else node
        if isinstance(node, operations.FloorDivide):
            if node.left.dtype.is_integer() and node.right.dtype.is_integer():
                # `/` of whole numbers cuts off; of these decimals it is exact enough for the floor of any two BIGINTs.
                whole = types.Decimal(19, 0)
                node = node.copy(left=operations.Cast(node.left, whole), right=operations.Cast(node.right, whole))
            return operations.Cast(node, kind)
        if kind.is_integer() or kind.is_floating():
            if isinstance(node, arithmetic):
                # Once more, as Ibis has the sum of two that were made wider as wider still.
                return cast(node.copy(left=cast(node.left, kind), right=cast(node.right, kind)), kind)
            if isinstance(node, aggregates):
                return node.copy(arg=cast(node.arg, kind))
        return node

    # As a table it has the names of its columns already, in which casts would be seen.
    return expression.as_table().op().replace(typed).to_expr()


def _ibis() -> Any:
    try:
        return importlib.import_module("ibis")
    except ImportError as error:
        raise ConfigurationError(
            f"Ibis is not installed ({error}): install it by `pip install 'penstock[ibis]'`"
        ) from error


def _of_type(kind: SqlType, column: str) -> Any:
    types: Any = importlib.import_module("ibis.expr.datatypes")
    parts = [_of_type(part, column) for part in kind.parts]
    match kind.kind:
        case Kind.DECIMAL:
            return types.Decimal(kind.precision, kind.scale, nullable=kind.nullable)
        case Kind.TIMESTAMP:
            return types.Timestamp(scale=kind.precision, nullable=kind.nullable)
        case Kind.TIMESTAMP_LTZ:
            return types.Timestamp(timezone="UTC", scale=kind.precision, nullable=kind.nullable)
        case Kind.ARRAY:
            return types.Array(*parts, nullable=kind.nullable)
        case Kind.MAP:
            return types.Map(*parts, nullable=kind.nullable)
        case Kind.ROW:
            return types.Struct({one.name: _of_type(one.type, column) for one in kind.fields}, nullable=kind.nullable)
    if kind.kind not in _TYPES:
        raise GraphError(f"ibis_table: column {column!r} is {kind}, and Ibis has no such type: CAST it in a view")
    return types.dtype(_TYPES[kind.kind], nullable=kind.nullable)
