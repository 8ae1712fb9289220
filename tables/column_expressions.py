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
from penstock.engine.expressions import Expr, Select, apply, bind, col, conjuncts, operations, select
from penstock.tables.catalog.catalog import quoted
from penstock.tables.functions.user import UserFunction, UserFunctionKind
from penstock.tables.types import SqlType, arrow_type, type_of_arrow

_READ_OTHERS: Final = ("ALL", "EXCLUDE", "NTH", "SELECTOR")
"""The kinds of operations that read columns without naming them."""

_CONDITIONS: Final = ("where", "join")


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
    verb: str,
    items: Sequence[str | Expr],
    columns: Mapping[str, SqlType],
    functions: dict[str, UserFunction],
    texts: Mapping[str, str] | None = None,
) -> list[tuple[str, str | None]]:
    """What a verb is given as expressions of SQL, each with the name that it gives its column; None: SQL decides.

    Args:
        verb: for messages.
        items: SQL, or expressions, which have their own names or aliases.
        columns: of the table.
        functions: gets what the SQL calls, by name in capitals.
        texts: what each column is in SQL; None: its name in backticks.

    Raises:
        GraphError: an expression is not row-wise, names a column that there is not, gives what SQL has no type for, or
            several columns to `where` or `join`, or holds an object by which state could not be known again.

    Example:
        >>> from penstock.engine.expressions import col
        >>> from penstock.tables.types import INT
        >>> written("select", ["a + 1", col("a").alias("b")], {"a": INT}, {})
        [('a + 1', None), ('`a`', 'b')]
    """
    found: list[tuple[str, str | None]] = []
    for item in items:
        shown = texts or {name: quoted(name) for name in columns}
        found += [(item, None)] if isinstance(item, str) else _of_expression(verb, item, columns, functions, shown)
    return found


def join_condition(
    on: Expr, this: Mapping[str, SqlType], other: Mapping[str, SqlType], functions: dict[str, UserFunction]
) -> str:
    """What a condition of `join` is in SQL, in which equal columns are compared, so that rows meet by them.

    Args:
        on: names columns `this.a` and `other.a`; those that only one table has, also `a`.
        this, other: the columns of the tables.
        functions: as of `written`.

    Raises:
        GraphError: as of `written`.

    Example:
        >>> from penstock.engine.expressions import col
        >>> from penstock.tables.types import INT
        >>> join_condition(col("this.a") == col("b"), {"a": INT}, {"a": INT, "b": INT}, {})
        '`this`.`a` = `other`.`b`'
    """
    columns: dict[str, SqlType] = {}
    texts: dict[str, str] = {}
    for table, own, others in (("this", this, other), ("other", other, this)):
        for name, kind in own.items():
            for known in (f"{table}.{name}",) if name in others else (f"{table}.{name}", name):
                columns[known], texts[known] = kind, f"{quoted(table)}.{quoted(name)}"
    found = []
    for condition in conjuncts(on):
        sides = [written("join", [side], columns, functions, texts)[0][0] for side in _equal_columns(condition)]
        found.append(" = ".join(sides) or written("join", [condition], columns, functions, texts)[0][0])
    return " AND ".join(found)


def _equal_columns(condition: Expr) -> list[Expr]:
    """The two columns that a condition says are equal; nothing where it says something else."""
    nodes = operations(condition)
    if not nodes or len(nodes) != 2 or nodes[1].name != "__eq__" or not isinstance(nodes[1].exprs[0], Expr):
        return []
    left, right = nodes[0], nodes[1].exprs[0]
    if left.name != "col" or len(left.kwargs["names"]) != 1 or len(_plain_columns(right)) != 1:
        return []
    return [col(*left.kwargs["names"]), right]


def _of_expression(
    verb: str,
    item: Expr,
    columns: Mapping[str, SqlType],
    functions: dict[str, UserFunction],
    texts: Mapping[str, str],
) -> list[tuple[str, str]]:
    """What an expression is in SQL, and the name, of each of its columns."""
    step = select(item)
    output = bind((step,), _schema(columns), verb)
    if verb in _CONDITIONS and len(output) != 1:
        raise GraphError(f"{verb}: the condition gives {len(output)} columns; join them with all_horizontal(...)")
    plain = _plain_columns(item)
    if plain:
        return [(texts[name], field.name) for name, field in zip(plain, output, strict=True)]
    text = canonical(item)
    read = _columns_in(text, columns)
    schema = _schema(read)
    # Operators are known by what they compute, so the name says which expression it is, and of which columns.
    known = hashlib.sha256(canonical([text, list(read)]).encode()).hexdigest()[:12]
    arguments = ", ".join(texts[name] for name in read)
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
