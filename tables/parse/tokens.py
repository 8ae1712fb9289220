"""The words of the text: names, numbers, texts and signs, each with its place.

The parser's cursor reads them. Comments and blanks are dropped, but hints (`/*+ ... */`) are kept as one token.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Final

from penstock.tables.parse.text import SqlText


class TokenKind(enum.Enum):
    """What a token is."""

    WORD = "name"
    QUOTED = "quoted name"
    NUMBER = "number"
    STRING = "text"
    HINT = "hint"
    SIGN = "sign"
    END = "end of the text"


@dataclass(frozen=True, slots=True)
class Token:
    """One word of the text.

    Args:
        kind: what it is.
        text: a word as it was written, a quoted name or a text without its quotes, a hint without its signs.
        at: where it begins.
        end: where what is behind it begins.
    """

    kind: TokenKind
    text: str
    at: int
    end: int

    @property
    def word(self) -> str:
        """An unquoted word or a sign, in capitals; empty for others."""
        return self.text.upper() if self.kind in (TokenKind.WORD, TokenKind.SIGN) else ""

    @property
    def shown(self) -> str:
        """How messages quote it."""
        return "the end of the text" if self.kind is TokenKind.END else repr(self.text)


_PATTERN: Final = re.compile(
    r"""(?P<space>\s+|--[^\n]*)
    |(?P<hint>/\*\+.*?\*/)
    |(?P<comment>/\*.*?\*/)
    |(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
    |(?P<string>(?:_[A-Za-z]\w*|[nN])?'(?:[^']|'')*')
    |(?P<unicode>[uU]&'(?:[^']|'')*'(?:\s+(?i:UESCAPE)\s+'[^']')?)
    |(?P<quoted>`(?:[^`]|``)*`)
    |(?P<word>[^\W\d][\w$]*)
    |(?P<sign><>|!=|<=|>=|\|\||=>|/(?!\*)|[-+*%=<>().,;\[\]?:{}|])""",
    re.VERBOSE | re.DOTALL,
)


def tokenize(source: SqlText) -> list[Token]:
    """All tokens of the text, one of kind END behind them.

    Raises:
        SqlSyntaxError: a quote or a comment that does not end, or a character that SQL does not have.

    Example:
        >>> [token.text for token in tokenize(SqlText("SELECT 'it''s'"))]
        ['SELECT', "it's", '']
    """
    tokens, place, text = [], 0, source.text
    while place < len(text):
        found = _PATTERN.match(text, place)
        if found is None:
            raise _unreadable(source, place)
        token = _token(found, place)
        if token is not None:
            tokens.append(token)
        place = found.end()
    end = len(text.rstrip())
    return [*tokens, Token(TokenKind.END, "", end, end)]


def _token(found: re.Match[str], at: int) -> Token | None:
    text, end = found[0], found.end()
    match found.lastgroup:
        case "hint":
            return Token(TokenKind.HINT, text[3:-2], at, end)
        case "number":
            return Token(TokenKind.NUMBER, text, at, end)
        case "string":
            # A character set before it, such as _UTF8, or N changes nothing: all texts are in Unicode.
            return Token(TokenKind.STRING, text[text.index("'") + 1 : -1].replace("''", "'"), at, end)
        case "unicode":
            return Token(TokenKind.STRING, _of_code_points(text), at, end)
        case "quoted":
            return Token(TokenKind.QUOTED, text[1:-1].replace("``", "`"), at, end)
        case "word":
            return Token(TokenKind.WORD, text, at, end)
        case "sign":
            return Token(TokenKind.SIGN, text, at, end)
    return None


def _of_code_points(text: str) -> str:
    """What `U&'\\00e9\\+01f600'` means, where another escape than the backslash may be named behind it."""
    begin = text.index("'") + 1
    end = re.compile("(?:[^']|'')*").match(text, begin)
    assert end is not None, "an empty text fits"
    rest = text[end.end() + 1 :]
    escape = re.escape(rest[-2] if rest else "\\")
    digits = re.compile(rf"{escape}(?:\+([0-9a-fA-F]{{6}})|([0-9a-fA-F]{{4}})|({escape}))")
    return digits.sub(
        lambda found: found[3] or chr(int(found[1] or found[2], 16)), text[begin : end.end()].replace("''", "'")
    )


def _unreadable(source: SqlText, at: int) -> Exception:
    begin = source.text[at]
    if begin == "'":
        return source.syntax(at, "this text has no closing quote ('); a quote in a text is written twice ('')")
    if begin == "`":
        return source.syntax(at, "this name has no closing quote (`)")
    if source.text.startswith("/*", at):
        return source.syntax(at, "this comment has no end (*/)")
    if begin == '"':
        return source.syntax(at, "texts are written in single quotes ('...'), names in backticks (`...`)")
    return source.syntax(at, f"the character {begin!r} has no meaning here")
