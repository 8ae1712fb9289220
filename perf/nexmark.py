"""Question: how many events of Nexmark a core does a second, query by query, as SQL?

Files -> query -> a table that forgets, in one process; the events of all three tables count, whichever a query reads.
Each query runs first over a few events, and what it gives is compared with DuckDB's. Run by `perf/run.py nexmark`.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from penstock import StreamEnvironment
from perf.harness import BenchmarkError, Options, Reading, Result
from perf.nexmark_events import tables
from perf.nexmark_queries import QUERIES, Query

_NAME: Final = "nexmark"
_EVENTS: Final = 500_000
_SIDE: Final = "side"
_DELAY: Final = "INTERVAL '4' SECOND"
_TYPES: Final = {pa.int64(): "BIGINT", pa.string(): "STRING", pa.timestamp("ms"): "TIMESTAMP(3)"}

Rows: TypeAlias = "Counter[tuple[Any, ...]]"


def run(options: Options, wanted: str = "") -> Iterator[Result]:
    """Measure the queries whose name contains `wanted`."""
    chosen = {name: query for name, query in QUERIES.items() if wanted in name}
    with tempfile.TemporaryDirectory() as place:
        few, many = written(Path(place) / "few", options.check_rows), written(Path(place) / "many", _EVENTS)
        for name, query in chosen.items():
            if given(query, few, options.parallelism) != expected(query, few):
                raise BenchmarkError(f"{name} gives other rows than DuckDB")
            _measure(query, few, options)
            readings = [_measure(query, many, options) for _ in range(options.repetitions)]
            yield Result.of(_NAME, name, readings)


def _measure(query: Query, folder: Path, options: Options) -> Reading:
    env = environment(folder, options.parallelism, options.batch_rows)
    table = env.sql(query.flink)
    assert table is not None, "a query gives a table"
    columns = ", ".join(f"`{name}` {kind.with_nullable(True)}" for name, kind in table.columns.items())
    with tempfile.TemporaryDirectory() as place:
        env.sql(f"CREATE TABLE results ({columns}) {_sink(query, place)}")
        env.sql(f"INSERT INTO results {query.flink}")
        begin, cpu = time.perf_counter(), time.process_time()
        env.execute(_NAME)
        seconds, used = time.perf_counter() - begin, time.process_time() - cpu
    return Reading(_EVENTS / seconds, _EVENTS / used)


def _sink(query: Query, folder: str) -> str:
    """What makes a table of the results: one that forgets them, or one of files."""
    if not query.partitions:
        return "WITH ('connector' = 'blackhole')"
    by = ", ".join(query.partitions)
    return f"PARTITIONED BY ({by}) WITH ('connector' = 'filesystem', 'path' = '{folder}', 'format' = 'csv')"


def written(folder: Path, events: int, per_ms: int = 10) -> Path:
    """A folder with the events as files, one folder a table; so many of them a millisecond."""
    side = pa.table({"key": range(10_000), "value": [str(key) for key in range(10_000)]})
    for name, table in {**tables(events, per_ms), _SIDE: side}.items():
        (folder / name).mkdir(parents=True)
        pq.write_table(table, folder / name / "events.parquet")
    return folder


def environment(folder: Path, parallelism: int, batch_rows: int = 16_384) -> StreamEnvironment:
    """Where the tables are those of a folder."""
    env = StreamEnvironment(runtime="local", parallelism=parallelism, max_batch_rows=batch_rows)
    for name in ("person", "auction", "bid"):
        schema = pq.read_schema(folder / name / "events.parquet")
        columns = ", ".join(f"`{field.name}` {_TYPES[field.type]}" for field in schema)
        env.sql(
            f"CREATE TABLE {name} ({columns}, WATERMARK FOR `at` AS `at` - {_DELAY}) "
            f"WITH ('connector' = 'filesystem', 'path' = '{folder / name}', 'format' = 'parquet')"
        )
    env.sql(
        f"CREATE TABLE {_SIDE} (`key` BIGINT, `value` STRING) "
        f"WITH ('connector' = 'filesystem', 'path' = '{folder / _SIDE}', 'format' = 'parquet')"
    )
    env.sql("CREATE VIEW clocked AS SELECT auction, bidder, price, `at`, PROCTIME() AS p_time FROM bid")
    return env


def given(query: Query, folder: Path, parallelism: int) -> Rows:
    """The rows that a query has in the end."""
    table = environment(folder, parallelism).sql(query.flink)
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
