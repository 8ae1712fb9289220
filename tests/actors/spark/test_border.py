"""The border without Spark: the operators behind a prefix take rows as Spark hands them over."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock import FileSource, StreamEnvironment
from penstock.actors.spark.final_updates import with_final_updates
from penstock.actors.spark.native.border import Border, border_of
from penstock.actors.spark.native.prefixes import native_prefixes
from penstock.actors.spark.parcels import unpack
from penstock.actors.spark.stage import StageReports
from tests.actors.spark.simulated import gathered


@pytest.fixture
def reports() -> StageReports:
    return gathered()


@pytest.fixture
def border(tmp_path: Path, reports: StageReports) -> Border:
    """Behind the windows of a job: a map, and one more shuffle by a key."""
    pq.write_table(pa.table({"k": ["a"], "at": [0]}), tmp_path / "rows.parquet")
    env = StreamEnvironment(parallelism=2)
    rows = env.from_source(FileSource.of(tmp_path / "rows.parquet")).assign_timestamps("at")
    windows = rows.key_by("k").window(ps.tumbling("1s")).aggregate(n=ps.count())
    twice = windows.map(lambda row: {**row, "n": 2 * row["n"]}, returns=windows.schema)
    twice.key_by("n").reduce(lambda one, other: other).collect()
    graph = with_final_updates(env.program().physical())
    ((task, prefix),) = native_prefixes(graph).items()
    return border_of(prefix, graph, graph.task(task), reports, "5ec2e7")


def rows_of_spark(starts: list[int], subtask: int) -> pa.RecordBatch:
    numbers = pa.array(starts, pa.int64())
    ends = pa.array([start + 1000 for start in starts], pa.int64())
    times = pa.array([start + 999 for start in starts], pa.int64())
    keys, counts = pa.array(["a"] * len(starts)), pa.array([1] * len(starts), pa.int64())
    columns = [keys, numbers, ends, counts, times, pa.array([subtask] * len(starts), pa.int32())]
    return pa.RecordBatch.from_arrays(columns, ["c0", "c1", "c2", "c3", "t", "subtask"])


def test_rows_go_on_with_their_types_times_and_in_order(border: Border, reports: StageReports) -> None:
    batches = [rows_of_spark([], 0), rows_of_spark([5000, -1000], 1), rows_of_spark([0], 1)]
    parcels = [row for batch in border(batches) for row in batch.to_pylist()]
    sent = [unpack(parcel["rows"]) for parcel in parcels]
    assert {parcel["sender"] for parcel in parcels} == {1}
    assert [time for batch in sent for time in batch.timestamps.to_pylist()] == [-1, 999, 5999]
    starts = [start for batch in sent for start in batch.data.column("window_start").cast(pa.int64()).to_pylist()]
    assert starts == [-1000, 0, 5000]
    assert {number for batch in sent for number in batch.data.column("n").to_pylist()} == {2}
    assert sent[0].data.schema.field("window_start").type == pa.timestamp("ms", "UTC")


def test_counters_have_all_operators_of_the_task(border: Border, reports: StageReports) -> None:
    list(border([rows_of_spark([0, 1000], 0)]))
    (metrics,) = reports.counters.value.values()
    assert [name for name, _ in metrics.operators] == ["window(tumbling 1s, n=count(*))", "map(<lambda>)"]
    assert metrics.operators[-1][1].rows_out == 2


def test_a_partition_without_rows_does_nothing(border: Border, reports: StageReports) -> None:
    assert not list(border([]))
    assert not reports.counters.value
