"""Question 10, windows: tumbling windows of 10 s over a folder of Parquet files, beside PySpark or Flink.

10,000 keys, 100,000 rows a second of event time, out of order by up to 4 s; count, sum, min and max. Run by
`perf/run.py batch_window`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock import FileSink, FileSource, StreamEnvironment, WatermarkStrategy, count, tumbling
from penstock import max as max_of
from penstock import min as min_of
from penstock import sum as sum_of
from perf.batch_jobs import INPUT_FILES, BatchQuestion, check_same, in_turns, read_sorted
from perf.harness import Options, Result

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KEYS: Final = 10_000
_ROWS_A_SECOND: Final = 100_000
_START_MS: Final = 1_800_000_000_000
_LATE_MS: Final = 4_000
_SIZE_MS: Final = 10_000
_COLUMNS: Final = ("key", "window_start", "window_end", "n", "total", "low", "high")


def run(options: Options, wanted: str = "") -> Iterator[Result]:
    """Measure the variants whose name contains `wanted`."""
    yield from in_turns([Tumbling()], options, wanted)


class Tumbling(BatchQuestion):
    """Count, sum, min and max of each key and window."""

    name = "batch_window"
    variant = "tumbling 10s"
    row_bytes = 24

    def prepare(self, folder: Path, rows: int) -> None:
        draw = np.random.default_rng(7)
        for number, part in enumerate(np.array_split(np.arange(rows), INPUT_FILES)):
            late = draw.integers(0, _LATE_MS, len(part)) * (draw.random(len(part)) < 0.2)
            columns = {
                "key": draw.integers(0, _KEYS, len(part)),
                "ts": _START_MS + part * 1000 // _ROWS_A_SECOND - late.astype(np.int64),
                # Whole numbers, so that sums are the same in any order.
                "v": draw.integers(-1000, 1000, len(part)).astype(np.float64),
            }
            pq.write_table(pa.table(columns), folder / f"events-{number}.parquet")

    def ours(self, env: StreamEnvironment, given: Path, output: Path) -> None:
        events = env.from_source(FileSource.of(given)).assign_timestamps(
            "ts", WatermarkStrategy.for_bounded_out_of_orderness(f"{_LATE_MS}ms")
        )
        windows = events.key_by("key").window(tumbling(f"{_SIZE_MS}ms"))
        windows.aggregate(n=count(), total=sum_of("v"), low=min_of("v"), high=max_of("v")).sink_to(
            FileSink(output, "parquet")
        )

    def plain(self, session: SparkSession, given: Path, output: Path) -> None:
        from pyspark.sql import functions as f

        start = f.floor(f.col("ts") / _SIZE_MS) * _SIZE_MS
        rows = session.read.parquet(str(given)).groupBy("key", start.alias("start"))
        rows = rows.agg(
            f.count("*").alias("n"), f.sum("v").alias("total"), f.min("v").alias("low"), f.max("v").alias("high")
        )
        bounds = (
            f.timestamp_millis("start").alias("window_start"),
            f.timestamp_millis(f.col("start") + _SIZE_MS).alias("window_end"),
        )
        rows.select("key", *bounds, "n", "total", "low", "high").write.parquet(str(output))

    def check(self, given: Path, ours: Path, theirs: Path) -> None:
        order = ("key", "window_start")
        check_same(self.name, *(_in_ms(read_sorted(folder, order, _COLUMNS)) for folder in (ours, theirs)))


def _in_ms(rows: pa.Table) -> pa.Table:
    kind = pa.timestamp("ms", "UTC")
    for index, name in ((1, "window_start"), (2, "window_end")):
        rows = rows.set_column(index, name, rows.column(name).cast(kind))
    return rows.cast(pa.schema([field.with_nullable(True) for field in rows.schema]))
