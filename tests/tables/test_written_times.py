"""DATE_FORMAT of many rows: each row's text is that of its own time, whatever times and patterns are beside it."""

from __future__ import annotations

import datetime as dt

import pytest

from penstock import StreamEnvironment
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


def test_a_pattern_of_its_own_for_each_row() -> None:
    env = StreamEnvironment(runtime="local")
    rows = "(VALUES (TIMESTAMP '2024-03-01 12:34:56', 'yyyy'), (TIMESTAMP '2024-03-01 12:34:56', 'HH:mm')) AS t (a, p)"
    assert written(env, f"SELECT DATE_FORMAT(a, p) AS text FROM {rows}") == ["2024", "12:34"]
