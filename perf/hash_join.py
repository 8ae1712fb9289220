"""Question 10, joins: facts of 100 B in Parquet files with a table a thousandth of their size, beside PySpark or Flink.

Two ways to write it: the table in the memory of each subtask (`lookup_join`), and both sides by key within one window
(`window_join`). PySpark and Flink choose a broadcast join by themselves. Run by `perf/run.py hash_join`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock import ArrowTable, FileSink, FileSource, StreamEnvironment, tumbling
from perf.batch_jobs import INPUT_FILES, BatchQuestion, check_same, in_turns, read_sorted
from perf.harness import Options, Result

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RATIO: Final = 1000
_FACT_TEXT: Final = 76
_ITEM_TEXT: Final = 92
_COLUMNS: Final = ("number", "item", "at", "text", "name")


def run(options: Options, wanted: str = "") -> Iterator[Result]:
    """Measure the variants whose name contains `wanted`."""
    yield from in_turns([Lookup(), Window()], options, wanted)


class _Join(BatchQuestion):
    name = "hash_join"
    row_bytes = 100

    def prepare(self, folder: Path, rows: int) -> None:
        draw = np.random.default_rng(7)
        items = rows // _RATIO
        for name in ("facts", "items"):
            (folder / name).mkdir()
        for number, part in enumerate(np.array_split(np.arange(rows), INPUT_FILES)):
            columns = {
                "number": part,
                # A tenth of the facts has no item.
                "item": draw.integers(0, items + items // 9, len(part)),
                "at": np.zeros(len(part), np.int64),
                "text": _texts(draw, len(part), _FACT_TEXT),
            }
            pq.write_table(pa.table(columns), folder / "facts" / f"facts-{number}.parquet")
        table = {"id": np.arange(items), "time": np.zeros(items, np.int64), "name": _texts(draw, items, _ITEM_TEXT)}
        pq.write_table(pa.table(table), folder / "items" / "items.parquet")

    def plain(self, session: SparkSession, given: Path, output: Path) -> None:
        items = session.read.parquet(str(given / "items")).drop("time").withColumnRenamed("id", "item")
        joined = session.read.parquet(str(given / "facts")).join(items, "item")
        joined.select(*_COLUMNS).write.parquet(str(output))

    def check(self, given: Path, ours: Path, theirs: Path) -> None:
        check_same(self.name, *(_plainly(read_sorted(folder, ("number",), _COLUMNS)) for folder in (ours, theirs)))


class Lookup(_Join):
    """The table in the memory of each subtask."""

    variant = "lookup"

    def ours(self, env: StreamEnvironment, given: Path, output: Path) -> None:
        items = ArrowTable(pq.read_table(given / "items", columns=["id", "name"]), keys="id")
        facts = env.from_source(FileSource.of(given / "facts"))
        facts.lookup_join(items, on={"item": "id"}).select(*_COLUMNS).sink_to(FileSink(output, "parquet"))


class Window(_Join):
    """Both sides by key, in one window."""

    variant = "window"

    def ours(self, env: StreamEnvironment, given: Path, output: Path) -> None:
        facts = env.from_source(FileSource.of(given / "facts")).assign_timestamps("at")
        items = env.from_source(FileSource.of(given / "items")).assign_timestamps("time")
        joined = facts.key_by("item").window_join(items.key_by("id"), tumbling("1d"))
        joined.select(*_COLUMNS).sink_to(FileSink(output, "parquet"))


def _texts(draw: np.random.Generator, rows: int, length: int) -> pa.Array:
    letters = draw.integers(97, 123, rows * length, np.uint8)
    offsets = pa.array(np.arange(0, (rows + 1) * length, length, np.int32)[: rows + 1])
    return pa.StringArray.from_buffers(rows, offsets.buffers()[1], pa.py_buffer(letters))


def _plainly(rows: pa.Table) -> pa.Table:
    return rows.cast(pa.schema([field.with_nullable(True) for field in rows.schema]))
