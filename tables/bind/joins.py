"""Binds joins: their conditions, USING, and the kinds that the right side makes: lookup, temporal, UNNEST."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.tables.bind.aggregate_values import AggregateValues, aggregate_values
from penstock.tables.bind.asof_joins import nearest_join
from penstock.tables.bind.correlated import Correlated, correlated, equal
from penstock.tables.bind.expression_binder import ExpressionBinder
from penstock.tables.bind.queries import Outer, Queries
from penstock.tables.bind.scopes import Member, Scope
from penstock.tables.bind.syntax import is_aggregate, nodes_in
from penstock.tables.bind.temporal_joins import as_of_join
from penstock.tables.bind.unnested_queries import UnnestedQuery, beside_columns, unnested_query
from penstock.tables.building import call, chain, converted
from penstock.tables.expressions import Conditional, Constant, Expression, InputColumn
from penstock.tables.functions.common_types import common_type
from penstock.tables.parse import nodes as n
from penstock.tables.parse import queries as q
from penstock.tables.plan.nodes import (
    Column,
    Columns,
    Filter,
    Join,
    JoinKind,
    PlanNode,
    Project,
    TimeAttribute,
    unique_names,
)
from penstock.tables.plan.within_windows import BOUNDS
from penstock.tables.types import SqlType


def bind_join(binder: Queries, join: q.Join) -> tuple[PlanNode, Scope]:
    """The plan and the names of a join.

    Raises:
        SqlError: a condition that does not fit, or a join that is not supported.
    """
    left, left_scope = binder.relation(join.left)
    if join.kind in ("ASOF", "ASOF LEFT"):
        join = nearest_join(binder, join, left_scope)
    right = join.right
    if isinstance(right, q.FunctionTable) and (right.lateral or right.call.name == "UNNEST"):
        return _unnest(binder, join, right, left, left_scope)
    if isinstance(right, q.DerivedTable) and right.lateral:
        elements = unnested_query(right.query)
        if elements is not None:
            return _elements(binder, join, right, elements, (left, left_scope))
        parts = aggregate_values(binder, right.query)
        found = correlated(binder, right.query if parts is None else parts.query, Outer(left_scope, left))
        if found is not None:
            lateral = _Lateral(binder, join, right, found)
            return lateral.joined(left, left_scope) if parts is None else lateral.computed(parts, left, left_scope)
        if _computes(right.query):
            return _beside(binder, join, right, left, left_scope)
        right = replace(right, lateral=False)
    is_as_of = isinstance(right, q.TableName) and right.as_of is not None
    node, right_scope = binder.relation(replace(right, as_of=None) if isinstance(right, q.TableName) else right)
    _check_names(binder, join, left_scope, right_scope)
    kind = JoinKind.INNER if join.kind == "CROSS" else JoinKind(join.kind)
    if kind in (JoinKind.SEMI, JoinKind.ANTI):
        if is_as_of or join.condition is None:
            raise binder.source.unsupported(join.at, f"LEFT {join.kind} JOIN takes a table as it is, by ON")
        both = left_scope.beside(right_scope, joined_columns(left.columns, node.columns, JoinKind.INNER))
        return Join(kind, left, node, _condition(binder, join.condition, both), left.columns), left_scope
    columns = joined_columns(left.columns, node.columns, kind)
    scope = left_scope.beside(right_scope, columns)
    condition: Expression | None
    using = _shared_names(join, left_scope, right_scope)
    if using:
        condition, scope = _using(binder, join.kind, using, scope, len(left_scope.members))
    else:
        condition = None if join.condition is None else _condition(binder, join.condition, scope)
    if is_as_of:
        assert isinstance(right, q.TableName)
        plain = tuple(Column(c.name, c.type, c.time if i < len(left.columns) else None) for i, c in enumerate(columns))
        made = as_of_join(binder, join, right, (left, node), left_scope, condition, plain)
        return made, Scope(scope.members, plain)
    ttl_ms = (_ttl(binder, left_scope), _ttl(binder, right_scope))
    made = Join(kind, left, node, condition, columns, ttl_ms)
    return _merged(binder, made, using, scope) if using and kind is JoinKind.FULL else (made, scope)


def _check_names(binder: Queries, join: q.Join, left: Scope, right: Scope) -> None:
    """Refuse two tables of one name, of which a column could be of either.

    Raises:
        SqlValidationError: there are two.
    """
    known = {member.name for member in left.members}
    for member in right.members:
        if member.name is not None and member.name in known:
            raise binder.source.invalid(
                join.at,
                f"two tables of FROM have the name {member.name!r}; give one of them another: {member.name} AS b",
            )


def _ttl(binder: Queries, side: Scope) -> int | None:
    """What the hint STATE_TTL says of a side that is one table."""
    names = [member.name for member in side.members]
    return binder.hints.ttls.get(names[0]) if len(names) == 1 and names[0] is not None else None


def joined_columns(left: Columns, right: Columns, kind: JoinKind) -> Columns:
    """The columns of both sides; nullable where rows may stand alone, and then no bounds of windows any more."""
    sides = (
        *((column, kind in (JoinKind.RIGHT, JoinKind.FULL)) for column in left),
        *((column, kind in (JoinKind.LEFT, JoinKind.FULL)) for column in right),
    )
    names = unique_names([column.name for column, _ in sides])
    return tuple(
        Column(name, column.type.with_nullable(column.type.nullable or alone), _time_of(column, alone))
        for name, (column, alone) in zip(names, sides, strict=True)
    )


def _time_of(column: Column, alone: bool) -> TimeAttribute | None:
    """What a column holds; rows without bounds would be in the windows of others."""
    return None if alone and column.time in BOUNDS else column.time


def _condition(binder: Queries, condition: n.Node, scope: Scope) -> Expression:
    return ExpressionBinder(binder.source, scope).condition(condition, "ON")


def _shared_names(join: q.Join, left: Scope, right: Scope) -> tuple[n.Identifier, ...]:
    """The names of USING, or those that both sides of a NATURAL join have."""
    if not join.natural:
        return join.using
    names = [[m.names[i] for m in side.members for i in range(len(m.names))] for side in (left, right)]
    return tuple(n.Identifier(join.at, name) for name in dict.fromkeys(names[0]) if name in names[1])


def _using(
    binder: Queries, kind: str, using: tuple[n.Identifier, ...], scope: Scope, left_members: int
) -> tuple[Expression, Scope]:
    """The condition, and the names: of the shared columns those of the side whose rows all come."""
    left = Scope(scope.members[:left_members], scope.columns)
    right = Scope(scope.members[left_members:], scope.columns)
    tests = []
    for column in using:
        name = n.Name(column.at, (column,))
        one, other = (side.find(name, binder.source) for side in (left, right))
        if one is None or other is None:
            raise (left if one is None else right).unknown(name, binder.source)
        tests.append(equal(binder, one, other, column.at))
    shared = frozenset(column.name for column in using)
    sides = (_without(left.members, shared), right.members) if kind == "RIGHT" else (left.members, right.members)
    sides = (sides[0], _without(right.members, shared)) if kind in ("INNER", "LEFT") else sides
    return chain("AND", tests), Scope((*sides[0], *sides[1]), scope.columns)


def _without(members: tuple[Member, ...], names: frozenset[str]) -> tuple[Member, ...]:
    return tuple(replace(member, hidden=member.hidden | (names & set(member.names))) for member in members)


def _merged(binder: Queries, join: Join, using: tuple[n.Identifier, ...], scope: Scope) -> tuple[PlanNode, Scope]:
    """A FULL join whose shared columns have the value of the side that is there."""
    width = len(join.left.columns)
    values: list[Expression] = []
    for column in using:
        name = n.Name(column.at, (column,))
        sides = (
            Scope(tuple(m for m in scope.members if (m.first < width) is is_left), scope.columns)
            for is_left in (True, False)
        )
        one, other = (side.find(name, binder.source) for side in sides)
        assert one is not None, "the condition has found it"
        assert other is not None, "the condition has found it"
        kind = common_type([one.type, other.type])
        assert kind is not None, "they can be compared"
        has_one = call("IS_NOT_NULL", one)
        values.append(Conditional(kind.with_nullable(True), ((has_one, converted(one, kind)),), converted(other, kind)))
    own = [InputColumn(column.type, place) for place, column in enumerate(join.columns)]
    taken = unique_names([*(c.name for c in join.columns), *(column.name for column in using)])
    columns = tuple(Column(name, e.type) for name, e in zip(taken, (*own, *values), strict=True))
    names = tuple(column.name for column in using)
    members = (Member(None, len(own), names), *_without(scope.members, frozenset(names)))
    return Project(join, (*own, *values), columns), Scope(members, columns)


def _computes(query: q.Query) -> bool:
    """Whether a query is one row that is computed: SELECT alone, without aggregates."""
    body = query.body
    if not isinstance(body, q.Select) or body.source is not None:
        return False
    plain = not query.ctes and query.limit is None and query.offset is None and not body.distinct
    clauses = (body.where, body.group_by, body.having, body.qualify)
    parts = [part for item in body.items for part in nodes_in(item.value)]
    simple = not any(is_aggregate(part) or isinstance(part, n.Star) for part in parts)
    return plain and simple and all(clause is None for clause in clauses)


def _beside(
    binder: Queries, join: q.Join, right: q.DerivedTable, left: PlanNode, scope: Scope
) -> tuple[PlanNode, Scope]:
    """Each row with what is computed of its columns, `LATERAL (SELECT a.x + 1 AS y)`."""
    body = right.query.body
    assert isinstance(body, q.Select), "it was looked at"
    if join.kind not in ("CROSS", "INNER", "LEFT"):
        raise binder.source.unsupported(join.at, f"{join.kind} JOIN with LATERAL has no meaning")
    values = [ExpressionBinder(binder.source, scope).bind(item.value) for item in body.items]
    names = tuple(f"EXPR${i}" if item.alias is None else item.alias.name for i, item in enumerate(body.items))
    node = beside_columns(left, left.columns, values)
    both = _named_beside(binder, right, names, scope, node.columns)
    return _where_on(binder, join, node, both, "of one row")


def _where_on(binder: Queries, join: q.Join, node: PlanNode, both: Scope, what: str) -> tuple[PlanNode, Scope]:
    """Of each row beside what it met, those for which the condition of the join holds; `what` it met, for errors."""
    if join.condition is None or (isinstance(join.condition, n.BooleanLiteral) and join.condition.value):
        return node, both
    if join.kind == "LEFT":
        raise binder.source.unsupported(join.condition.at, f"LEFT JOIN LATERAL {what} takes ON TRUE")
    return Filter(node, _condition(binder, join.condition, both)), both


def _elements(
    binder: Queries, join: q.Join, right: q.DerivedTable, elements: UnnestedQuery, sides: tuple[PlanNode, Scope]
) -> tuple[PlanNode, Scope]:
    """Each row with what is made of the elements of its own, `LATERAL (SELECT y FROM UNNEST(a.x) AS u (y))`."""
    left, scope = sides
    if join.kind not in ("CROSS", "INNER", "LEFT"):
        raise binder.source.unsupported(join.at, f"{join.kind} JOIN with LATERAL has no meaning")
    node, names = elements.bound(binder, left, scope, outer=join.kind == "LEFT")
    both = _named_beside(binder, right, names, scope, node.columns)
    return _where_on(binder, join, node, both, "over UNNEST")


@dataclass(frozen=True, slots=True)
class _Lateral:
    """A join with a query that names columns before it, by what it compares with these."""

    binder: Queries
    join: q.Join
    right: q.DerivedTable
    found: Correlated

    def joined(self, left: PlanNode, scope: Scope) -> tuple[PlanNode, Scope]:
        """The rows of both."""
        found = self.found
        kind = JoinKind.LEFT if self._keeps_left else JoinKind.INNER
        columns = joined_columns(left.columns, found.node.columns, kind)
        names = tuple(column.name for column in found.node.columns[: found.width])
        both = _named_beside(self.binder, self.right, names, scope, columns)
        tests = found.tests(self.binder, Scope(scope.members, columns), len(left.columns))
        if self.join.condition is not None:
            tests.append(_condition(self.binder, self.join.condition, both))
        return Join(kind, left, found.node, chain("AND", tests), columns), both

    def computed(self, parts: AggregateValues, left: PlanNode, scope: Scope) -> tuple[PlanNode, Scope]:
        """Each row with what a query of aggregates makes of the rows that it meets, also where these are none."""
        columns = joined_columns(left.columns, self.found.node.columns, JoinKind.LEFT)
        width = len(left.columns)
        tests = self.found.tests(self.binder, Scope(scope.members, columns), width)
        node: PlanNode = Join(JoinKind.LEFT, left, self.found.node, chain("AND", tests), columns)
        within = ExpressionBinder(self.binder.source, Scope(scope.members, columns))
        items, having = parts.over(width)
        if having is not None and not self._keeps_left:
            node = Filter(node, within.condition(having, "HAVING"))
        values = [within.bind(item) for item in (parts.values(width) if self._keeps_left else items)]
        node = beside_columns(node, columns[:width], values)
        both = _named_beside(self.binder, self.right, parts.names, scope, node.columns)
        if self.join.condition is None:
            return node, both
        condition = _condition(self.binder, self.join.condition, both)
        if not self._keeps_left:
            return Filter(node, condition), both
        kept = [
            Conditional(c.type.with_nullable(True), ((condition, InputColumn(c.type, width + i)),), _null(c.type))
            for i, c in enumerate(node.columns[width:])
        ]
        node = beside_columns(node, columns[:width], kept)
        return node, Scope(both.members, node.columns)

    @property
    def _keeps_left(self) -> bool:
        if self.join.kind not in ("CROSS", "INNER", "LEFT"):
            raise self.binder.source.unsupported(self.join.at, f"{self.join.kind} JOIN with LATERAL has no meaning")
        return self.join.kind == "LEFT"


def _named_beside(
    binder: Queries, right: q.DerivedTable, names: tuple[str, ...], scope: Scope, columns: Columns
) -> Scope:
    """The names of the left side, and those that a query behind it gives."""
    alias = right.alias
    if alias is not None and alias.columns:
        if len(alias.columns) != len(names):
            raise binder.source.invalid(
                right.at, f"there are {len(names)} columns, and {len(alias.columns)} names for them"
            )
        names = tuple(column.name for column in alias.columns)
    member = Member(None if alias is None else alias.name.name, len(scope.columns), names)
    return Scope((*scope.members, member), columns)


def _null(kind: SqlType) -> Expression:
    return Constant(kind.with_nullable(True), None)


def _unnest(
    binder: Queries, join: q.Join, right: q.FunctionTable, left: PlanNode, scope: Scope
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
