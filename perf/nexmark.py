"""Question: how many events of Nexmark a core does a second, query by query, as SQL?

Files -> query -> a table that forgets, in one process; the events of all three tables count, whichever a query reads.
Each query runs first over a few events, and what it gives is compared with DuckDB's. Run by `perf/run.py nexmark`,
beside Flink with `--peer flink-sql`: over the same files, in turns, and what both give is compared.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from penstock import StreamEnvironment
from penstock.engine.clock import Clock
from perf.harness import BenchmarkError, ComparedResult, Options, Reading, Result
from perf.nexmark_events import tables
from perf.nexmark_flink import FlinkSide, as_texts, beside
from perf.nexmark_queries import QUERIES, Query

_NAME: Final = "nexmark"
_SIDE: Final = "side"
_SIDE_KEYS: Final = 10_000
_BEATS_SECONDS: Final = 15
"""How long a job over `lasting` lives at the least: for as long as its windows of the clock, and then some."""
_DELAY: Final = "INTERVAL '4' SECOND"
_LATENCY: Final = "1s"
"""How long rows may wait for each other: as in Flink's mini-batches (`perf/peers/engines.py`)."""
_TYPES: Final = {pa.int64(): "BIGINT", pa.string(): "STRING", pa.timestamp("ms"): "TIMESTAMP(3)"}

Rows: TypeAlias = "Counter[tuple[Any, ...]]"


def run(options: Options, wanted: str = "") -> Iterator[Result]:
    """Measure the queries whose name contains `wanted`."""
    chosen = {name: query for name, query in QUERIES.items() if wanted in name}
    with tempfile.TemporaryDirectory() as place, _peer(options) as flink:
        few = written(Path(place) / "few", options.check_rows, options.parallelism)
        many = {
            events: written(Path(place) / str(events), events, options.parallelism)
            for events in {query.events for query in chosen.values()}
        }
        for name, query in chosen.items():
            rows = expected(query, few)
            if given(query, few, options.parallelism) != rows:
                raise BenchmarkError(f"{name} gives other rows than DuckDB")
            _measure(query, few, options)
            if flink is None or query.peer is None:
                readings = [_measure(query, many[query.events], options) for _ in range(options.repetitions)]
                yield Result.of(_NAME, name, readings)
            else:
                yield _beside(flink, name, query, rows, many[query.events], few, options)


def _peer(options: Options) -> AbstractContextManager[FlinkSide | None]:
    return nullcontext() if options.peer is None else beside(options.peer, options)


def _beside(
    flink: FlinkSide, name: str, query: Query, rows: Rows, many: Path, few: Path, options: Options
) -> ComparedResult:
    assert options.peer is not None, "it is measured beside one"
    if flink.given(ddl(few), query.peer_check) != as_texts(rows):
        raise BenchmarkError(f"{name}: {options.peer.name} gives other rows than ours and DuckDB")
    # As warm as each other: what numba compiles, and what a JVM does.
    _measure(query, many, options)
    _measure_peer(flink, query, many)
    pairs = [(_measure(query, many, options), _measure_peer(flink, query, many)) for _ in range(options.repetitions)]
    return ComparedResult.of_pairs(_NAME, name, f"{options.peer.name} {options.peer.version()}", pairs)


def _measure_peer(flink: FlinkSide, query: Query, folder: Path) -> Reading:
    with tempfile.TemporaryDirectory() as place:
        table = results(query, folder, place)
        return flink.measure([*ddl(folder), table], f"INSERT INTO results {query.peer_text}", query.events)


def _measure(query: Query, folder: Path, options: Options) -> Reading:
    with tempfile.TemporaryDirectory() as place:
        env = environment(folder, options.parallelism, options.batch_rows)
        env.sql(results(query, folder, place))
        env.sql(f"INSERT INTO results {query.flink}")
        begin, cpu = time.perf_counter(), time.process_time()
        env.execute(_NAME)
        seconds, used = time.perf_counter() - begin, time.process_time() - cpu
    return Reading(query.events / seconds, query.events / used)


def results(query: Query, folder: Path, output: str) -> str:
    """The statement that makes the table which a query writes into; `output` has it where it is one of files."""
    table = environment(folder, 1).sql(query.flink)
    assert table is not None, "a query gives a table"
    columns = ", ".join(f"`{name}` {kind.with_nullable(True)}" for name, kind in table.columns.items())
    return f"CREATE TABLE results ({columns}) {_sink(query, output)}"


def _sink(query: Query, folder: str) -> str:
    """What makes a table of the results: one that forgets them, or one of files."""
    if not query.partitions:
        return "WITH ('connector' = 'blackhole')"
    by = ", ".join(query.partitions)
    return f"PARTITIONED BY ({by}) WITH ('connector' = 'filesystem', 'path' = '{folder}', 'format' = 'csv')"


def written(folder: Path, events: int, files: int = 2, per_ms: int = 10) -> Path:
    """A folder with the events, so many a millisecond: for each table a folder, its rows dealt out to files in turn."""
    side = pa.table({"key": range(_SIDE_KEYS), "value": [str(key) for key in range(_SIDE_KEYS)]})
    for name, table in {**tables(events, per_ms), _SIDE: side}.items():
        (folder / name).mkdir(parents=True)
        for file in range(files):
            part = table.take(pa.array(range(file, len(table), files), pa.int64()))
            pq.write_table(part, folder / name / f"{file}.parquet")
    return folder


def environment(
    folder: Path, parallelism: int, batch_rows: int = 16_384, clock: Clock | None = None
) -> StreamEnvironment:
    """Where the tables are those of a folder."""
    env = StreamEnvironment(runtime="local", parallelism=parallelism, max_batch_rows=batch_rows, clock=clock)
    env.configure({"taskmanager.network.memory.buffer-debloat.target": _LATENCY})
    for statement in ddl(folder):
        env.sql(statement)
    return env


def ddl(folder: Path) -> list[str]:
    """The statements that make the tables of a folder, and views of them."""
    return [
        *(_events(folder, name) for name in ("person", "auction", "bid")),
        f"CREATE TABLE {_SIDE} (`key` BIGINT, `value` STRING) {_parquet(folder / _SIDE)}",
        "CREATE TABLE beats (n BIGINT) WITH "
        f"('connector' = 'datagen', 'rows-per-second' = '2', 'number-of-rows' = '{2 * _BEATS_SECONDS}')",
        "CREATE VIEW clocked AS SELECT auction, bidder, price, `at`, PROCTIME() AS p_time FROM bid",
        "CREATE VIEW lasting AS SELECT bidder, PROCTIME() AS p_time FROM "
        "(SELECT bidder FROM bid UNION ALL SELECT 0 AS bidder FROM beats)",
    ]


def _events(folder: Path, name: str) -> str:
    schema = pq.read_schema(folder / name / "0.parquet")
    columns = ", ".join(f"`{field.name}` {_TYPES[field.type]}" for field in schema)
    return f"CREATE TABLE {name} ({columns}, WATERMARK FOR `at` AS `at` - {_DELAY}) {_parquet(folder / name)}"


def _parquet(folder: Path) -> str:
    return f"WITH ('connector' = 'filesystem', 'path' = '{folder}', 'format' = 'parquet')"


def given(query: Query, folder: Path, parallelism: int, clock: Clock | None = None) -> Rows:
    """The rows that a query has in the end, by the machine's clock or another."""
    table = environment(folder, parallelism, clock=clock).sql(query.compared)
    assert table is not None, "a query gives a table"
    rows: Rows = Counter()
    for row in table.to_changelog().collect():
        op, *values = row.values()
        rows[tuple(values)] += 1 if op in ("+I", "+U") else -1
    return +rows


def expected(query: Query, folder: Path) -> Rows:
    """The rows that DuckDB gives."""
    import duckdb

    with duckdb.connect() as database:
        for name in ("person", "auction", "bid", _SIDE):
            database.execute(f"CREATE VIEW {name} AS SELECT * FROM '{folder}/{name}/*.parquet'")
        return Counter(database.execute(query.duckdb or query.flink.replace("`", '"')).fetchall())
