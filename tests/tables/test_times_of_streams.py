"""Streams as tables: the column that is said to hold the event time holds it, in whatever unit."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock import StreamEnvironment, WatermarkStrategy
from penstock.engine.api.streams import DataStream
from penstock.engine.errors import JobFailedError

START = datetime(2024, 1, 1)
ROWS = [{"id": i, "k": "xy"[i % 2], "ts": START + timedelta(minutes=i)} for i in range(12)]
STRATEGY = WatermarkStrategy.for_monotonous_timestamps()
TENS = "TABLE(TUMBLE(TABLE t, DESCRIPTOR({}), INTERVAL '10' MINUTE))"


def rows_of(unit: str = "us") -> tuple[StreamEnvironment, DataStream]:
    env = ps.StreamEnvironment(runtime="local")
    schema = pa.schema([("id", pa.int64()), ("k", pa.string()), ("ts", pa.timestamp(unit))])
    return env, env.from_collection(pa.Table.from_pylist(ROWS, schema)).assign_timestamps("ts", STRATEGY)


def asked(env: StreamEnvironment, stream: DataStream, rowtime: str, query: str) -> list[Any]:
    env.tables.create_temporary_view("t", stream, rowtime=rowtime)
    return [tuple(row.values()) for row in env.sql(query).collect()]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_all_units_make_the_same_windows(unit: str) -> None:
    last = "(SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS n FROM t)"
    env, stream = rows_of(unit)
    env.tables.create_temporary_view("t", stream, rowtime="ts")
    env.sql(f"CREATE VIEW l AS SELECT id, ts FROM {last} WHERE n = 1")
    windows = TENS.format("ts").replace("TABLE t", "TABLE l")
    counted = env.sql(f"SELECT window_start, COUNT(*) AS n FROM {windows} GROUP BY window_start, window_end").collect()
    standing = {}
    for row in counted:
        standing[row["window_start"]] = row["n"]
    assert standing == {START + timedelta(minutes=10): 2}


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_all_units_are_moved_by_intervals(unit: str) -> None:
    moved = "ts + INTERVAL '90' SECOND AS a, TIMESTAMPADD(DAY, 1, ts) AS b, ts - INTERVAL '1' MONTH AS c"
    found = asked(*rows_of(unit), "ts", f"SELECT {moved} FROM t WHERE id = 0")
    assert found == [(START + timedelta(seconds=90), START + timedelta(days=1), datetime(2023, 12, 1))]


@pytest.mark.parametrize("size", [1, 100])
def test_rows_in_the_gaps_of_windows_are_in_none(size: int) -> None:
    env = ps.StreamEnvironment(runtime="local", max_batch_rows=size)
    stream = env.from_collection(ROWS).assign_timestamps("ts", STRATEGY)
    hops = "TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '10' MINUTE, INTERVAL '4' MINUTE))"
    found = asked(env, stream, "ts", f"SELECT id, window_start FROM {hops}")
    expected = [(i, START + timedelta(minutes=i // 10 * 10)) for i in range(12) if i % 10 < 4]
    assert sorted(found) == expected


def test_a_column_that_holds_the_event_time_by_another_name_is_taken() -> None:
    env, stream = rows_of()
    found = asked(
        env,
        stream.select("id", at=ps.col("ts")),
        "at",
        f"SELECT COUNT(*) AS n FROM {TENS.format('at')} GROUP BY window_start, window_end",
    )
    assert found == [(10,), (2,)]


@pytest.mark.parametrize("changed", ["named", "moved", "joined", "null"])
def test_a_column_that_does_not_hold_the_event_time_is_refused(changed: str) -> None:
    env, stream = rows_of()
    match changed:
        case "named":
            stream = stream.with_columns(at=ps.col("ts") + timedelta(minutes=1))
        case "moved":
            stream = stream.with_columns(at=ps.col("ts")).with_columns(at=ps.col("at") - timedelta(minutes=1))
        case "null":
            stream = stream.with_columns(at=ps.when(ps.col("id") > 5).then(ps.col("ts")).otherwise(None))
        case "joined":
            other = stream.select("k", at=ps.col("ts")).key_by("k")
            stream = stream.select("id", "k").key_by("k").interval_join(other, lower="-5m", upper="0m")
    with pytest.raises(JobFailedError, match=r"the rowtime 'at' is .* in a row whose event time is 2024"):
        asked(env, stream, "at", f"SELECT * FROM {TENS.format('at')}")
