"""Where the parser is in the tokens: looking ahead, taking, and saying what was expected.

The parsers of types, expressions, queries and statements share one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from penstock.engine.errors import SqlSyntaxError, nearest
from penstock.tables.parse.nodes import Identifier, Name
from penstock.tables.parse.text import SqlText
from penstock.tables.parse.tokens import Token, TokenKind, tokenize

_T = TypeVar("_T")

RESERVED: Final = frozenset(
    """
    ALL AND ANY AS BETWEEN BY CASE CAST CREATE CROSS CUBE DISTINCT DROP ELSE END ESCAPE EXCEPT EXISTS EXPLAIN FALSE
    FETCH FOR FROM FULL GROUP GROUPING HAVING IN INNER INSERT INTERSECT INTERVAL INTO IS JOIN LATERAL LEFT LIKE
    LIMIT MATCH_RECOGNIZE MINUS NATURAL NOT NULL OFFSET ON OR ORDER OUTER OVER PARTITION QUALIFY RIGHT ROLLUP SELECT
    SIMILAR SOME SYMMETRIC TABLE TABLESAMPLE THEN TRUE UNION UNKNOWN UNNEST USING VALUES WHEN WHERE WINDOW WITH
    """.split()  # noqa: SIM905 - as a list it would be sixty lines
)
"""Words that are names only in backticks."""


_NAMES: Final = ("a name", "an expression")


class Cursor:
    """The tokens of a text, and the place among them.

    Args:
        source: the text, for errors.
    """

    def __init__(self, source: SqlText) -> None:
        self.source = source
        self._tokens = tokenize(source)
        self._place = 0

    @property
    def token(self) -> Token:
        """The next one."""
        return self._tokens[self._place]

    @property
    def at(self) -> int:
        """Where the next one begins."""
        return self.token.at

    def ahead(self, distance: int) -> Token:
        """The one that many behind the next."""
        return self._tokens[min(self._place + distance, len(self._tokens) - 1)]

    def take(self) -> Token:
        """The next one, which is then behind."""
        token = self.token
        self._place = min(self._place + 1, len(self._tokens) - 1)
        return token

    @property
    def ended(self) -> bool:
        return self.token.kind is TokenKind.END

    def sees(self, *words: str) -> bool:
        """Whether these words or signs come next."""
        return all(self.ahead(distance).word == word for distance, word in enumerate(words))

    def sees_any(self, words: frozenset[str]) -> bool:
        """Whether one of the words comes next."""
        return self.token.word in words

    def text_since(self, at: int) -> str:
        """What is written from there to the end of the last token that was taken."""
        return self.source.text[at : self._tokens[max(self._place - 1, 0)].end]

    def accept(self, *words: str) -> bool:
        """Take these words if they come next."""
        if not self.sees(*words):
            return False
        self._place += len(words)
        return True

    def expect(self, *words: str, where: str = "") -> None:
        """Take these words.

        Raises:
            SqlSyntaxError: another one comes.
        """
        for word in words:
            if not self.accept(word):
                raise self.expected(f"{word!r}" if not word.isalpha() else word, where)

    def expected(self, what: str, where: str = "") -> SqlSyntaxError:
        """The error for a token that is not what had to come."""
        behind = f" {where}" if where else ""
        hint = nearest(self.token.word, what.replace(",", "").split()) if self.token.kind is TokenKind.WORD else ""
        reserved = (
            f"; {self.token.text!r} is a reserved word: as a name it needs backticks, `{self.token.text}`"
            if what in _NAMES and self.token.word in RESERVED
            else ""
        )
        return self.source.syntax(self.at, f"expected {what}{behind}, but there is {self.token.shown}{hint}{reserved}")

    def sees_name(self) -> bool:
        """Whether an identifier comes next."""
        kind = self.token.kind
        return kind is TokenKind.QUOTED or (kind is TokenKind.WORD and self.token.word not in RESERVED)

    def identifier(self, what: str = "a name") -> Identifier:
        """Take an identifier."""
        if not self.sees_name():
            raise self.expected(what)
        token = self.take()
        return Identifier(token.at, token.text)

    def name(self, what: str = "a name") -> Name:
        """Take identifiers with dots between them."""
        parts = [self.identifier(what)]
        while self.accept("."):
            parts.append(self.field_name())
        return Name(parts[0].at, tuple(parts))

    def field_name(self) -> Identifier:
        """Take what may stand behind a dot: also a reserved word."""
        if self.token.kind not in (TokenKind.WORD, TokenKind.QUOTED):
            raise self.expected("a name", "behind the dot")
        token = self.take()
        return Identifier(token.at, token.text)

    def string(self, what: str) -> str:
        """Take a text in quotes."""
        if self.token.kind is not TokenKind.STRING:
            raise self.expected(what)
        return self.take().text

    def whole_number(self, what: str) -> int:
        """Take a number without a point."""
        if self.token.kind is not TokenKind.NUMBER or not self.token.text.isdigit():
            raise self.expected(what)
        return int(self.take().text)

    def listed(self, parse: Callable[[], _T]) -> tuple[_T, ...]:
        """One or more, with commas between them."""
        items = [parse()]
        while self.accept(","):
            items.append(parse())
        return tuple(items)

    def in_brackets(self, parse: Callable[[], _T], where: str = "") -> tuple[_T, ...]:
        """One or more in round brackets."""
        self.expect("(", where=where)
        items = self.listed(parse)
        self.expect(")", where=where)
        return items
