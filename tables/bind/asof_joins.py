"""Binds ASOF JOIN, which Ibis writes: each row with the row of the right side that is nearest to it in one column.

It is a join with a query of one row, `LATERAL (SELECT * ... ORDER BY column DESC LIMIT 1)`; `joins.py` binds that.
"""

from __future__ import annotations

from typing import Final

from penstock.tables.bind.queries import Queries
from penstock.tables.bind.scopes import Scope
from penstock.tables.bind.syntax import conjuncts_of, nodes_in
from penstock.tables.parse import nodes as n
from penstock.tables.parse import queries as q

_RIGHT_IS_LESS: Final = {">=": True, ">": True, "<=": False, "<": False}
"""Of `left.column >= right.column`, the greatest right one is the nearest."""


def nearest_join(queries: Queries, join: q.Join, left: Scope) -> q.Join:
    """The join with a query of the nearest row.

    Args:
        left: the names of the left side.

    Raises:
        SqlUnsupportedError: the right side is no table with a name, or not one column of it is compared by order.
        SqlValidationError: a name in the condition is that of a column of both sides.
    """
    right = join.right
    named = isinstance(right, q.TableName | q.DerivedTable)
    alias = right.alias if isinstance(right, q.TableName | q.DerivedTable) else None
    name = alias.name if alias is not None else right.name.parts[-1] if isinstance(right, q.TableName) else None
    if not named or name is None or join.condition is None:
        raise queries.source.unsupported(
            join.at, "ASOF JOIN takes a table or a query with a name on its right side, ON"
        )
    found = [order for part in conjuncts_of(join.condition) if (order := _order(part, name.name)) is not None]
    if len(found) != 1:
        raise queries.source.unsupported(
            join.at, f"ASOF JOIN compares one column of {name.name}, as it is, by >=, >, <= or <, and others by ="
        )
    _refuse_ambiguous(queries, join.condition, left, right)
    at = join.at
    every = q.SelectItem(at, n.Star(at, None))
    select = q.Select(at, (every,), right, where=join.condition)
    first = q.Query(at, select, order_by=(found[0],), limit=n.NumberLiteral(at, "1"))
    kind = "LEFT" if join.kind == "ASOF LEFT" else "INNER"
    return q.Join(
        at, kind, join.left, q.DerivedTable(at, first, q.Alias(name), lateral=True), n.BooleanLiteral(at, True)
    )


def _refuse_ambiguous(queries: Queries, condition: n.Node, left: Scope, right: q.Relation) -> None:
    """Refuse a name that both sides have; the query of the nearest row would take it for its own."""
    node, scope = queries.relation(right)
    both = left.beside(scope, (*left.columns, *node.columns))
    for part in nodes_in(condition):
        if isinstance(part, n.Name):
            both.find(part, queries.source)


def _order(part: n.Node, name: str) -> n.OrderItem | None:
    """In which order the nearest row is the first, where a condition says it."""
    if not isinstance(part, n.Binary) or part.operator not in _RIGHT_IS_LESS:
        return None
    for column, is_right in ((part.right, True), (part.left, False)):
        if isinstance(column, n.Name) and column.parts[0].name == name:
            return n.OrderItem(part.at, column, _RIGHT_IS_LESS[part.operator] is is_right, None)
    return None
