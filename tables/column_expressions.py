"""Column expressions of streams, `col("price") * 2`, in the verbs of tables: each is a function of the table's columns.

`Table` calls it. Results are those of the same expression in `DataStream.select`, and have the SQL type of these. A
column as it is, such as `col("price").alias("p")`, is that column in SQL, so that it stays event time or a key.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from penstock.engine.canonical_expressions import canonical
from penstock.engine.elements import Batch
from penstock.engine.errors import GraphError
from penstock.engine.expressions import Expr, Select, apply, bind, operations, select
from penstock.tables.catalog.catalog import quoted
from penstock.tables.functions.user import UserFunction, UserFunctionKind
from penstock.tables.types import SqlType, arrow_type, type_of_arrow

_READ_OTHERS: Final = ("ALL", "EXCLUDE", "NTH", "SELECTOR")
"""The kinds of operations that read columns without naming them."""


@dataclass(frozen=True, slots=True)
class _Computed:
    """One column of what an expression makes of those of a table."""

    step: Select
    schema: pa.Schema
    output: pa.Schema
    place: int

    def __call__(self, *columns: pa.Array) -> pa.Array:
        data = pa.RecordBatch.from_arrays(list(columns), schema=self.schema)
        return apply((self.step,), Batch(data), self.output).data.column(self.place)


def written(
    verb: str, items: Sequence[str | Expr], columns: Mapping[str, SqlType], functions: dict[str, UserFunction]
) -> list[tuple[str, str | None]]:
    """What a verb is given as expressions of SQL, each with the name that it gives its column; None: SQL decides.

    Args:
        verb: for messages.
        items: SQL, or expressions, which have their own names or aliases.
        columns: of the table.
        functions: gets what the SQL calls, by name in capitals.

    Raises:
        GraphError: an expression is not row-wise, names a column that there is not, gives what SQL has no type for, or
            several columns to `where`, or holds an object by which state could not be known again.

    Example:
        >>> from penstock.engine.expressions import col
        >>> from penstock.tables.types import INT
        >>> written("select", ["a + 1", col("a").alias("b")], {"a": INT}, {})
        [('a + 1', None), ('`a`', 'b')]
    """
    found: list[tuple[str, str | None]] = []
    for item in items:
        found += [(item, None)] if isinstance(item, str) else _of_expression(verb, item, columns, functions)
    return found


def _of_expression(
    verb: str, item: Expr, columns: Mapping[str, SqlType], functions: dict[str, UserFunction]
) -> list[tuple[str, str]]:
    """What an expression is in SQL, and the name, of each of its columns."""
    step = select(item)
    output = bind((step,), _schema(columns), verb)
    if verb == "where" and len(output) != 1:
        raise GraphError(f"{verb}: the condition gives {len(output)} columns; join them with all_horizontal(...)")
    plain = _plain_columns(item)
    if plain:
        return [(quoted(name), field.name) for name, field in zip(plain, output, strict=True)]
    text = canonical(item)
    read = _columns_in(text, columns)
    schema = _schema(read)
    # Operators are known by what they compute, so the name says which expression it is, and of which columns.
    known = hashlib.sha256(canonical([text, list(read)]).encode()).hexdigest()[:12]
    arguments = ", ".join(map(quoted, read))
    found = []
    for place, field in enumerate(output):
        kind = type_of_arrow(field.type)
        if kind is None:
            raise GraphError(f"{verb}: {field.name!r} is {field.type}, which SQL has no type for; cast it")
        name = f"column_{known}_{place}"
        computed = _Computed(step, schema, output, place)
        functions[name.upper()] = UserFunction(UserFunctionKind.COLUMNS, computed, kind, None)
        found.append((f"{name}({arguments})", field.name))
    return found


def _schema(columns: Mapping[str, SqlType]) -> pa.Schema:
    return pa.schema([(name, arrow_type(kind)) for name, kind in columns.items()])


def _plain_columns(item: Expr) -> list[str]:
    """The columns that an expression names and gives as they are, by whatever names; none: it computes something."""
    found = operations(item)
    if not found or found[0].name != "col":
        return []
    renamed = all(node.name == "alias" or node.name.startswith("name.") for node in found[1:])
    return list(found[0].kwargs["names"]) if renamed else []


def _columns_in(text: str, columns: Mapping[str, SqlType]) -> dict[str, SqlType]:
    """The columns that an expression of this text may read; at least one, which says how many rows there are."""
    if any(f"{kind}:" in text for kind in _READ_OTHERS):
        return dict(columns)
    named = {name: kind for name, kind in columns.items() if repr(name) in text}
    return named or dict([*columns.items()][:1])
