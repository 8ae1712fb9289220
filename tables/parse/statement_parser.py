"""Reads scripts: statements with semicolons between them.

`parse_script` is the way in for whole files, `parse_statement` for a single statement.
"""

from __future__ import annotations

from typing import Final

from penstock.engine.errors import nearest
from penstock.tables.parse import statements as s
from penstock.tables.parse.cursor import Cursor
from penstock.tables.parse.nodes import Identifier, Name
from penstock.tables.parse.query_parser import QueryParser
from penstock.tables.parse.text import SqlText
from penstock.tables.parse.tokens import TokenKind
from penstock.tables.parse.type_parser import parse_type

_STARTS = (
    "SELECT",
    "WITH",
    "VALUES",
    "INSERT",
    "CREATE",
    "DROP",
    "EXPLAIN",
    "SHOW",
    "DESCRIBE",
    "DESC",
    "USE",
    "SET",
    "RESET",
    "EXECUTE",
    "BEGIN",
    "STATEMENT",
    "TABLE",
)
_SHOWN: Final = (
    "TABLES",
    "VIEWS",
    "FUNCTIONS",
    "USER FUNCTIONS",
    "CONNECTORS",
    "CATALOGS",
    "DATABASES",
    "CURRENT CATALOG",
    "CURRENT DATABASE",
)
TOO_DEEP: Final = "brackets are nested too deeply here; name inner parts by WITH or CREATE VIEW"
"""What is said of texts that Python's stack does not hold."""
_REFUSED = {
    "ALTER": "tables cannot be changed; drop it and create it anew",
    "UPDATE": "rows are changed by changelogs, not by UPDATE; write a query with INSERT INTO",
    "DELETE": "rows are deleted by changelogs, not by DELETE; write a query with INSERT INTO",
    "TRUNCATE": "TRUNCATE is not supported",
    "ANALYZE": "there are no statistics to gather",
    "LOAD": "modules are not supported; all functions are there",
    "UNLOAD": "modules are not supported; all functions are there",
    "CALL": "there are no procedures",
    "ADD": "jars have no meaning here; connectors are Python packages",
    "REMOVE": "jars have no meaning here; connectors are Python packages",
    "STOP": "stop jobs by `penstock stop`",
    "MERGE": "MERGE is not supported; write to a table with a primary key with INSERT INTO",
}


def parse_script(text: str) -> list[s.Statement]:
    """All statements of the text.

    Raises:
        SqlSyntaxError: it is no SQL; says where, and what was expected.
        SqlUnsupportedError: a statement or clause that is not supported.

    Example:
        >>> [type(statement).__name__ for statement in parse_script("SET 'a' = 'b'; SELECT 1;")]
        ['SetOption', 'Query']
    """
    parser = StatementParser(SqlText(text))
    statements = []
    while not parser.cursor.ended:
        if parser.cursor.accept(";"):
            continue
        statements.append(parser.statement())
        if not parser.cursor.ended:
            parser.cursor.expect(";", where="at the end of the statement")
    return statements


def parse_statement(text: str) -> s.Statement:
    """The single statement of the text; errors as for `parse_script`."""
    parser = StatementParser(SqlText(text))
    statement = parser.statement()
    parser.cursor.accept(";")
    if not parser.cursor.ended:
        raise parser.cursor.expected("nothing more (one statement is run at a time)")
    return statement


class StatementParser:
    """Takes statements from a text."""

    def __init__(self, source: SqlText) -> None:
        self.cursor = Cursor(source)
        self.queries = QueryParser(self.cursor)

    def statement(self) -> s.Statement:
        """The next statement, without the semicolon."""
        try:
            return self._statement()
        except RecursionError:
            raise self.cursor.source.unsupported(self.cursor.at, TOO_DEEP) from None

    def _statement(self) -> s.Statement:
        cursor, token = self.cursor, self.cursor.token
        match token.word:
            case "SELECT" | "WITH" | "VALUES" | "(" | "TABLE":
                return self.queries.query()
            case "INSERT":
                return self._insert()
            case "CREATE":
                return self._create()
            case "DROP":
                return self._drop()
            case "EXECUTE" | "BEGIN" | "STATEMENT":
                return self._statement_set()
            case "EXPLAIN":
                return self._explain()
            case "SHOW":
                return self._show()
            case "DESCRIBE" | "DESC":
                cursor.take()
                return s.Describe(token.at, cursor.name("the name of a table"))
            case "USE":
                cursor.take()
                if cursor.accept("MODULES"):
                    raise cursor.source.unsupported(token.at, "modules are not supported; all functions are there")
                kind = "CATALOG" if cursor.accept("CATALOG") else "DATABASE"
                return s.Use(token.at, kind, cursor.name(f"the name of a {kind.lower()}"))
            case "SET" | "RESET":
                return self._set()
        if token.word in _REFUSED:
            raise cursor.source.unsupported(token.at, f"{token.word}: {_REFUSED[token.word]}")
        hint = nearest(token.word, _STARTS)
        raise cursor.source.syntax(token.at, f"expected a statement such as SELECT, but there is {token.shown}{hint}")

    # INSERT, EXPLAIN, statement sets

    def _insert(self) -> s.Insert:
        cursor, at = self.cursor, self.cursor.take().at
        if cursor.sees("OVERWRITE"):
            raise cursor.source.unsupported(cursor.at, "INSERT OVERWRITE is not supported; use INSERT INTO")
        cursor.expect("INTO", where="behind INSERT")
        table = cursor.name("the name of a table")
        if cursor.sees("PARTITION"):
            raise cursor.source.unsupported(cursor.at, "static partitions are not supported; select them as columns")
        columns: tuple[Identifier, ...] = ()
        if cursor.sees("(") and cursor.ahead(1).word not in ("SELECT", "WITH", "VALUES", "("):
            columns = cursor.in_brackets(cursor.identifier)
        query = self.queries.query()
        on_conflict = self._on_conflict() if cursor.sees("ON", "CONFLICT") else None
        return s.Insert(at, table, columns, query, on_conflict)

    def _on_conflict(self) -> str:
        cursor = self.cursor
        cursor.expect("ON", "CONFLICT", "DO")
        for action in ("DEDUPLICATE", "NOTHING", "ERROR"):
            if cursor.accept(action):
                return action
        raise cursor.expected("DEDUPLICATE, NOTHING or ERROR", "behind ON CONFLICT DO")

    def _statement_set(self) -> s.StatementSet:
        cursor, at = self.cursor, self.cursor.at
        cursor.accept("EXECUTE")
        if cursor.accept("BEGIN"):
            cursor.expect("STATEMENT", "SET")
        else:
            cursor.expect("STATEMENT", "SET")
            cursor.expect("BEGIN", where="behind STATEMENT SET")
        cursor.accept(";")
        inserts = []
        while not cursor.accept("END"):
            if not cursor.sees("INSERT"):
                raise cursor.expected("INSERT INTO or END", "in the statement set")
            inserts.append(self._insert())
            cursor.expect(";", where="behind each INSERT of a statement set")
        if not inserts:
            raise cursor.source.syntax(at, "the statement set is empty; give at least one INSERT INTO")
        return s.StatementSet(at, tuple(inserts))

    def _explain(self) -> s.Explain:
        cursor, at = self.cursor, self.cursor.take().at
        cursor.accept("PLAN", "FOR")
        while cursor.sees_any(frozenset({"ESTIMATED_COST", "CHANGELOG_MODE", "JSON_EXECUTION_PLAN", "PLAN_ADVICE"})):
            # Changelog modes and costs are always shown.
            cursor.take()
            cursor.accept(",")
        if cursor.sees("INSERT"):
            return s.Explain(at, self._insert())
        if cursor.sees_any(frozenset({"STATEMENT", "EXECUTE", "BEGIN"})):
            return s.Explain(at, self._statement_set())
        return s.Explain(at, self.queries.query())

    # SHOW, SET

    def _show(self) -> s.Show:
        cursor, at = self.cursor, self.cursor.take().at
        if cursor.accept("CREATE"):
            for kind in ("TABLE", "VIEW"):
                if cursor.accept(kind):
                    return s.Show(at, f"CREATE {kind}", cursor.name(f"the name of a {kind.lower()}"))
            raise cursor.expected("TABLE or VIEW", "behind SHOW CREATE")
        if cursor.accept("COLUMNS"):
            if not cursor.accept("FROM") and not cursor.accept("IN"):
                raise cursor.expected("FROM", "behind SHOW COLUMNS")
            return s.Show(at, "COLUMNS", cursor.name("the name of a table"))
        for words in _SHOWN:
            if cursor.accept(*words.split()):
                return s.Show(at, words)
        raise cursor.expected(f"{', '.join(_SHOWN)}, COLUMNS FROM or CREATE TABLE", "behind SHOW")

    def _set(self) -> s.SetOption | s.ResetOption:
        cursor, token = self.cursor, self.cursor.take()
        key = self._option_key() if not cursor.ended and not cursor.sees(";") else None
        if token.word == "RESET":
            return s.ResetOption(token.at, key)
        value = None
        if key is not None and cursor.accept("="):
            value = self._option_value()
        return s.SetOption(token.at, key, value)

    def _option_key(self) -> str:
        cursor = self.cursor
        if cursor.token.kind is TokenKind.STRING:
            return cursor.take().text
        parts = [cursor.field_name().name if cursor.sees_name() else cursor.string("the key in quotes")]
        while cursor.accept(".") or cursor.accept("-"):
            parts.append(cursor.field_name().name)
        return ".".join(parts)

    def _option_value(self) -> str:
        if self.cursor.token.kind in (TokenKind.STRING, TokenKind.NUMBER, TokenKind.WORD):
            return self.cursor.take().text
        raise self.cursor.expected("the value in quotes", "behind =")

    # CREATE, DROP

    def _create(self) -> s.CreateTable | s.CreateView:
        cursor, at = self.cursor, self.cursor.take().at
        if cursor.sees("OR", "REPLACE"):
            raise cursor.source.unsupported(cursor.at, "CREATE OR REPLACE is not supported; drop it before")
        temporary = cursor.accept("TEMPORARY")
        if cursor.accept("TABLE"):
            return self._create_table(at)
        if cursor.accept("VIEW"):
            return self._create_view(at)
        for kind, remedy in (
            ("FUNCTION", "give a function of Python a name by env.tables.create_temporary_function"),
            ("CATALOG", "there is one catalog"),
            ("DATABASE", "there is one database"),
            ("MODEL", "call models in a Python function"),
            ("MATERIALIZED", "run INSERT INTO a table instead"),
        ):
            if cursor.sees(kind) or cursor.sees("SYSTEM", kind):
                raise cursor.source.unsupported(cursor.at, f"CREATE {kind} is not supported; {remedy}")
        raise cursor.expected("TABLE or VIEW", "behind CREATE TEMPORARY" if temporary else "behind CREATE")

    def _if_not_exists(self) -> bool:
        return self.cursor.accept("IF", "NOT", "EXISTS")

    def _create_view(self, at: int) -> s.CreateView:
        cursor = self.cursor
        if_not_exists = self._if_not_exists()
        name = cursor.name("the name of the view")
        columns = cursor.in_brackets(cursor.identifier) if cursor.sees("(") else ()
        if cursor.accept("COMMENT"):
            cursor.string("the comment in quotes")
        cursor.expect("AS", where="behind the name of the view")
        return s.CreateView(at, name, columns, self.queries.query(), if_not_exists)

    def _create_table(self, at: int) -> s.CreateTable:
        cursor = self.cursor
        if_not_exists = self._if_not_exists()
        name = cursor.name("the name of the table")
        definition = self.table_definition()
        if cursor.accept("COMMENT"):
            cursor.string("the comment in quotes")
        for words, reason in (
            (("DISTRIBUTED",), "DISTRIBUTED is not supported; the sink's options say how rows are spread"),
            (("PARTITIONED",), "PARTITIONED BY is not supported; the option 'partition-by' of the file sink does it"),
            (("LIKE",), "CREATE TABLE ... LIKE is not supported; write the columns"),
            (("AS",), "CREATE TABLE ... AS is not supported; create the table, then INSERT INTO it"),
        ):
            if cursor.sees(*words):
                raise cursor.source.unsupported(cursor.at, reason)
        options = dict(self._options()) if cursor.accept("WITH") else {}
        return s.CreateTable(at, name, definition, options, if_not_exists)

    def _options(self) -> tuple[tuple[str, str], ...]:
        cursor = self.cursor
        cursor.expect("(", where="behind WITH")
        if cursor.accept(")"):
            return ()
        options = cursor.listed(self._option)
        cursor.expect(")", where="behind the options")
        return options

    def _option(self) -> tuple[str, str]:
        key = self.cursor.string("the option's key in quotes")
        self.cursor.expect("=", where="behind the option's key")
        return key, self.cursor.string("the option's value in quotes")

    def table_definition(self) -> s.TableDefinition:
        """Columns, computed columns, keys and the watermark, in brackets."""
        cursor = self.cursor
        cursor.expect("(", where="before the columns")
        columns: list[s.ColumnDefinition] = []
        keys: list[Identifier] = []
        watermarks: list[s.WatermarkDefinition] = []
        while True:
            self._element(columns, keys, watermarks)
            if not cursor.accept(","):
                break
        cursor.expect(")", where="behind the columns")
        if len(watermarks) > 1:
            raise cursor.source.invalid(watermarks[1].at, "a table has one WATERMARK; leave this one out")
        return s.TableDefinition(tuple(columns), tuple(keys), watermarks[0] if watermarks else None)

    def _element(
        self, columns: list[s.ColumnDefinition], keys: list[Identifier], watermarks: list[s.WatermarkDefinition]
    ) -> None:
        cursor, at = self.cursor, self.cursor.at
        if cursor.accept("WATERMARK", "FOR"):
            column = cursor.name("the column of event time")
            cursor.expect("AS", where="behind the column of WATERMARK")
            watermarks.append(s.WatermarkDefinition(at, column, self.queries.expressions.expression()))
            return
        if cursor.sees("CONSTRAINT") or cursor.sees("PRIMARY", "KEY") or cursor.sees("UNIQUE"):
            if cursor.accept("CONSTRAINT"):
                cursor.identifier("the name of the constraint")
            if cursor.sees("UNIQUE"):
                raise cursor.source.unsupported(cursor.at, "UNIQUE is not supported; use PRIMARY KEY")
            cursor.expect("PRIMARY", "KEY", where="as the constraint")
            keys.extend(cursor.in_brackets(cursor.identifier))
            self._not_enforced()
            return
        columns.append(self._column(keys))

    def _not_enforced(self) -> None:
        if not self.cursor.accept("NOT", "ENFORCED"):
            raise self.cursor.source.invalid(
                self.cursor.at,
                "a primary key is not checked; say so with NOT ENFORCED behind it",
            )

    def _column(self, keys: list[Identifier]) -> s.ColumnDefinition:
        cursor = self.cursor
        name = cursor.identifier("a column, PRIMARY KEY or WATERMARK")
        if cursor.accept("AS"):
            computed = s.ComputedColumn(name.at, name.name, self.queries.expressions.expression())
            self._comment()
            return computed
        kind = parse_type(cursor)
        if cursor.accept("METADATA"):
            key = cursor.string("the key of the metadata in quotes") if cursor.accept("FROM") else None
            virtual = cursor.accept("VIRTUAL")
            self._comment()
            return s.MetadataColumn(name.at, name.name, kind, key, virtual)
        if cursor.accept("PRIMARY", "KEY"):
            keys.append(name)
            self._not_enforced()
        self._comment()
        return s.PhysicalColumn(name.at, name.name, kind)

    def _comment(self) -> None:
        if self.cursor.accept("COMMENT"):
            self.cursor.string("the comment in quotes")

    def _drop(self) -> s.Drop:
        cursor, at = self.cursor, self.cursor.take().at
        cursor.accept("TEMPORARY")
        for kind in ("TABLE", "VIEW"):
            if cursor.accept(kind):
                if_exists = cursor.accept("IF", "EXISTS")
                return s.Drop(at, kind, cursor.name(f"the name of a {kind.lower()}"), if_exists)
        raise cursor.expected("TABLE or VIEW", "behind DROP")


def statement_name(name: Name) -> str:
    """The table's own name; catalog and database before it are those that there are."""
    return name.parts[-1].name
