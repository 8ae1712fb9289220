"""Calls whose value the session knows when a statement is planned: CURRENT_DATABASE().

The environment of tables puts their values into the syntax tree, so that views keep those of when they were made.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from penstock.tables import types as t
from penstock.tables.parse import nodes as n
from penstock.tables.parse.rewriting import rewritten
from penstock.tables.parse.text import SqlText

_Tree = TypeVar("_Tree")
CURRENT_DATABASE: Final = "CURRENT_DATABASE"


def with_session_values(tree: _Tree, database: str, source: SqlText) -> _Tree:
    """A statement with values in place of these calls.

    Args:
        tree: the statement.
        database: where names without one are looked up.
        source: its text, for errors.

    Raises:
        SqlValidationError: CURRENT_DATABASE with arguments.
    """

    def change(part: Any) -> Any:
        if not isinstance(part, n.Call) or part.name != CURRENT_DATABASE:
            return None
        if part.arguments or part.star:
            raise source.invalid(part.at, f"{CURRENT_DATABASE} takes no arguments")
        return n.Cast(part.at, n.StringLiteral(part.at, database), t.STRING, False)

    return rewritten(tree, change) if CURRENT_DATABASE in source.text.upper() else tree
