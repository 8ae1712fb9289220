"""Calls that SQL writes with words between the arguments: `EXTRACT(YEAR FROM t)`, `TRIM(BOTH 'x' FROM s)`.

Each entry takes what stands in the brackets and gives plain arguments; None where the call is an ordinary one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.tables.parse import nodes as n
from penstock.tables.parse.expressions import Expressions

_Arguments = tuple[n.Argument, ...] | None


def _plain(*values: n.Node) -> tuple[n.Argument, ...]:
    return tuple(n.Argument(value.at, value) for value in values)


def _extract(parser: Expressions, at: int) -> _Arguments:
    cursor = parser.cursor
    token = cursor.take()
    cursor.expect("FROM", where="behind the unit of EXTRACT")
    return _plain(n.Keyword(token.at, token.text.upper()), parser.expression())


def _trim(parser: Expressions, at: int) -> _Arguments:
    cursor = parser.cursor
    side = n.Keyword(cursor.at, "BOTH")
    for word in ("BOTH", "LEADING", "TRAILING"):
        if cursor.accept(word):
            side = n.Keyword(at, word)
            if cursor.accept("FROM"):
                return _plain(side, n.StringLiteral(at, " "), parser.expression())
            break
    first = parser.expression()
    if cursor.accept("FROM"):
        return _plain(side, first, parser.expression())
    return _plain(side, n.StringLiteral(at, " "), first)


def _substring(parser: Expressions, at: int) -> _Arguments:
    cursor = parser.cursor
    value = parser.expression()
    if not cursor.sees("FROM"):
        values = [value]
        while cursor.accept(","):
            values.append(parser.expression())
        return _plain(*values)
    cursor.take()
    start = parser.expression()
    return _plain(value, start, parser.expression()) if cursor.accept("FOR") else _plain(value, start)


def _position(parser: Expressions, at: int) -> _Arguments:
    # IN would be taken as a comparison.
    sought = parser.operand()
    parser.cursor.expect("IN", where="between the texts of POSITION")
    return _plain(sought, parser.expression())


def _overlay(parser: Expressions, at: int) -> _Arguments:
    cursor = parser.cursor
    value = parser.expression()
    cursor.expect("PLACING", where="in OVERLAY")
    placed = parser.expression()
    cursor.expect("FROM", where="in OVERLAY")
    start = parser.expression()
    if cursor.accept("FOR"):
        return _plain(value, placed, start, parser.expression())
    return _plain(value, placed, start)


def _rounded(parser: Expressions, at: int) -> _Arguments:
    cursor = parser.cursor
    value = parser.expression()
    if cursor.accept("TO"):
        token = cursor.take()
        return _plain(value, n.Keyword(token.at, token.text.upper()))
    return _plain(value)


def _unit_first(parser: Expressions, at: int) -> _Arguments:
    cursor = parser.cursor
    token = cursor.take()
    values: list[n.Node] = [n.Keyword(token.at, token.text.upper())]
    while cursor.accept(","):
        values.append(parser.expression())
    return _plain(*values)


SPECIAL_CALLS: Final[dict[str, Callable[[Expressions, int], _Arguments]]] = {
    "EXTRACT": _extract,
    "TRIM": _trim,
    "SUBSTRING": _substring,
    "POSITION": _position,
    "OVERLAY": _overlay,
    "CEIL": _rounded,
    "CEILING": _rounded,
    "FLOOR": _rounded,
    "TIMESTAMPADD": _unit_first,
    "TIMESTAMPDIFF": _unit_first,
}
"""By the function's name."""
