"""The PostgreSQL source: the rows of a table or query in the order of a growing column, then those that are added.

Programs build a `PostgresSource`; each reader asks for a page of rows behind the last one that it gave. The position
is that row's place in the order, so the same rows follow after a restore as long as they are in the table.
"""

from __future__ import annotations

import datetime
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.connectors.postgres.catalog import Column, query_schema, read_table
from penstock.connectors.postgres.connection import Session, ask, dataset_of, error_line, identifier, parse_dsn
from penstock.connectors.postgres.types import PostgresType, to_array
from penstock.engine.connectors import ConnectorContext, Dataset, Position, Source, SourceReader, Split, Wait
from penstock.engine.durations import Duration, parse_duration
from penstock.engine.errors import ConfigurationError, RecordError, RestoreError, nearest

if TYPE_CHECKING:
    from psycopg import sql

    from penstock.connectors.postgres.connection import Postgres

_WHERE: Final = "postgres source"
_TIMES: Final = ("timestamp with time zone", "timestamp without time zone")
_NUMBERS: Final = ("smallint", "integer", "bigint")
_ORDERED: Final = (*_TIMES, *_NUMBERS, "date", "text", "character varying", "uuid", "numeric")


@dataclass(frozen=True, slots=True)
class PostgresSplit:
    """The rows whose column is above `low` and not above `high`, as text; None: no limit."""

    split_id: str
    low: str | None
    high: str | None


@dataclass(frozen=True, slots=True)
class _Order:
    """How rows are ordered: by a column and its tie breakers, with their types as the server spells them.

    A tie breaker that may be null is in `nullable`. Its nulls come first, so that one is seen, and refused, before the
    rows behind it: it could not be compared with them, and would be missed.
    """

    names: tuple[str, ...]
    types: tuple[str, ...]
    nullable: frozenset[str]


class PostgresSource(Source):
    """Reads a table or a query in the order of a column that grows with each new row; continues with new rows if asked.

    Rows that are changed are read again only if the column grows with the change, such as a time of the last change;
    rows that are deleted are not noticed, and rows where the column is null are never read. A row that becomes visible
    with a value below one that was read already is missed: numbers and times are given when a row is inserted, and a
    long transaction commits later than one that began after it. `lag` leaves the newest rows alone until those before
    them must be there: longer than the longest transaction that inserts. Each page is a query of its own, so rows that
    come while a bounded source reads may be among those that it gives.

    Columns become Arrow's of the same kind: `numeric(p, s)` decimals of up to 38 digits, `json`, `jsonb` and `uuid`
    text, `timestamptz` microseconds in UTC, one-dimensional arrays lists. Other types must be cast by a query.

    Args:
        dsn: `postgresql://user:password@host:port/database`; never shown.
        table_or_query: `table` or `schema.table` in its letter case, or a query (anything with a blank in it), which is
            asked for page by page: `SELECT ... FROM ... WHERE ...` without ORDER BY and LIMIT.
        column: the growing column: a number, a time, a date, text or a UUID; an index of it and the tie breakers makes
            pages fast.
        tie_breaker: columns that tell rows apart whose `column` is equal. None takes the table's primary key, or
            nothing where `column` is unique; a query needs them, or `()` if `column` is unique in it. A null in one is
            a `RecordError`. Those of a query, and of a table those that may be null, are sorted with NULLS FIRST: an
            index that says so makes pages fast where many rows have one value of `column`.
        start_after: only rows whose column is above this value are read.
        ranges: values of the column, ascending and not below `start_after`, where the work of a bounded source is cut,
            so that subtasks can read at the same time: `[1000, 2000]` makes three ranges.
        poll: how long to wait for new rows; None ends behind the last row (bounded).
        lag: how far behind the newest row an endless source stays: a duration where the column is a timestamp (without
            a zone it is taken for UTC), a number where it is an integer.

    Raises:
        ConfigurationError: the server cannot be reached (within 10 s), has no such table or column, a column has a type
            that Arrow has not, or an argument cannot be used.

    Example:
        >>> orders = PostgresSource(dsn, "orders", column="id", poll="1s", lag=1000)  # doctest: +SKIP
    """

    def __init__(
        self,
        dsn: str,
        table_or_query: str,
        *,
        column: str,
        tie_breaker: str | Sequence[str] | None = None,
        start_after: object = None,
        ranges: Sequence[object] = (),
        poll: Duration | None = None,
        lag: Duration | int | None = None,
    ) -> None:
        parse_dsn(dsn)
        self._dsn = dsn
        self._rows = table_or_query.strip().rstrip(";")
        self._poll = None if poll is None else parse_duration(poll, "poll") / 1000
        if ranges and poll is not None:
            raise ConfigurationError(f"{_WHERE}: ranges are for bounded sources; leave out poll, or ranges")
        if lag is not None and poll is None:
            raise ConfigurationError(f"{_WHERE}: lag is for endless sources; give poll, or leave lag out")
        breakers = (tie_breaker,) if isinstance(tie_breaker, str) else tie_breaker
        bounds = [None if start_after is None else str(start_after), *map(str, ranges), None]
        self._schema, self._order = ask(dsn, lambda connection: self._describe(connection, column, breakers, bounds))
        self._lag = None if lag is None else _lag(lag, self._order.types[0])
        pairs = itertools.pairwise(bounds)
        self._splits = [PostgresSplit(f"range-{place}", low, high) for place, (low, high) in enumerate(pairs)]

    def _describe(
        self, connection: Postgres, column: str, breakers: Sequence[str] | None, bounds: Sequence[str | None]
    ) -> tuple[pa.Schema, _Order]:
        known: Mapping[str, Column] = {} if self._is_query else read_table(connection, self._rows).columns
        schema, types = self._columns(connection)
        if breakers is None:
            breakers = self._find_tie_breakers(connection, column)
        names = (column, *breakers)
        for name in names:
            if name not in types:
                raise ConfigurationError(
                    f"{_WHERE}: {self._shown} has no column {name!r}{nearest(name, types)}; it has {', '.join(types)}"
                )
            if PostgresType.parse(types[name]).name not in _ORDERED or types[name].endswith("[]"):
                raise ConfigurationError(
                    f"{_WHERE}: column {name!r} is {types[name]}, by which rows are not ordered; name a number, a "
                    "time, a date, text or a UUID"
                )
        nullable = frozenset(name for name in breakers if name not in known or known[name].takes_null)
        order = _Order(names, tuple(types[name] for name in names), nullable)
        self._check_ascending(connection, order, [bound for bound in bounds if bound is not None])
        return schema, order

    def _columns(self, connection: Postgres) -> tuple[pa.Schema, dict[str, str]]:
        from psycopg.errors import SyntaxError as QuerySyntaxError

        try:
            return query_schema(connection, self._all(), f"{_WHERE}: {self._shown}")
        except QuerySyntaxError as error:
            raise ConfigurationError(
                f"{_WHERE}: the query: {error_line(error)}; a text with a blank is taken for a query; "
                "to read a table whose name has one, quote it in a query"
            ) from None

    def _check_ascending(self, connection: Postgres, order: _Order, bounds: Sequence[str]) -> None:
        """Refuse ranges that overlap; the server compares, by the rules of the column's texts."""
        from psycopg import sql

        column = sql.Identifier(order.names[0])
        for low, high in itertools.pairwise(bounds):
            values = [sql.SQL("coalesce({}, {})").format(column, _typed(one, order.types[0])) for one in (low, high)]
            query = sql.SQL("SELECT {} <= {} FROM (SELECT) AS one LEFT JOIN ({}) AS rows ON false")
            row = connection.execute(query.format(*values, self._all())).fetchone()
            if row is not None and not row[0]:
                raise ConfigurationError(
                    f"{_WHERE}: ranges must ascend, from start_after on: {high!r} comes behind {low!r}, and rows would "
                    "be read twice; sort them"
                )

    def _find_tie_breakers(self, connection: Postgres, column: str) -> tuple[str, ...]:
        if self._is_query:
            raise ConfigurationError(
                f"{_WHERE}: rows of the query with one {column!r} cannot be told apart; give tie_breaker=[...], the "
                f"columns that can, or tie_breaker=() if {column!r} is unique"
            )
        table = read_table(connection, self._rows)
        if column in table.columns and frozenset([column]) in table.unique:
            return ()
        if not table.primary_key:
            raise ConfigurationError(
                f"{_WHERE}: table {self._rows!r} has no primary key to tell rows apart that have one {column!r}; give "
                f"tie_breaker=[...], the columns that can, or tie_breaker=() if {column!r} is unique"
            )
        return tuple(name for name in table.primary_key if name != column)

    @property
    def _is_query(self) -> bool:
        return any(character.isspace() for character in self._rows)

    @property
    def _shown(self) -> str:
        return "the query" if self._is_query else f"table {self._rows!r}"

    def _all(self) -> sql.Composed:
        from psycopg import sql

        if self._is_query:
            return sql.SQL("SELECT * FROM ({}) AS query").format(sql.SQL(self._rows))
        return sql.SQL("SELECT * FROM {}").format(identifier(self._rows))

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def bounded(self) -> bool:
        return self._poll is None

    @property
    def max_parallelism(self) -> int:
        """Each range is read by one subtask."""
        return len(self._splits)

    def splits(self, parallelism: int) -> Sequence[PostgresSplit]:
        return self._splits

    def open(self, split: Split, context: ConnectorContext) -> SourceReader:
        assert isinstance(split, PostgresSplit)
        return self._reader(split, None, context)

    def open_at(self, split: Split, position: Position, context: ConnectorContext) -> SourceReader:
        assert isinstance(split, PostgresSplit)
        after = position.get("after", ())
        if after is None:
            return self._reader(split, None, context)
        count = len(self._order.names)
        texts = [one for one in after if isinstance(one, str)] if isinstance(after, (list, tuple)) else []
        if len(texts) != count:
            raise RestoreError(
                f"{_WHERE}: split {split.split_id!r}: a position must have {count} values of "
                f"({', '.join(self._order.names)}), not {dict(position)!r}; the checkpoint was taken with another "
                "source or order under this uid: give the new source a uid of its own"
            )
        return self._reader(split, tuple(texts), context)

    def _reader(self, split: PostgresSplit, after: tuple[str, ...] | None, context: ConnectorContext) -> SourceReader:
        where = f"operator {context.operator!r}, subtask {context.subtask}: {_WHERE}: {self._shown}"
        pages = _Pages(self._all(), tuple(self._schema.names), self._order, split, self._lag)
        return _PostgresReader(
            pages, self._schema, Session(self._dsn, where, context.clock), after, self._poll, context
        )

    @property
    def datasets(self) -> Sequence[Dataset]:
        return () if self._is_query else (dataset_of(self._dsn, self._rows),)

    def describe(self) -> str:
        return f"postgres({'query' if self._is_query else self._rows} by {self._order.names[0]})"


def _lag(lag: Duration | int, kind: str) -> str | int:
    """An interval as the server spells it, or a number."""
    if kind in _TIMES and not isinstance(lag, int):
        return f"{parse_duration(lag, 'lag')} milliseconds"
    if kind in _NUMBERS and isinstance(lag, int) and not isinstance(lag, bool) and lag >= 0:
        return lag
    raise ConfigurationError(
        f"{_WHERE}: lag is a duration where the column is a timestamp, and a number where it is an integer; the column "
        f"is {kind}, and lag {lag!r}"
    )


@dataclass(frozen=True, slots=True)
class _Pages:
    """Writes the query for the rows behind a place in the order."""

    rows: sql.Composed
    columns: tuple[str, ...]
    order: _Order
    split: PostgresSplit
    lag: str | int | None

    def query(self, after: tuple[str, ...] | None, most: int) -> sql.Composed:
        from psycopg import sql

        # Literals, because a percent sign in a query or a column's name would be taken for a parameter.
        column = sql.Identifier(self.order.names[0])
        names = sql.SQL(", ").join(map(sql.Identifier, self.order.names))
        sorting = sql.SQL(", ").join(
            sql.SQL("{} NULLS FIRST" if name in self.order.nullable else "{}").format(sql.Identifier(name))
            for name in self.order.names
        )
        conditions: list[sql.Composable] = [sql.SQL("{} IS NOT NULL").format(column)]
        if after is not None:
            values = sql.SQL(", ").join(map(_typed, after, self.order.types))
            conditions.append(sql.SQL("ROW({}) > ROW({})").format(names, values))
        if self.split.low is not None:
            conditions.append(sql.SQL("{} > {}").format(column, _typed(self.split.low, self.order.types[0])))
        if self.split.high is not None:
            conditions.append(sql.SQL("{} <= {}").format(column, _typed(self.split.high, self.order.types[0])))
        if self.lag is not None:
            conditions.append(sql.SQL("{} <= {}").format(column, self._newest(column)))
        # By name: a column that the table gets, loses or moves while the job runs must not take another's place.
        columns = sql.SQL(", ").join(map(sql.Identifier, self.columns))
        return sql.SQL("SELECT {} FROM ({}) AS rows WHERE {} ORDER BY {} LIMIT {}").format(
            columns, self.rows, sql.SQL(" AND ").join(conditions), sorting, sql.Literal(most)
        )

    def _newest(self, column: sql.Identifier) -> sql.Composed:
        """The newest value that is read yet."""
        from psycopg import sql

        if isinstance(self.lag, str):
            kind = sql.SQL(self.order.types[0])
            return sql.SQL("(now() - {}::interval)::{}").format(sql.Literal(self.lag), kind)
        lag = sql.Literal(self.lag)
        return sql.SQL("(SELECT max({}) FROM ({}) AS newest) - {}::bigint").format(column, self.rows, lag)


def _typed(value: str, kind: str) -> sql.Composed:
    from psycopg import sql

    return sql.SQL("{}::{}").format(sql.Literal(value), sql.SQL(kind))


class _PostgresReader(SourceReader):
    """Gives a page for each call.

    Args:
        after: the place in the order of the row before the next; None at the start.
        poll: seconds between questions when there was nothing new; None to end there.
    """

    def __init__(
        self,
        pages: _Pages,
        schema: pa.Schema,
        session: Session,
        after: tuple[str, ...] | None,
        poll: float | None,
        context: ConnectorContext,
    ) -> None:
        self._pages, self._schema, self._session = pages, schema, session
        self._after, self._poll, self._clock = after, poll, context.clock
        self._where = f"operator {context.operator!r}, subtask {context.subtask}: {_WHERE}"
        self._places = [schema.names.index(name) for name in pages.order.names]
        self._next_question = -math.inf

    def next_batch(self, max_rows: int) -> pa.RecordBatch | Wait | None:
        if self._next_question > self._clock.monotonic():
            return None if self._poll is None else Wait(self._next_question)
        rows = self._ask(max_rows)
        if len(rows) < max_rows:
            self._next_question = math.inf if self._poll is None else self._clock.monotonic() + self._poll
        if not rows:
            return None if self._poll is None else Wait(self._next_question)
        columns = zip(*rows, strict=True)
        arrays = [
            to_array(list(values), field.type, f"{self._where}: column {field.name!r}")
            for values, field in zip(columns, self._schema, strict=True)
        ]
        self._check_tie_breakers(rows)
        self._after = tuple(_text(rows[-1][place]) for place in self._places)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _check_tie_breakers(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Nothing is behind a null, or before it: rows would be lost."""
        for name, place in zip(self._pages.order.names, self._places, strict=True):
            if name in self._pages.order.nullable and any(row[place] is None for row in rows):
                raise RecordError(
                    f"{self._where}: tie breaker {name!r} is null in a row, which cannot be told from others then; "
                    "give columns that are never null, or a query that leaves such rows out"
                )

    def _ask(self, max_rows: int) -> list[tuple[Any, ...]]:
        import psycopg

        try:
            return self._session.rows(self._pages.query(self._after, max_rows))
        except psycopg.Error as error:
            behind = "at the start" if self._after is None else f"behind {self._pages.order.names} = {self._after}"
            raise RecordError(
                f"{self._where}: the rows {behind} cannot be read: {error_line(error)}; times must be in the years 1 "
                "to 9999: give a query that casts or leaves them out"
            ) from None

    def position(self) -> Position:
        return {"after": None if self._after is None else list(self._after)}

    def close(self) -> None:
        self._session.close()


def _text(value: object) -> str:
    """The value as the server reads it back, exactly."""
    return value.isoformat() if isinstance(value, datetime.date) else str(value)
