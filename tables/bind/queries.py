"""What those that bind a clause ask of the binder of its query, which stands above them and calls them.

`QueryBinder` is the only one that answers. So clauses may hold queries, and the modules still point one way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from penstock.tables.bind.hints import Hints
from penstock.tables.bind.scopes import Scope
from penstock.tables.catalog.catalog import Catalog
from penstock.tables.catalog.connectors import Connectors
from penstock.tables.parse import queries as q
from penstock.tables.parse.text import SqlText
from penstock.tables.plan.nodes import PlanNode, Unnest


@dataclass(frozen=True, slots=True)
class QueryContext:
    """What queries may refer to.

    Args:
        source: the text, for errors.
        catalog: tables and views.
        connectors: what tables are made of.
        options: of SET.
        common: the tables of WITH, by name: their plans.
    """

    source: SqlText
    catalog: Catalog
    connectors: Connectors
    options: Mapping[str, str]
    common: Mapping[str, PlanNode] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outer:
    """What stands around a query within an expression: the names of the rows there, and these."""

    scope: Scope
    node: PlanNode


class Queries(Protocol):
    """Binds the queries and the tables that stand within a clause."""

    @property
    def context(self) -> QueryContext:
        """What they may refer to."""

    @property
    def source(self) -> SqlText:
        """The text, for errors."""

    @property
    def hints(self) -> Hints:
        """What the hints of the SELECT say of the tables in FROM."""

    @property
    def zone(self) -> str:
        """The session's time zone."""

    def with_hints(self, hints: Hints) -> Queries:
        """The same, for the FROM of a SELECT with these."""

    def with_table(self, name: str, node: PlanNode) -> Queries:
        """The same, where a table has this name."""

    def with_common(self, tables: tuple[q.CommonTable, ...]) -> Queries:
        """The same, behind the tables of WITH."""

    def query(self, query: q.Query) -> PlanNode:
        """The plan of a query."""

    def body(self, body: q.QueryBody) -> PlanNode:
        """The plan of what stands inside a query, such as one SELECT."""

    def relation(self, relation: q.Relation, left: Scope | None = None) -> tuple[PlanNode, Scope]:
        """The plan and the names of what stands in FROM; `left`: the columns before it, which LATERAL may use."""

    def unnested(self, relation: q.FunctionTable, node: PlanNode, scope: Scope, *, outer: bool) -> Unnest:
        """The rows of `node`, each once an element of a collection of its own."""

    def unnested_scope(self, relation: q.FunctionTable, node: Unnest, scope: Scope) -> Scope:
        """The names behind `unnested`."""
