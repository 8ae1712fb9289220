"""Binds joins: their conditions, USING, and the kinds that the right side makes: lookup, temporal, UNNEST."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.tables.bind.expression_binder import ExpressionBinder, call
from penstock.tables.bind.scopes import Member, Scope
from penstock.tables.bind.temporal_joins import as_of_join
from penstock.tables.expressions import Expression
from penstock.tables.parse import nodes as n
from penstock.tables.parse import queries as q
from penstock.tables.plan.nodes import Column, Columns, Filter, Join, JoinKind, PlanNode, unique_names

if TYPE_CHECKING:
    from penstock.tables.bind.query_binder import QueryBinder


def bind_join(binder: QueryBinder, join: q.Join) -> tuple[PlanNode, Scope]:
    """The plan and the names of a join.

    Raises:
        SqlError: a condition that does not fit, or a join that is not supported.
    """
    left, left_scope = binder.relation(join.left)
    right = join.right
    if isinstance(right, q.FunctionTable) and (right.lateral or right.call.name == "UNNEST"):
        return _unnest(binder, join, right, left, left_scope)
    is_as_of = isinstance(right, q.TableName) and right.as_of is not None
    node, right_scope = binder.relation(replace(right, as_of=None) if isinstance(right, q.TableName) else right)
    kind = JoinKind.INNER if join.kind == "CROSS" else JoinKind(join.kind)
    columns = joined_columns(left.columns, node.columns, kind)
    scope = left_scope.beside(right_scope, columns)
    condition: Expression | None
    if join.using:
        condition, scope = _using(binder, join, scope, len(left_scope.members))
    else:
        condition = None if join.condition is None else _condition(binder, join.condition, scope)
    if is_as_of:
        assert isinstance(right, q.TableName)
        plain = tuple(Column(c.name, c.type, c.time if i < len(left.columns) else None) for i, c in enumerate(columns))
        made = as_of_join(binder, join, right, (left, node), left_scope, condition, plain)
        return made, Scope(scope.members, plain)
    ttl_ms = (_ttl(binder, left_scope), _ttl(binder, right_scope))
    return Join(kind, left, node, condition, columns, ttl_ms), scope


def _ttl(binder: QueryBinder, side: Scope) -> int | None:
    """What the hint STATE_TTL says of a side that is one table."""
    names = [member.name for member in side.members]
    return binder.ttls.get(names[0]) if len(names) == 1 and names[0] is not None else None


def joined_columns(left: Columns, right: Columns, kind: JoinKind) -> Columns:
    """The columns of both sides; nullable where rows may stand alone."""
    sides = (
        *((column, kind in (JoinKind.RIGHT, JoinKind.FULL)) for column in left),
        *((column, kind in (JoinKind.LEFT, JoinKind.FULL)) for column in right),
    )
    names = unique_names([column.name for column, _ in sides])
    return tuple(
        Column(name, column.type.with_nullable(column.type.nullable or alone), column.time)
        for name, (column, alone) in zip(names, sides, strict=True)
    )


def _condition(binder: QueryBinder, condition: n.Node, scope: Scope) -> Expression:
    return ExpressionBinder(binder.source, scope).condition(condition, "ON")


def _using(binder: QueryBinder, join: q.Join, scope: Scope, left_members: int) -> tuple[Expression, Scope]:
    left = Scope(scope.members[:left_members], scope.columns)
    right = Scope(scope.members[left_members:], scope.columns)
    tests = []
    for column in join.using:
        name = n.Name(column.at, (column,))
        sides = [side.find(name, binder.source) for side in (left, right)]
        one, other = sides
        if one is None or other is None:
            raise (left if one is None else right).unknown(name, binder.source)
        tests.append(call("=", one, other))
    condition: Expression = tests[0]
    for test in tests[1:]:
        condition = call("AND", condition, test)
    shared = frozenset(column.name for column in join.using)
    hidden = tuple(Member(m.name, m.first, m.names, m.hidden | (shared & set(m.names))) for m in right.members)
    if join.kind in ("RIGHT", "FULL"):
        raise binder.source.unsupported(join.using[0].at, f"{join.kind} JOIN with USING is not supported; write ON")
    return condition, Scope((*left.members, *hidden), scope.columns)


def _unnest(
    binder: QueryBinder, join: q.Join, right: q.FunctionTable, left: PlanNode, scope: Scope
) -> tuple[PlanNode, Scope]:
    if join.kind not in ("CROSS", "INNER", "LEFT"):
        raise binder.source.unsupported(join.at, f"{join.kind} JOIN with {right.call.name} has no meaning")
    node = binder.unnested(right, left, scope, outer=join.kind == "LEFT")
    found = binder.unnested_scope(right, node, scope)
    if join.condition is None or (isinstance(join.condition, n.BooleanLiteral) and join.condition.value):
        return node, found
    if join.kind == "LEFT":
        raise binder.source.unsupported(join.condition.at, "LEFT JOIN UNNEST takes ON TRUE; filter in WHERE")
    return Filter(node, _condition(binder, join.condition, found)), found
