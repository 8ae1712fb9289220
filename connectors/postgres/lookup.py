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

    A row is found by keys that the server takes for equal, such as a UUID in capitals, so an index of the keys makes it
    fast. Columns have the types that `PostgresSource` gives them.

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
        others = [field for field in self._schema if field.name not in self._keys]
        rows = self._ask(self._query(keys, [field.name for field in others]))
        places, *values = zip(*rows, strict=True) if rows else [()] * (1 + len(others))
        # The server may write an equal key otherwise than it was asked for, such as a UUID in capitals.
        asked = keys.take(pa.array(places, pa.int64()))
        columns = {key: asked.column(key).cast(self._schema.field(key).type) for key in self._keys}
        for field, column in zip(others, values, strict=True):
            columns[field.name] = to_array(list(column), field.type, f"{self._where}: column {field.name!r}")
        return pa.RecordBatch.from_arrays([columns[name] for name in self._schema.names], schema=self._schema)

    def _query(self, keys: pa.RecordBatch, others: Sequence[str]) -> sql.Composed:
        """What asks for the rows: of each the place of its key among `keys`, then the other columns."""
        from psycopg import sql

        wanted = (
            sql.SQL("{}::{}[]").format(sql.Literal(keys.column(key).to_pylist()), sql.SQL(self._types[key]))
            for key in self._keys
        )
        names = [sql.Identifier(f"key {number}") for number in range(len(self._keys))]
        same = (
            sql.SQL("held.{} = wanted.{}").format(sql.Identifier(key), name)
            for key, name in zip(self._keys, names, strict=True)
        )
        return sql.SQL("SELECT {} FROM {} AS held JOIN unnest({}) WITH ORDINALITY AS wanted ({}) ON {}").format(
            sql.SQL(", ").join([sql.SQL("wanted.place - 1"), *(sql.Identifier("held", name) for name in others)]),
            identifier(self._table),
            sql.SQL(", ").join(wanted),
            sql.SQL(", ").join([*names, sql.SQL("place")]),
            sql.SQL(" AND ").join(same),
        )

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
