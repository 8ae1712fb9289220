"""Takes a query of aggregates without GROUP BY apart: it has a row also where there is nothing to aggregate.

Where such a query names outer columns, an outer row that meets nothing gets what is computed of no rows. So the join
brings the aggregates alone, and what the query makes of them is computed behind it: COUNT is 0 there, others are null.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.tables.bind.queries import Queries
from penstock.tables.bind.scopes import Scope
from penstock.tables.bind.syntax import is_aggregate, nodes_in
from penstock.tables.functions.aggregates import AGGREGATES
from penstock.tables.parse import nodes as n
from penstock.tables.parse import queries as q
from penstock.tables.parse.rewriting import rewritten

_ARITHMETIC: Final = frozenset("+-*/%")


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
    calls: tuple[n.Call, ...]
    items: tuple[q.SelectItem, ...]
    having: n.Node | None

    def over(self, first: int) -> tuple[list[n.Node], n.Node | None]:
        """Items and condition over the aggregates, which stand in columns from `first` on, null where nothing was met.

        Args:
            first: the place of the first aggregate.
        """

        def change(part: Any) -> Any:
            if part not in self.calls:
                return part if isinstance(part, q.Query) else None
            value = n.ValueColumn(part.at, first + self.calls.index(part))
            return zero_for_null(value) if AGGREGATES[part.name].counts else value

        return [rewritten(item.value, change) for item in self.items], rewritten(self.having, change)

    def values(self, first: int) -> list[n.Node]:
        """As `over`, with null where there is no row."""
        items, having = self.over(first)
        return items if having is None else [n.Case(item.at, None, ((having, item),), None) for item in items]

    @property
    def are_calls(self) -> bool:
        """Whether the query gives the aggregates as they are."""
        return self.having is None and tuple(item.value for item in self.items) == self.calls

    @property
    def are_null_of_no_rows(self) -> bool:
        """Whether all is null where there is nothing to aggregate, by arithmetic: such as `0.5 * AVG(price)`."""
        counts = any(AGGREGATES[call.name].counts for call in self.calls)
        parts = [part for item in self.items for part in nodes_in(item.value)]
        is_strict = all(
            part in self.calls
            or isinstance(part, n.NumberLiteral)
            or (isinstance(part, n.Binary) and part.operator in _ARITHMETIC)
            for part in parts
        )
        return self.having is None and is_strict and not counts

    @property
    def names(self) -> tuple[str, ...]:
        """What the columns are called."""
        named = enumerate(self.items)
        return tuple(f"EXPR${place}" if item.alias is None else item.alias.name for place, item in named)


def aggregate_values(queries: Queries, query: q.Query) -> AggregateValues | None:
    """The parts of a query; None where it is of another form."""
    body = query.body
    if not isinstance(body, q.Select) or body.source is None or not is_of_aggregates(query):
        return None
    if body.qualify is not None or not _keeps_one_row(query):
        return None
    parts = _parts(body)
    calls = tuple(dict.fromkeys(part for part in parts if isinstance(part, n.Call) and is_aggregate(part)))
    if any(isinstance(part, n.Star) or (isinstance(part, n.Call) and part.over is not None) for part in parts):
        return None
    _, inner = queries.with_common(query.ctes).relation(body.source)
    if _finds_any(queries, inner, parts):
        return None
    columns = tuple(
        q.SelectItem(call.at, call, n.Identifier(call.at, f"value${place}")) for place, call in enumerate(calls)
    )
    alone = replace(query, body=replace(body, items=columns, having=None, distinct=False), order_by=(), limit=None)
    return AggregateValues(alone, calls, body.items, body.having)


def is_of_aggregates(query: q.Query) -> bool:
    """Whether it is a SELECT of aggregates without GROUP BY: one row whatever FROM gives, but for HAVING."""
    body = query.body
    if not isinstance(body, q.Select) or body.source is None or body.group_by is not None:
        return False
    return any(map(is_aggregate, _parts(body)))


def _parts(body: q.Select) -> list[n.Node]:
    return [part for tree in (*(item.value for item in body.items), body.having) for part in nodes_in(tree)]


def _keeps_one_row(query: q.Query) -> bool:
    limit = query.limit
    is_some = isinstance(limit, n.NumberLiteral) and limit.text.isdigit() and int(limit.text) > 0
    return query.offset is None and (limit is None or is_some)


def _finds_any(queries: Queries, inner: Scope, parts: Sequence[n.Node]) -> bool:
    """Whether something beside the aggregates names a column of the query's own."""
    return any(isinstance(part, n.Name) and inner.find(part, queries.source) is not None for part in parts)


def zero_for_null(value: n.Node) -> n.Node:
    """A count, which is 0 where there are no rows."""
    arguments = (n.Argument(value.at, value), n.Argument(value.at, n.NumberLiteral(value.at, "0")))
    return n.Call(value.at, "COALESCE", arguments)
