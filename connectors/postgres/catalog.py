"""What the server knows about a table: columns, types, unique keys, privileges.

The sink asks where the job is planned and in each subtask; the source and the lookup table ask for the columns of a
table or a query. Nothing is changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock.connectors.postgres.connection import identifier
from penstock.connectors.postgres.types import PostgresType
from penstock.engine.errors import ConfigurationError, nearest

if TYPE_CHECKING:
    from psycopg import sql

    from penstock.connectors.postgres.connection import Postgres

_COLUMNS: Final = """
    SELECT attname, format_type(atttypid, atttypmod), attnotnull,
           atthasdef OR attidentity <> '', attidentity = 'a' OR attgenerated <> ''
    FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_UNIQUE: Final = """
    SELECT array_agg(attname::text ORDER BY ord), indisprimary
    FROM pg_index, unnest(indkey[0:indnkeyatts - 1]) WITH ORDINALITY AS part(number, ord), pg_attribute
    WHERE indrelid = %s::regclass AND indisunique AND indisvalid AND indpred IS NULL AND indexprs IS NULL
          AND attrelid = indrelid AND attnum = number
    GROUP BY indexrelid, indisprimary
"""
_SESSION: Final = """
    SELECT current_database(), current_user, has_database_privilege(current_database(), 'TEMP'),
           current_setting('transaction_read_only')
"""
_TABLES: Final = """
    SELECT CASE WHEN pg_table_is_visible(oid) THEN relname ELSE relnamespace::regnamespace || '.' || relname END
    FROM pg_class WHERE relkind IN ('r', 'p', 'v', 'm', 'f')
      AND relnamespace::regnamespace::text !~ '^(pg_|information_schema$)'
"""
"""All but the system's: nobody means one of those."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Args:
        type: in parts.
        shown: the type as the server spells it.
        is_required: whether a row must give it a value, since it takes no null and has no default.
        takes_null: whether it may be null.
        is_generated: whether the server alone makes its values.
    """

    type: PostgresType
    shown: str
    is_required: bool = False
    takes_null: bool = True
    is_generated: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table or view.

    Args:
        columns: by name, in order.
        primary_key: its columns, empty without one.
        unique: the columns of each unique index that covers all rows, the primary key's among them.
        encoding: of texts in the database, such as `UTF8` or `LATIN1`.
    """

    columns: Mapping[str, Column]
    primary_key: tuple[str, ...]
    unique: Sequence[frozenset[str]]
    encoding: str = "UTF8"


def read_table(connection: Postgres, name: str) -> Table:
    """The table `name` (`table` or `schema.table`).

    Raises:
        ConfigurationError: there is none, or the user may not see it.
    """
    quoted = identifier(name).as_string(connection)
    (found,) = connection.execute("SELECT to_regclass(%s)::oid", [quoted]).fetchone() or (None,)
    if found is None:
        known = [row[0] for row in connection.execute(_TABLES)]
        raise ConfigurationError(
            f"postgres: there is no table {name!r}{nearest(name, known)}, or the user may not see it; names are taken "
            "in the letter case that they are written in: create it, or correct the name"
        )
    columns = {
        column: Column(PostgresType.parse(shown), shown, not_null and not default, not not_null, generated)
        for column, shown, not_null, default, generated in connection.execute(_COLUMNS, [quoted])
    }
    indexes = connection.execute(_UNIQUE, [quoted]).fetchall()
    primary = next((tuple(names) for names, is_primary in indexes if is_primary), ())
    encoding = connection.info.parameter_status("server_encoding") or "UTF8"
    return Table(columns, primary, [frozenset(names) for names, _ in indexes], encoding)


def table_exists(connection: Postgres, name: str) -> bool:
    """Whether there is a table `name` (`table` or `schema.table`)."""
    row = connection.execute("SELECT to_regclass(%s)", [identifier(name).as_string(connection)]).fetchone()
    return row is not None and row[0] is not None


def check_takes_commits(connection: Postgres) -> None:
    """Refuse a server that takes no writes, and a user that may make no temporary tables.

    Raises:
        ConfigurationError: names the user and the database.
    """
    (database, user, may_stage, read_only) = connection.execute(_SESSION).fetchone() or ("", "", True, "off")
    if read_only == "on":
        raise ConfigurationError(
            f"postgres: user {user!r} may only read in database {database!r}, by read-only transactions; give the dsn "
            "of the primary, or ALTER ROLE ... SET default_transaction_read_only = off"
        )
    if not may_stage:
        raise ConfigurationError(
            f"postgres: user {user!r} may make no temporary tables in database {database!r}, which commits need; GRANT "
            "TEMPORARY ON DATABASE"
        )


def check_privileges(connection: Postgres, name: str, wanted: Sequence[str]) -> None:
    """Refuse a user that lacks one of the privileges, such as `INSERT`.

    Raises:
        ConfigurationError: names the table and what is missing.
    """
    quoted = identifier(name).as_string(connection)
    for privilege in wanted:
        row = connection.execute("SELECT has_table_privilege(%s, %s), current_user", [quoted, privilege]).fetchone()
        if row is not None and not row[0]:
            raise ConfigurationError(f"postgres: user {row[1]!r} may not {privilege} on table {name!r}; GRANT it")


def query_schema(connection: Postgres, query: sql.Composable, where: str) -> tuple[pa.Schema, dict[str, str]]:
    """The columns that a query gives, and how the server spells their types.

    Raises:
        ConfigurationError: two columns have one name, or a column has a type that Arrow has not.
    """
    from psycopg import sql

    cursor = connection.execute(sql.SQL("SELECT * FROM ({}) AS rows LIMIT 0").format(query))
    described = cursor.description or []
    fields, shown = [], {}
    for column in described:
        modifier = _type_modifier(column)
        (name,) = connection.execute("SELECT format_type(%s, %s)", [column.type_code, modifier]).fetchone() or ("?",)
        kind = PostgresType.parse(name).arrow_type()
        if kind is None:
            hint = f"{column.name}::numeric(38, 10)" if name.startswith("numeric") else f"{column.name}::text"
            raise ConfigurationError(
                f"{where}: column {column.name!r} is {name}, which has no Arrow type; give a query that casts it, such "
                f"as SELECT {hint}, ..."
            )
        if column.name in shown:
            raise ConfigurationError(f"{where}: column {column.name!r} occurs twice; name one of them with AS")
        fields.append((column.name, kind))
        shown[column.name] = name
    return pa.schema(fields), shown


def _type_modifier(column: object) -> int:
    """What `format_type` takes for the digits of a numeric; other lengths do not matter to readers."""
    precision, scale = getattr(column, "precision", None), getattr(column, "scale", None)
    return -1 if precision is None or scale is None else ((precision << 16) | (scale & 0x7FF)) + 4
