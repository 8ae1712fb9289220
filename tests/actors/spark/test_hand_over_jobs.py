"""A million events of history on Spark, the rest live from its savepoint: the result of one streaming job over all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock import DataGenSource, FileSink, Sequence, StreamEnvironment, WatermarkStrategy, col, savepoints
from penstock.engine.errors import JobFailedError
from tests.actors.spark.conftest import Environment, on_spark
from tests.actors.spark.test_jobs import Lines, await_gate, fail_at_900, rows_of_files, run_once

pytestmark = on_spark

HISTORY, LIVE, KEYS = 1_000_000, 100_000, 500
DISORDER_MS = 5_000
Row = dict[str, Any]


class Streaks(ps.KeyedProcessFunction):
    """Counts the rows of a key in each hour, and tells at its end how many there were and how many so far in all."""

    def open(self, context: ps.RuntimeContext) -> None:
        self.hours = context.get_map_state(ps.MapStateDescriptor("hours", "int64", key_type="int64"))
        self.total = context.get_state(ps.ValueStateDescriptor("total", "int64"))

    def process_element(self, row: Mapping[str, Any], ctx: ps.Context) -> Iterator[Row]:
        end = (row["at"] // 3_600_000 + 1) * 3_600_000
        self.hours.put(end, self.hours.get(end, 0) + 1)
        ctx.timer_service.register_event_time_timer(end - 1)
        return iter(())

    def on_timer(self, timestamp: int, ctx: ps.OnTimerContext) -> Iterator[Row]:
        n = self.hours.get(timestamp + 1, 0)
        self.hours.remove(timestamp + 1)
        self.total.update((self.total.value() or 0) + n)
        yield {"key": ctx.current_key, "hour": timestamp + 1, "n": n, "total": self.total.value()}


def build(env: StreamEnvironment, paths: list[Path]) -> dict[str, ps.CollectResult]:
    events = env.from_files(sorted(map(str, paths)), schema={"key": "int64", "at": "int64", "v": "int64"}).uid("events")
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(f"{DISORDER_MS}ms")
    timed = events.assign_timestamps("at", strategy).uid("time")
    by_key = timed.key_by("key")
    windows = by_key.window(ps.tumbling("1h")).aggregate(n=ps.count(), total=ps.sum("v")).uid("hours")
    of_all = windows.window_all(ps.tumbling("6h")).aggregate(keys=ps.count(), n=ps.sum("n"))
    totals = by_key.aggregate(n=ps.count(), total=ps.sum("v"), most=ps.max("v")).uid("totals")
    streaks = (
        timed.filter(col("v") >= 98)
        .key_by("key")
        .process(Streaks(), returns={"key": "int64", "hour": "int64", "n": "int64", "total": "int64"})
        .uid("streaks")
    )
    sessions = timed.filter(col("v") == 7).key_by("key").window(ps.session("90s")).aggregate(n=ps.count())
    return {
        "windows": windows.collect(),
        "of_all": of_all.uid("of all").collect(),
        "totals": totals.collect(),
        "streaks": streaks.collect(),
        "sessions": sessions.uid("sessions").collect(),
    }


def events() -> pa.Table:
    """Three days, somewhat out of order."""
    random = np.random.default_rng(7)
    rows = HISTORY + LIVE
    at = np.arange(rows) * (3 * 86_400_000 // rows) + random.integers(0, DISORDER_MS, rows)
    return pa.table({"key": random.integers(0, KEYS, rows), "at": at, "v": random.integers(0, 100, rows)})


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], list[Path]]:
    """History in two files, and the rest in one."""
    folder, table = tmp_path_factory.mktemp("events"), events()
    parts = {"1": (0, 600_000), "2": (600_000, HISTORY - 600_000), "3": (HISTORY, LIVE)}
    for name, (begin, length) in parts.items():
        pq.write_table(table.slice(begin, length), folder / f"{name}.parquet")
    one, two, three = (folder / f"{name}.parquet" for name in parts)
    return [one, two], [three]


def in_order(table: pa.Table) -> pa.Table:
    return table.sort_by([(name, "ascending") for name in table.column_names]).combine_chunks()


def last_of_each(table: pa.Table) -> pa.Table:
    """The row of each key that came last: the largest count."""
    return in_order(table.group_by("key").aggregate([("n", "max"), ("total", "max"), ("most", "max")]))


@pytest.mark.long("test_hand_over.py, with less history")
def test_a_million_events_of_history_and_the_rest_live_give_what_one_stream_gives(
    spark: Environment, files: tuple[list[Path], list[Path]], tmp_path: Path
) -> None:
    history, live = files
    target = (tmp_path / "history").as_uri()
    whole = StreamEnvironment(parallelism=1, runtime="local")
    expected = build(whole, [*history, *live])
    job = whole.execute("whole")
    assert job.metrics().late_rows == 0

    env = spark()
    before = build(env, history)
    env.execute("history", mode="batch", savepoint_to=target)
    assert savepoints.read(target).verify()

    streaming = StreamEnvironment(parallelism=2, runtime="local")
    after = build(streaming, live)
    job = streaming.execute("live", savepoint=target)
    assert (job.metrics().late_rows, job.dropped_operators) == (0, ())
    for name, rows in expected.items():
        parts = [before[name].to_arrow(), after[name].to_arrow()]
        assert all(part.num_rows for part in parts), name
        together, one = pa.concat_tables(parts), rows.to_arrow()
        compared = last_of_each if name == "totals" else in_order
        assert compared(together).equals(compared(one)), name


@pytest.mark.long("test_hand_over_ends.py; a job that fails on Spark: test_jobs.py")
def test_a_job_that_fails_leaves_no_savepoint(spark: Environment, tmp_path: Path) -> None:
    env = spark()
    source = env.from_source(DataGenSource({"n": Sequence()}, rows=1000), "rows")
    source.key_by("n").aggregate(m=ps.count()).rebalance().map(fail_at_900).name("checked").collect()
    with pytest.raises(JobFailedError, match=r"operator 'checked'.*ValueError: nine hundred"):
        env.execute("fails", mode="batch", savepoint_to=str(tmp_path / "savepoint"))
    assert not [path for path in (tmp_path / "savepoint").rglob("*") if path.is_file()]


@pytest.mark.long("test_jobs.py kills a worker of Spark")
def test_sinks_and_files_of_state_are_whole_though_a_process_is_killed(spark: Environment, tmp_path: Path) -> None:
    env = spark()
    (tmp_path / "lines").mkdir()
    gate, target = tmp_path / "gate", tmp_path / "savepoint"
    source = env.from_source(DataGenSource({"n": Sequence()}, rows=2000), "rows")
    counted = source.key_by("n").aggregate(m=ps.count()).uid("counted")
    counted.rebalance().map(lambda row: run_once(gate, row), returns={"n": "int64", "m": "int64"}).sink_to(
        FileSink(str(tmp_path / "files"), "csv")
    )
    counted.sink_to(Lines(tmp_path / "lines"))
    job = env.submit("killed", mode="batch", savepoint_to=str(target))
    psutil.Process(await_gate(gate, job)).kill()
    job.wait()
    assert rows_of_files(tmp_path / "files") == list(range(2000))
    assert sum(int(file.read_text()) for file in (tmp_path / "lines").iterdir()) == 2000
    found = savepoints.read(str(target))
    assert found.operator("counted").state("accumulators").rows == 2000
    assert found.verify() == len(list((target / "data").iterdir()))
