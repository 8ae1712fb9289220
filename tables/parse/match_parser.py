"""Reads MATCH_RECOGNIZE: its clauses in the order of the standard, and the row pattern.

The parser of queries calls it behind a table. What Flink has of the grammar it takes, and more: alternatives, groups,
PERMUTE, SUBSET, ALL ROWS PER MATCH.

Source: ISO/IEC TR 19075-5 and Flink's documentation, "Pattern Recognition".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from penstock.engine.patterns.rows.syntax import (
    Alternatives,
    Repeated,
    RowPattern,
    Sequence,
    Variable,
    in_any_order,
)
from penstock.tables.parse import match_nodes as m
from penstock.tables.parse import nodes as n
from penstock.tables.parse import queries as q
from penstock.tables.parse.cursor import Cursor
from penstock.tables.parse.expression_parser import ExpressionParser
from penstock.tables.parse.tokens import TokenKind

if TYPE_CHECKING:
    from penstock.tables.parse.queries import Alias, Relation

_MOST_PERMUTED: Final = 6
_QUANTIFIERS: Final = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_ENDS: Final = frozenset({")", "|", ","})


class MatchParser:
    """Takes one clause MATCH_RECOGNIZE from the cursor.

    Args:
        cursor: shared with the parsers of queries and expressions.
        expressions: takes expressions.
        alias: takes what may follow a table.
    """

    def __init__(self, cursor: Cursor, expressions: ExpressionParser, alias: Callable[[], Alias | None]) -> None:
        self._cursor = cursor
        self._expressions = expressions
        self._alias = alias

    def match(self, table: Relation) -> q.MatchRecognize:
        """The clause, over a table.

        Raises:
            SqlSyntaxError: another word or sign was to come.
            SqlUnsupportedError: a part of the standard that is not supported.
        """
        at = self._cursor.take().at
        self._cursor.expect("(", where="behind MATCH_RECOGNIZE")
        found = self.clauses(table, at)
        self._cursor.expect(")", where="at the end of MATCH_RECOGNIZE")
        return replace(found, alias=self._alias())

    def clauses(self, table: Relation, at: int) -> q.MatchRecognize:
        """What stands in the brackets."""
        cursor = self._cursor
        partition_by: tuple[n.Node, ...] = ()
        if cursor.accept("PARTITION"):
            cursor.expect("BY", where="behind PARTITION")
            partition_by = cursor.listed(self._expressions.expression)
        order_by = self._expressions.order_by() if cursor.sees("ORDER") else ()
        measures = cursor.listed(self._measure) if cursor.accept("MEASURES") else ()
        all_rows = self._rows_per_match()
        after = self._after() if cursor.sees("AFTER") else None
        pattern_at, pattern = self._pattern()
        within = self._within() if cursor.accept("WITHIN") else None
        subsets = cursor.listed(self._subset) if cursor.accept("SUBSET") else ()
        cursor.expect("DEFINE", where="behind PATTERN (...)")
        definitions = cursor.listed(self._definition)
        return q.MatchRecognize(
            at,
            table,
            partition_by,
            order_by,
            measures,
            all_rows,
            after,
            pattern,
            pattern_at,
            within,
            subsets,
            definitions,
        )

    # Clauses

    def _measure(self) -> m.Measure:
        cursor, at = self._cursor, self._cursor.at
        is_final = None
        for word in ("FINAL", "RUNNING"):
            if cursor.sees(word) and cursor.ahead(1).kind in (TokenKind.WORD, TokenKind.QUOTED):
                cursor.take()
                is_final = word == "FINAL"
                break
        value = self._expressions.expression()
        cursor.expect("AS", where="behind the value of a measure")
        return m.Measure(at, value, cursor.identifier("a name"), is_final)

    def _rows_per_match(self) -> bool:
        cursor = self._cursor
        if cursor.accept("ONE"):
            cursor.expect("ROW", "PER", "MATCH", where="behind ONE")
            return False
        if not cursor.accept("ALL"):
            return False
        cursor.expect("ROWS", "PER", "MATCH", where="behind ALL")
        if cursor.accept("SHOW", "EMPTY", "MATCHES"):
            # A pattern that can match no rows is refused, so there are none.
            return True
        if cursor.sees("OMIT", "EMPTY") or cursor.sees("WITH", "UNMATCHED"):
            raise cursor.source.unsupported(
                cursor.at, "ALL ROWS PER MATCH gives the rows of matches alone; leave what stands behind it out"
            )
        return True

    def _after(self) -> m.AfterMatch:
        cursor, at = self._cursor, self._cursor.at
        cursor.expect("AFTER", "MATCH", "SKIP")
        if cursor.accept("TO", "NEXT", "ROW"):
            return m.AfterMatch(at, m.SkipTo.NEXT_ROW)
        if cursor.accept("PAST"):
            cursor.expect("LAST", "ROW", where="behind PAST")
            return m.AfterMatch(at, m.SkipTo.PAST_LAST_ROW)
        cursor.expect("TO", where="behind AFTER MATCH SKIP")
        skip = m.SkipTo.LAST
        for word, target in (("FIRST", m.SkipTo.FIRST), ("LAST", m.SkipTo.LAST)):
            if cursor.sees(word) and cursor.ahead(1).kind in (TokenKind.WORD, TokenKind.QUOTED):
                cursor.take()
                skip = target
                break
        return m.AfterMatch(at, skip, cursor.identifier("a variable of the pattern"))

    def _within(self) -> n.IntervalLiteral:
        found = self._expressions.expression()
        if not isinstance(found, n.IntervalLiteral):
            raise self._cursor.source.syntax(found.at, "expected an interval behind WITHIN, such as INTERVAL '1' HOUR")
        return found

    def _subset(self) -> m.Subset:
        cursor = self._cursor
        name = cursor.identifier("the name of a subset")
        cursor.expect("=", where="behind the name of a subset")
        return m.Subset(name.at, name, cursor.in_brackets(lambda: cursor.identifier("a variable"), "in SUBSET"))

    def _definition(self) -> m.Definition:
        cursor = self._cursor
        variable = cursor.identifier("a variable of the pattern")
        cursor.expect("AS", where="behind the variable")
        return m.Definition(variable.at, variable, self._expressions.expression())

    # The pattern

    def _pattern(self) -> tuple[int, RowPattern]:
        cursor = self._cursor
        cursor.expect("PATTERN", where="in MATCH_RECOGNIZE")
        cursor.expect("(", where="behind PATTERN")
        at = cursor.at
        pattern = self._alternatives()
        cursor.expect(")", where="at the end of PATTERN")
        return at, pattern

    def _alternatives(self) -> RowPattern:
        parts = [self._sequence()]
        while self._cursor.accept("|"):
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else Alternatives(tuple(parts))

    def _sequence(self) -> RowPattern:
        parts = [self._repeated()]
        while not self._cursor.ended and not self._cursor.sees_any(_ENDS):
            parts.append(self._repeated())
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _repeated(self) -> RowPattern:
        cursor = self._cursor
        part = self._primary()
        at = cursor.at
        bounds = _QUANTIFIERS.get(cursor.token.word)
        if bounds is not None:
            cursor.take()
        elif cursor.accept("{"):
            bounds = self._bounds(at)
        else:
            return part
        is_greedy = not cursor.accept("?")
        if cursor.token.word in _QUANTIFIERS or cursor.sees("{"):
            raise cursor.source.syntax(
                cursor.at, "a part of a pattern has one quantifier; put it in brackets for another"
            )
        return Repeated(part, bounds[0], bounds[1], is_greedy)

    def _bounds(self, at: int) -> tuple[int, int | None]:
        cursor = self._cursor
        if cursor.sees("-"):
            raise cursor.source.unsupported(
                at, "exclusion {- ... -} is not supported; leave rows out by a condition on CLASSIFIER() behind it"
            )
        least = 0 if cursor.sees(",") else cursor.whole_number("a number of rows")
        most: int | None = least
        if cursor.accept(","):
            most = None if cursor.sees("}") else cursor.whole_number("a number of rows")
        cursor.expect("}", where="at the end of the quantifier")
        if most is not None and (most < least or most == 0):
            raise cursor.source.syntax(
                at, f"{{{least},{most}}} takes no rows; the second number is 1 or more, and at least the first"
            )
        return least, most

    def _primary(self) -> RowPattern:
        cursor, token = self._cursor, self._cursor.token
        if cursor.accept("("):
            if cursor.sees(")"):
                raise cursor.expected("a variable", "in the brackets")
            inner = self._alternatives()
            cursor.expect(")", where="to close the bracket")
            return inner
        if token.word == "PERMUTE" and cursor.ahead(1).word == "(":
            cursor.take()
            parts = cursor.in_brackets(self._alternatives, "behind PERMUTE")
            if len(parts) > _MOST_PERMUTED:
                raise cursor.source.unsupported(
                    token.at,
                    f"PERMUTE takes {_MOST_PERMUTED} parts at most, not {len(parts)}: there are too many orders",
                )
            return in_any_order(parts)
        if cursor.sees("{"):
            raise cursor.source.unsupported(token.at, "exclusion {- ... -} is not supported; leave the braces out")
        return Variable(cursor.identifier("a variable, ( or PERMUTE").name)
