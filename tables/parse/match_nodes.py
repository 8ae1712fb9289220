"""The syntax tree of MATCH_RECOGNIZE: its clauses, with the row pattern as the engine has it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.engine.patterns.rows.syntax import RowPattern
from penstock.tables.parse.nodes import Identifier, IntervalLiteral, Node, OrderItem

if TYPE_CHECKING:
    from penstock.tables.parse.queries import Alias, Relation


class SkipTo(enum.Enum):
    """Where the search goes on behind a match."""

    NEXT_ROW = "to next row"
    PAST_LAST_ROW = "past last row"
    FIRST = "to first"
    LAST = "to last"


@dataclass(frozen=True, slots=True)
class AfterMatch(Node):
    """`AFTER MATCH SKIP ...`; with a variable where it goes to one."""

    skip: SkipTo
    variable: Identifier | None = None


@dataclass(frozen=True, slots=True)
class Measure(Node):
    """`[FINAL | RUNNING] value AS name`; `is_final` is None where neither is said."""

    value: Node
    name: Identifier
    is_final: bool | None


@dataclass(frozen=True, slots=True)
class Subset(Node):
    """`name = (A, B)`."""

    name: Identifier
    variables: tuple[Identifier, ...]


@dataclass(frozen=True, slots=True)
class Definition(Node):
    """`variable AS condition`."""

    variable: Identifier
    condition: Node


@dataclass(frozen=True, slots=True)
class MatchRecognize(Node):
    """`table MATCH_RECOGNIZE (...) AS t`.

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
