"""What conditions and measures of MATCH_RECOGNIZE read beside constants: values of rows of a match, by variable.

The binder makes them; an expression over them has `InputColumn(type, i)` for reference `i`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from penstock.engine.patterns.rows.syntax import RowPattern
from penstock.tables.expressions import Expression
from penstock.tables.parse.match_nodes import SkipTo
from penstock.tables.types import SqlType


class ReferenceKind(enum.Enum):
    """What is read."""

    ROW = "row"
    """A value of one row."""
    CLASSIFIER = "classifier"
    """The variable that has taken one row."""
    AGGREGATE = "aggregate"
    """A value over all rows of the variables."""
    ROWTIME = "match time"
    """The event time of the match."""


@dataclass(frozen=True, slots=True)
class Reference:
    """One of them.

    Args:
        type: of the value.
        variables: the names of those whose rows count; None for all.
        from_first: whether rows are counted from the first one on; else from the last one back.
        offset: by how many of these rows.
        back: then by how many rows of the partition back.
        value: the place of what is read among the row's values; None for CLASSIFIER, ROWTIME and COUNT(*).
        function: of an aggregate.
        is_final: whether all rows of the match count; else those up to the row in question.
    """

    kind: ReferenceKind
    type: SqlType
    variables: frozenset[str] | None = None
    from_first: bool = False
    offset: int = 0
    back: int = 0
    value: int | None = None
    function: str = ""
    is_final: bool = False

    def is_own(self, variable: str) -> bool:
        """Whether it is a value of the row in question, in the definition of `variable`."""
        mine = self.variables is None or variable in self.variables
        return self.kind is ReferenceKind.ROW and mine and not (self.from_first or self.offset or self.back)


@dataclass(frozen=True, slots=True)
class RowDefinition:
    """When a row may be one of a variable.

    Args:
        own: what is asked of the row alone: over the input's columns; None for nothing.
        rest: what is asked of other rows of the match: over references; None for nothing.
    """

    own: Expression | None = None
    rest: Expression | None = None


@dataclass(frozen=True, slots=True)
class RowMatch:
    """What MATCH_RECOGNIZE looks for, and what it makes of a match.

    Args:
        pattern: in which order rows come.
        definitions: by variable of the pattern.
        values: what is kept of each row: over the input's columns.
        references: what definitions and results read.
        results: over references, one a column of the result.
        all_rows: whether each row of a match gives a result; else its last one.
        skip: where the search resumes.
        skip_variables: those that it goes to.
        within_ms: bound on the time of a match, or None.
    """

    pattern: RowPattern
    definitions: tuple[tuple[str, RowDefinition], ...]
    values: tuple[Expression, ...]
    references: tuple[Reference, ...]
    results: tuple[Expression, ...]
    all_rows: bool
    skip: SkipTo
    skip_variables: frozenset[str]
    within_ms: int | None
