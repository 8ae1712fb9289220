"""Binds SELECT: WHERE with its subqueries, GROUP BY, aggregates, HAVING, OVER, DISTINCT, ORDER BY."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.tables import types as t
from penstock.tables.bind.expression_binder import ExpressionBinder
from penstock.tables.bind.group_windows import GroupWindow, find_group_window
from penstock.tables.bind.grouping import Grouping
from penstock.tables.bind.hints import bind_hints
from penstock.tables.bind.ordering import check_ordered
from penstock.tables.bind.over_calls import OverCalls
from penstock.tables.bind.queries import Queries
from penstock.tables.bind.scalar_subqueries import ScalarSubqueries
from penstock.tables.bind.scopes import Scope
from penstock.tables.bind.subqueries import bind_where, without_values
from penstock.tables.bind.syntax import is_aggregate, nodes_in, sort_key
from penstock.tables.expressions import Constant, Expression, FunctionCall, InputColumn
from penstock.tables.parse import nodes as n
from penstock.tables.parse import queries as q
from penstock.tables.parse.rewriting import rewritten
from penstock.tables.plan.nodes import (
    Aggregate,
    Column,
    Filter,
    PlanNode,
    Project,
    Sort,
    SortKey,
    TimeAttribute,
    Values,
    unique_names,
)


class SelectBinder:
    """Binds one SELECT."""

    def __init__(self, queries: Queries, select: q.Select) -> None:
        self._queries = queries
        self._source = queries.source
        self._select = select
        self._hints = bind_hints(select.hints, self._source)
        self._decisive: tuple[n.Node, ...] = ()
        """What decides values of queries beside aggregates, so that it is one for all rows of a group."""

    def bind(self, order_by: tuple[n.OrderItem, ...], limits: tuple[int | None, int]) -> PlanNode:
        """The plan of the SELECT, in order and cut."""
        select = self._select
        node, scope = self._from()
        self._hints.check_names(scope, self._source)
        node, scope = self._with_values(node, scope)
        select = self._select
        if select.where is not None:
            node = bind_where(self._queries, select.where, node, scope)
        window = find_group_window(select.group_by or (), node, scope, self._source, self._queries.zone)
        if window is not None:
            node, scope = window.node, Scope(scope.members, window.node.columns)
        if select.group_by is not None or self._has_aggregates():
            node, binder = self._grouped(node, scope, window)
        else:
            if select.having is not None:
                raise self._source.invalid(select.having.at, "HAVING needs GROUP BY or aggregates; use WHERE")
            binder = ExpressionBinder(self._source, scope)
        return self._projected(node, scope, binder, order_by, limits)

    def _from(self) -> tuple[PlanNode, Scope]:
        if self._select.source is None:
            return Values(((),), ()), Scope((), ())
        return self._queries.with_hints(self._hints).relation(self._select.source)

    def _with_values(self, node: PlanNode, scope: Scope) -> tuple[PlanNode, Scope]:
        """The rows with the values of queries that stand in expressions; SELECT has their columns in their places."""
        select = self._select
        values = ScalarSubqueries(self._queries, node, scope)
        where = None if select.where is None else without_values(values, select.where)
        items, having = values.replaced(select.items), values.replaced(select.having)
        group_by = select.group_by
        if group_by is not None or self._has_aggregates():
            # Those beside aggregates are the same for all rows of a group, so that they may be keys.
            parts = [item.value for item in items] + ([] if having is None else [having])
            beside = [value for part in parts for value in nodes_in(part) if isinstance(value, n.ValueColumn)]
            self._decisive = tuple(node for value in beside for node in values.decided_by(value))
            group_by = (*(group_by or ()), *beside) or group_by
        self._select = replace(select, where=where, items=items, having=having, group_by=group_by)
        return values.node, values.scope

    # Groups

    def _has_aggregates(self) -> bool:
        parts = [item.value for item in self._select.items]
        if self._select.having is not None:
            parts.append(self._select.having)
        return any(is_aggregate(node) for part in parts for node in nodes_in(part))

    def _grouped(self, node: PlanNode, scope: Scope, window: GroupWindow | None) -> tuple[PlanNode, ExpressionBinder]:
        grouping = Grouping(
            self._source, ExpressionBinder(self._source, scope), node, self._select.group_by or (), window
        )
        binder = ExpressionBinder(self._source, Scope((), ()), grouping.hook)
        for decisive in self._decisive:
            binder.bind(decisive)
        having = None if self._select.having is None else binder.condition(self._select.having, "HAVING")
        # The aggregates are known when all of SELECT has been looked at once.
        for item in self._select.items:
            for part in nodes_in(item.value):
                if is_aggregate(part):
                    grouping.hook(part)
        aggregate: PlanNode = replace(grouping.plan(), ttl_ms=self._ttl(scope))
        if having is not None:
            aggregate = Filter(aggregate, having)
        return aggregate, binder

    def _ttl(self, scope: Scope) -> int | None:
        """How long groups live, by the hint with the name of the only table; with several it is of their join."""
        names = [member.name for member in scope.members]
        return self._hints.ttls.get(str(names[0])) if len(names) == 1 else None

    # SELECT's own columns

    def _projected(
        self,
        node: PlanNode,
        scope: Scope,
        binder: ExpressionBinder,
        order_by: tuple[n.OrderItem, ...],
        limits: tuple[int | None, int],
    ) -> PlanNode:
        overs = OverCalls(self._source, binder, node, {window.name: over for window, over in self._select.windows})
        outer = ExpressionBinder(self._source, binder.scope, overs.hook)
        expressions: list[Expression] = []
        names: list[str] = []
        for item in self._select.items:
            self._item(item, outer, scope, binder, expressions, names)
        qualify = None if self._select.qualify is None else outer.condition(self._named(scope), "QUALIFY")
        names = unique_names(names)
        hidden, keys = self._order(order_by, outer, expressions, names)
        node = overs.plan()
        places = overs.places
        every = [places(expression) for expression in (*expressions, *hidden)]
        if qualify is not None:
            node = Filter(node, places(qualify))
        taken = unique_names([*names, *(f"order${i}" for i in range(len(hidden)))])
        columns = tuple(self._column(node, name, e) for name, e in zip(taken, every, strict=True))
        node = Project(node, tuple(every), columns)
        if self._select.distinct:
            if hidden:
                raise self._source.invalid(order_by[0].at, "ORDER BY takes columns of SELECT DISTINCT only")
            plain = tuple(Column(c.name, c.type, c.time) for c in columns)
            node = Aggregate(node, tuple(range(len(columns))), (), plain)
        limit, offset = limits
        if keys or limit is not None or offset:
            node = Sort(node, keys, limit, offset)
        if hidden:
            visible = node.columns[: len(names)]
            node = Project(node, tuple(InputColumn(c.type, i) for i, c in enumerate(visible)), visible)
        return node

    def _named(self, scope: Scope) -> n.Node:
        """QUALIFY, where names that no column has are those that SELECT gives."""
        given = {item.alias.name: item.value for item in self._select.items if item.alias is not None}

        def meant(part: n.Node) -> n.Node | None:
            if not isinstance(part, n.Name) or len(part.parts) > 1 or scope.find(part, self._source) is not None:
                return None
            return given.get(part.parts[0].name)

        assert self._select.qualify is not None, "the caller has looked"
        return rewritten(self._select.qualify, meant)

    def _item(
        self,
        item: q.SelectItem,
        binder: ExpressionBinder,
        scope: Scope,
        inner: ExpressionBinder,
        expressions: list[Expression],
        names: list[str],
    ) -> None:
        if isinstance(item.value, n.Star):
            if inner.hook is not None:
                raise self._source.invalid(item.at, "* may not stand beside GROUP BY; name the columns")
            named = item.value.qualifier
            places = scope.places(named.parts[0].name) if named is not None and len(named.parts) == 1 else []
            if named is None:
                places = scope.places(None)
            elif not places:
                self._fields(named, binder, expressions, names)
                return
            if not places:
                raise self._source.invalid(item.at, "* needs FROM")
            names_of = visible_names(scope)
            expressions.extend(scope.column(place) for place in places)
            names.extend(names_of[place] for place in places)
            return
        bound = binder.bind(item.value)
        if isinstance(bound, Constant) and bound.value is None and bound.type.kind is t.Kind.NULL:
            raise self._source.invalid(item.at, "NULL alone has no type; write CAST(NULL AS type)")
        expressions.append(bound)
        names.append(item.alias.name if item.alias is not None else _name_of(item.value, len(names)))

    def _fields(self, row: n.Name, binder: ExpressionBinder, expressions: list[Expression], names: list[str]) -> None:
        """All fields of a row."""
        if len(row.parts) == 1 and binder.scope.find(row, self._source) is None:
            raise self._source.invalid(row.at, f"no table {row.text!r} in FROM, and no column")
        kind = binder.bind(row).type
        if kind.kind is not t.Kind.ROW:
            raise self._source.invalid(
                row.at, f"{row.text!r} is {kind}, which has no fields; .* is for tables and rows"
            )
        for part in kind.fields:
            expressions.append(binder.bind(n.FieldOf(row.at, row, n.Identifier(row.at, part.name))))
            names.append(part.name)

    def _order(
        self,
        order_by: tuple[n.OrderItem, ...],
        binder: ExpressionBinder,
        expressions: Sequence[Expression],
        names: Sequence[str],
    ) -> tuple[list[Expression], tuple[SortKey, ...]]:
        hidden: list[Expression] = []
        keys = []
        for item in order_by:
            value = item.value
            if isinstance(value, n.NumberLiteral) and value.text.isdigit():
                if not 1 <= int(value.text) <= len(names):
                    raise self._source.invalid(value.at, f"SELECT has {len(names)} columns, no column {value.text}")
                keys.append(sort_key(item, int(value.text) - 1))
                continue
            if isinstance(value, n.Name) and len(value.parts) == 1 and value.parts[0].name in names:
                keys.append(sort_key(item, list(names).index(value.parts[0].name)))
                continue
            bound = binder.bind(value)
            if bound in expressions:
                keys.append(sort_key(item, list(expressions).index(bound)))
                continue
            keys.append(sort_key(item, len(names) + len(hidden)))
            hidden.append(bound)
        known = [*expressions, *hidden]
        for item, key in zip(order_by, keys, strict=True):
            check_ordered(known[key.column].type, item.at, "ORDER BY", self._source)
        return hidden, tuple(keys)

    @staticmethod
    def _column(node: PlanNode, name: str, expression: Expression) -> Column:
        time = node.columns[expression.index].time if isinstance(expression, InputColumn) else None
        if isinstance(expression, FunctionCall) and expression.name == "PROCTIME":
            time = TimeAttribute.PROCTIME
        return Column(name, expression.type, time)


def visible_names(scope: Scope) -> dict[int, str]:
    """The name of each column, by its place."""
    return {m.first + offset: name for m in scope.members for offset, name in enumerate(m.names)}


def _name_of(node: n.Node, place: int) -> str:
    if isinstance(node, n.Name):
        return node.parts[-1].name
    return f"EXPR${place}"
