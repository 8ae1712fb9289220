"""Windows of SQL: what a condition above them, and the session's time zone, make of them."""

from __future__ import annotations

from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from penstock import StreamEnvironment, WatermarkStrategy
from penstock.tables.catalog.catalog import StreamTable
from penstock.tables.environment import stream_columns

MINUTE = 60_000
SESSIONS = "TABLE(SESSION(TABLE t PARTITION BY u, DESCRIPTOR(at), INTERVAL '10' MINUTES))"
DAYS = "TABLE(TUMBLE(TABLE t, DESCRIPTOR(at), INTERVAL '1' DAY))"
TENS = "TABLE(TUMBLE(TABLE t, DESCRIPTOR(at), INTERVAL '10' MINUTES))"
BOUNDS = "window_start, window_end"


def counted(windows: str, where: str = "", zone: str = "UTC", times_in: str | None = None) -> list[Any]:
    """How many rows each window has, of rows 8 minutes apart."""
    env = StreamEnvironment(runtime="local", parallelism=1)
    times = pa.array([0, 8 * MINUTE, 16 * MINUTE], pa.timestamp("ms", times_in))
    rows = pa.table({"u": ["a"] * 3, "x": [9, 1, 9], "at": times})
    stream = env.from_collection(rows).assign_timestamps("at", WatermarkStrategy.for_monotonous_timestamps())
    env.tables.catalog.add(StreamTable("t", stream, stream_columns(stream, "at")))
    env.sql(f"SET 'table.local-time-zone' = '{zone}'")
    bounds = "window_start, window_end"
    table = env.sql(f"SELECT u, {bounds}, COUNT(*) AS n FROM (SELECT * FROM {windows} {where}) GROUP BY u, {bounds}")
    assert table is not None
    return [row["n"] for row in table.collect()]


def test_a_condition_above_sessions_does_not_cut_them() -> None:
    assert counted(SESSIONS, "WHERE x > 5") == [2]


def test_sessions_of_all_rows_are_grouped_by_others_too() -> None:
    alone = "TABLE(SESSION(TABLE t, DESCRIPTOR(at), INTERVAL '10' MINUTES))"
    assert counted(alone) == [3]
    assert counted(alone.replace("10", "7")) == [1, 1, 1]


def test_a_condition_on_what_tells_sessions_apart_is_no_matter() -> None:
    assert counted(SESSIONS, "WHERE u = 'a'") == [3]


def test_a_condition_above_windows_of_one_length_is_taken_with_them() -> None:
    assert counted(DAYS, "WHERE x > 5") == [2]


def test_windows_of_moments_lie_in_the_zone_of_the_session() -> None:
    assert counted(DAYS, times_in="UTC") == [3]
    thirds = DAYS.replace("'1' DAY", "'20' MINUTE")
    # Of clocks that show half an hour more than UTC.
    assert counted(thirds, zone="Asia/Kolkata", times_in="UTC") == [2, 1]
    assert counted(thirds, zone="Asia/Kolkata") == [3]


def test_days_have_as_many_hours_as_the_zone_says() -> None:
    hours = [f"2024-03-31T{hour:02}:30:00Z" for hour in (0, 21, 22)]
    times = pa.array(hours).cast(pa.timestamp("ms", "UTC"))
    env = StreamEnvironment(runtime="local", parallelism=1)
    stream = env.from_collection(pa.table({"at": times}))
    stream = stream.assign_timestamps("at", WatermarkStrategy.for_monotonous_timestamps())
    env.tables.catalog.add(StreamTable("t", stream, stream_columns(stream, "at")))
    env.sql("SET 'table.local-time-zone' = 'Europe/Berlin'")
    day = "window_start, window_end, window_time"
    table = env.sql(f"SELECT {day}, COUNT(*) AS n FROM {DAYS} GROUP BY {day}")
    assert table is not None
    first, second = table.collect()
    assert (first["window_start"], first["n"]) == (datetime(2024, 3, 31), 2)
    assert first["window_time"] == datetime(2024, 3, 31, 21, 59, 59, 999000, tzinfo=timezone.utc)
    assert (second["window_start"], second["window_end"], second["n"]) == (
        datetime(2024, 4, 1),
        datetime(2024, 4, 2),
        1,
    )


@pytest.mark.parametrize("window", ["TUMBLE({}, DESCRIPTOR(at), INTERVAL '10' MINUTES)",
                                    "SESSION({}, DESCRIPTOR(at), INTERVAL '7' MINUTES)"])  # fmt: skip
@pytest.mark.parametrize(
    ("rows", "counts"),
    [
        ("SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY u ORDER BY at DESC) AS n FROM t) WHERE n = 1", [1]),
        ("SELECT DISTINCT u, at FROM t", [2, 1]),
    ],
)
def test_windows_may_be_over_results_that_change(rows: str, counts: list[int], window: str) -> None:
    env = StreamEnvironment(runtime="local", parallelism=1, max_batch_rows=1)
    times = pa.array([0, 6 * MINUTE, 6 * MINUTE, 16 * MINUTE], pa.timestamp("ms"))
    stream = env.from_collection(pa.table({"u": ["a"] * 4, "at": times}))
    stream = stream.assign_timestamps("at", WatermarkStrategy.for_monotonous_timestamps())
    env.tables.catalog.add(StreamTable("t", stream, stream_columns(stream, "at")))
    over = window.format(f"({rows})")
    table = env.sql(f"SELECT COUNT(*) AS n FROM TABLE({over}) GROUP BY window_start, window_end")
    assert table is not None
    assert [row["n"] for row in table.to_changelog().collect() if row["op"] in ("+I", "+U")] == counts


@pytest.mark.parametrize("size", [1, 7, None])
def test_sessions_of_rows_that_change_are_those_of_what_stands(size: int | None) -> None:
    env = StreamEnvironment(runtime="local", parallelism=2, max_batch_rows=size or 8192)
    changes = [("c", 1, 0), ("c", 2, 4), ("c", 3, 8), ("d", 2, 4), ("c", 4, 20), ("c", 5, 23), ("u", 4, 26)]
    rows = [{"op": op, "id": number, "at": datetime(2024, 1, 1, 0, at)} for op, number, at in changes]
    stream = env.from_collection(rows, schema={"op": "string", "id": "int64", "at": "timestamp[ms]"})
    stream = stream.assign_timestamps("at", WatermarkStrategy.for_bounded_out_of_orderness("1d"))
    env.tables.catalog.add(StreamTable("t", stream, stream_columns(stream, "at")))
    env.sql(
        "CREATE VIEW standing AS SELECT * FROM FROM_CHANGELOG(input => TABLE t PARTITION BY id, op => DESCRIPTOR(op), "
        "op_mapping => MAP['c', 'INSERT', 'u', 'UPDATE_AFTER', 'd', 'DELETE'])"
    )
    table = env.sql(
        "SELECT MINUTE(window_start) AS a, MINUTE(window_end) AS b, COUNT(*) AS n FROM TABLE(SESSION(TABLE standing, "
        "DESCRIPTOR(at), INTERVAL '5' MINUTE)) GROUP BY window_start, window_end"
    )
    assert table is not None
    assert sorted(tuple(row.values()) for row in table.collect()) == [(0, 5, 1), (8, 13, 1), (23, 31, 2)]


def test_rows_of_a_window_are_counted_though_no_column_of_them_is_read() -> None:
    env = StreamEnvironment(runtime="local", parallelism=1)
    rows = pa.table({"at": pa.array([0, 8 * MINUTE, 16 * MINUTE], pa.timestamp("ms"))})
    stream = env.from_collection(rows).assign_timestamps("at", WatermarkStrategy.for_monotonous_timestamps())
    env.tables.catalog.add(StreamTable("t", stream, stream_columns(stream, "at")))
    tumbling = "TABLE(TUMBLE(TABLE t, DESCRIPTOR(at), INTERVAL '10' MINUTES))"
    table = env.sql(f"SELECT COUNT(*) AS n FROM {tumbling} GROUP BY window_start, window_end")
    assert table is not None
    assert [row["n"] for row in table.collect()] == [2, 1]


def test_a_window_that_the_clocks_show_twice_takes_rows_of_both_times() -> None:
    times = pa.array(["2024-10-26T23:55:00Z", "2024-10-27T00:05:00Z", "2024-10-27T01:05:00Z"])
    env = StreamEnvironment(runtime="local", parallelism=1, max_batch_rows=1)
    stream = env.from_collection(pa.table({"at": times.cast(pa.timestamp("ms", "UTC"))}))
    stream = stream.assign_timestamps("at", WatermarkStrategy.for_monotonous_timestamps())
    env.tables.catalog.add(StreamTable("t", stream, stream_columns(stream, "at")))
    env.sql("SET 'table.local-time-zone' = 'Europe/Berlin'")
    bounds = "window_start, window_end, window_time"
    windows = "TABLE(TUMBLE(TABLE t, DESCRIPTOR(at), INTERVAL '10' MINUTE))"
    table = env.sql(f"SELECT {bounds}, COUNT(*) AS n FROM {windows} GROUP BY {bounds}")
    assert table is not None
    ends = {datetime(2024, 10, 26, 23, 59, 59, 999000): 1, datetime(2024, 10, 27, 1, 9, 59, 999000): 2}
    assert {row["window_time"].replace(tzinfo=None): row["n"] for row in table.collect()} == ends


@pytest.mark.parametrize("windows", ["TUMBLE(TABLE t, DESCRIPTOR(at), INTERVAL '10' MINUTES)", SESSIONS[6:-1]])
def test_sums_of_decimals_beyond_their_type_are_null(windows: str) -> None:
    env = StreamEnvironment(runtime="local", parallelism=1, max_batch_rows=1)
    large = Decimal("9" * 32 + ".999999")
    times = pa.array([0, 1, 20 * MINUTE, 20 * MINUTE + 1, 20 * MINUTE + 2], pa.timestamp("ms"))
    values = pa.array([large, large, large, large, large.copy_negate()], pa.decimal128(38, 6))
    stream = env.from_collection(pa.table({"u": ["a"] * 5, "d": values, "at": times}))
    stream = stream.assign_timestamps("at", WatermarkStrategy.for_monotonous_timestamps())
    env.tables.catalog.add(StreamTable("t", stream, stream_columns(stream, "at")))
    sums = "SUM(d) AS s, AVG(d) AS a, SUM(CAST(d AS DECIMAL(19, 6))) AS none"
    table = env.sql(f"SELECT u, {sums} FROM TABLE({windows}) GROUP BY u, window_start, window_end")
    assert table is not None
    assert [tuple(row.values()) for row in table.collect()] == [
        ("a", None, None, None),
        ("a", large, Decimal("3" * 32 + ".333333"), None),
    ]


@pytest.mark.parametrize(
    ("query", "given"),
    [
        (f"SELECT x FROM {TENS}", [1, 2, 3]),
        ("SELECT x FROM TABLE(HOP(TABLE t, DESCRIPTOR(at), INTERVAL '10' MINUTES, INTERVAL '10' MINUTES))", [1, 2, 3]),
        (f"SELECT SUM(x) FROM {TENS} GROUP BY {BOUNDS}", [1, 2]),
        (f"SELECT LAST_VALUE(x) FROM {TENS} GROUP BY {BOUNDS}", [1, 2]),
        (
            f"SELECT x FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {BOUNDS} ORDER BY x DESC) AS n FROM {TENS}) "
            "WHERE n = 1",
            [1, 2],
        ),
        (
            f"SELECT l.x FROM (SELECT * FROM {TENS}) AS l JOIN (SELECT * FROM {TENS}) AS r "
            "ON l.window_start = r.window_start AND l.window_end = r.window_end",
            [1, 2],
        ),
        (f"SELECT x FROM {SESSIONS}", [1, 2]),
    ],
)
def test_windows_are_given_to_late_rows_too_and_what_waits_for_them_drops_these(query: str, given: list[int]) -> None:
    env = StreamEnvironment(runtime="local", parallelism=1, max_batch_rows=1)
    times = pa.array([0, 30 * MINUTE, MINUTE], pa.timestamp("ms"))
    stream = env.from_collection(pa.table({"u": ["a"] * 3, "x": [1, 2, 3], "at": times}))
    stream = stream.assign_timestamps("at", WatermarkStrategy.for_monotonous_timestamps())
    env.tables.catalog.add(StreamTable("t", stream, stream_columns(stream, "at")))
    table = env.sql(query)
    assert table is not None
    assert [next(iter(row.values())) for row in table.collect()] == given
