"""The syntax tree of queries: what stands in FROM, SELECT and around them, and the expressions that hold queries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.engine.patterns.rows.syntax import RowPattern
from penstock.tables.parse.match_nodes import AfterMatch, Definition, Measure, Subset
from penstock.tables.parse.nodes import Call, Identifier, IntervalLiteral, Name, Node, OrderItem, Over


@dataclass(frozen=True, slots=True)
class Alias:
    """`AS t (a, b)`."""

    name: Identifier
    columns: tuple[Identifier, ...] = ()


@dataclass(frozen=True, slots=True)
class TableName(Node):
    """A table or view by its name.

    Args:
        as_of: the time of `FOR SYSTEM_TIME AS OF time`.
        options: of the hint `/*+ OPTIONS('k'='v') */`.
    """

    name: Name
    alias: Alias | None = None
    as_of: Node | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DerivedTable(Node):
    """`(SELECT ...) AS t`."""

    query: Query
    alias: Alias | None = None
    lateral: bool = False


@dataclass(frozen=True, slots=True)
class FunctionTable(Node):
    """`TABLE(f(...))`, `LATERAL TABLE(f(...))`, `f(...)` in FROM, and `UNNEST(x) [WITH ORDINALITY]`."""

    call: Call
    alias: Alias | None = None
    lateral: bool = False
    ordinality: bool = False


@dataclass(frozen=True, slots=True)
class Join(Node):
    """`left kind JOIN right ON condition`; `kind` is INNER, LEFT, RIGHT, FULL, CROSS, SEMI, ANTI, ASOF or ASOF LEFT.

    Args:
        natural: whether it is by all columns whose names both sides have.
    """

    kind: str
    left: Relation
    right: Relation
    condition: Node | None = None
    using: tuple[Identifier, ...] = ()
    natural: bool = False


@dataclass(frozen=True, slots=True)
class MatchRecognize(Node):
    """`table MATCH_RECOGNIZE (...) AS t`, with the row pattern as the engine has it.

    Args:
        all_rows: ALL ROWS PER MATCH; else one.
        after: None where it is not said.
        pattern_at: where the pattern begins.
    """

    input: Relation
    partition_by: tuple[Node, ...]
    order_by: tuple[OrderItem, ...]
    measures: tuple[Measure, ...]
    all_rows: bool
    after: AfterMatch | None
    pattern: RowPattern
    pattern_at: int
    within: IntervalLiteral | None
    subsets: tuple[Subset, ...]
    definitions: tuple[Definition, ...]
    alias: Alias | None = None


Relation = TableName | DerivedTable | FunctionTable | Join | MatchRecognize
"""What stands in FROM."""


@dataclass(frozen=True, slots=True)
class SelectItem(Node):
    """`expression [AS name]`."""

    value: Node
    alias: Identifier | None = None


@dataclass(frozen=True, slots=True)
class GroupingSets(Node):
    """`GROUPING SETS ((a), ())`, and what `CUBE` and `ROLLUP` stand for."""

    sets: tuple[tuple[Node, ...], ...]


@dataclass(frozen=True, slots=True)
class Hint(Node):
    """`NAME('key' = 'value')` in a hint: the name in capitals; options without a value have an empty one."""

    name: str
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Select(Node):
    """`SELECT ... FROM ... WHERE ... GROUP BY ... HAVING ...`.

    Args:
        hints: in their order.
        windows: of the clause WINDOW, by name.
        qualify: a condition on what OVER gives.
    """

    items: tuple[SelectItem, ...]
    source: Relation | None = None
    where: Node | None = None
    group_by: tuple[Node, ...] | None = None
    having: Node | None = None
    windows: tuple[tuple[Identifier, Over], ...] = ()
    qualify: Node | None = None
    distinct: bool = False
    hints: tuple[Hint, ...] = ()


@dataclass(frozen=True, slots=True)
class SetOperation(Node):
    """`left UNION | INTERSECT | EXCEPT [ALL] right`."""

    operator: str
    keep_all: bool
    left: QueryBody
    right: QueryBody


@dataclass(frozen=True, slots=True)
class Values(Node):
    """`VALUES (1, 'a'), (2, 'b')`."""

    rows: tuple[tuple[Node, ...], ...]


@dataclass(frozen=True, slots=True)
class TableQuery(Node):
    """`TABLE t` as a whole query."""

    name: Name


@dataclass(frozen=True, slots=True)
class CommonTable(Node):
    """`name (columns) AS (SELECT ...)` of the clause WITH."""

    alias: Alias
    query: Query


@dataclass(frozen=True, slots=True)
class Query(Node):
    """A query with what stands around it: WITH, ORDER BY, LIMIT, OFFSET."""

    body: QueryBody
    ctes: tuple[CommonTable, ...] = ()
    order_by: tuple[OrderItem, ...] = ()
    limit: Node | None = None
    offset: Node | None = None


QueryBody = Select | SetOperation | Values | TableQuery | Query
"""What a query is made of; one in brackets is a query of its own."""


# Expressions with queries in them


@dataclass(frozen=True, slots=True)
class InQuery(Node):
    """`x [NOT] IN (SELECT ...)`; a row of several values has a row `Constructor` as its operand."""

    operand: Node
    query: Query
    negated: bool


@dataclass(frozen=True, slots=True)
class Compared(Node):
    """`x > ANY (SELECT ...)`, or with ALL where `every`; `= ANY` and `<> ALL` are `InQuery`."""

    operator: str
    operand: Node
    every: bool
    query: Query


@dataclass(frozen=True, slots=True)
class Exists(Node):
    """`EXISTS (SELECT ...)`."""

    query: Query


@dataclass(frozen=True, slots=True)
class Subquery(Node):
    """`(SELECT ...)` as a value."""

    query: Query


@dataclass(frozen=True, slots=True)
class TableArgument(Node):
    """`TABLE t [PARTITION BY a]` or `(SELECT ...) [PARTITION BY a]` as the argument of a table function."""

    table: Name | Query
    partition_by: tuple[Node, ...]
