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


FINE = [timedelta(microseconds=us) for us in (100, 900, 1000, 1500, 1999, 2000, 3100)]


def fine() -> StreamEnvironment:
    env = ps.StreamEnvironment(runtime="local")
    for name, order in (("a", (4, 1, 0, 3, 2, 6, 5)), ("b", (0, 6, 2, 5, 1, 4, 3))):
        rows = [{"k": "x", "id": i, "ts": START + FINE[i]} for i in order]
        stream = env.from_collection(rows).assign_timestamps("ts", WatermarkStrategy.for_bounded_out_of_orderness("1s"))
        env.tables.create_temporary_view(name, stream, rowtime="ts")
    return env


@pytest.mark.parametrize("kind", ["JOIN", "LEFT JOIN"])
@pytest.mark.parametrize("least", [">", ">="])
def test_interval_joins_compare_times_that_are_finer_than_milliseconds(kind: str, least: str) -> None:
    near = f"b.ts {least} a.ts AND b.ts < a.ts + INTERVAL '0.001' SECOND"
    query = f"SELECT a.id, b.id AS other FROM a {kind} b ON a.k = b.k AND {near}"
    plan = "\n".join(row["plan"] for row in fine().sql(f"EXPLAIN {query}").collect())
    assert "IntervalJoin" in plan
    found = [(row["id"], row["other"]) for row in fine().sql(query).collect()]
    millisecond = timedelta(milliseconds=1)
    places = range(len(FINE))
    met = {i: [j for j in places if FINE[i] <= FINE[j] < FINE[i] + millisecond] for i in places}
    if least == ">":
        met = {i: [j for j in others if j != i] for i, others in met.items()}
    alone = [(i, None) for i, others in met.items() if not others and kind == "LEFT JOIN"]
    assert sorted(found, key=str) == sorted([*((i, j) for i, others in met.items() for j in others), *alone], key=str)


def test_rows_of_one_millisecond_are_sorted_by_finer_times() -> None:
    assert [row["id"] for row in fine().sql("SELECT id FROM a ORDER BY ts").collect()] == sorted(range(len(FINE)))


def test_a_time_of_milliseconds_bounds_a_finer_one() -> None:
    windows = "TABLE(TUMBLE(TABLE a, DESCRIPTOR(ts), INTERVAL '1' SECOND))"
    ends = f"SELECT window_time AS ts, COUNT(*) AS n FROM {windows} GROUP BY window_start, window_end, window_time"
    env = fine()
    env.sql(f"CREATE VIEW e AS SELECT CAST('x' AS STRING) AS k, ts, n FROM ({ends})")
    near = "e.k = b.k AND b.ts BETWEEN e.ts - INTERVAL '1' SECOND AND e.ts"
    assert sorted(row["id"] for row in env.sql(f"SELECT b.id FROM e JOIN b ON {near}").collect()) == [*range(len(FINE))]
    plan = "\n".join(row["plan"] for row in env.sql(f"EXPLAIN SELECT b.id FROM e JOIN b ON {near}").collect())
    assert "IntervalJoin" in plan


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("windows", ["TUMBLE", "SESSION"])
@pytest.mark.parametrize("of", ["x", "x, COUNT(*) AS n"])
def test_the_last_time_of_a_window_of_moments_has_milliseconds(unit: str, windows: str, of: str) -> None:
    env = ps.StreamEnvironment(runtime="local")
    env.sql("SET 'table.local-time-zone' = 'Asia/Kolkata'")
    moments = pa.table({"x": [1], "ts": pa.array([START]).cast(pa.timestamp(unit, "UTC"))})
    stream = env.from_collection(moments).assign_timestamps("ts", STRATEGY)
    groups = " GROUP BY window_start, window_end, window_time, x" if "COUNT" in of else ""
    table = f"TABLE({windows}(TABLE t, DESCRIPTOR(ts), INTERVAL '2' HOUR))"
    query = f"SELECT window_end, window_time, TYPEOF(window_time) AS type, {of} FROM {table}{groups}"
    ((end, last, kind, *_),) = asked(env, stream, "ts", query)
    shown = timedelta(hours=2) if windows == "SESSION" else timedelta(minutes=30)
    assert end == START + timedelta(hours=5, minutes=30) + shown
    assert last.replace(tzinfo=None) == START + shown - timedelta(milliseconds=1)
    assert kind.startswith("TIMESTAMP_LTZ(3)")
