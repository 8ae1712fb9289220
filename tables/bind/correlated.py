"""Frees a query from the columns of the query around it: what it compares them with becomes columns of its own.

Queries as values, EXISTS, IN and LATERAL are joined by these columns then. It says what it cannot free.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.tables.bind.expression_binder import ExpressionBinder, cannot_be_compared
from penstock.tables.bind.ordering import check_ordered
from penstock.tables.bind.queries import Queries
from penstock.tables.bind.scopes import Scope
from penstock.tables.bind.syntax import conjunction_of, conjuncts_of, is_aggregate, nodes_in
from penstock.tables.building import call, converted
from penstock.tables.expressions import Expression, InputColumn
from penstock.tables.functions.common_types import EQUALITIES, comparable_type
from penstock.tables.parse import nodes as n
from penstock.tables.parse import queries as q
from penstock.tables.plan.nodes import PlanNode


@dataclass(frozen=True, slots=True)
class Correlated:
    """A query without the conditions that name outer columns.

    Args:
        node: its columns, and behind them those that outer values are compared with.
        width: how many columns it has of its own.
        outer: the outer values, as many as columns behind its own.
    """

    node: PlanNode
    width: int
    outer: tuple[n.Node, ...]

    def tests(self, queries: Queries, scope: Scope, first: int) -> list[Expression]:
        """The comparisons, over the outer columns and those of `node`, which begin at place `first`."""
        binder = ExpressionBinder(queries.source, scope)
        columns = self.node.columns[self.width :]
        return [
            equal(queries, binder.bind(value), InputColumn(column.type, first + self.width + place), value.at)
            for place, (value, column) in enumerate(zip(self.outer, columns, strict=True))
        ]


def compared(queries: Queries, operator: str, one: Expression, other: Expression, at: int) -> Expression:
    """A comparison of two values.

    Raises:
        SqlValidationError: their types cannot be compared, or not in this way.
    """
    common = comparable_type(one.type, other.type, operator)
    if common is None:
        raise queries.source.invalid(at, cannot_be_compared(one.type, other.type))
    if operator not in EQUALITIES:
        check_ordered(common, at, repr(operator), queries.source)
    return call(operator, converted(one, common), converted(other, common))


def equal(queries: Queries, one: Expression, other: Expression, at: int) -> Expression:
    """Whether two values are the same."""
    return compared(queries, "=", one, other, at)


def correlated(queries: Queries, query: q.Query, outer: Scope) -> Correlated | None:
    """The query freed of outer columns; None where it names none in its WHERE.

    Raises:
        SqlUnsupportedError: outer columns stand elsewhere than in WHERE, or are not compared by `=`.
    """
    body = query.body
    if not isinstance(body, q.Select) or body.source is None or body.where is None or query.ctes:
        return None
    _, inner = queries.relation(body.source)
    pairs: list[tuple[n.Node, n.Node]] = []
    local: list[n.Node] = []
    for part in conjuncts_of(body.where):
        if not _names_outer(queries, part, inner, outer):
            local.append(part)
            continue
        pairs.append(_pair(queries, part, inner, outer))
    if not pairs:
        return None
    keys = tuple(one for one, _ in pairs)
    named = tuple(q.SelectItem(key.at, key, n.Identifier(key.at, f"key${i}")) for i, key in enumerate(keys))
    has_groups = body.group_by is not None or any(is_aggregate(part) for item in body.items for part in nodes_in(item))
    group_by = (*(body.group_by or ()), *keys) if has_groups else None
    freed = replace(body, items=(*body.items, *named), where=conjunction_of(local), group_by=group_by)
    if query.limit is not None and (body.group_by is not None or not has_groups):
        freed = _cut(queries, freed, query, keys, has_groups)
    node = queries.body(freed)
    return Correlated(node, len(node.columns) - len(keys), tuple(value for _, value in pairs))


def _names(node: n.Node) -> list[n.Name]:
    return [part for part in nodes_in(node) if isinstance(part, n.Name)]


def _names_outer(queries: Queries, part: n.Node, inner: Scope, outer: Scope) -> bool:
    return any(
        inner.find(name, queries.source) is None and outer.find(name, queries.source) is not None
        for name in _names(part)
    )


def _pair(queries: Queries, part: n.Node, inner: Scope, outer: Scope) -> tuple[n.Node, n.Node]:
    """The inner and the outer side of a comparison."""
    if isinstance(part, n.Binary) and part.operator == "=":
        for one, other in ((part.left, part.right), (part.right, part.left)):
            is_inner = _names(one) and all(inner.find(name, queries.source) is not None for name in _names(one))
            if is_inner and all(inner.find(name, queries.source) is None for name in _names(other)):
                return one, other
    raise queries.source.unsupported(
        part.at,
        "a query of this form compares columns of the outer query by = with its own, and no others; use a join ON this "
        "condition (for an aggregate LEFT JOIN, with GROUP BY the outer columns)",
    )


def _cut(queries: Queries, select: q.Select, query: q.Query, keys: tuple[n.Node, ...], has_groups: bool) -> q.Select:
    """LIMIT for each outer row: the first rows of each value of the keys."""
    at, limit = query.at, query.limit
    if has_groups or select.distinct or select.qualify is not None or query.offset is not None:
        raise queries.source.unsupported(
            at, "LIMIT of a query that names outer columns goes with a plain SELECT; use ROW_NUMBER() in a join"
        )
    assert limit is not None
    aliases = {item.alias.name: item.value for item in select.items if item.alias is not None}
    order = tuple(
        replace(item, value=aliases.get(item.value.text, item.value)) if isinstance(item.value, n.Name) else item
        for item in query.order_by
    )
    number = n.Call(at, "ROW_NUMBER", (), over=n.Over(at, keys, order))
    return replace(select, qualify=n.Binary(at, "<=", number, limit))
