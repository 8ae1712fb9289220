"""Brings the rows of an epoch into a table, once, in one transaction with the marker of their writer.

The sink's `commit` calls `apply`, as often as the engine asks. The rows go into a staging table of the session first,
which nobody else sees and which locks nothing; then the writer's row in the marker table is locked, and if it says that
this checkpoint was not committed yet, the rows are merged and the row is set, and both become visible together. A
writer that was stopped meanwhile finds the marker set, or its transaction ended by the server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock.connectors.postgres.catalog import table_exists
from penstock.connectors.postgres.connection import identifier
from penstock.connectors.postgres.encoding import copy_text
from penstock.engine.connectors import Committable

if TYPE_CHECKING:
    from psycopg import sql

    from penstock.connectors.postgres.connection import Postgres

DELETED: Final = "penstock_deleted"
"""Boolean column of a committable beside the user's: whether the row with this key is to go."""
_ROW: Final = "penstock_row"
_CHECKPOINT: Final = "penstock_checkpoint"
_STAGING: Final = "penstock_staging"


@dataclass(frozen=True, slots=True)
class Target:
    """Where rows go.

    Args:
        table: its name.
        keys: the columns of the unique index that tells rows apart; empty to append.
        markers: the name of the marker table.
        stuck_ms: how long the server lets a transaction stand idle that holds a marker.
    """

    table: str
    keys: tuple[str, ...]
    markers: str
    stuck_ms: int


def create_markers(connection: Postgres, markers: str) -> None:
    """Make the marker table, unless it is there, which takes no right to. Safe where several jobs do so at once."""
    from psycopg import sql

    connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [f"penstock {markers}"])
    if table_exists(connection, markers):
        return
    connection.execute(
        sql.SQL(
            "CREATE TABLE IF NOT EXISTS {} (writer text PRIMARY KEY, checkpoint bigint NOT NULL, "
            "updated timestamptz NOT NULL DEFAULT now())"
        ).format(identifier(markers))
    )


def last_of_each_key(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The rows that no later row with the same key follows, in their order."""
    numbered = rows.select(list(keys)).append_column(_ROW, pa.array(range(rows.num_rows), pa.int64()))
    last = numbered.group_by(list(keys), use_threads=False).aggregate([(_ROW, "max")])
    return rows.take(pa.array(sorted(last.column(f"{_ROW}_max").to_pylist()), pa.int64()))


def apply(connection: Postgres, target: Target, committables: Sequence[Committable]) -> None:
    """Commit what one writer has prepared; what was committed stays so.

    Args:
        connection: in no transaction; it is left so.
        committables: of one writer, in the order of their checkpoints.
    """
    writer, newest = committables[0].writer, committables[-1].checkpoint
    with connection.transaction():
        # A process that is stopped in the middle must not hold the marker for ever.
        connection.execute("SELECT set_config('idle_in_transaction_session_timeout', %s, true)", [str(target.stuck_ms)])
        if _committed(connection, target, writer) >= newest:
            return
        columns = [name for name in committables[0].data.column_names if name != DELETED]
        _stage(connection, target, columns, _numbered(committables))
        done = _lock(connection, target, writer)
        if target.keys:
            _merge(connection, target, columns, done)
        else:
            _append(connection, target, columns, done)
        _mark(connection, target, writer, newest)


def _numbered(committables: Sequence[Committable]) -> pa.Table:
    """The rows of all, each with its checkpoint and its number among them behind the columns."""
    parts = [
        one.data.append_column(_CHECKPOINT, pa.array([one.checkpoint] * one.data.num_rows, pa.int64()))
        for one in committables
    ]
    rows = pa.concat_tables(parts, promote_options="default")
    return rows.append_column(_ROW, pa.array(range(rows.num_rows), pa.int64()))


def _committed(connection: Postgres, target: Target, writer: str) -> int:
    """The newest checkpoint that the writer's marker has; -1 without one."""
    from psycopg import sql

    query = sql.SQL("SELECT checkpoint FROM {} WHERE writer = {}")
    row = connection.execute(query.format(identifier(target.markers), sql.Literal(writer))).fetchone()
    return -1 if row is None else int(row[0])


def _lock(connection: Postgres, target: Target, writer: str) -> int:
    """As `_committed`, and nobody else commits for the writer before this transaction ends."""
    from psycopg import sql

    markers = identifier(target.markers)
    begin = sql.SQL("INSERT INTO {} (writer, checkpoint) VALUES ({}, -1) ON CONFLICT (writer) DO NOTHING")
    connection.execute(begin.format(markers, sql.Literal(writer)))
    query = sql.SQL("SELECT checkpoint FROM {} WHERE writer = {} FOR UPDATE")
    row = connection.execute(query.format(markers, sql.Literal(writer))).fetchone()
    return -1 if row is None else int(row[0])


def _stage(connection: Postgres, target: Target, columns: Sequence[str], rows: pa.Table) -> None:
    from psycopg import sql

    create = sql.SQL(
        "CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {}, false AS {}, 0::bigint AS {}, 0::bigint AS {} FROM {} "
        "WITH NO DATA"
    )
    own = [sql.Identifier(name) for name in (DELETED, _CHECKPOINT, _ROW)]
    connection.execute(create.format(sql.Identifier(_STAGING), _names(columns), *own, identifier(target.table)))
    copy = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(_STAGING), _names(rows.column_names))
    with connection.cursor().copy(copy) as out:
        for part in copy_text(rows):
            out.write(part)


def _append(connection: Postgres, target: Target, columns: Sequence[str], done: int) -> None:
    from psycopg import sql

    insert = sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} WHERE {} > {} ORDER BY {}").format(
        identifier(target.table),
        _names(columns),
        _names(columns),
        sql.Identifier(_STAGING),
        sql.Identifier(_CHECKPOINT),
        sql.Literal(done),
        sql.Identifier(_ROW),
    )
    connection.execute(insert)


def _merge(connection: Postgres, target: Target, columns: Sequence[str], done: int) -> None:
    """Of the rows with one key the last counts; in the order of the keys, so that writers rarely wait in circles."""
    from psycopg import sql

    keys = _names(target.keys)
    parts = {
        "table": identifier(target.table),
        "staging": sql.Identifier(_STAGING),
        "deleted": sql.Identifier(DELETED),
        "keys": keys,
        "columns": _names(columns),
        "same": sql.SQL(" AND ").join(
            sql.SQL("held.{0} = staged.{0}").format(sql.Identifier(key)) for key in target.keys
        ),
        "action": _on_conflict([name for name in columns if name not in target.keys]),
        "row": sql.Identifier(_ROW),
        "checkpoint": sql.Identifier(_CHECKPOINT),
        "done": sql.Literal(done),
    }
    connection.execute(
        sql.SQL(
            "DELETE FROM {staging} AS staged USING (SELECT {keys}, {row}, row_number() OVER (PARTITION BY {keys} ORDER "
            "BY {row} DESC) AS place FROM {staging}) AS held WHERE held.{row} = staged.{row} AND (held.place > 1 OR "
            "staged.{checkpoint} <= {done})"
        ).format(**parts)
    )
    row = connection.execute(sql.SQL("SELECT bool_or({deleted}) FROM {staging}").format(**parts)).fetchone()
    if row is not None and row[0]:
        # Only where there is something to delete, since the user may not have the right to.
        delete = sql.SQL("DELETE FROM {table} AS held USING {staging} AS staged WHERE staged.{deleted} AND {same}")
        connection.execute(delete.format(**parts))
    insert = sql.SQL(
        "INSERT INTO {table} ({columns}) SELECT {columns} FROM {staging} WHERE NOT {deleted} ORDER BY {keys} "
        "ON CONFLICT ({keys}) {action}"
    )
    connection.execute(insert.format(**parts))


def _on_conflict(others: Sequence[str]) -> sql.Composable:
    """What happens to a row that is there: it takes the new values, if there are any beside its key."""
    from psycopg import sql

    if not others:
        return sql.SQL("DO NOTHING")
    values = (sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in others)
    return sql.SQL("DO UPDATE SET {}").format(sql.SQL(", ").join(values))


def _mark(connection: Postgres, target: Target, writer: str, checkpoint: int) -> None:
    from psycopg import sql

    query = sql.SQL("UPDATE {} SET checkpoint = greatest(checkpoint, {}), updated = now() WHERE writer = {}")
    connection.execute(query.format(identifier(target.markers), sql.Literal(checkpoint), sql.Literal(writer)))


def _names(columns: Sequence[str]) -> sql.Composed:
    from psycopg import sql

    return sql.SQL(", ").join(map(sql.Identifier, columns))
