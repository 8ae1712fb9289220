"""A table of PostgreSQL to look rows up in, for `lookup_join`.

Programs build a `PostgresLookup`; each subtask asks on a connection of its own, once a batch for all its keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.connectors.postgres.catalog import query_schema, read_table
from penstock.connectors.postgres.connection import Session, ask, error_line, identifier, parse_dsn
from penstock.connectors.postgres.types import to_array
from penstock.engine.connectors import ConnectorContext, LookupTable
from penstock.engine.errors import ConfigurationError, RecordError, nearest

if TYPE_CHECKING:
    from psycopg import sql

    from penstock.connectors.postgres.connection import Postgres

_WHERE: Final = "postgres lookup"


class PostgresLookup(LookupTable):
    """The rows of a table, as they are when they are asked for. Give `lookup_join` a cache to ask less often.

    A row is found by equal keys, so an index of the keys makes it fast. Columns have the types that `PostgresSource`
    gives them.

    Args:
        dsn: `postgresql://user:password@host:port/database`; never shown.
        table: `table` or `schema.table`, in its letter case.
        keys: the columns that it is looked up by.
        columns: the columns that are read, the keys among them; None for all.

    Raises:
        ConfigurationError: the server cannot be reached (within 10 s), has no such table or column, or a column has a
            type that Arrow has not.

    Example:
        >>> clicks.lookup_join(PostgresLookup(dsn, "users", keys="id"), on={"user": "id"})  # doctest: +SKIP
    """

    def __init__(
        self, dsn: str, table: str, keys: str | Sequence[str], *, columns: Sequence[str] | None = None
    ) -> None:
        parse_dsn(dsn)
        self._dsn = dsn
        self._table = table
        self._session: Session | None = None
        self._keys = (keys,) if isinstance(keys, str) else tuple(keys)
        if not self._keys:
            raise ConfigurationError(f"{_WHERE}: name at least one key column")
        self._schema, self._types = ask(dsn, lambda connection: self._describe(connection, columns))
        for key in self._keys:
            if key not in self._schema.names:
                raise ConfigurationError(
                    f"{_WHERE}: table {table!r} has no column {key!r}{nearest(key, self._schema.names)}, or it is not "
                    "among columns; it has " + ", ".join(self._schema.names)
                )

    def _describe(self, connection: Postgres, columns: Sequence[str] | None) -> tuple[pa.Schema, dict[str, str]]:
        from psycopg import sql

        known = read_table(connection, self._table).columns
        for name in columns or ():
            if name not in known:
                raise ConfigurationError(
                    f"{_WHERE}: table {self._table!r} has no column {name!r}{nearest(name, known)}"
                )
        names = sql.SQL(", ").join(map(sql.Identifier, columns or known))
        query = sql.SQL("SELECT {} FROM {}").format(names, identifier(self._table))
        return query_schema(connection, query, f"{_WHERE}: table {self._table!r}")

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def keys(self) -> Sequence[str]:
        return self._keys

    def open(self, context: ConnectorContext) -> None:
        self._where = f"operator {context.operator!r}, subtask {context.subtask}: {_WHERE}"
        self._session = Session(self._dsn, self._where, context.clock)

    def lookup(self, keys: pa.RecordBatch) -> pa.RecordBatch:
        from psycopg import sql

        wanted = [
            sql.SQL("{}::{}[]").format(sql.Literal(keys.column(key).to_pylist()), sql.SQL(self._types[key]))
            for key in self._keys
        ]
        same = (sql.SQL("held.{0} = wanted.{0}").format(sql.Identifier(key)) for key in self._keys)
        query = sql.SQL("SELECT {} FROM {} AS held JOIN unnest({}) AS wanted ({}) ON {}").format(
            sql.SQL(", ").join(sql.Identifier("held", name) for name in self._schema.names),
            identifier(self._table),
            sql.SQL(", ").join(wanted),
            sql.SQL(", ").join(map(sql.Identifier, self._keys)),
            sql.SQL(" AND ").join(same),
        )
        rows = self._ask(query)
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self._schema)
        arrays = [
            to_array(list(values), one.type, f"{self._where}: column {one.name!r}")
            for values, one in zip(columns, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _ask(self, query: sql.Composed) -> list[tuple[Any, ...]]:
        import psycopg

        assert self._session is not None
        try:
            return self._session.rows(query)
        except psycopg.Error as error:
            raise RecordError(
                f"{self._where}: rows of table {self._table!r} cannot be looked up: {error_line(error)}; check the "
                "table, the rights to it, and the keys"
            ) from None

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
