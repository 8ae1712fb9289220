"""Reads hints: `/*+ STATE_TTL('t' = '1d'), OPTIONS('k' = 'v'), LOOKUP(...) */`."""

from __future__ import annotations

from penstock.tables.parse.cursor import Cursor
from penstock.tables.parse.queries import Hint
from penstock.tables.parse.text import SqlText
from penstock.tables.parse.tokens import Token, TokenKind


def parse_hint(token: Token, source: SqlText) -> list[Hint]:
    """The hints in the token, in their order.

    Raises:
        SqlSyntaxError: it is not written as hints are.
    """
    # Blanks stand for what goes before, so that places are those of the whole text.
    begin = token.at + len("/*+")
    cursor = Cursor(SqlText("".join(c if c == "\n" else " " for c in source.text[:begin]) + token.text))
    hints = []
    while not cursor.ended:
        at, name = cursor.at, cursor.identifier("the name of a hint").name.upper()
        hints.append(Hint(at, name, dict(cursor.in_brackets(lambda: _option(cursor))) if cursor.sees("(") else {}))
        cursor.accept(",")
    return hints


def _option(cursor: Cursor) -> tuple[str, str]:
    if cursor.token.kind not in (TokenKind.STRING, TokenKind.WORD, TokenKind.QUOTED):
        raise cursor.expected("an option, such as 'key' = 'value',", "in the hint")
    key = cursor.take().text
    return key, cursor.string("the option's value in quotes") if cursor.accept("=") else ""
