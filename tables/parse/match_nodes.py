"""The syntax tree of the clauses of MATCH_RECOGNIZE; `queries.py` has what holds them, beside the other relations."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from penstock.tables.parse.nodes import Identifier, Node


class SkipTo(enum.Enum):
    """Where the search resumes behind a match."""

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
