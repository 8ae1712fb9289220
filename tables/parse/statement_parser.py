"""Reads scripts: statements with semicolons between them.

`parse_script` is the way in for whole files, `parse_statement` for a single statement.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from penstock.engine.errors import nearest
from penstock.tables.parse import statements as s
from penstock.tables.parse import table_statements as d
from penstock.tables.parse.cursor import Cursor
from penstock.tables.parse.nodes import Identifier, Node
from penstock.tables.parse.query_parser import QueryParser
from penstock.tables.parse.table_parser import TableParser
from penstock.tables.parse.text import SqlText
from penstock.tables.parse.tokens import TokenKind

_STARTS = (
    "SELECT",
    "WITH",
    "VALUES",
    "INSERT",
    "CREATE",
    "ALTER",
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
_WITHIN: Final = {"TABLES": "database", "VIEWS": "database", "DATABASES": "catalog"}
"""What SHOW ... FROM may name."""
_NOT_SHOWN: Final = {
    "PARTITIONS": "no catalog knows partitions; files are in a folder for each value of PARTITIONED BY",
    "MODULES": "modules are not supported; all functions are there",
    "FULL": "modules are not supported; all functions are there",
    "JARS": "jars have no meaning here; connectors are Python packages",
    "PROCEDURES": "there are no procedures",
    "MODELS": "there are no models; call them in a Python function",
    "MATERIALIZED": "there are no materialized tables; run INSERT INTO a table instead",
}
"""What Flink shows and there is nothing of, with what there is instead."""
TOO_DEEP: Final = "brackets are nested too deeply here; name inner parts by WITH or CREATE VIEW"
"""What is said of texts that Python's stack does not hold."""
_DESCRIBED: Final = frozenset({"CATALOG", "FUNCTION"})
"""What DESCRIBE tells of beside tables."""
_REFUSED = {
    "UPDATE": "rows are changed by changelogs, not by UPDATE; write a query with INSERT INTO",
    "DELETE": "rows are deleted by changelogs, not by DELETE; write a query with INSERT INTO",
    "TRUNCATE": "tables are not emptied; write INSERT OVERWRITE to a table of files",
    "ANALYZE": "there are no statistics to gather",
    "LOAD": "modules are not supported; all functions are there",
    "UNLOAD": "modules are not supported; all functions are there",
    "CALL": "there are no procedures",
    "COMPILE": "plans are not compiled to files; a changed query keeps the state of what has not changed",
    "ADD": "jars have no meaning here; connectors are Python packages",
    "REMOVE": "jars have no meaning here; connectors are Python packages",
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


def parse_name(text: str) -> list[str]:
    """The parts of a name, which may have catalog and database before it.

    Raises:
        SqlSyntaxError: it is none.

    Example:
        >>> parse_name("lake.raw.`odd name`")
        ['lake', 'raw', 'odd name']
    """
    cursor = Cursor(SqlText(text))
    name = cursor.name()
    if not cursor.ended:
        raise cursor.expected("nothing more behind the name")
    return [part.name for part in name.parts]


class StatementParser:
    """Takes statements from a text."""

    def __init__(self, source: SqlText) -> None:
        self.cursor = Cursor(source)
        self.queries = QueryParser(self.cursor)
        self.tables = TableParser(self.cursor, self.queries)

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
            case "ALTER":
                return self.tables.alter()
            case "DROP":
                return self._drop()
            case "EXECUTE" if cursor.ahead(1).word in ("INSERT", "SELECT", "WITH", "VALUES"):
                cursor.take()
                return self._statement()
            case "EXECUTE" | "BEGIN" | "STATEMENT":
                return self._statement_set()
            case "EXPLAIN":
                return self._explain()
            case "SHOW":
                return self._show()
            case "DESCRIBE" | "DESC":
                return self._describe()
            case "STOP":
                return self._stop()
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

    def _describe(self) -> s.Describe | s.JobStatement:
        cursor, at = self.cursor, self.cursor.take().at
        if cursor.sees("JOB") and cursor.ahead(1).kind is TokenKind.STRING:
            cursor.take()
            return s.JobStatement(at, "DESCRIBE", cursor.take().text)
        what = "TABLE"
        if cursor.sees_any(_DESCRIBED) and self._behind_is_name():
            what = cursor.take().word
        extended = cursor.sees("EXTENDED") and self._behind_is_name()
        if extended:
            cursor.take()
        return s.Describe(at, cursor.name(f"the name of a {what.lower()}"), what, extended)

    def _stop(self) -> s.JobStatement:
        cursor, at = self.cursor, self.cursor.take().at
        cursor.expect("JOB", where="behind STOP")
        job = cursor.string("the job's id in quotes")
        savepoint = cursor.accept("WITH", "SAVEPOINT")
        drain = cursor.accept("WITH", "DRAIN")
        if drain and not savepoint:
            raise cursor.source.invalid(at, "WITH DRAIN goes with a savepoint; write WITH SAVEPOINT WITH DRAIN")
        return s.JobStatement(at, "STOP", job, savepoint, drain)

    def _behind_is_name(self) -> bool:
        return self.cursor.ahead(1).kind in (TokenKind.WORD, TokenKind.QUOTED)

    # INSERT, EXPLAIN, statement sets

    def _insert(self) -> s.Insert:
        cursor, at = self.cursor, self.cursor.take().at
        overwrite = cursor.accept("OVERWRITE")
        if overwrite:
            cursor.accept("INTO")
        else:
            cursor.expect("INTO", where="behind INSERT")
        table = cursor.name("the name of a table")
        partition = cursor.in_brackets(self._partition) if cursor.accept("PARTITION") else ()
        columns: tuple[Identifier, ...] = ()
        if cursor.sees("(") and cursor.ahead(1).word not in ("SELECT", "WITH", "VALUES", "("):
            columns = cursor.in_brackets(cursor.identifier)
        query = self.queries.query()
        on_conflict = self._on_conflict() if cursor.sees("ON", "CONFLICT") else None
        return s.Insert(at, table, columns, query, on_conflict, partition, overwrite)

    def _partition(self) -> tuple[Identifier, Node]:
        column = self.cursor.identifier("a column of PARTITIONED BY")
        self.cursor.expect("=", where="behind the column")
        return column, self.queries.expressions.expression()

    def _on_conflict(self) -> s.OnConflict:
        cursor = self.cursor
        cursor.expect("ON", "CONFLICT", "DO")
        for action in s.ON_CONFLICT:
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
        savepoint = None
        if cursor.accept("UPGRADE"):
            cursor.expect("FROM", where="behind UPGRADE")
            savepoint = (cursor.string("the path of a savepoint in quotes"), cursor.ahead(-1).at)
        cursor.accept("PLAN", "FOR")
        while cursor.sees_any(frozenset({"ESTIMATED_COST", "CHANGELOG_MODE", "JSON_EXECUTION_PLAN", "PLAN_ADVICE"})):
            # Changelog modes and costs are always shown.
            cursor.take()
            cursor.accept(",")
        if cursor.sees("INSERT"):
            return s.Explain(at, self._insert(), savepoint)
        if cursor.sees_any(frozenset({"STATEMENT", "EXECUTE", "BEGIN"})):
            return s.Explain(at, self._statement_set(), savepoint)
        return s.Explain(at, self.queries.query(), savepoint)

    # SHOW, SET

    def _show(self) -> s.Show | s.JobStatement:
        cursor, at = self.cursor, self.cursor.take().at
        if cursor.accept("CREATE"):
            for kind in ("TABLE", "VIEW"):
                if cursor.accept(kind):
                    return s.Show(at, f"CREATE {kind}", cursor.name(f"the name of a {kind.lower()}"))
            raise cursor.expected("TABLE or VIEW", "behind SHOW CREATE")
        if cursor.accept("COLUMNS"):
            if not cursor.accept("FROM") and not cursor.accept("IN"):
                raise cursor.expected("FROM", "behind SHOW COLUMNS")
            return s.Show(at, "COLUMNS", cursor.name("the name of a table"), self._pattern())
        if cursor.accept("JOBS"):
            return s.JobStatement(at, "SHOW")
        for words in _SHOWN:
            if cursor.accept(*words.split()):
                place = None
                if words in _WITHIN and (cursor.accept("FROM") or cursor.accept("IN")):
                    place = cursor.name(f"the name of a {_WITHIN[words]}")
                return s.Show(at, words, place, None if words.startswith("CURRENT") else self._pattern())
        if cursor.token.word in _NOT_SHOWN:
            raise cursor.source.unsupported(cursor.at, f"SHOW {cursor.token.word}: {_NOT_SHOWN[cursor.token.word]}")
        raise cursor.expected(f"{', '.join(_SHOWN)}, COLUMNS FROM or CREATE TABLE", "behind SHOW")

    def _pattern(self) -> tuple[str, bool] | None:
        excluded = self.cursor.accept("NOT")
        if not self.cursor.accept("LIKE"):
            if excluded:
                raise self.cursor.expected("LIKE", "behind NOT")
            return None
        return self.cursor.string("a pattern in quotes, such as 'orders%'"), excluded

    def _set(self) -> s.SetOption | s.ResetOption:
        cursor, token = self.cursor, self.cursor.take()
        key = self._option_key() if not cursor.ended and not cursor.sees(";") else None
        if token.word == "RESET":
            return s.ResetOption(token.at, key)
        value = None
        if key is not None and cursor.accept("="):
            value = self._option_value(key)
        elif not cursor.ended and not cursor.sees(";"):
            raise cursor.source.syntax(cursor.at, "an option is set by SET 'key' = 'value';")
        return s.SetOption(token.at, key, value)

    def _option_key(self) -> str:
        cursor = self.cursor
        if cursor.token.kind is TokenKind.STRING:
            return cursor.take().text
        if cursor.token.kind is not TokenKind.WORD:
            raise cursor.expected("the key in quotes", "behind SET")
        key = cursor.take().text
        while cursor.sees(".") or cursor.sees("-"):
            key += cursor.take().text + cursor.field_name().name
        return key

    def _option_value(self, key: str) -> str:
        """What stands behind =: in quotes, or a word or number by itself."""
        cursor, token = self.cursor, self.cursor.token
        if token.kind in (TokenKind.STRING, TokenKind.NUMBER, TokenKind.WORD):
            cursor.take()
            if token.kind is TokenKind.STRING or cursor.ended or cursor.sees(";"):
                return token.text
        while not cursor.ended and not cursor.sees(";"):
            cursor.take()
        value = cursor.text_since(token.at) if cursor.at > token.at else "value"
        raise cursor.source.syntax(token.at, f"the value needs quotes: SET '{key}' = '{value.strip()}';")

    # CREATE, DROP

    def _create(self) -> d.CreateTable | d.CreateView | s.CreateFunction | s.CreatePlace:
        cursor, at = self.cursor, self.cursor.take().at
        if cursor.accept("OR", "REPLACE"):
            return self._create_in_place(at)
        temporary = cursor.accept("TEMPORARY")
        if temporary:
            cursor.accept("SYSTEM")
        if cursor.accept("TABLE"):
            return self.tables.create_table(at)
        if cursor.accept("VIEW"):
            return self.tables.create_view(at)
        if cursor.accept("FUNCTION"):
            return self._create_function(at)
        for kind in ("CATALOG", "DATABASE"):
            if not temporary and cursor.accept(kind):
                return self._create_place(at, kind)
        for kind, remedy in (
            ("MODEL", "call models in a Python function"),
            ("MATERIALIZED", "run INSERT INTO a table instead"),
        ):
            if cursor.sees(kind):
                raise cursor.source.unsupported(cursor.at, f"CREATE {kind} is not supported; {remedy}")
        if temporary:
            raise cursor.expected("TABLE, VIEW or FUNCTION", "behind CREATE TEMPORARY")
        raise cursor.expected("TABLE, VIEW, FUNCTION, DATABASE or CATALOG", "behind CREATE")

    def _create_in_place(self, at: int) -> d.CreateTable | d.CreateView:
        cursor = self.cursor
        cursor.accept("TEMPORARY")
        if cursor.accept("TABLE"):
            return replace(self.tables.create_table(at), or_replace=True)
        if cursor.accept("VIEW"):
            return replace(self.tables.create_view(at), or_replace=True)
        raise cursor.expected("TABLE or VIEW", "behind CREATE OR REPLACE")

    def _create_function(self, at: int) -> s.CreateFunction:
        cursor = self.cursor
        if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
        name = cursor.name("the name of the function")
        cursor.expect("AS", where="behind the name of the function")
        path_at = cursor.at
        path = cursor.string("the Python object in quotes, such as 'module.function'")
        language_at = cursor.at
        language = cursor.take().word if cursor.accept("LANGUAGE") else "JAVA"
        if language != "PYTHON":
            raise cursor.source.unsupported(
                language_at, "functions are written in Python here; write LANGUAGE PYTHON behind the object's name"
            )
        return s.CreateFunction(at, name, path, path_at, if_not_exists)

    def _create_place(self, at: int, kind: str) -> s.CreatePlace:
        cursor = self.cursor
        if_not_exists = cursor.accept("IF", "NOT", "EXISTS")
        name = cursor.name(f"the name of the {kind.lower()}")
        if cursor.accept("COMMENT"):
            cursor.string("the comment in quotes")
        options = self.tables.options() if cursor.accept("WITH") else ()
        return s.CreatePlace(at, kind, name, options, if_not_exists)

    def _drop(self) -> s.Drop:
        cursor, at = self.cursor, self.cursor.take().at
        if cursor.accept("TEMPORARY"):
            cursor.accept("SYSTEM")
        for kind in ("TABLE", "VIEW", "FUNCTION", "DATABASE", "CATALOG"):
            if cursor.accept(kind):
                if_exists = cursor.accept("IF", "EXISTS")
                name = cursor.name(f"the name of a {kind.lower()}")
                cascade = kind == "DATABASE" and cursor.accept("CASCADE")
                if kind == "DATABASE" and not cascade:
                    cursor.accept("RESTRICT")
                return s.Drop(at, kind, name, if_exists, cascade)
        raise cursor.expected("TABLE, VIEW, FUNCTION, DATABASE or CATALOG", "behind DROP")
