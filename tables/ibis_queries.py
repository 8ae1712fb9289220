"""Ibis: tables of the catalog as Ibis's tables, and its expressions as queries, by Ibis's own compiler for Flink's SQL.

`TableEnvironment.ibis_table` and `from_ibis` call it. Ibis is an extra, and is loaded here, when it is wanted.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
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


def unbound_table(name: str, columns: Mapping[str, SqlType]) -> ibis.Table:
    """A table of Ibis's that stands for the one which SQL calls `name`.

    Raises:
        ConfigurationError: Ibis is not installed.
        GraphError: a column has a type that Ibis does not have.
    """
    types = {column: _of_type(kind, column) for column, kind in columns.items()}
    return _ibis().table(types, name=name)


def compiled(expression: ibis.Expr) -> str:
    """The query of SQL that says the same.

    Raises:
        ConfigurationError: Ibis is not installed, or this is no expression of its.
        GraphError: Ibis cannot say it in Flink's SQL, or it holds data of its own.
    """
    ibis = _ibis()
    if not isinstance(expression, ibis.Expr):
        raise ConfigurationError(f"from_ibis takes an expression of Ibis's, not {expression!r}")
    operations: Any = importlib.import_module("ibis.expr.operations")
    if expression.op().find(operations.InMemoryTable):
        raise GraphError(
            "from_ibis: the expression holds a memtable, whose rows no query can name: give them a name by "
            "tables.create_temporary_view(name, env.from_collection(...)), and take tables.ibis_table(name)"
        )
    try:
        return str(ibis.to_sql(_with_whole_means(expression, operations), dialect="flink"))
    except ibis.common.exceptions.IbisError as error:
        raise GraphError(f"from_ibis: Ibis cannot say this in Flink's SQL: {error}; write this part as SQL") from error


def _with_whole_means(expression: ibis.Expr, operations: Any) -> ibis.Expr:
    """The expression with means and variances of whole numbers as Ibis has them: SQL's are whole numbers, too."""
    float64 = importlib.import_module("ibis.expr.datatypes").float64

    def of_floats(node: Any, changed: Mapping[str, Any] | None) -> Any:
        node = node.__recreate__(changed) if changed else node
        if (
            isinstance(node, operations.Mean | operations.StandardDev | operations.Variance)
            and node.arg.dtype.is_integer()
        ):
            return node.copy(arg=operations.Cast(node.arg, float64))
        return node

    return expression.op().replace(of_floats).to_expr()


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
