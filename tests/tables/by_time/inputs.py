"""What random queries by event time read: streams and tables whose rows come out of order, and what DuckDB has of them.

`a` and `b` only get rows; those of `c` are changed and taken back while the watermark has not passed them; `r` has the
versions of keys. Nothing of these is late; rows of `l` are.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, TypeAlias

import duckdb
import pyarrow as pa

import penstock as ps
from penstock.engine.connectors import ConnectorContext, Position, Source, SourceReader, Split, Wait
from penstock.tables.catalog.catalog import CatalogTable
from penstock.tables.catalog.connectors import ScannedTable
from penstock.tables.plan.nodes import INSERT_ONLY, RETRACT, UPSERT, ChangelogMode, Columns
from tests.tables.by_time.kinds import VERSIONS
from tests.tables.by_time.late import ROWS, session_columns
from tests.tables.by_time.relations import SECOND, Col, Rel

_BASES: Final = (1_704_067_200 * SECOND, 1_704_067_200 * SECOND, 0, -3_600 * SECOND)
"""When it all begins; before 1970, too."""
_ALL_US: Final = 10 * 86_400 * SECOND
_UNITS_US: Final = {"s": SECOND, "ms": 1000, "us": 1, "ns": 1}
_ZONES: Final = ((None, 0), (None, 0), ("UTC", 0), ("Asia/Kolkata", 19_800 * SECOND))
_MACRO: Final = "CREATE MACRO fdiv(a, b) AS (a - ((a % b) + b) % b) // b"
_COLUMNS: Final = {
    "id": pa.int64(),
    "k": pa.string(),
    "v": pa.int64(),
    "x": pa.float64(),
    "d": pa.decimal128(10, 2),
}
_AMOUNTS: Final = (None, *map(Decimal, ("0.00", "-0.01", "1.25", "1.26", "99999999.99")))
_TIMES: Final = ("ts", "t2")
_KIND: Final = "kind of row"

Row: TypeAlias = dict[str, Any]


@dataclass(slots=True)
class Stream:
    """Rows, in the order in which they come; times in microseconds.

    Args:
        delay_us: by how much they are out of order, at most.
        is_distinct: whether no two have one millisecond.
        ops: of changes, what each row does.
        is_table: whether it is a table of CREATE TABLE, whose times have milliseconds.
    """

    name: str
    rows: list[Row]
    delay_us: int
    is_distinct: bool
    ops: list[str] | None = None
    is_table: bool = False

    def standing(self) -> list[Row]:
        """The rows that are there in the end."""
        held: dict[int, Row] = {}
        for op, row in zip(self.ops or ["+I"] * len(self.rows), self.rows, strict=True):
            if op in ("+I", "+U"):
                held[row["id"]] = row
            else:
                del held[row["id"]]
        return list(held.values())


@dataclass(slots=True)
class Inputs:
    """What a query reads.

    Args:
        unit: of the times of streams.
        zone: of the session; None: times are without a zone.
        zone_us: by how many microseconds its clocks are before UTC.
        late: a stream with rows that come late; each has the watermark before it, as milliseconds in `w`.
    """

    unit: str
    zone: str | None
    zone_us: int
    streams: list[Stream]
    late: Stream

    def tables(self) -> list[Rel]:
        """As what queries are drawn over."""
        made = []
        for stream in self.streams[:-1]:
            text = f"SELECT id AS c0, k AS c1, v AS c2, x AS c3, ts AS c4, t2 AS c5, d AS c6 FROM {stream.name}"
            cols = [Col(f"c{i}", kind) for i, kind in enumerate("isixttd")]
            cols[4] = Col("c4", "t", True, False)
            made.append(Rel(text, text, tuple(cols), stream.ops is None, stream.is_distinct))
        return made


def inputs(chance: random.Random) -> Inputs:
    """Draws them."""
    unit = chance.choice(("s", "ms", "ms", "us", "us", "ns"))
    zone, zone_us = chance.choice(_ZONES)
    base = chance.choice(_BASES)
    streams = [_stream(chance, name, unit, base) for name in "abcr"]
    for stream in streams:
        stream.is_table = stream.name == "c" or (unit in ("s", "ms") and chance.random() < 0.4)
    changes, versions = streams[2:]
    _change(chance, changes)
    if versions.is_table:
        versions.ops = ["-D" if chance.random() < 0.2 else "+U" for _ in versions.rows]
    return Inputs(unit, zone, zone_us, streams, _late(chance, unit, base))


def _late(chance: random.Random, unit: str, base: int) -> Stream:
    """Each time is at most once there, so that the order of rows is known."""
    stream = _stream(chance, "l", unit, base, is_distinct=True)
    patience_us, most = chance.choice((0, 1, 10)) * SECOND, -(2**50)
    for row in stream.rows:
        row["w"] = most
        most = max(most, (row["ts"] - patience_us) // 1000 - 1)
    stream.delay_us = patience_us
    return stream


def _stream(chance: random.Random, name: str, unit: str, base: int, is_distinct: bool | None = None) -> Stream:
    count, span = chance.choice((0, 1, 7, *(15, 25) * 4)), chance.choice((20, 60, 200)) * SECOND
    step = max(_UNITS_US[unit], chance.choice((1, 1, 1000)))
    if chance.random() < 0.4:
        step = SECOND
    if name == "c":
        step = max(step, 1000)
    is_distinct = name == "r" or chance.random() < 0.5 if is_distinct is None else is_distinct
    if is_distinct:
        places = {place * step // 1000: place for place in chance.sample(range(span // step), min(count, span // step))}
        times = [base + place * step for place in places.values()]
    else:
        times = [base + chance.randrange(span // step) * step for _ in range(count)]
    keys = chance.choice((("x",), ("x",), ("x", "y"), ("x", "y", "z", None)))
    delay_us = chance.choice((0, 0, 2, 30)) * SECOND
    rows = []
    for number, time in enumerate(times):
        other = None if chance.random() < 0.3 else base + chance.randrange(span // step) * step
        value = None if chance.random() < 0.2 else chance.randrange(6)
        half = None if chance.random() < 0.2 else chance.randrange(12) / 2
        row = {"id": number, "k": chance.choice(keys), "v": value, "x": half, "d": chance.choice(_AMOUNTS)}
        rows.append({**row, "ts": time, "t2": other})
    rows.sort(key=lambda row: row["ts"] + chance.uniform(0, delay_us))
    return Stream(name, rows, delay_us, is_distinct)


def _change(chance: random.Random, stream: Stream) -> None:
    """Change some rows, and take some back, while the watermark has not passed them."""
    made: list[tuple[str, Row]] = []
    held: list[Row] = []
    last = min((row["ts"] for row in stream.rows), default=0)
    for row in stream.rows:
        made.append(("+I", row))
        held.append(row)
        last = max(last, row["ts"])
        waiting = [one for one in held if one["ts"] > last - stream.delay_us]
        if not waiting or chance.random() < 0.5:
            continue
        one = chance.choice(waiting)
        held.remove(one)
        if chance.random() < 0.5:
            made.append(("-D", one))
            continue
        later = {**one, "v": chance.randrange(6), "ts": chance.choice(waiting)["ts"]}
        made += [("-U", one), ("+U", later)]
        held.append(later)
    stream.ops, stream.rows, stream.is_distinct = [op for op, _ in made], [row for _, row in made], False


# In Penstock


@dataclass(frozen=True, slots=True)
class _Whole:
    split_id: str = "rows"


@dataclass(frozen=True)
class _Rows(Source):
    """Rows with a pause between two batches, in seconds."""

    table: pa.Table
    pause: float

    @property
    def schema(self) -> pa.Schema:
        return self.table.schema

    @property
    def max_parallelism(self) -> int:
        return 1

    def splits(self, parallelism: int) -> Sequence[Split]:
        return [_Whole()]

    def open(self, split: Split, context: ConnectorContext) -> SourceReader:
        return self.open_at(split, {"row": 0}, context)

    def open_at(self, split: Split, position: Position, context: ConnectorContext) -> SourceReader:
        return _Reader(self, int(str(position["row"])), context)

    def describe(self) -> str:
        return "rows"


class _Reader(SourceReader):
    def __init__(self, source: _Rows, row: int, context: ConnectorContext) -> None:
        self._source, self._row, self._clock = source, row, context.clock
        self._again = context.clock.monotonic()

    def next_batch(self, max_rows: int) -> pa.RecordBatch | Wait | None:
        part = self._source.table.slice(self._row, min(max_rows, 4) if self._source.pause else max_rows)
        if not part.num_rows:
            return None
        if (now := self._clock.monotonic()) < self._again:
            return Wait(self._again)
        self._again = now + self._source.pause
        self._row += part.num_rows
        return part.combine_chunks().to_batches()[0]

    def position(self) -> Position:
        return {"row": self._row}


def _arrow(stream: Stream, unit: str, zone: str | None) -> pa.Table:
    kind = pa.timestamp(unit, None if zone is None else "UTC")
    columns = {name: pa.array([row[name] for row in stream.rows], own) for name, own in _COLUMNS.items()}
    factor = 1000 if unit == "ns" else 1
    for name in _TIMES:
        values = [None if row[name] is None else row[name] * factor // _UNITS_US[unit] for row in stream.rows]
        columns[name] = pa.array(values, pa.int64()).cast(kind)
    return pa.table(columns)


@dataclass(frozen=True)
class _Given:
    """The connector of the tables."""

    inputs: Inputs
    pause: float
    name: str = "given"

    @property
    def options(self) -> dict[str, str]:
        return {}

    def _stream(self, table: CatalogTable) -> Stream:
        return next(stream for stream in self.inputs.streams if stream.name == table.name)

    def source_mode(self, table: CatalogTable) -> ChangelogMode:
        stream = self._stream(table)
        if stream.ops is None:
            return INSERT_ONLY
        return UPSERT if stream.name == "r" else RETRACT

    def bounded(self, table: CatalogTable) -> bool:
        return True

    def scan(self, table: CatalogTable, columns: Columns) -> ScannedTable:
        stream = self._stream(table)
        rows = _arrow(stream, "ms", self.inputs.zone).select([column.name for column in columns])
        if stream.ops is None:
            return ScannedTable(_Rows(rows, self.pause))
        return ScannedTable(_Rows(rows.append_column(_KIND, pa.array(stream.ops, pa.string())), self.pause), _KIND)


def _behind(delay_ms: int) -> Callable[[Any, int], int]:
    return lambda row, timestamp: timestamp - delay_ms - 1


def register(env: ps.StreamEnvironment, given: Inputs, needs_all: bool, pause: float = 0) -> None:
    """Give the inputs their names in an environment.

    Args:
        env: has nothing of these names.
        given: the inputs.
        needs_all: whether no watermark is to come before all rows have.
        pause: between two batches, in seconds.
    """
    env.tables.register_connector(_Given(given, pause))
    if given.zone is not None:
        env.sql(f"SET 'table.local-time-zone' = '{given.zone}'")
    kind = "TIMESTAMP(3)" if given.zone is None else "TIMESTAMP_LTZ(3)"
    for stream in given.streams:
        delay_us = _ALL_US if needs_all else stream.delay_us
        if not stream.is_table:
            strategy = ps.WatermarkStrategy.for_punctuated(_behind(delay_us // 1000))
            rows = env.from_source(_Rows(_arrow(stream, given.unit, given.zone), pause)).uid(stream.name)
            env.tables.create_temporary_view(stream.name, rows.assign_timestamps("ts", strategy), rowtime="ts")
            continue
        key = {"c": ", PRIMARY KEY (id) NOT ENFORCED", "r": ", PRIMARY KEY (k) NOT ENFORCED"}.get(stream.name, "")
        behind = f"INTERVAL '{delay_us / SECOND + 0.001:.3f}' SECOND(6, 3)"
        env.sql(
            f"CREATE TABLE {stream.name} (id BIGINT, k STRING, v BIGINT, x DOUBLE, d DECIMAL(10, 2), ts {kind}, "
            f"t2 {kind}, WATERMARK FOR ts AS ts - {behind}{key}) WITH ('connector' = 'given')"
        )
    strategy = ps.WatermarkStrategy.for_punctuated(_behind(given.late.delay_us // 1000))
    rows = env.from_source(_Rows(_arrow(given.late, given.unit, given.zone), pause)).uid("l")
    env.tables.create_temporary_view("l", rows.assign_timestamps("ts", strategy), rowtime="ts")
    env.sql(f"CREATE VIEW late AS {ROWS.flink}")
    of = "r"
    if given.streams[-1].ops is None:
        of = "(SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS n FROM r) WHERE n = 1"
    env.sql(f"CREATE VIEW {VERSIONS} AS SELECT k AS c0, v AS c1, ts AS c2 FROM {of}")


# In DuckDB

_DATABASE: Final = duckdb.connect(config={"threads": 1})


def answered(given: Inputs, views: Sequence[str], query: str) -> Counter[tuple[Any, ...]]:
    """What DuckDB says of a query over views over the inputs."""
    schema = pa.schema([*_COLUMNS.items(), *((name, pa.int64()) for name in _TIMES), ("op", pa.string())])
    with _DATABASE.cursor() as database:
        database.execute("BEGIN")
        database.execute(_MACRO)
        for stream in given.streams:
            rows = stream.rows if stream.name == "r" else stream.standing()
            ops = stream.ops if stream.name == "r" and stream.ops else ["+I"] * len(rows)
            held = [{**row, "op": op} for row, op in zip(rows, ops, strict=True)]
            database.register("given", pa.Table.from_pylist(held, schema))
            database.execute(f"CREATE TABLE {stream.name} AS SELECT * FROM given")
        database.register("given", _late_rows(given))
        database.execute("CREATE TABLE l AS SELECT * FROM given")
        database.execute(f"CREATE VIEW {VERSIONS} AS SELECT k AS c0, v AS c1, ts AS c2, op FROM r")
        for view in views:
            database.execute(view)
        found = Counter(database.execute(query).fetchall())
        database.execute("ROLLBACK")
    return found


def _late_rows(given: Inputs) -> pa.Table:
    rows = given.late.rows
    columns = {**_COLUMNS, **dict.fromkeys((*_TIMES, "w"), pa.int64())}
    made = {name: pa.array([row[name] for row in rows], kind) for name, kind in columns.items()}
    sessions = session_columns(rows, given.zone_us)
    return pa.table({**made, **{name: pa.array(values, pa.int64()) for name, values in sessions.items()}})
