"""Tables of databases, with the options of Flink's `jdbc`: PostgreSQL's are read, looked up and written to.

`registry.py` lists it beside the others. No JDBC is needed: the URL is that of the same database.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import pyarrow as pa

from penstock.engine.connectors import ConnectorContext, LookupTable
from penstock.table_connectors.options import TableOptions
from penstock.table_connectors.typed_columns import TypedColumnsSpec
from penstock.tables.catalog.catalog import CatalogTable
from penstock.tables.catalog.connectors import ScannedTable, Stage, WrittenTable
from penstock.tables.lower.base import schema_of
from penstock.tables.plan.nodes import INSERT_ONLY, UPSERT, ChangelogMode, Columns

_URL: Final = "jdbc:"
_POSTGRES: Final = "postgresql://"


@dataclass(frozen=True, slots=True)
class JdbcTable:
    """`jdbc`: a table of PostgreSQL."""

    name: str = "jdbc"

    @property
    def options(self) -> Mapping[str, str]:
        return {
            "url": "jdbc:postgresql://host:port/database",
            "table-name": "table, or schema.table",
            "username": "of the database",
            "password": "its password",
            "scan.partition.column": "the column by whose order rows are read, which is never null; the primary key's "
            "first without it",
            "scan.partition.num": "how many ranges of that column, of whole numbers, are read at the same time",
            "scan.partition.lower-bound": "the smallest value of that column",
            "scan.partition.upper-bound": "the largest value of that column",
        }

    def source_mode(self, table: CatalogTable) -> ChangelogMode:
        return INSERT_ONLY

    def sink_mode(self, table: CatalogTable) -> ChangelogMode:
        return UPSERT if table.definition.primary_key else INSERT_ONLY

    def bounded(self, table: CatalogTable) -> bool:
        return True

    def scan(self, table: CatalogTable, columns: Columns) -> ScannedTable:
        from psycopg import sql

        from penstock.connectors.postgres.source import PostgresSource

        options, schema = TableOptions(table), schema_of(columns)
        keys = _key(table)
        column = options.get("scan.partition.column") or next(iter(keys), None)
        if column is None:
            raise options.invalid(
                "connector",
                "rows are read in the order of a column; declare PRIMARY KEY (...) NOT ENFORCED, or give "
                "'scan.partition.column'",
            )
        if column not in schema.names:
            raise options.invalid("scan.partition.column", f"there is no column {column!r}")
        told_apart_by = _tie_breakers(options, columns, column, keys)
        names = sql.SQL(", ").join(map(sql.Identifier, schema.names))
        place = sql.Identifier(*options.required("table-name").split("."))
        query = sql.SQL("SELECT {} FROM {}").format(names, place).as_string(None)
        with options.placed():
            source = PostgresSource(
                _dsn(options),
                query,
                column=column,
                tie_breaker=told_apart_by,
                ranges=_ranges(options),
            )
        stage = Stage(TypedColumnsSpec(schema), schema)
        return ScannedTable(source, stages=(stage,))

    def sink(self, table: CatalogTable, columns: Columns) -> WrittenTable:
        from penstock.connectors.postgres.sink import PostgresSink

        options, keys = TableOptions(table), _key(table)
        name = options.required("table-name")
        with options.placed():
            if keys:
                return WrittenTable(PostgresSink(_dsn(options), name, keys=keys))
            return WrittenTable(PostgresSink(_dsn(options), name, mode="append"))

    def lookup(self, table: CatalogTable, columns: Columns, keys: tuple[str, ...]) -> LookupTable:
        from penstock.connectors.postgres.lookup import PostgresLookup

        options, schema = TableOptions(table), schema_of(columns)
        with options.placed():
            found = PostgresLookup(_dsn(options), options.required("table-name"), keys, columns=schema.names)
        return _TypedLookup(found, schema)


def _key(table: CatalogTable) -> tuple[str, ...]:
    return tuple(column.name for column in table.definition.primary_key)


def _dsn(options: TableOptions) -> str:
    """The address as PostgreSQL's clients have it, with user and password."""
    url = options.required("url").removeprefix(_URL)
    if not url.startswith(_POSTGRES):
        raise options.invalid("url", "'url' is jdbc:postgresql://host:port/database; there is PostgreSQL only")
    place, user, password = url.removeprefix(_POSTGRES), options.get("username"), options.get("password")
    if "@" in place.partition("/")[0]:
        raise options.invalid("url", "'url' has no user; give 'username' and 'password'")
    if user is None:
        return f"{_POSTGRES}{place}"
    secret = "" if password is None else f":{quote(password, safe='')}"
    return f"{_POSTGRES}{quote(user, safe='')}{secret}@{place}"


def _tie_breakers(options: TableOptions, columns: Columns, column: str, keys: Sequence[str]) -> Sequence[str]:
    """What tells rows of one value of `column` apart: the declared key, or what the database knows of its table.

    Raises:
        SqlValidationError: nothing does, or rows may have no value there, which the order would leave out.
    """
    from penstock.connectors.postgres.catalog import read_table
    from penstock.connectors.postgres.connection import ask

    if column in keys:
        return [key for key in keys if key != column]
    with options.placed():
        table = ask(_dsn(options), lambda connection: read_table(connection, options.required("table-name")))
    option, types = "scan.partition.column", {one.name: one.type for one in columns}
    if column in table.columns and table.columns[column].takes_null and types[column].nullable:
        raise options.invalid(
            option, f"rows whose {column!r} is null would not be read; declare it NOT NULL, or take another column"
        )
    if keys or frozenset([column]) in table.unique:
        return keys
    if not table.primary_key or not set(table.primary_key) <= types.keys():
        raise options.invalid(
            option,
            f"rows of one {column!r} cannot be told apart; declare PRIMARY KEY (...) NOT ENFORCED, or take a column "
            "that is unique",
        )
    return [key for key in table.primary_key if key != column]


def _ranges(options: TableOptions) -> list[int]:
    """Where the values of the column are cut, for as many ranges as the options say."""
    parts = options.number("scan.partition.num", 1)
    if parts < 2:
        return []
    for needed in ("scan.partition.column", "scan.partition.lower-bound", "scan.partition.upper-bound"):
        options.required(needed, "'scan.partition.num'")
    low = options.number("scan.partition.lower-bound", 0)
    high = options.number("scan.partition.upper-bound", 0)
    if low > high:
        raise options.invalid("scan.partition.lower-bound", "'scan.partition.lower-bound' is above the upper bound")
    # Ranges begin behind these values; rows beyond the bounds are in the first and the last one.
    return sorted({low + (high - low + 1) * part // parts - 1 for part in range(1, parts)})


class _TypedLookup(LookupTable):
    """A table that is looked up, with the types that it was declared with."""

    def __init__(self, table: LookupTable, schema: pa.Schema) -> None:
        self._table, self._schema = table, schema

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def keys(self) -> Sequence[str]:
        return self._table.keys

    def open(self, context: ConnectorContext) -> None:
        # The subtask's copy of this one has the same inside as the others.
        self._table = copy.copy(self._table)
        self._table.open(context)

    def lookup(self, keys: pa.RecordBatch) -> pa.Table:
        found = self._table.lookup(keys)
        columns = [found.column(name).cast(self._schema.field(name).type) for name in self._schema.names]
        return pa.Table.from_arrays(columns, schema=self._schema)

    def close(self) -> None:
        self._table.close()
