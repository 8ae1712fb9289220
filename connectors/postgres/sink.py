"""The PostgreSQL sink: rows are kept in the checkpoint, and come into the table when it is complete, exactly once.

Programs build a `PostgresSink`; the engine checks and prepares it once and opens a writer in each subtask. Rows are
made fit for the table as they come, so that the commit is left with nothing that depends on single values.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.postgres.catalog import (
    Column,
    Table,
    check_privileges,
    check_takes_commits,
    read_table,
    table_exists,
)
from penstock.connectors.postgres.commit import DELETED, Target, apply, create_markers, last_of_each_key
from penstock.connectors.postgres.connection import (
    ask,
    connect,
    dataset_of,
    error_line,
    lost_errors,
    parse_dsn,
    retried,
    shown_dsn,
)
from penstock.connectors.postgres.types import check_fits, fit_column
from penstock.engine.changelog import ANY_MODE, APPEND_ONLY, ChangelogMode
from penstock.engine.connectors import Committable, ConnectorContext, Dataset, TransactionalSink, TransactionalWriter
from penstock.engine.durations import Duration, parse_duration
from penstock.engine.elements import Batch
from penstock.engine.errors import ColumnTypeError, ConfigurationError, RecordError, RefusedRowsError, nearest
from penstock.engine.rows import shown_row

if TYPE_CHECKING:
    from penstock.connectors.postgres.connection import Postgres

_WHERE: Final = "postgres sink"
_MODES: Final = ("upsert", "append")
_INSERT, _UPDATE_BEFORE, _UPDATE_AFTER, _DELETE = range(4)


@dataclass(frozen=True, slots=True)
class PostgresSink(TransactionalSink):
    """Writes rows into a table of PostgreSQL, inserting each (`append`) or keeping one row for each key (`upsert`).

    Guarantee: exactly once with checkpoints, read committed. A writer keeps its rows in memory up to the next
    checkpoint and then in it; when the checkpoint is complete, one transaction for each writer brings them into the
    table together with a marker (the writer, and the checkpoint) in `markers`. After any failure the transaction is
    tried again, and what the marker says is there is left out; a writer that was stopped and resumes too late finds the
    marker set. So rows are seen late by up to the checkpoint interval. Without checkpoints each subtask writes
    one transaction when its own input ends; a job that fails may leave those of the subtasks that had finished, and
    writes them again when it is started again, which changes nothing where rows are upserted.

    Rows go to the columns of their names, the same for all rows; other columns of the table take their defaults, or are
    left as they are where the row is there already. Nothing is rounded or cut: a value that its column cannot hold is a
    `RecordError` before the checkpoint, and so is a null where the table takes none, or in a key. Constraints of other
    kinds (check, foreign key, unique indexes that are not the key) are found by the commit, which fails until the table
    takes the rows. Times are those of the years 1 to 9999; `json`, `jsonb` and `uuid` take text; `numeric` takes
    decimals and integers. In a database of another encoding than UTF8, a text that it cannot hold is refused too (where
    it is EUC_TW or MULE_INTERNAL, by the commit).

    In `upsert` mode the last row with a key counts; rows of one key must come from one subtask to have an order, as
    they do behind `key_by(...).aggregate(...)` with the same parallelism. Changelog row kinds, as Flink numbers them: 0
    insert and 2 update-after upsert, 3 delete deletes the row with the key, 1 update-before is left out. `append`
    refuses the kinds 1 to 3.

    The user needs the rights to create temporary tables, to read and write the table (to delete only if rows are) and
    the marker table, and, the first time, to create that. It has a row for each subtask of each attempt of a job, for
    ever; rows of jobs that have ended, and that no savepoint will be restored from, may be deleted (`updated` has the
    time of the last commit).

    Args:
        dsn: `postgresql://user:password@host:port/database`, or `host=... dbname=...`; never shown.
        table: `table` or `schema.table`, in its letter case; it must exist.
        mode: "upsert" or "append".
        keys: the columns of a unique index, for "upsert"; empty means the primary key.
        markers: name of the marker table, made if it is not there. Jobs can share it.
        stuck_timeout: how long a stopped process may hold a transaction before the server ends it; whoever takes its
            place waits as long.

    Raises:
        ConfigurationError: no such mode, keys where rows are appended, or a dsn that cannot be read.

    Example:
        >>> PostgresSink("postgresql://app:pw@db/shop", "totals", keys=["customer"])  # doctest: +SKIP
    """

    dsn: str = field(repr=False)
    table: str
    mode: Literal["upsert", "append"] = field(default="upsert", kw_only=True)
    keys: str | Sequence[str] = field(default=(), kw_only=True)
    markers: str = field(default="penstock_markers", kw_only=True)
    stuck_timeout: Duration = field(default="60s", kw_only=True)

    def __post_init__(self) -> None:
        if self.mode not in _MODES:
            raise ConfigurationError(f"{_WHERE}: no mode {self.mode!r}; choose {', '.join(map(repr, _MODES))}")
        if self.mode == "append" and self.keys:
            raise ConfigurationError(f"{_WHERE}: rows that are appended have no keys; leave keys out, or upsert")
        if parse_duration(self.stuck_timeout, "stuck_timeout") < 1:
            raise ConfigurationError(f"{_WHERE}: stuck_timeout must be a millisecond at least")
        object.__setattr__(self, "keys", (self.keys,) if isinstance(self.keys, str) else tuple(self.keys))
        parse_dsn(self.dsn)

    @property
    def changelog_modes(self) -> AbstractSet[ChangelogMode]:
        return ANY_MODE if self.mode == "upsert" else APPEND_ONLY

    def check(self, schema: pa.Schema | None) -> None:
        """See `Sink.check`; asks the server, within 10 s."""

        def look(connection: Postgres) -> None:
            table = self._read_table(connection)
            check_privileges(connection, self.table, ["INSERT"] + ["SELECT", "UPDATE"] * (self.mode == "upsert"))
            check_takes_commits(connection)
            if table_exists(connection, self.markers):
                check_privileges(connection, self.markers, ["SELECT", "INSERT", "UPDATE"])
            if schema is not None:
                _check_columns(table, self._keys_in(table), schema, self.table)

        ask(self.dsn, look)

    def prepare(self) -> None:
        ask(self.dsn, lambda connection: create_markers(connection, self.markers))

    def open(self, context: ConnectorContext) -> TransactionalWriter:
        where = _place(context)
        with connect(self.dsn, where) as connection:
            table = self._read_table(connection)
        return _PostgresWriter(self.table, table, self._keys_in(table), context)

    def commit(self, committables: Sequence[Committable], context: ConnectorContext) -> None:
        """See `TransactionalSink.commit`; a lost connection and a deadlock are tried again, four times in all.

        Raises:
            ConnectionError: the server cannot be reached.
            RefusedRowsError: the table does not take the rows, by a constraint for example.
        """
        import psycopg

        ordered = sorted(committables, key=lambda one: (one.writer, one.checkpoint))
        for _, group in itertools.groupby(ordered, key=lambda one: one.writer):
            of_writer = list(group)
            try:
                retried(partial(self._apply, of_writer, _place(context)), context.clock)
            except lost_errors() as error:
                raise ConnectionError(f"{_place(context)}: {shown_dsn(self.dsn)}: {error_line(error)}") from None
            except psycopg.Error as error:
                raise RefusedRowsError(
                    f"{_place(context)}: table {self.table!r} at {shown_dsn(self.dsn)} does not take the rows"
                    f"{_of_checkpoint(of_writer[-1].checkpoint, error_line(error))}"
                ) from None

    def _apply(self, committables: Sequence[Committable], where: str) -> None:
        with connect(self.dsn, where) as connection:
            keys = self._keys_in(self._read_table(connection))
            connection.rollback()
            stuck_ms = parse_duration(self.stuck_timeout, "stuck_timeout")
            apply(connection, Target(self.table, keys, self.markers, stuck_ms), committables)

    def _read_table(self, connection: Postgres) -> Table:
        table = read_table(connection, self.table)
        if DELETED in table.columns:
            raise ConfigurationError(f"{_WHERE}: table {self.table!r} has a column {DELETED!r}; rename it")
        return table

    def _keys_in(self, table: Table) -> tuple[str, ...]:
        """The keys, which the table must have a unique index of; empty where rows are appended."""
        if self.mode == "append":
            return ()
        keys = tuple(self.keys) or table.primary_key
        if not keys:
            raise ConfigurationError(
                f"{_WHERE}: table {self.table!r} has no primary key; give keys=[...], the columns of a unique index"
            )
        for key in keys:
            if key not in table.columns:
                raise ConfigurationError(
                    f"{_WHERE}: table {self.table!r} has no column {key!r}{nearest(key, table.columns)} to be a key"
                )
        if frozenset(keys) not in table.unique:
            columns = ", ".join(keys)
            raise ConfigurationError(
                f"{_WHERE}: table {self.table!r} has no unique index of ({columns}), which an upsert needs; make one: "
                f"CREATE UNIQUE INDEX ON {self.table} ({columns})"
            )
        return keys

    @property
    def datasets(self) -> Sequence[Dataset]:
        return (dataset_of(self.dsn, self.table),)

    def describe(self) -> str:
        return f"postgres({self.table}, {self.mode})"


def _of_checkpoint(number: int, why: str) -> str:
    """What becomes of rows that were refused; at the end of a job without checkpoints, the number is 0."""
    if not number:
        return f": {why}; none of them was written: alter the table, or the rights to it, then start the job again"
    return (
        f" of checkpoint {number}: {why}; they are kept in the checkpoint: alter the table, or the rights to it, then "
        "start the job again from there (resume='latest', --resume)"
    )


def _check_columns(table: Table, keys: Sequence[str], schema: pa.Schema, name: str) -> None:
    """Refuse columns that the table has not, or of other types, and rows that lack what it needs."""
    for of_stream in schema:
        column = table.columns.get(of_stream.name)
        where = f"{_WHERE}: column {of_stream.name!r}"
        if column is None:
            raise ConfigurationError(
                f"{where} is not in table {name!r}{nearest(of_stream.name, table.columns)}; it has "
                f"{', '.join(table.columns)}: add it, or select(...) the others before the sink"
            )
        if column.is_generated:
            raise ConfigurationError(f"{where} is made by the server alone in table {name!r}; leave it out")
        check_fits(of_stream.type, column.type, where, column.shown)
    needed = [*keys, *(one for one, column in table.columns.items() if column.is_required)]
    for missing in needed:
        if missing not in schema.names:
            raise ConfigurationError(
                f"{_WHERE}: the rows have no column {missing!r}{nearest(missing, schema.names)}, which table {name!r} "
                "needs; add it before the sink, or give it a default in the table"
            )
    for key in keys:
        if pa.types.is_nested(schema.field(key).type):
            raise ColumnTypeError(f"{_WHERE}: key {key!r} is {schema.field(key).type}; arrays cannot be keys")


class _PostgresWriter(TransactionalWriter):
    """Keeps the rows of an epoch, as the table will hold them."""

    def __init__(self, name: str, table: Table, keys: Sequence[str], context: ConnectorContext) -> None:
        self._name, self._table, self._keys = name, table, keys
        self._where = _place(context)
        # Of this attempt alone: one that starts again may have other rows for a checkpoint of the same number.
        self._writer = f"{context.identity or 'unknown'}/{context.subtask}/{secrets.token_hex(8)}"
        self._schema: pa.Schema | None = None
        self._columns: pa.Schema | None = None
        self._batches: list[pa.RecordBatch] = []

    def write(self, batch: Batch) -> None:
        if not batch.num_rows:
            return
        if self._schema is None or not batch.data.schema.equals(self._schema):
            _check_columns(self._table, self._keys, batch.data.schema, self._name)
            self._schema = batch.data.schema
        deleted = self._deleted(batch)
        columns = {
            name: self._fit(name, batch.data, self._table.columns[name], deleted) for name in batch.data.schema.names
        }
        rows = pa.RecordBatch.from_arrays([*columns.values(), deleted], [*columns, DELETED])
        self._check_same(rows.schema)
        if batch.kinds is not None:
            rows = rows.filter(pc.not_equal(batch.kinds, _UPDATE_BEFORE))
        self._batches.append(rows)

    def _check_same(self, columns: pa.Schema) -> None:
        """Refuse rows with other columns than the first: one statement brings in all of a writer's."""
        if self._columns is None:
            self._columns = columns
        elif not columns.equals(self._columns):
            first, these = (
                ", ".join(f"{one.name} {one.type}" for one in some if one.name != DELETED)
                for some in (self._columns, columns)
            )
            raise RecordError(
                f"{self._where}: table {self._name!r}: the first rows had the columns {first}, and these have {these}; "
                "all must have the same: declare `returns=` on the function that makes these rows"
            )

    def _deleted(self, batch: Batch) -> pa.BooleanArray:
        if batch.kinds is None:
            return pa.array([False] * batch.num_rows, pa.bool_())
        if not self._keys and pc.any(pc.not_equal(batch.kinds, _INSERT)).as_py():
            raise RecordError(
                f"{self._where}: a row is an update or a deletion, and table {self._name!r} is appended to; use "
                "mode='upsert' with keys"
            )
        return pc.equal(batch.kinds, _DELETE)

    def _fit(self, name: str, rows: pa.RecordBatch, column: Column, deleted: pa.BooleanArray) -> pa.Array:
        where = f"{self._where}, column {name!r}"
        fitted = fit_column(rows.column(name), column.type, where, self._table.encoding)
        missing = pc.is_null(fitted)
        if name in self._keys:
            if fitted.null_count:
                row = shown_row(rows, pc.index(missing, True).as_py())
                raise RecordError(
                    f"{where}: a key is null, and cannot tell rows apart, in row {row}; filter such rows out before"
                )
        elif not column.takes_null and fitted.null_count:
            refused = pc.and_not(missing, deleted)
            if (first := pc.index(refused, True).as_py()) >= 0:
                raise RecordError(
                    f"{where}: a value is null in row {shown_row(rows, first)}, and table {self._name!r} takes none "
                    "there; fill it, or filter such rows out"
                )
        return fitted

    def prepare(self, checkpoint: int) -> Sequence[Committable]:
        if not sum(batch.num_rows for batch in self._batches):
            return []
        rows = pa.Table.from_batches(self._batches)
        self._batches = []
        if self._keys:
            rows = last_of_each_key(rows, self._keys)
        return [Committable(self._writer, checkpoint, rows)]


def _place(context: ConnectorContext) -> str:
    return f"operator {context.operator!r}, subtask {context.subtask}: {_WHERE}"
