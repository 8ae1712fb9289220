"""Frees a query from the columns of the query around it: what it compares them with becomes columns of its own.

Queries as values, EXISTS, IN and LATERAL are joined by these columns then. It says what it cannot free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.tables.bind.expression_binder import ExpressionBinder, cannot_be_compared
from penstock.tables.bind.ordering import check_ordered
from penstock.tables.bind.outer_tuples import meets_no_null, of_outer_tuples
from penstock.tables.bind.queries import Outer, Queries
from penstock.tables.bind.scopes import Scope
from penstock.tables.bind.syntax import conjunction_of, conjuncts_of, is_aggregate, nodes_in
from penstock.tables.building import call, converted
from penstock.tables.expressions import Expression, InputColumn
from penstock.tables.functions.common_types import EQUALITIES, comparable_type
from penstock.tables.parse import nodes as n
from penstock.tables.parse import queries as q
from penstock.tables.parse.rewriting import rewritten
from penstock.tables.plan.nodes import PlanNode


@dataclass(frozen=True, slots=True)
class Correlated:
    """A query without the conditions that name outer columns.

    Args:
        node: its columns, and behind them those that outer values are compared with, then those that conditions name.
        width: how many columns it has of its own.
        outer: the outer values that are to be equal to the first of these.
        meets_null: which of the outer values are equal where both are null.
        conditions: the others, with `ValueColumn` for the columns of `node`.
    """

    node: PlanNode
    width: int
    outer: tuple[n.Node, ...]
    meets_null: frozenset[int] = frozenset()
    conditions: tuple[n.Node, ...] = ()

    def tests(self, queries: Queries, scope: Scope, first: int) -> list[Expression]:
        """The comparisons, over the outer columns and those of `node`, which begin at place `first`."""
        binder = ExpressionBinder(queries.source, Scope(scope.members, (*scope.columns[:first], *self.node.columns)))
        tests = []
        for place, value in enumerate(self.outer):
            column = InputColumn(self.node.columns[self.width + place].type, first + self.width + place)
            bound = binder.bind(value)
            same = call("IS_NOT_DISTINCT", bound, column) if place in self.meets_null else None
            tests.append(same or equal(queries, bound, column, value.at))

        def moved(part: Any) -> Any:
            return replace(part, place=first + part.place) if isinstance(part, n.ValueColumn) else None

        return [*tests, *(binder.condition(rewritten(one, moved), "WHERE") for one in self.conditions)]

    @property
    def compared(self) -> range:
        """The columns of which an outer row meets one value each."""
        return range(self.width, self.width + len(self.outer))

    @property
    def decisive(self) -> tuple[n.Node, ...]:
        """What of an outer row decides which rows it meets."""
        return (*self.outer, *(name for one in self.conditions for name in names_in(one)))


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


def correlated(queries: Queries, query: q.Query, outer: Outer) -> Correlated | None:
    """The query freed of outer columns; None where it names none in its WHERE.

    Raises:
        SqlUnsupportedError: it has LIMIT beside what LIMIT cannot be for each outer row.
    """
    body = query.body
    if not isinstance(body, q.Select) or body.source is None or body.where is None or query.ctes:
        return None
    _, inner = queries.relation(body.source)
    local: list[n.Node] = []
    pairs: list[tuple[n.Node, n.Node]] = []
    others: list[n.Node] = []
    for part in conjuncts_of(body.where):
        pair = _pair(queries, part, inner)
        if not _names_outer(queries, part, inner, outer.scope):
            local.append(part)
        elif pair is None:
            others.append(part)
        else:
            pairs.append(pair)
    plain = replace(body, where=conjunction_of(local))
    if not others:
        return _by_equality(queries, replace(query, body=plain), plain, pairs) if pairs else None
    if _is_plain(query, body) and not any(_holds_query(part) for part in others):
        return _by_conditions(queries, plain, pairs, (others, inner))
    about = [part for part in conjuncts_of(body.where) if part not in local]
    tuples = of_outer_tuples(queries, plain, (about, inner), outer)
    same = list(zip(tuples.columns, tuples.names, strict=True))
    within = tuples.queries
    found = _by_equality(within, replace(query, body=tuples.select), tuples.select, same)
    strict = meets_no_null(about)
    return replace(found, meets_null=frozenset(i for i, name in enumerate(tuples.names) if name not in strict))


def _by_equality(
    queries: Queries, query: q.Query, body: q.Select, pairs: Sequence[tuple[n.Node, n.Node]]
) -> Correlated:
    """A query for each value of what is compared by `=`: pairs of its own side and the outer one."""
    keys = tuple(one for one, _ in pairs)
    has_groups = body.group_by is not None or _has_aggregates(body)
    group_by = (*(body.group_by or ()), *keys) if has_groups else None
    freed = _divided(replace(body, items=(*body.items, *_named(keys)), group_by=group_by), keys)
    if query.limit is not None or query.offset is not None:
        freed = _cut(queries, freed, query, keys, has_groups)
    node = queries.body(freed)
    return Correlated(node, len(node.columns) - len(keys), tuple(value for _, value in pairs))


def _by_conditions(
    queries: Queries, body: q.Select, pairs: list[tuple[n.Node, n.Node]], others: tuple[list[n.Node], Scope]
) -> Correlated:
    """The rows of a plain query, with all columns that conditions name."""
    conditions, inner = others
    named = [name for one in conditions for name in names_in(one) if inner.find(name, queries.source) is not None]
    own = tuple(dict.fromkeys(named))
    keys = (*(one for one, _ in pairs), *own)
    node = queries.body(replace(body, items=(*body.items, *_named(keys))))
    width = len(node.columns) - len(keys)

    def placed(part: Any) -> Any:
        return n.ValueColumn(part.at, width + len(pairs) + own.index(part)) if part in own else None

    outer = tuple(value for _, value in pairs)
    return Correlated(node, width, outer, conditions=tuple(rewritten(one, placed) for one in conditions))


def _named(keys: tuple[n.Node, ...]) -> tuple[q.SelectItem, ...]:
    return tuple(q.SelectItem(key.at, key, n.Identifier(key.at, f"key${i}")) for i, key in enumerate(keys))


def _divided(select: q.Select, keys: tuple[n.Node, ...]) -> q.Select:
    """What OVER looks at are the rows of one value of the keys."""

    def change(part: Any) -> Any:
        if isinstance(part, n.Over) and part.reference is None:
            return replace(part, partition_by=(*part.partition_by, *keys))
        return part if isinstance(part, q.Query) else None

    items, qualify = rewritten((select.items, select.qualify), change)
    return replace(select, items=items, qualify=qualify, windows=rewritten(select.windows, change))


def _is_plain(query: q.Query, body: q.Select) -> bool:
    """Whether each row of FROM that WHERE takes is one of the query, whatever others there are."""
    clauses = (body.group_by, body.having, body.qualify, query.limit, query.offset)
    parts = [part for item in body.items for part in nodes_in(item)]
    has_over = any(isinstance(part, n.Call) and part.over is not None for part in parts)
    return not (body.distinct or has_over or _has_aggregates(body)) and all(clause is None for clause in clauses)


def _has_aggregates(body: q.Select) -> bool:
    return any(is_aggregate(part) for item in body.items for part in nodes_in(item))


def _holds_query(part: n.Node) -> bool:
    return any(isinstance(one, q.Subquery | q.Exists | q.InQuery | q.Compared) for one in nodes_in(part))


def names_in(node: n.Node) -> list[n.Name]:
    """The names in an expression, but for those in its queries."""
    return [part for part in nodes_in(node) if isinstance(part, n.Name)]


def _names_outer(queries: Queries, part: n.Node, inner: Scope, outer: Scope) -> bool:
    return any(
        inner.find(name, queries.source) is None and outer.find(name, queries.source) is not None
        for name in names_in(part)
    )


def _pair(queries: Queries, part: n.Node, inner: Scope) -> tuple[n.Node, n.Node] | None:
    """The inner and the outer side of a comparison by `=`."""
    if isinstance(part, n.Binary) and part.operator == "=":
        for one, other in ((part.left, part.right), (part.right, part.left)):
            is_inner = names_in(one) and all(inner.find(name, queries.source) is not None for name in names_in(one))
            if is_inner and all(inner.find(name, queries.source) is None for name in names_in(other)):
                return one, other
    return None


def _cut(queries: Queries, select: q.Select, query: q.Query, keys: tuple[n.Node, ...], has_groups: bool) -> q.Select:
    """LIMIT for each outer row: the first rows of each value of the keys."""
    at, limit = query.at, query.limit
    if has_groups or select.distinct or select.qualify is not None or query.offset is not None:
        raise queries.source.unsupported(
            at,
            "LIMIT of a query that names outer columns takes a plain SELECT without OFFSET; use ROW_NUMBER() in a join",
        )
    assert limit is not None
    aliases = {item.alias.name: item.value for item in select.items if item.alias is not None}
    order = tuple(
        replace(item, value=aliases.get(item.value.text, item.value)) if isinstance(item.value, n.Name) else item
        for item in query.order_by
    )
    number = n.Call(at, "ROW_NUMBER", (), over=n.Over(at, keys, order))
    return replace(select, qualify=n.Binary(at, "<=", number, limit))
