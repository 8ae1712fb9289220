"""Keys with nulls: the engine's keys have none, and SQL groups by null as by any value.

A column that may be null becomes two: its value with something in the place of null, and whether it was null.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from penstock.engine.errors import ColumnTypeError
from penstock.tables.building import call
from penstock.tables.expressions import Conditional, Constant, Expression, InputColumn
from penstock.tables.plan.nodes import Column
from penstock.tables.types import Kind, SqlType, arrow_type, may_be_key

_FLAG: Final = SqlType(Kind.TINYINT, nullable=False)


@dataclass(frozen=True, slots=True)
class EncodedKeys:
    """Key columns for the engine.

    Args:
        names: of the engine's columns, in order.
        expressions: compute them over the input.
        types: theirs.
        places: for each key where its value is among them, and where its flag is, or None.
    """

    names: tuple[str, ...]
    expressions: tuple[Expression, ...]
    types: tuple[SqlType, ...]
    places: tuple[tuple[int, int | None], ...]

    def decoded(self, key: int, columns: Sequence[int]) -> Expression:
        """The key's value over a result whose columns `columns` are the engine's keys."""
        value, flag = self.places[key]
        column = InputColumn(self.types[value], columns[value])
        if flag is None:
            return column
        nullable = column.type.with_nullable(True)
        is_null = call("=", InputColumn(_FLAG, columns[flag]), Constant(_FLAG, 1))
        return Conditional(nullable, ((is_null, Constant(nullable, None)),), column)


def encoded_keys(columns: Sequence[Column], keys: Sequence[int], where: str) -> EncodedKeys:
    """The engine's key columns for some columns.

    Args:
        columns: of the input.
        keys: places among them.
        where: the clause, for errors.

    Raises:
        ColumnTypeError: a type that cannot be a key.
    """
    names: list[str] = []
    expressions: list[Expression] = []
    types: list[SqlType] = []
    places: list[tuple[int, int | None]] = []
    for number, key in enumerate(keys):
        column = columns[key]
        _check(column, where)
        own = InputColumn(column.type, key)
        kind = column.type.with_nullable(False)
        value: Expression = own
        flag: int | None = None
        if column.type.nullable:
            is_null = call("IS_NULL", own)
            value = Conditional(kind, ((is_null, Constant(kind, _stand_in(kind))),), own)
        names.append(f"k{number}")
        expressions.append(value)
        types.append(kind)
        if column.type.nullable:
            flag = len(names)
            names.append(f"k{number}_null")
            expressions.append(Conditional(_FLAG, ((is_null, Constant(_FLAG, 1)),), Constant(_FLAG, 0)))
            types.append(_FLAG)
        places.append((len(names) - (1 if flag is None else 2), flag))
    return EncodedKeys(tuple(names), tuple(expressions), tuple(types), tuple(places))


def _check(column: Column, where: str) -> None:
    if not may_be_key(column.type):
        raise ColumnTypeError(
            f"{where}: column {column.name!r} is {column.type}, which cannot be a key here; cast it, such as "
            f"CAST({column.name} AS STRING)"
        )


def _stand_in(kind: SqlType) -> object:
    """Some value of the type."""
    match kind.kind:
        case Kind.BOOLEAN:
            return False
        case Kind.CHAR | Kind.VARCHAR:
            return ""
        case Kind.BINARY | Kind.VARBINARY:
            return b""
        case Kind.DECIMAL:
            return decimal.Decimal(0)
        case Kind.DATE:
            return datetime.date(1970, 1, 1)
        case Kind.TIME:
            return datetime.time(0)
        case Kind.TIMESTAMP | Kind.TIMESTAMP_LTZ:
            return pa.scalar(0, pa.int64()).cast(arrow_type(kind)).as_py()
    return 0
