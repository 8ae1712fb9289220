"""Binds LATERAL queries over a collection of each row: `LATERAL (SELECT y FROM UNNEST(a.x) AS u (y) WHERE y > 0)`.

Each row meets the elements of its own collection, so nothing is joined and nothing kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.tables.bind.expression_binder import ExpressionBinder
from penstock.tables.bind.queries import Queries
from penstock.tables.bind.scopes import Scope
from penstock.tables.bind.syntax import is_aggregate, nodes_in
from penstock.tables.expressions import Expression, InputColumn
from penstock.tables.parse import nodes as n
from penstock.tables.parse import queries as q
from penstock.tables.plan.nodes import Column, Columns, Filter, PlanNode, Project, unique_names


@dataclass(frozen=True, slots=True)
class UnnestedQuery:
    """A SELECT of the elements of a collection, with nothing but WHERE."""

    select: q.Select
    collection: q.FunctionTable

    def bound(self, binder: Queries, left: PlanNode, scope: Scope, *, outer: bool) -> tuple[PlanNode, tuple[str, ...]]:
        """The columns of the left side with what is selected behind them, and the names of that.

        Raises:
            SqlUnsupportedError: rows that meet no element are to stay (`outer`), beside what is computed or chosen.
        """
        node = binder.unnested(self.collection, left, scope, outer=outer)
        every = binder.unnested_scope(self.collection, node, scope)
        inner = every.members[-1]
        # Names of the query's own come before those of the rows around it.
        own = frozenset(inner.names)
        around = tuple(replace(member, hidden=member.hidden | own) for member in scope.members)
        names = ExpressionBinder(binder.source, Scope((inner, *around), node.columns))
        kept = node if self.select.where is None else Filter(node, names.condition(self.select.where, "WHERE"))
        values: list[Expression] = []
        titles: list[str] = []
        for item in self.select.items:
            if isinstance(item.value, n.Star):
                named = item.value.qualifier
                if named is not None and [part.name for part in named.parts] != [inner.name]:
                    raise binder.source.unsupported(
                        item.at, "in LATERAL over UNNEST, * is of the elements alone; name the other columns"
                    )
                values += (every.column(inner.first + offset) for offset in range(len(inner.names)))
                titles += inner.names
                continue
            values.append(names.bind(item.value))
            titles.append(_title(item, len(titles)))
        are_elements = all(isinstance(value, InputColumn) and value.index >= inner.first for value in values)
        if outer and (self.select.where is not None or not are_elements):
            raise binder.source.unsupported(
                self.select.at, "LEFT JOIN LATERAL over UNNEST takes its columns alone, without WHERE"
            )
        return beside_columns(kept, node.columns[: len(left.columns)], values), tuple(titles)


def unnested_query(query: q.Query) -> UnnestedQuery | None:
    """The query, where it is one over UNNEST alone, without aggregates and clauses that look at several elements."""
    body = query.body
    if not isinstance(body, q.Select) or not isinstance(body.source, q.FunctionTable):
        return None
    if body.source.call.name != "UNNEST" or query.ctes or query.limit is not None or query.offset is not None:
        return None
    others = (body.group_by, body.having, body.qualify)
    parts = [part for item in body.items for part in nodes_in(item.value)]
    if body.distinct or any(clause is not None for clause in others) or any(is_aggregate(part) for part in parts):
        return None
    return UnnestedQuery(body, body.source)


def _title(item: q.SelectItem, place: int) -> str:
    if item.alias is not None:
        return item.alias.name
    return item.value.parts[-1].name if isinstance(item.value, n.Name) else f"EXPR${place}"


def beside_columns(node: PlanNode, own: Columns, values: Sequence[Expression]) -> PlanNode:
    """The first columns of a node, and others behind them."""
    names = unique_names([*(column.name for column in own), *(f"value${place}" for place in range(len(values)))])
    kept = tuple(InputColumn(column.type, place) for place, column in enumerate(own))
    added = (Column(name, value.type) for name, value in zip(names[len(own) :], values, strict=True))
    return Project(node, (*kept, *values), (*own, *added))
