"""Takes a query of aggregates without GROUP BY apart: it has a row also where there is nothing to aggregate.

Where such a query names outer columns, an outer row that meets nothing gets what is computed of no rows. So the join
brings the aggregates alone, and what the query makes of them is computed behind it: COUNT is 0 there, others are null.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.tables.bind.queries import Queries
from penstock.tables.bind.scopes import Scope
from penstock.tables.bind.syntax import is_aggregate, nodes_in
from penstock.tables.functions.aggregates import AGGREGATES
from penstock.tables.parse import nodes as n
from penstock.tables.parse import queries as q
from penstock.tables.parse.rewriting import rewritten


@dataclass(frozen=True, slots=True)
class AggregateValues:
    """A query of aggregates in two parts.

    Args:
        query: gives the aggregates, a column each.
        calls: these, in order.
        items: what the query gives.
        having: when it gives a row; None: always.
    """

    query: q.Query
    calls: tuple[n.Node, ...]
    items: tuple[q.SelectItem, ...]
    having: n.Node | None

    def over(self, first: int) -> tuple[list[n.Node], n.Node | None]:
        """Items and condition over the aggregates, which stand in columns from `first` on, null where nothing was met.

        Args:
            first: the place of the first aggregate.
        """

        def change(part: Any) -> Any:
            if part not in self.calls:
                return None
            value = n.ValueColumn(part.at, first + self.calls.index(part))
            return zero_for_null(value) if AGGREGATES[part.name].counts else value

        return [rewritten(item.value, change) for item in self.items], rewritten(self.having, change)

    def values(self, first: int) -> list[n.Node]:
        """As `over`, with null where there is no row."""
        items, having = self.over(first)
        return items if having is None else [n.Case(item.at, None, ((having, item),), None) for item in items]

    @property
    def names(self) -> tuple[str, ...]:
        """What the columns are called."""
        named = enumerate(self.items)
        return tuple(f"EXPR${place}" if item.alias is None else item.alias.name for place, item in named)


def aggregate_values(queries: Queries, query: q.Query) -> AggregateValues | None:
    """The parts of a query; None where it is of another form."""
    body = query.body
    if not isinstance(body, q.Select) or body.group_by is not None or body.source is None or query.ctes:
        return None
    if body.qualify is not None or query.limit is not None or query.offset is not None:
        return None
    parts = [part for tree in (*(item.value for item in body.items), body.having) for part in nodes_in(tree)]
    calls = tuple(dict.fromkeys(part for part in parts if is_aggregate(part)))
    if not calls or any(isinstance(part, n.Call) and part.over is not None for part in parts):
        return None
    _, inner = queries.relation(body.source)
    if _finds_any(queries, inner, parts):
        return None
    columns = tuple(
        q.SelectItem(call.at, call, n.Identifier(call.at, f"value${place}")) for place, call in enumerate(calls)
    )
    alone = replace(query, body=replace(body, items=columns, having=None, distinct=False), order_by=())
    return AggregateValues(alone, calls, body.items, body.having)


def _finds_any(queries: Queries, inner: Scope, parts: Sequence[n.Node]) -> bool:
    """Whether something beside the aggregates names a column of the query's own."""
    return any(isinstance(part, n.Name) and inner.find(part, queries.source) is not None for part in parts)


def zero_for_null(value: n.Node) -> n.Node:
    """A count, which is 0 where there are no rows."""
    arguments = (n.Argument(value.at, value), n.Argument(value.at, n.NumberLiteral(value.at, "0")))
    return n.Call(value.at, "COALESCE", arguments)
