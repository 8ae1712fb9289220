"""Rows between Spark and streams, both ways, and saved state as a DataFrame."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock import StreamEnvironment, savepoints, spark_exchange
from penstock.actors.spark import session
from penstock.engine.errors import ConfigurationError
from penstock.savepoints.spark_frames import frame_of_table
from tests.actors.spark.conftest import OPTIONS, Environment, on_spark
from tests.actors.spark.simulated import run_to_savepoint

pytestmark = on_spark
AT = datetime(2026, 3, 1, 12, 30, 0, 250_000, tzinfo=timezone.utc)


@pytest.fixture
def local(spark: Environment) -> StreamEnvironment:
    """An environment whose jobs run here, and whose Spark is the one of the tests."""
    return StreamEnvironment(parallelism=2, runtime="local", spark=OPTIONS)


def test_a_frame_is_a_stream_and_the_rows_of_a_stream_are_a_frame(local: StreamEnvironment) -> None:
    frame = local.spark_session().range(10_000).selectExpr("id", "cast(id % 3 as string) k", "array(id) ids")
    result = local.from_spark(frame).filter(ps.col("id") < 6).collect()
    again = local.to_spark(result)
    assert again.count() == 6
    assert sorted((row.id, row.k, row.ids) for row in again.collect()) == [(n, str(n % 3), [n]) for n in range(6)]


@pytest.mark.parametrize("mode", [pytest.param("streaming", marks=pytest.mark.long("in batch mode")), "batch"])
def test_a_frame_that_is_large_comes_by_files(spark: Environment, tmp_path: Path, mode: Any) -> None:
    env = spark() if mode == "batch" else StreamEnvironment(parallelism=2, runtime="local", spark=OPTIONS)
    frame = env.spark_session().range(1000).selectExpr("id", f"timestamp'{AT:%Y-%m-%d %H:%M:%S.%f} UTC' at")
    stream = env.from_spark(frame, folder=(tmp_path / "50 %20 süß [a] *?").as_uri())
    result = stream.collect()
    env.execute(mode=mode)
    rows = result.to_arrow()
    assert sorted(rows["id"].to_pylist()) == list(range(1000))
    assert set(rows["at"].to_pylist()) == {AT}


def test_what_is_too_large_to_travel_with_a_job_is_refused(
    local: StreamEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_exchange, "SMALL_BYTES", 2**20)
    frame = local.spark_session().range(1_000_000)
    with pytest.raises(ConfigurationError, match=r"more than the 1 MiB that travel with a job; give it a folder="):
        local.from_spark(frame)


def test_a_frame_that_fails_and_what_is_none_are_told(local: StreamEnvironment) -> None:
    frame = local.spark_session().range(1).selectExpr("raise_error('no such flight') e")
    with pytest.raises(ConfigurationError, match=r"Spark could not run the DataFrame: .*no such flight"):
        local.from_spark(frame)
    with pytest.raises(ConfigurationError, match="from_spark takes a DataFrame of Spark, not 7"):
        local.from_spark(7)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="s3://bucket is no folder of a disk"):
        local.from_spark(frame, "s3://bucket")
    with pytest.raises(ConfigurationError, match="to_spark takes what"):
        local.to_spark(7)  # type: ignore[arg-type]


def test_empty_frames_keep_their_columns(local: StreamEnvironment) -> None:
    empty = local.to_spark(pa.schema({"n": pa.uint8()}).empty_table())
    assert empty.schema.simpleString() == "struct<n:smallint>"
    assert local.from_spark(empty).collect().to_arrow() == pa.schema({"n": pa.int16()}).empty_table()


def test_types_that_spark_does_not_have_become_wider_ones_or_are_named(local: StreamEnvironment) -> None:
    table = pa.table(
        {
            "n": pa.array([2**64 - 1, None], pa.uint64()),
            "at": pa.array([AT, None], pa.timestamp("ms", "Europe/Berlin")),
            "kinds": pa.array([["a", "b"], None], pa.large_list(pa.dictionary(pa.int8(), pa.string()))),
        }
    )
    frame = local.to_spark(table)
    assert frame.schema.simpleString() == "struct<n:decimal(20,0),at:timestamp,kinds:array<string>>"
    assert [(row.n, row.kinds) for row in frame.collect()] == [(2**64 - 1, ["a", "b"]), (None, None)]
    with pytest.raises(ConfigurationError, match="to_spark: column 'time' is time64"):
        local.to_spark(pa.table({"time": pa.array([1], pa.time64("us"))}))
    with pytest.raises(ConfigurationError, match="takes a SparkSession"):
        frame_of_table("session", table, "here")  # type: ignore[arg-type]


class Visits(ps.KeyedProcessFunction):
    """Keeps how often each key came by page, and when it did last."""

    def open(self, context: ps.RuntimeContext) -> None:
        self.pages = context.get_map_state(ps.MapStateDescriptor("pages", "int64"))
        self.last = context.get_state(ps.ValueStateDescriptor("last", "timestamp[ms, tz=UTC]"))

    def process_element(self, row: Any, ctx: ps.Context) -> Iterator[dict[str, Any]]:
        self.pages.put(row["page"], self.pages.get(row["page"], 0) + 1)
        self.last.update(AT)
        return iter(())


def test_saved_state_is_a_frame_that_the_executors_read(local: StreamEnvironment, tmp_path: Path) -> None:
    rows = [{"user": n % 50, "page": "ab"[n % 2]} for n in range(1000)]
    stream = local.from_collection(rows).key_by("user")
    stream.process(Visits(), returns={"user": "int64"}).uid("visits").collect()
    url = (tmp_path / "savepoint").as_uri()
    run_to_savepoint(local.program().physical(), url)
    local.clear()
    operator = savepoints.read(url).operator("visits")
    for name in ("pages", "last"):
        state = operator.state(name)
        frame = state.to_spark(local.spark_session())
        assert frame.rdd.getNumPartitions() == 2
        found = [tuple(row) for row in frame.collect()]
        expected = [tuple(row.values()) for row in state.to_arrow().to_pylist()]
        assert len(found) == len(expected) == 50


@pytest.mark.long("the test above; how damage is found and told: tests/savepoints")
def test_a_damaged_file_of_state_is_named(local: StreamEnvironment, tmp_path: Path) -> None:
    total = ps.ValueStateDescriptor("total", "int64")
    made = savepoints.bootstrap(str(tmp_path / "made"))
    made.keyed_state("totals", keys=["user"], state=total, data=[{"user": 1, "value": 2}])
    state = made.write().operator("totals").state("total")
    frame = state.to_spark(local.spark_session())
    assert [row.asDict() for row in frame.collect()] == [{"user": 1, "value": 2}]
    (file,) = (tmp_path / "made" / "data").iterdir()
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(Exception, match=f"CheckpointCorruptError.*{file.name}"):
        frame.collect()


def test_the_session_for_queries_has_the_settings_of_spark(local: StreamEnvironment) -> None:
    own = local.spark_session()
    assert own is local.spark_session()
    assert own.conf.get("spark.sql.adaptive.enabled") == "true"
    running = session._HOLDER.running
    assert running is not None
    assert running.session.conf.get("spark.sql.adaptive.enabled") == "false"
