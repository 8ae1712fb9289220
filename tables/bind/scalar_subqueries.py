"""Binds queries that stand for a value, such as `price > (SELECT AVG(price) FROM bids)`: an outer join with their row.

`SelectBinder` calls it before WHERE is bound. The query names no columns of the outer one, and gives one row at most.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.tables.bind.joins import joined_columns
from penstock.tables.bind.scopes import Scope
from penstock.tables.parse import nodes as n
from penstock.tables.parse import queries as q
from penstock.tables.plan.nodes import Aggregate, Filter, Join, JoinKind, PlanNode, Project, Sort, Values
from penstock.tables.types import SqlType

if TYPE_CHECKING:
    from penstock.tables.bind.query_binder import QueryBinder


@dataclass(slots=True)
class ScalarSubqueries:
    """Joins the rows of FROM with the value of each query in an expression.

    Args:
        queries: binds the inner queries.
        node: the rows.
        scope: their names, and behind these the values, which have none.
    """

    queries: QueryBinder
    node: PlanNode
    scope: Scope
    _known: list[tuple[n.Subquery, int]] = field(default_factory=list)

    def replaced(self, tree: Any) -> Any:
        """An expression, or what holds some, with a `ValueColumn` in place of each query.

        Raises:
            SqlError: a query with several columns, or perhaps several rows.
        """
        if isinstance(tree, tuple):
            return tuple(self.replaced(part) for part in tree)
        if isinstance(tree, n.Subquery):
            return n.ValueColumn(tree.at, self._joined(tree))
        if isinstance(tree, SqlType | q.Query) or not is_dataclass(tree) or isinstance(tree, type):
            return tree
        changed = {
            part.name: made
            for part in fields(tree)
            if (made := self.replaced(given := getattr(tree, part.name))) is not given and made != given
        }
        return replace(tree, **changed) if changed else tree

    def _joined(self, subquery: n.Subquery) -> int:
        for known, place in self._known:
            if known == subquery:
                return place
        inner = self.queries.query(subquery.query)
        source = self.queries.source
        if len(inner.columns) != 1:
            raise source.invalid(subquery.at, f"a query as a value has one column, not {len(inner.columns)}")
        if not _is_one_row(inner):
            raise source.unsupported(
                subquery.at,
                "a query as a value gives one row: aggregate without GROUP BY, or write LIMIT 1; or use a join",
            )
        columns = joined_columns(self.node.columns, inner.columns, JoinKind.LEFT)
        self._known.append((subquery, len(self.node.columns)))
        self.node = Join(JoinKind.LEFT, self.node, inner, None, columns)
        self.scope = Scope(self.scope.members, columns)
        return len(columns) - 1


def _is_one_row(node: PlanNode) -> bool:
    """Whether a query gives one row at most, whatever its input is."""
    match node:
        case Project() | Filter():
            return _is_one_row(node.input)
        case Aggregate():
            return not node.keys
        case Sort():
            return node.limit == 1 or _is_one_row(node.input)
        case Values():
            return len(node.rows) <= 1
    return False
