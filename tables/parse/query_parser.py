"""Reads queries: SELECT with its clauses, set operations, WITH, and what stands in FROM."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, combinations
from typing import Final

from penstock.tables.parse import nodes as n
from penstock.tables.parse import queries as q
from penstock.tables.parse.cursor import Cursor
from penstock.tables.parse.expression_parser import ExpressionParser
from penstock.tables.parse.hints import parse_hint
from penstock.tables.parse.match_parser import MatchParser
from penstock.tables.parse.text import SqlText
from penstock.tables.parse.tokens import TokenKind

_BY_ON: Final = frozenset({"SEMI", "ANTI", "ASOF", "ASOF LEFT"})
"""Joins that take no USING."""
_TABLE_CALLS: Final = frozenset({"UNNEST"})
_REFUSED_BEHIND_TABLE: Final = {
    "TABLESAMPLE": "sampling is not supported; filter by a hash of a column, MOD(ABS(HASH_CODE(id)), 100) = 0",
    "PIVOT": "PIVOT is not supported; use aggregates with FILTER (WHERE ...)",
    "UNPIVOT": "UNPIVOT is not supported; use UNION ALL",
}


class QueryParser:
    """Takes queries from the cursor."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self.expressions = ExpressionParser(cursor, self.query)

    def query(self) -> q.Query:
        """A query with WITH, ORDER BY, LIMIT and OFFSET."""
        cursor, at = self.cursor, self.cursor.at
        ctes: tuple[q.CommonTable, ...] = ()
        if cursor.accept("WITH"):
            if cursor.sees("RECURSIVE"):
                raise cursor.source.unsupported(cursor.at, "recursive queries are not supported")
            ctes = cursor.listed(self._common_table)
        body = self._set_operation()
        order_by = self.expressions.order_by() if cursor.sees("ORDER") else ()
        limit = offset = None
        while True:
            if limit is None and cursor.accept("LIMIT"):
                limit = None if cursor.accept("ALL") else self.expressions.expression()
            elif offset is None and cursor.accept("OFFSET"):
                offset = self.expressions.expression()
                if not cursor.accept("ROWS"):
                    cursor.accept("ROW")
            elif limit is None and cursor.accept("FETCH"):
                limit = self._fetch()
            else:
                return q.Query(at, body, ctes, order_by, limit, offset)

    def _fetch(self) -> n.Node:
        cursor = self.cursor
        if not (cursor.accept("FIRST") or cursor.accept("NEXT")):
            raise cursor.expected("FIRST or NEXT", "behind FETCH")
        rows = n.NumberLiteral(cursor.at, "1") if cursor.sees_any(frozenset({"ROW", "ROWS"})) else None
        limit = rows or self.expressions.expression()
        if not (cursor.accept("ROW", "ONLY") or cursor.accept("ROWS", "ONLY")):
            raise cursor.expected("ROWS ONLY", "at the end of FETCH")
        return limit

    def _common_table(self) -> q.CommonTable:
        cursor = self.cursor
        name = cursor.identifier("the name of a common table")
        columns = cursor.in_brackets(cursor.identifier) if cursor.sees("(") else ()
        cursor.expect("AS", where="behind the name of a common table")
        cursor.expect("(", where="behind AS")
        query = self.query()
        cursor.expect(")", where="behind the query of WITH")
        return q.CommonTable(name.at, q.Alias(name, columns), query)

    def _set_operation(self) -> q.QueryBody:
        left = self._intersection()
        while self.cursor.sees_any(frozenset({"UNION", "EXCEPT", "MINUS"})):
            left = self._set_tail(left)
        return left

    def _intersection(self) -> q.QueryBody:
        left = self._query_primary()
        while self.cursor.sees("INTERSECT"):
            left = self._set_tail(left)
        return left

    def _set_tail(self, left: q.QueryBody) -> q.SetOperation:
        token = self.cursor.take()
        keep_all = self.cursor.accept("ALL")
        if not keep_all:
            self.cursor.accept("DISTINCT")
        right = self._intersection() if token.word != "INTERSECT" else self._query_primary()
        operator = "EXCEPT" if token.word == "MINUS" else token.word
        return q.SetOperation(token.at, operator, keep_all, left, right)

    def _query_primary(self) -> q.QueryBody:
        cursor, at = self.cursor, self.cursor.at
        if cursor.accept("("):
            query = self.query()
            cursor.expect(")", where="behind the query")
            return query
        if cursor.sees("SELECT"):
            return self._select()
        if cursor.accept("VALUES"):
            return q.Values(at, cursor.listed(self._values_row))
        if cursor.accept("TABLE"):
            return q.TableQuery(at, cursor.name("the name of a table"))
        raise cursor.expected("SELECT, VALUES, WITH or a query in brackets")

    def _values_row(self) -> tuple[n.Node, ...]:
        self.cursor.accept("ROW")
        if self.cursor.sees("("):
            return self.cursor.in_brackets(self.expressions.expression)
        return (self.expressions.expression(),)

    def _select(self) -> q.Select:
        cursor, at = self.cursor, self.cursor.take().at
        hints: list[q.Hint] = []
        while cursor.token.kind is TokenKind.HINT:
            hints += parse_hint(cursor.take(), cursor.source)
        distinct = cursor.accept("DISTINCT")
        if not distinct:
            cursor.accept("ALL")
        items = cursor.listed(self._select_item)
        source = self._from() if cursor.accept("FROM") else None
        where = self.expressions.expression() if cursor.accept("WHERE") else None
        group_by = self._group_by() if cursor.sees("GROUP") else None
        having = self.expressions.expression() if cursor.accept("HAVING") else None
        windows = cursor.listed(self._window) if cursor.accept("WINDOW") else ()
        qualify = self.expressions.expression() if cursor.accept("QUALIFY") else None
        return q.Select(at, items, source, where, group_by, having, windows, qualify, distinct, tuple(hints))

    def _select_item(self) -> q.SelectItem:
        at = self.cursor.at
        if self.cursor.sees("FROM"):
            raise self.cursor.expected("an expression", "in SELECT")
        value = self.expressions.expression()
        if self.cursor.accept("AS"):
            return q.SelectItem(at, value, self.cursor.identifier("a name"))
        alias = self.cursor.identifier() if self.cursor.sees_name() else None
        return q.SelectItem(at, value, alias)

    def _window(self) -> tuple[n.Identifier, n.Over]:
        name = self.cursor.identifier("the name of a window")
        self.cursor.expect("AS", where="behind the name of a window")
        return name, self.expressions.over()

    def _group_by(self) -> tuple[n.Node, ...]:
        self.cursor.expect("GROUP", "BY")
        return self.cursor.listed(self._group_item)

    def _group_item(self) -> n.Node:
        cursor, at = self.cursor, self.cursor.at
        if cursor.accept("GROUPING", "SETS"):
            return q.GroupingSets(at, tuple(chain.from_iterable(cursor.in_brackets(self._sets_of_one))))
        if cursor.accept("ROLLUP"):
            parts = self._parts_of_sets()
            return q.GroupingSets(at, tuple(_joined(parts[:count]) for count in range(len(parts), -1, -1)))
        if cursor.accept("CUBE"):
            parts = self._parts_of_sets()
            sizes = range(len(parts), -1, -1)
            return q.GroupingSets(at, tuple(_joined(found) for size in sizes for found in combinations(parts, size)))
        if cursor.accept("(", ")"):
            return q.GroupingSets(at, ((),))
        return self.expressions.expression()

    def _parts_of_sets(self) -> Sequence[Sequence[n.Node]]:
        """What ROLLUP and CUBE take or leave: a column, or several in brackets at once."""
        parts = self.cursor.in_brackets(self.expressions.expression)
        return [one.items if isinstance(one, n.Constructor) and one.kind == "ROW" else (one,) for one in parts]

    def _sets_of_one(self) -> Sequence[tuple[n.Node, ...]]:
        """Of what stands in GROUPING SETS: a set, or those of a ROLLUP or CUBE."""
        if self.cursor.sees_any(frozenset({"ROLLUP", "CUBE"})):
            found = self._group_item()
            return found.sets if isinstance(found, q.GroupingSets) else ()
        return (self._grouping_set(),)

    def _grouping_set(self) -> tuple[n.Node, ...]:
        cursor = self.cursor
        if not cursor.sees("("):
            return (self.expressions.expression(),)
        if cursor.accept("(", ")"):
            return ()
        return cursor.in_brackets(self.expressions.expression)

    # FROM

    def _from(self) -> q.Relation:
        left = self._joined()
        while self.cursor.sees(","):
            at = self.cursor.take().at
            left = q.Join(at, "CROSS", left, self._joined())
        return left

    def _joined(self) -> q.Relation:
        left = self._table()
        while True:
            natural = self.cursor.accept("NATURAL")
            kind = self._join_kind()
            if kind is None:
                if natural:
                    raise self.cursor.expected("JOIN", "behind NATURAL")
                return left
            at = self.cursor.at
            right = self._table()
            if natural and kind != "CROSS":
                left = q.Join(at, kind, left, right, natural=True)
            elif kind == "CROSS":
                left = q.Join(at, kind, left, right)
            elif self.cursor.accept("ON"):
                left = q.Join(at, kind, left, right, self.expressions.expression())
            elif kind not in _BY_ON and self.cursor.accept("USING"):
                left = q.Join(at, kind, left, right, using=self.cursor.in_brackets(self.cursor.identifier))
            else:
                what = "ON" if kind in _BY_ON else "ON or USING"
                raise self.cursor.expected(what, "behind the joined table")

    def _join_kind(self) -> str | None:
        cursor = self.cursor
        if cursor.accept("CROSS"):
            cursor.expect("JOIN", where="behind CROSS")
            return "CROSS"
        if cursor.accept("JOIN"):
            return "INNER"
        if cursor.accept("INNER"):
            cursor.expect("JOIN", where="behind INNER")
            return "INNER"
        if self._sees_asof():
            cursor.take()
            kind = "ASOF LEFT" if cursor.accept("LEFT") else "ASOF"
            cursor.expect("JOIN", where=f"behind {kind}")
            return kind
        for kind in ("LEFT", "RIGHT", "FULL"):
            if cursor.accept(kind):
                for alone in ("SEMI", "ANTI"):
                    if kind == "LEFT" and cursor.accept(alone, "JOIN"):
                        return alone
                cursor.accept("OUTER")
                cursor.expect("JOIN", where=f"behind {kind}")
                return kind
        return None

    def _sees_asof(self) -> bool:
        """ASOF is no reserved word, so that it may be a name elsewhere."""
        return self.cursor.sees("ASOF", "JOIN") or self.cursor.sees("ASOF", "LEFT", "JOIN")

    def _table(self) -> q.Relation:
        relation = self._plain_table()
        while self.cursor.sees("MATCH_RECOGNIZE"):
            relation = MatchParser(self.cursor, self.expressions, self._alias).match(relation)
        return relation

    def _plain_table(self) -> q.Relation:
        cursor = self.cursor
        lateral = cursor.accept("LATERAL")
        token = cursor.token
        if cursor.sees("TABLE", "("):
            cursor.take()
            cursor.expect("(")
            if cursor.sees_any(frozenset({"SELECT", "WITH"})):
                raise cursor.source.unsupported(cursor.at, "TABLE(query) is not supported; leave TABLE out")
            call = self.expressions.call()
            cursor.expect(")", where="behind the call of the table function")
            return q.FunctionTable(token.at, call, self._alias(), lateral)
        if token.word in _TABLE_CALLS or (cursor.ahead(1).word == "(" and cursor.sees_name()):
            if token.word == "UNNEST":
                return self._unnest(lateral)
            return q.FunctionTable(token.at, self.expressions.call(), self._alias(), lateral)
        if cursor.accept("("):
            return self._bracketed(token.at, lateral)
        return self._named()

    def _unnest(self, lateral: bool) -> q.FunctionTable:
        cursor, token = self.cursor, self.cursor.take()
        values = cursor.in_brackets(self.expressions.expression, where="behind UNNEST")
        call = n.Call(token.at, "UNNEST", tuple(n.Argument(value.at, value) for value in values))
        ordinality = cursor.accept("WITH", "ORDINALITY")
        return q.FunctionTable(token.at, call, self._alias(), True, ordinality)

    def _bracketed(self, at: int, lateral: bool) -> q.Relation:
        cursor = self.cursor
        inner = 0
        while cursor.ahead(inner).word == "(":
            inner += 1
        if cursor.ahead(inner).word in ("SELECT", "WITH", "VALUES", "TABLE"):
            query = self.query()
            cursor.expect(")", where="behind the query in FROM")
            self._refuse_behind()
            return q.DerivedTable(at, query, self._alias(), lateral)
        relation = self._from()
        cursor.expect(")", where="behind the tables in brackets")
        return relation

    def _named(self) -> q.TableName:
        cursor, at = self.cursor, self.cursor.at
        name = cursor.name("a table, a query in brackets or a table function")
        options: dict[str, str] = {}
        while cursor.token.kind is TokenKind.HINT:
            for hint in parse_hint(cursor.take(), cursor.source):
                if hint.name == "OPTIONS":
                    options.update(hint.options)
        as_of = None
        if cursor.accept("FOR"):
            cursor.expect("SYSTEM_TIME", "AS", "OF", where="behind FOR")
            as_of = self.expressions.expression()
        self._refuse_behind()
        return q.TableName(at, name, self._alias(), as_of, options)

    def _refuse_behind(self) -> None:
        reason = _REFUSED_BEHIND_TABLE.get(self.cursor.token.word)
        if reason is not None and self.cursor.ahead(1).word in ("(", "BERNOULLI", "SYSTEM"):
            raise self.cursor.source.unsupported(self.cursor.at, reason)

    def _alias(self) -> q.Alias | None:
        cursor = self.cursor
        if not cursor.accept("AS") and (not cursor.sees_name() or self._sees_asof()):
            return None
        name = cursor.identifier("a name for the table")
        columns = cursor.in_brackets(cursor.identifier) if cursor.sees("(") else ()
        self._refuse_behind()
        return q.Alias(name, columns)


def _joined(parts: Sequence[Sequence[n.Node]]) -> tuple[n.Node, ...]:
    return tuple(chain.from_iterable(parts))


def parse_match(source: SqlText, table: q.TableName) -> q.MatchRecognize:
    """The clauses of a MATCH_RECOGNIZE over a table: the whole text is what stands in its brackets.

    Raises:
        SqlSyntaxError: it is none.
    """
    cursor = Cursor(source)
    parser = QueryParser(cursor)
    found = MatchParser(cursor, parser.expressions, parser._alias).clauses(table, 0)
    if not cursor.ended:
        raise cursor.expected("the end", "behind DEFINE")
    return found
