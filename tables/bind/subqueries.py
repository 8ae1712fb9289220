"""Binds WHERE: what EXISTS, IN, ANY and ALL say of a query becomes a semi or an anti join, the rest a filter.

A condition of the inner query that names columns of the outer one is part of the join's condition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from penstock.tables.bind.correlated import compared, correlated, equal
from penstock.tables.bind.expression_binder import ExpressionBinder
from penstock.tables.bind.queries import Outer, Queries
from penstock.tables.bind.scalar_subqueries import ScalarSubqueries
from penstock.tables.bind.scopes import Scope
from penstock.tables.bind.syntax import conjunction_of, conjuncts_of, nodes_in
from penstock.tables.building import call, chain
from penstock.tables.expressions import Expression, FunctionCall, InputColumn, columns_in, on_columns
from penstock.tables.parse import nodes as n
from penstock.tables.parse import queries as q
from penstock.tables.plan.nodes import Filter, Join, JoinKind, PlanNode

Tested: TypeAlias = q.Exists | q.InQuery | q.Compared
"""The conditions about a query."""


def bind_where(queries: Queries, where: n.Node, node: PlanNode, scope: Scope) -> PlanNode:
    """The rows for which WHERE is true.

    Raises:
        SqlError: it does not fit, or has a subquery where none may stand.
    """
    plain: list[n.Node] = []
    subqueries: list[tuple[Tested, bool]] = []
    for part in conjuncts_of(where):
        found = _tested_query(part)
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


def without_values(values: ScalarSubqueries, where: n.Node) -> n.Node | None:
    """WHERE with the values of queries; EXISTS and IN of whole conditions stay, to become joins of their own."""
    return conjunction_of(
        [
            values.replaced(part) if _tested_query(part) is None else values.replaced_test(part)
            for part in conjuncts_of(where)
        ]
    )


def _tested_query(node: n.Node) -> tuple[Tested, bool] | None:
    """A condition about a query, and whether it is negated; None for other conditions."""
    negated = False
    while isinstance(node, n.Unary) and node.operator == "NOT":
        node, negated = node.operand, not negated
    if isinstance(node, q.Exists | q.Compared):
        return node, negated
    if isinstance(node, q.InQuery):
        return node, negated is not node.negated
    return None


@dataclass(frozen=True, slots=True)
class _Inner:
    """The rows of a subquery.

    Args:
        values: its columns, over those of the outer query and then those of `node`.
        tests: what it says of outer columns, over the same.
    """

    node: PlanNode
    values: tuple[Expression, ...]
    tests: tuple[Expression, ...] = ()


def _joined(queries: Queries, subquery: Tested, negated: bool, node: PlanNode, scope: Scope) -> PlanNode:
    inner = _inner(queries, subquery, Outer(scope, node))
    kind = JoinKind.ANTI if negated else JoinKind.SEMI
    tests = list(inner.tests)
    if isinstance(subquery, q.InQuery):
        same = _membership(queries, subquery, inner.values, scope)
        is_open = any(part.type.nullable for test in same if isinstance(test, FunctionCall) for part in test.arguments)
        if negated and is_open and tests:
            # A null on either side says nothing of equality, so that it meets all.
            tests.append(call("NOT", call("IS_FALSE", chain("AND", same))))
        else:
            kind = JoinKind.NULL_AWARE_ANTI if negated and is_open else kind
            tests += same
    elif isinstance(subquery, q.Compared):
        kind = JoinKind.SEMI if subquery.every is negated else JoinKind.ANTI
        tests.append(_decides(subquery, negated, _comparison(queries, subquery, inner.values, scope)))
    condition = chain("AND", tests) if tests else None
    return Join(kind, node, inner.node, condition, node.columns)


def _comparison(queries: Queries, subquery: q.Compared, columns: tuple[Expression, ...], scope: Scope) -> Expression:
    if len(columns) != 1:
        raise queries.source.invalid(
            subquery.at, f"the query has {len(columns)} columns, and 1 value is compared with those of it"
        )
    operand = ExpressionBinder(queries.source, scope).bind(subquery.operand)
    return compared(queries, subquery.operator, operand, columns[0], subquery.at)


def _decides(subquery: q.Compared, negated: bool, comparison: Expression) -> Expression:
    """What of one row of the query settles the condition: a null says nothing, so ALL fails and NOT ANY as well."""
    if not subquery.every:
        return call("NOT", call("IS_FALSE", comparison)) if negated else comparison
    return call("IS_FALSE", comparison) if negated else call("NOT", call("IS_TRUE", comparison))


def _membership(
    queries: Queries, subquery: q.InQuery, columns: tuple[Expression, ...], scope: Scope
) -> list[Expression]:
    operand = subquery.operand
    values = operand.items if isinstance(operand, n.Constructor) and operand.kind == "ROW" else (operand,)
    if len(values) != len(columns):
        raise queries.source.invalid(
            subquery.at, f"the query of IN has {len(columns)} columns, and {len(values)} values are sought in it"
        )
    binder = ExpressionBinder(queries.source, scope)
    return [equal(queries, binder.bind(value), column, value.at) for value, column in zip(values, columns, strict=True)]


def _inner(queries: Queries, subquery: Tested, around: Outer) -> _Inner:
    """The rows of a subquery, and what it says of outer columns."""
    query, outer = subquery.query, around.scope
    body, width = query.body, len(outer.columns)
    is_plain = isinstance(body, q.Select) and body.where is not None and body.source is not None and not query.ctes
    if not is_plain or not isinstance(body, q.Select) or not _is_correlated(queries, body, outer):
        node = queries.query(query)
        return _Inner(node, _columns(node, width))
    clauses = (body.group_by, body.having, body.qualify, query.limit, query.offset)
    if body.distinct or query.order_by or any(clause is not None for clause in clauses):
        return _freed(queries, query, around)
    return _of_from(queries, body, outer, not isinstance(subquery, q.Exists))


def _columns(node: PlanNode, width: int) -> tuple[Expression, ...]:
    return tuple(InputColumn(column.type, width + place) for place, column in enumerate(node.columns))


def _freed(queries: Queries, query: q.Query, outer: Outer) -> _Inner:
    found, width = correlated(queries, query, outer), len(outer.scope.columns)
    assert found is not None, "it names outer columns"
    tests = found.tests(queries, outer.scope, width)
    return _Inner(found.node, _columns(found.node, width)[: found.width], tuple(tests))


def _of_from(queries: Queries, body: q.Select, outer: Scope, takes_values: bool) -> _Inner:
    """A plain SELECT as the rows of its FROM, which conditions may compare in any way with outer columns."""
    assert body.source is not None
    assert body.where is not None
    inner = ScalarSubqueries(queries, *queries.relation(body.source))
    where = without_values(inner, body.where)
    assert where is not None
    node, scope, width = inner.node, inner.scope, len(outer.columns)
    kept: list[n.Node] = []
    tests: list[Expression] = []
    both = outer.beside(scope, (*outer.columns, *node.columns))
    inner_first = Scope((*both.members[len(outer.members) :], *outer.members), both.columns)
    binder = _inside(queries, inner_first, width, scope)
    for part in conjuncts_of(where):
        if _tested_query(part) is not None:
            kept.append(part)
            continue
        bound = binder.condition(part, "WHERE")
        if any(place < width for place in columns_in(bound)):
            tests.append(bound)
        else:
            node = Filter(node, on_columns(bound, lambda place: place - width))
    for part in kept:
        node = bind_where(queries, part, node, scope)
    values: tuple[Expression, ...] = ()
    if takes_values:
        if any(isinstance(item.value, n.Star) for item in body.items):
            raise queries.source.unsupported(
                body.at, "name the columns of a query of IN, ANY or ALL that names outer columns"
            )
        values = tuple(binder.bind(item.value) for item in body.items)
    return _Inner(node, values, tuple(tests))


def _inside(queries: Queries, both: Scope, width: int, inner: Scope) -> ExpressionBinder:
    """Binds over inner and outer columns; names mean the inner ones first."""

    def hook(node: n.Node) -> Expression | None:
        if isinstance(node, n.ValueColumn):
            return both.column(node.place + width)
        if not isinstance(node, n.Name):
            return None
        found = inner.find(node, queries.source)
        return None if found is None else on_columns(found, lambda place: place + width)

    return ExpressionBinder(queries.source, both, hook)


def _is_correlated(queries: Queries, body: q.Select, outer: Scope) -> bool:
    """Whether a name in WHERE means a column of the outer query."""
    assert body.source is not None
    _, scope = queries.relation(body.source)
    names = [node for node in nodes_in(body.where) if isinstance(node, n.Name)]
    return any(
        scope.find(name, queries.source) is None and outer.find(name, queries.source) is not None for name in names
    )
