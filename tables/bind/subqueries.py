"""Binds WHERE: what EXISTS and IN say of a query becomes a semi or an anti join, the rest a filter.

A condition of the inner query that names columns of the outer one is part of the join's condition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.tables.bind.expression_binder import ExpressionBinder, call, chain, converted
from penstock.tables.bind.scopes import Scope
from penstock.tables.expressions import Expression, InputColumn, columns_in, on_columns
from penstock.tables.functions.common_types import comparable_type
from penstock.tables.parse import nodes as n
from penstock.tables.parse import queries as q
from penstock.tables.plan.nodes import Columns, Filter, Join, JoinKind, PlanNode

if TYPE_CHECKING:
    from penstock.tables.bind.query_binder import QueryBinder


def bind_where(queries: QueryBinder, where: n.Node, node: PlanNode, scope: Scope) -> PlanNode:
    """The rows for which WHERE is true.

    Raises:
        SqlError: it does not fit, or has a subquery where none may stand.
    """
    plain: list[n.Node] = []
    subqueries: list[tuple[n.Exists | n.InQuery, bool]] = []
    for part in _conjuncts(where):
        found = _subquery(part)
        if found is None:
            plain.append(part)
        else:
            subqueries.append(found)
    binder = ExpressionBinder(queries.source, scope)
    if plain:
        node = Filter(node, chain("AND", [binder.condition(part, "WHERE") for part in plain]))
    for subquery, negated in subqueries:
        node = _joined(queries, subquery, negated, node, scope)
    return node


def _conjuncts(node: n.Node) -> list[n.Node]:
    found: list[n.Node] = []
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, n.Binary) and part.operator == "AND":
            waiting += [part.right, part.left]
        else:
            found.append(part)
    return found


def _subquery(node: n.Node) -> tuple[n.Exists | n.InQuery, bool] | None:
    negated = False
    while isinstance(node, n.Unary) and node.operator == "NOT":
        node, negated = node.operand, not negated
    if isinstance(node, n.Exists):
        return node, negated
    if isinstance(node, n.InQuery):
        return node, negated is not node.negated
    return None


def _joined(
    queries: QueryBinder, subquery: n.Exists | n.InQuery, negated: bool, node: PlanNode, scope: Scope
) -> PlanNode:
    tests: list[Expression] = []
    inner = _inner(queries, subquery.query, scope, tests)
    if tests and isinstance(subquery, n.InQuery):
        raise queries.source.unsupported(
            subquery.at, "IN with a query that names columns of the outer query is not supported; use EXISTS"
        )
    if isinstance(subquery, n.InQuery):
        tests.extend(_membership(queries, subquery, inner.columns, scope))
        kind = JoinKind.NULL_AWARE_ANTI if negated else JoinKind.SEMI
        compared = [part for test in tests for part in (test.arguments if hasattr(test, "arguments") else ())]
        if negated and not any(part.type.nullable for part in compared):
            kind = JoinKind.ANTI
    else:
        kind = JoinKind.ANTI if negated else JoinKind.SEMI
    condition: Expression | None = None
    for test in tests:
        condition = test if condition is None else call("AND", condition, test)
    return Join(kind, node, inner, condition, node.columns)


def _membership(queries: QueryBinder, subquery: n.InQuery, columns: Columns, scope: Scope) -> list[Expression]:
    operand = subquery.operand
    values = operand.items if isinstance(operand, n.RowConstructor) else (operand,)
    if len(values) != len(columns):
        raise queries.source.invalid(
            subquery.at, f"the query of IN has {len(columns)} columns, and {len(values)} values are sought in it"
        )
    binder = ExpressionBinder(queries.source, scope)
    tests: list[Expression] = []
    for place, value in enumerate(values):
        bound = binder.bind(value)
        column = InputColumn(columns[place].type, len(scope.columns) + place)
        common = comparable_type(bound.type, column.type)
        if common is None:
            raise queries.source.invalid(
                value.at, f"{bound.type} and {column.type} cannot be compared; cast one of them"
            )
        tests.append(call("=", converted(bound, common), converted(column, common)))
    return tests


def _inner(queries: QueryBinder, query: q.Query, outer: Scope, tests: list[Expression]) -> PlanNode:
    """The rows of a subquery; what it says of outer columns is added to `tests`."""
    body = query.body
    simple = isinstance(body, q.Select) and body.where is not None and not query.ctes
    if not isinstance(body, q.Select) or not simple or body.source is None or not _is_correlated(queries, body, outer):
        return queries.query(query)
    if body.group_by is not None or body.having is not None or body.distinct or query.order_by or query.limit:
        raise queries.source.unsupported(
            query.at, "a subquery that names columns of the outer query may have FROM and WHERE only; use a join"
        )
    from penstock.tables.bind.select_binder import SelectBinder

    node, scope = queries.relation(body.source)
    assert body.where is not None
    width = len(outer.columns)
    kept: list[n.Node] = []
    correlated: list[Expression] = []
    both = outer.beside(scope, (*outer.columns, *node.columns))
    inner_first = Scope((*both.members[len(outer.members) :], *outer.members), both.columns)
    for part in _conjuncts(body.where):
        if _subquery(part) is not None:
            kept.append(part)
            continue
        bound = _bound_inside(queries, part, inner_first, width, scope)
        if any(place < width for place in columns_in(bound)):
            correlated.append(bound)
        else:
            node = Filter(node, on_columns(bound, lambda place: place - width))
    for part in kept:
        node = bind_where(queries, part, node, scope)
    if correlated:
        # The condition names columns of FROM, so that SELECT's own columns do not count.
        tests.extend(correlated)
        return node
    return SelectBinder(queries, body).bind((), (None, 0))


def _bound_inside(queries: QueryBinder, part: n.Node, both: Scope, width: int, inner: Scope) -> Expression:
    """A condition over inner and outer columns; names mean the inner ones first."""

    def hook(node: n.Node) -> Expression | None:
        if not isinstance(node, n.Name):
            return None
        found = inner.find(node, queries.source)
        return None if found is None else on_columns(found, lambda place: place + width)

    return ExpressionBinder(queries.source, both, hook).condition(part, "WHERE")


def _is_correlated(queries: QueryBinder, body: q.Select, outer: Scope) -> bool:
    """Whether a name in WHERE means a column of the outer query."""
    from penstock.tables.bind.select_binder import nodes_in

    assert body.source is not None
    _, scope = queries.relation(body.source)
    names = [node for node in nodes_in(body.where) if isinstance(node, n.Name)]
    return any(
        scope.find(name, queries.source) is None and outer.find(name, queries.source) is not None for name in names
    )
