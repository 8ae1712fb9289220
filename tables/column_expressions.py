"""Column expressions of streams, `col("price") * 2`, in the verbs of tables: each is a function of the table's columns.

`Table` calls it. Results are those of the same expression in `DataStream.select`, and have the SQL type of these.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from penstock.engine.elements import Batch
from penstock.engine.errors import GraphError
from penstock.engine.expressions import Expr, Select, apply, bind, select
from penstock.tables.functions.user import UserFunction, UserFunctionKind
from penstock.tables.types import SqlType, arrow_type, type_of_arrow


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
        GraphError: an expression is not row-wise, names a column that there is not, or gives what SQL has no type for.

    Example:
        >>> from penstock.engine.expressions import col
        >>> from penstock.tables.types import INT
        >>> [name for _, name in written("select", ["a", (col("a") + 1).alias("b")], {"a": INT}, {})]
        [None, 'b']
    """
    schema = pa.schema([(name, arrow_type(kind)) for name, kind in columns.items()])
    arguments = ", ".join(f"`{name}`" for name in columns)
    found: list[tuple[str, str | None]] = []
    for item in items:
        if isinstance(item, str):
            found.append((item, None))
            continue
        step = select(item)
        output = bind((step,), schema, verb)
        for place, field in enumerate(output):
            kind = type_of_arrow(field.type)
            if kind is None:
                raise GraphError(f"{verb}: {field.name!r} is {field.type}, which SQL has no type for; cast it")
            # Operators are known by what they compute, so the name says which expression it is.
            name = f"column_{hashlib.sha256(repr(item).encode()).hexdigest()[:12]}_{place}"
            computed = _Computed(step, schema, output, place)
            functions[name.upper()] = UserFunction(UserFunctionKind.COLUMNS, computed, kind, None)
            found.append((f"{name}({arguments})", field.name))
    return found
