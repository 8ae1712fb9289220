"""DATE_FORMAT of many rows: each row's text is that of its own time, whatever times and patterns are beside it."""

from __future__ import annotations

import datetime as dt

import pytest

from penstock import StreamEnvironment
from penstock.engine.errors import SqlValidationError
from penstock.tables.functions.time_patterns import format_time

_TIMES = [
    None if minute is None else dt.datetime(year, 3, 1, 12, minute, second, milli * 1000)
    for year in (1969, 2024)
    for minute, second, milli in [(None, 0, 0), (0, 0, 0), (0, 0, 999), (0, 59, 999), (1, 0, 0), (59, 59, 1)]
]


def written(env: StreamEnvironment, query: str) -> list[str | None]:
    """The only column of a query."""
    table = env.sql(query)
    assert table is not None
    return [row["text"] for row in table.to_stream().collect()]


@pytest.mark.parametrize(
    "pattern", ["yyyy", "yyyy-MM-dd QQ G", "dd HH", "hh a", "HH:mm", "mm:ss", "HH:mm:ss.SSS", "E 'at' H", "S"]
)
def test_times_are_written_one_like_the_other(pattern: str) -> None:
    env = StreamEnvironment(runtime="local")
    env.tables.create_temporary_view("times", env.from_collection([{"at": time} for time in _TIMES]))
    quoted = pattern.replace("'", "''")
    texts = [None if time is None else format_time(time, pattern) for time in _TIMES]
    assert written(env, f"SELECT DATE_FORMAT(`at`, '{quoted}') AS text FROM times") == texts


@pytest.mark.parametrize(
    ("seconds", "zone", "wanted"),
    [
        (0, "UTC", "1970-01-01 00:00:00 Z Z Z +0000"),
        (0, "Europe/Berlin", "1970-01-01 01:00:00 +01 +0100 +01:00 +0100"),
        (1_700_000_000, "America/St_Johns", "2023-11-14 18:43:20 -03 -0330 -03:30 -0330"),
    ],
)
def test_the_offset_of_the_zone(seconds: int, zone: str, wanted: str) -> None:
    env = StreamEnvironment(runtime="local", parallelism=1)
    env.sql(f"SET 'table.local-time-zone' = '{zone}'")
    query = f"SELECT FROM_UNIXTIME({seconds}, 'yyyy-MM-dd HH:mm:ss X XX XXX Z') AS text FROM (VALUES 1) AS t (x)"
    assert written(env, query) == [wanted]


@pytest.mark.parametrize("time", ["TO_TIMESTAMP_LTZ(0, 3)", "TIMESTAMP '2024-03-01 12:34:56'", "'2024-03-01'"])
@pytest.mark.parametrize("piece", ["X", "XXX", "Z"])
def test_date_format_has_no_offset_to_write(time: str, piece: str) -> None:
    with pytest.raises(SqlValidationError, match=f"has '{piece}', and these times have no offset"):
        StreamEnvironment(runtime="local").sql(f"SELECT DATE_FORMAT({time}, 'HH:mm{piece}')")


@pytest.mark.parametrize(
    ("text", "pattern", "wanted"),
    [
        ("31 Jan 2024", "dd MMM yyyy", dt.date(2024, 1, 31)),
        ("31 january 2024", "dd MMMM yyyy", dt.date(2024, 1, 31)),
        ("31 January 2024", "dd MMM yyyy", dt.date(2024, 1, 31)),
        ("Sep/01/2024", "MMM/dd/yyyy", dt.date(2024, 9, 1)),
        ("31 May 2024", "dd MMM yyyy", dt.date(2024, 5, 31)),
        ("31 Foo 2024", "dd MMM yyyy", None),
    ],
)
def test_months_are_read_by_their_names(text: str, pattern: str, wanted: dt.date | None) -> None:
    table = StreamEnvironment(runtime="local", parallelism=1).sql(
        f"SELECT TO_DATE('{text}', '{pattern}') AS d, CAST(TO_TIMESTAMP('{text}', '{pattern}') AS DATE) AS t"
    )
    assert table is not None
    assert list(table.collect()) == [{"d": wanted, "t": wanted}]


def test_a_day_that_there_is_not_counts_on_in_a_date_and_is_the_last_one_in_a_timestamp() -> None:
    env = StreamEnvironment(runtime="local", parallelism=1)
    rows = "(VALUES ('31 Feb 2024'), ('32 Jan 2024'), ('1 Jan 2024')) AS t (a)"
    table = env.sql(f"SELECT TO_DATE(a, 'd MMM yyyy') AS d, TO_TIMESTAMP(a, 'd MMM yyyy') AS t FROM {rows}")
    assert table is not None
    february, january = dt.date(2024, 3, 2), dt.date(2024, 2, 1)
    first = dt.date(2024, 1, 1)
    assert [row["d"] for row in table.collect()] == [february, january, first]
    assert [row["t"] for row in table.collect()] == [dt.datetime(2024, 2, 29), None, dt.datetime(2024, 1, 1)]


@pytest.mark.parametrize(
    "text", ["1" * 5_000 + "/2/2020", "1/2/" + "9" * 30, "-99999999999/2/2020", "1/2/-5", "1/99999999/2020"]
)
def test_dates_beyond_the_calendar_are_null(text: str) -> None:
    env = StreamEnvironment(runtime="local", parallelism=1)
    assert written(env, f"SELECT CAST(TO_DATE('{text}', 'd/M/yyyy') AS STRING) AS text") == [None]


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
@pytest.mark.parametrize("text", ["0001-01-01 00:00:00", "9999-12-31 23:59:59"])
def test_the_ends_of_the_calendar_have_seconds(text: str, zone: str) -> None:
    env = StreamEnvironment(runtime="local", parallelism=1)
    env.sql(f"SET 'table.local-time-zone' = '{zone}'")
    (seconds,) = written(env, f"SELECT UNIX_TIMESTAMP('{text}') AS text")
    assert isinstance(seconds, int)


@pytest.mark.parametrize("ago", [79, 50, 0, -19])
def test_two_digits_of_a_year_mean_one_of_eighty_years_ago_and_on(ago: int) -> None:
    year = dt.datetime.now(dt.timezone.utc).year - ago
    env = StreamEnvironment(runtime="local", parallelism=1)
    assert written(env, f"SELECT CAST(TO_DATE('1/2/{year % 100:02d}', 'd/M/yy') AS STRING) AS text") == [
        f"{year}-02-01"
    ]


def test_a_pattern_of_its_own_for_each_row() -> None:
    env = StreamEnvironment(runtime="local")
    rows = "(VALUES (TIMESTAMP '2024-03-01 12:34:56', 'yyyy'), (TIMESTAMP '2024-03-01 12:34:56', 'HH:mm')) AS t (a, p)"
    assert written(env, f"SELECT DATE_FORMAT(a, p) AS text FROM {rows}") == ["2024", "12:34"]
