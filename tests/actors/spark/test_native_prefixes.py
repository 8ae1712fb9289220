"""Which operators Spark runs by itself: found without Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock import DataStream, FileSource, KeyedStream, StreamEnvironment, WatermarkStrategy, col
from penstock.actors.spark.final_updates import with_final_updates
from penstock.actors.spark.native.prefixes import native_prefixes

LATE = ps.OutputTag("late")
TABLE = pa.table(
    {
        "k": pa.array(["a"]),
        "n": pa.array([1], pa.int64()),
        "x": pa.array([1.0]),
        "u": pa.array([1], pa.uint32()),
        "at": pa.array([0], pa.int64()),
        "ns": pa.array([0], pa.timestamp("ns")),
    }
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    pq.write_table(TABLE, tmp_path / "rows.parquet")
    return tmp_path / "rows.parquet"


def operators(build: Callable[[DataStream], object], *paths: Path) -> list[int]:
    """How many operators of each task Spark runs, but for tasks that it runs as a whole."""
    env = StreamEnvironment(parallelism=2)
    build(env.from_source(FileSource.of(paths)))
    return native_operators(env)


def native_operators(env: StreamEnvironment) -> list[int]:
    """The same of a program that is there."""
    return [prefix.operators for prefix in native_prefixes(with_final_updates(env.program().physical())).values()]


def timed(rows: DataStream, column: str = "at") -> DataStream:
    return rows.assign_timestamps(column, WatermarkStrategy.for_bounded_out_of_orderness("1s"))


def windowed(rows: DataStream, **aggregates: ps.Aggregate) -> DataStream:
    return timed(rows).key_by("k").window(ps.tumbling("1s")).aggregate(**(aggregates or {"n": ps.count()}))


def by_key(rows: DataStream) -> KeyedStream:
    return timed(rows.select("k", "n", "at")).key_by("k")


def twice(rows: DataStream) -> None:
    rows.key_by("k").window(ps.tumbling("1s")).aggregate(n=ps.count()).collect()
    rows.key_by("n").aggregate(c=ps.count()).collect()


@pytest.mark.parametrize(
    ("expected", "build"),
    [
        ([1], lambda rows: windowed(rows).collect()),
        ([2], lambda rows: windowed(rows).filter(col("n") > 3).map(lambda row: row).collect()),
        ([1], lambda rows: windowed(rows).filter(col("k").str.len_chars() > 3).collect()),
        ([1], lambda rows: windowed(rows.filter(col("x") <= 3.0).select("k", "at", two=col("n") * 2)).collect()),
        ([1], lambda rows: rows.key_by("k").aggregate(n=ps.sum("n")).collect()),
        ([1], lambda rows: rows.group_by("k").aggregate(n=ps.sum("n")).collect()),
        ([1], lambda rows: timed(rows).window_all(ps.sliding("3s", "2s")).aggregate(n=ps.mean("x")).collect()),
        ([1], lambda rows: windowed(rows).key_by("k").reduce(lambda one, other: other).collect()),
        ([1], lambda rows: rows.select("k", "n").sort("n", descending=True).collect()),
        ([2], lambda rows: rows.select("k", "n").sort("k", "n").filter(col("n") > 3).process(Nothing()).collect()),
        # Two of them, one behind the other.
        ([1], lambda rows: windowed(rows).key_by("n").aggregate(k=ps.count()).collect()),
        ([1, 1], lambda rows: twice(timed(rows))),
        ([1], lambda rows: [(one := windowed(rows)).collect(), one.key_by("n").aggregate(k=ps.count()).collect()]),
        # What follows needs rows in the order of their times.
        ([], lambda rows: windowed(rows).process(Nothing()).collect()),
        # What follows gets rows by their turn, which is another one each time, unless there is one subtask.
        ([], lambda rows: windowed(rows).rebalance().map(lambda row: row).collect()),
        ([1], lambda rows: windowed(rows).map(lambda row: row).set_parallelism(1).collect()),
        # Somebody else reads them, too.
        ([], lambda rows: [windowed(rows).collect(), rows.collect()]),
        ([], lambda rows: rows.select("k", "n").sort("n").rebalance().map(lambda row: row).collect()),
        # Spark has no such values, or other ones.
        ([], lambda rows: rows.sort("n").collect()),
        ([], lambda rows: windowed(rows, n=ps.sum("u")).collect()),
        ([], lambda rows: windowed(rows, n=ps.first("n")).collect()),
        ([], lambda rows: rows.key_by("u").aggregate(n=ps.count()).collect()),
        ([], lambda rows: timed(rows, "ns").key_by("k").window(ps.tumbling("1s")).aggregate(n=ps.count()).collect()),
        ([], lambda rows: windowed(rows.filter(col("n") // 2 > 3)).collect()),
        ([], lambda rows: windowed(rows.filter(col("x") > col("n"))).collect()),
        ([], lambda rows: windowed(rows.with_columns(y=lambda row: 1)).collect()),
        ([], lambda rows: rows.rebalance().filter(col("n") > 3).collect()),
        # Our own operators take less.
        ([], lambda rows: timed(rows).window_all(ps.cumulative("1h", "1m")).aggregate(n=ps.count()).collect()),
        ([], lambda rows: timed(rows).key_by("k").window(ps.session("1s")).aggregate(n=ps.count()).collect()),
    ],
)
def test_what_spark_runs(path: Path, expected: list[int], build: Callable[[DataStream], object]) -> None:
    assert operators(build, path) == expected


@pytest.mark.parametrize(
    ("expected", "join"),
    [
        (
            [2],
            lambda one, two: (
                by_key(one).window_join(by_key(two), ps.tumbling("1s"), "full").filter(col("n") > 3).collect()
            ),
        ),
        ([], lambda one, two: by_key(one).window_join(by_key(two), ps.sliding("2s", "1s")).collect()),
        ([], lambda one, two: by_key(one).temporal_join(by_key(two)).collect()),
        ([], lambda one, two: by_key(one).interval_join(by_key(two), "-1s", "1s").collect()),
        # Without the columns that Spark cannot hold it would have others than the engine's.
        ([], lambda one, two: timed(one).key_by("k").window_join(timed(two).key_by("k"), ps.tumbling("1s")).collect()),
    ],
)
def test_which_joins_spark_runs(
    path: Path, expected: list[int], join: Callable[[DataStream, DataStream], object]
) -> None:
    env = StreamEnvironment(parallelism=2)
    join(env.from_source(FileSource.of(path)), env.from_source(FileSource.of(path)))
    assert native_operators(env) == expected


class Nothing(ps.ProcessFunction):
    def process_element(self, row: ps.Row, ctx: ps.Context) -> None:
        pass


def test_late_rows_that_somebody_reads_are_left_to_the_engine(path: Path) -> None:
    def build(rows: DataStream) -> None:
        windows = timed(rows).key_by("k").window(ps.tumbling("1s")).side_output_late_data(LATE)
        windows.aggregate(n=ps.count()).get_side_output(LATE).collect()

    assert operators(build, path) == []


def test_files_that_differ_from_the_source_are_left_to_the_engine(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.parquet"
    pq.write_table(TABLE.set_column(1, "n", pa.array([1], pa.int32())), other)
    assert operators(lambda rows: windowed(rows).collect(), path, other) == []


@pytest.mark.parametrize("name", ["[a].parquet", "a%20b.parquet", "k=1,n.parquet"])
def test_paths_that_mean_something_to_spark_are_left_to_the_engine(path: Path, name: str) -> None:
    assert operators(lambda rows: windowed(rows).collect(), path.rename(path.with_name(name))) == []


def test_explain_tells_them(path: Path) -> None:
    env = StreamEnvironment(parallelism=2)
    windowed(env.from_source(FileSource.of(path))).map(lambda row: row).collect()
    assert env.explain(mode="batch").endswith(
        """\
== Spark ==
native 1: files(rows.parquet, parquet) -> assign_timestamps(at, out of order by 1s)
stage 2: window(tumbling 1s, n=count(*)) -> map(<lambda>) (partitions 2)
  native: window(tumbling 1s, n=count(*))
  <- native 1 (shuffle by hash(k), partial aggregates)
"""
    )
