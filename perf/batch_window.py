"""Question 10, windows: tumbling windows of 10 s and sessions over a folder of Parquet files, beside PySpark or Flink.

10,000 keys, 100,000 rows a second of event time, out of order by up to 4 s; count, sum, min and max. For sessions the
keys come in four groups that take turns of 5 s: each has rows for 5 s, then rests. Run by `perf/run.py batch_window`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from penstock import (
    FileSink,
    FileSource,
    KeyedStream,
    StreamEnvironment,
    WatermarkStrategy,
    WindowedStream,
    count,
    session,
    tumbling,
)
from penstock import max as max_of
from penstock import min as min_of
from penstock import sum as sum_of
from perf.batch_jobs import INPUT_FILES, BatchQuestion, check_same, in_turns, read_sorted
from perf.harness import Options, Result

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_KEYS: Final = 10_000
_ROWS_A_SECOND: Final = 100_000
_START_MS: Final = 1_800_000_000_000
_LATE_MS: Final = 4_000
_SIZE_MS: Final = 10_000
"""Of a window, and the gap between sessions."""
_GROUPS: Final = 4
_TURN_MS: Final = 5_000
_Int64s: TypeAlias = "npt.NDArray[np.int64]"

_COLUMNS: Final = ("key", "window_start", "window_end", "n", "total", "low", "high")


def run(options: Options, wanted: str = "") -> Iterator[Result]:
    """Measure the variants whose name contains `wanted`."""
    # Flink has a program for the first only.
    questions = [Tumbling(), Sessions()] if options.peer is None else [Tumbling()]
    yield from in_turns(questions, options, wanted)


class _Windows(BatchQuestion):
    """Count, sum, min and max of each key and window."""

    name = "batch_window"
    row_bytes = 24

    @abstractmethod
    def keys(self, draw: np.random.Generator, times: _Int64s) -> _Int64s:
        """The keys of rows that are due at these milliseconds from the start."""

    @abstractmethod
    def windows(self, events: KeyedStream) -> WindowedStream:
        """The windows that are aggregated."""

    @abstractmethod
    def group(self) -> Column:
        """What rows of a key are grouped by in PySpark."""

    @abstractmethod
    def bounds(self) -> tuple[Column, Column]:
        """The timestamps where the window of a group, which is column `slot`, begins and ends."""

    def prepare(self, folder: Path, rows: int) -> None:
        draw = np.random.default_rng(7)
        for number, part in enumerate(np.array_split(np.arange(rows), INPUT_FILES)):
            times = part * 1000 // _ROWS_A_SECOND
            late = draw.integers(0, _LATE_MS, len(part)) * (draw.random(len(part)) < 0.2)
            columns = {
                "key": self.keys(draw, times),
                "ts": _START_MS + times - late.astype(np.int64),
                # Whole numbers, so that sums are the same in any order.
                "v": draw.integers(-1000, 1000, len(part)).astype(np.float64),
            }
            pq.write_table(pa.table(columns), folder / f"events-{number}.parquet")

    def ours(self, env: StreamEnvironment, given: Path, output: Path) -> None:
        events = env.from_source(FileSource.of(given)).assign_timestamps(
            "ts", WatermarkStrategy.for_bounded_out_of_orderness(f"{_LATE_MS}ms")
        )
        windows = self.windows(events.key_by("key"))
        windows.aggregate(n=count(), total=sum_of("v"), low=min_of("v"), high=max_of("v")).sink_to(
            FileSink(output, "parquet")
        )

    def plain(self, session: SparkSession, given: Path, output: Path) -> None:
        from pyspark.sql import functions as f

        rows = session.read.parquet(str(given)).groupBy("key", self.group().alias("slot"))
        rows = rows.agg(
            f.count("*").alias("n"), f.sum("v").alias("total"), f.min("v").alias("low"), f.max("v").alias("high")
        )
        start, end = self.bounds()
        columns = (start.alias("window_start"), end.alias("window_end"))
        rows.select("key", *columns, "n", "total", "low", "high").write.parquet(str(output))

    def check(self, given: Path, ours: Path, theirs: Path) -> None:
        order = ("key", "window_start")
        check_same(self.name, *(_in_ms(read_sorted(folder, order, _COLUMNS)) for folder in (ours, theirs)))


class Tumbling(_Windows):
    """Windows of 10 s, end to end."""

    variant = "tumbling 10s"

    def keys(self, draw: np.random.Generator, times: _Int64s) -> _Int64s:
        return draw.integers(0, _KEYS, len(times))

    def windows(self, events: KeyedStream) -> WindowedStream:
        return events.window(tumbling(f"{_SIZE_MS}ms"))

    def group(self) -> Column:
        from pyspark.sql import functions as f

        return f.floor(f.col("ts") / _SIZE_MS) * _SIZE_MS

    def bounds(self) -> tuple[Column, Column]:
        from pyspark.sql import functions as f

        return f.timestamp_millis("slot"), f.timestamp_millis(f.col("slot") + _SIZE_MS)


class Sessions(_Windows):
    """Windows that a pause of 10 s ends."""

    variant = "session 10s"

    def keys(self, draw: np.random.Generator, times: _Int64s) -> _Int64s:
        size = _KEYS // _GROUPS
        return draw.integers(0, size, len(times)) + times // _TURN_MS % _GROUPS * size

    def windows(self, events: KeyedStream) -> WindowedStream:
        return events.window(session(f"{_SIZE_MS}ms"))

    def group(self) -> Column:
        from pyspark.sql import functions as f

        return f.session_window(f.timestamp_millis("ts"), f"{_SIZE_MS} milliseconds")

    def bounds(self) -> tuple[Column, Column]:
        from pyspark.sql import functions as f

        return f.col("slot.start"), f.col("slot.end")


def _in_ms(rows: pa.Table) -> pa.Table:
    kind = pa.timestamp("ms", "UTC")
    for index, name in ((1, "window_start"), (2, "window_end")):
        rows = rows.set_column(index, name, rows.column(name).cast(kind))
    return rows.cast(pa.schema([field.with_nullable(True) for field in rows.schema]))
