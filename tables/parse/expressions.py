"""What those that read the arguments of special calls ask of the parser of expressions, which calls them."""

from __future__ import annotations

from typing import Protocol

from penstock.tables.parse import nodes as n
from penstock.tables.parse.cursor import Cursor


class Expressions(Protocol):
    """Takes expressions from a cursor; `ExpressionParser` is the one that does."""

    @property
    def cursor(self) -> Cursor:
        """Where in the text it is."""

    def expression(self) -> n.Node:
        """Any expression."""

    def operand(self) -> n.Node:
        """An expression without comparisons, AND, OR and NOT."""

    def behind_call(self, call: n.Call, passes_nulls: bool = False) -> n.Call:
        """A call with what follows its brackets, WITHIN GROUP, FILTER, OVER; whether it passes over nulls."""
