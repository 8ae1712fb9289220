"""Behind LIMIT, first rows, TO_CHANGELOG and outer joins of windows: what goes by time does so, or says why not."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.engine.errors import SqlError
from tests.tables.held_rows import held_rows

_COUNT = (
    "SELECT SECOND(window_start) AS s, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE v, DESCRIPTOR(at), INTERVAL '6' SECOND)) "
    "GROUP BY window_start, window_end"
)
_LAST = "SELECT x, at FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY x % 3 ORDER BY at DESC) AS n FROM a) WHERE n = 1"
_MATCH = "SELECT * FROM v MATCH_RECOGNIZE (ORDER BY at MEASURES A.x AS ax PATTERN (A B) DEFINE B AS B.x > A.x) AS m"


def _of_each_row(row: ps.Row, timestamp: int) -> int:
    return timestamp - 1


def environment(view: str) -> ps.StreamEnvironment:
    """Two streams of a row a second, and a view over them."""
    env = ps.StreamEnvironment(runtime="local", parallelism=2, max_batch_rows=1)
    for name in ("a", "b"):
        times = pa.array([1000 * i for i in range(12)], pa.timestamp("ms"))
        rows = pa.table({"x": list(range(12)), "k": ["x", "y"] * 6, "at": times})
        stream = env.from_collection(rows).assign_timestamps("at", ps.WatermarkStrategy.for_punctuated(_of_each_row))
        env.tables.create_temporary_view(name, stream, rowtime="at")
    env.sql(f"CREATE VIEW v AS {view}")
    return env


@pytest.mark.parametrize(
    ("view", "counts"),
    [
        ("SELECT * FROM b ORDER BY at LIMIT 7", [(0, 6), (6, 1)]),
        ("SELECT * FROM b ORDER BY at OFFSET 3", [(0, 3), (6, 6)]),
        ("(SELECT * FROM b ORDER BY at LIMIT 2) UNION ALL SELECT * FROM a", [(0, 8), (6, 6)]),
        ("SELECT * FROM a QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY at) <= 4", [(0, 6), (6, 2)]),
    ],
)
def test_windows_hold_first_rows(view: str, counts: list[tuple[int, int]]) -> None:
    assert held_rows(environment(view), _COUNT) == counts


def test_windows_hold_any_rows_up_to_a_number() -> None:
    env = environment("SELECT * FROM a LIMIT 7")
    assert sum(n for _, n in held_rows(env, _COUNT)) == 7


@pytest.mark.parametrize(
    ("view", "reason"),
    [
        ("SELECT * FROM a ORDER BY x DESC LIMIT 5", "behind an ORDER BY that begins with something else"),
        (f"SELECT * FROM TO_CHANGELOG(input => ({_LAST}))", "declare WATERMARK"),
    ],
)
@pytest.mark.parametrize("query", [_COUNT, _MATCH])
def test_what_needs_a_time_attribute_says_why_there_is_none(view: str, reason: str, query: str) -> None:
    env = environment(view)
    with pytest.raises(SqlError, match=f"'at' is no(ne|.* time attribute).*{reason}|'at' is none.*{reason}"):
        list(env.sql(query).collect())


def test_behind_an_order_by_something_else_a_time_is_a_plain_column() -> None:
    view = "SELECT x, at FROM a ORDER BY x DESC LIMIT 5"
    assert [row["x"] for row in environment(view).sql("SELECT * FROM v ORDER BY at").collect()] == [7, 8, 9, 10, 11]
    running = "SELECT x, COUNT(*) OVER (ORDER BY at) AS n FROM v"
    assert held_rows(environment(view), running) == sorted([(7, 1), (8, 2), (9, 3), (10, 4), (11, 5)], key=repr)
    near = "v.x = b.x AND b.at BETWEEN v.at AND v.at + INTERVAL '1' SECOND"
    assert len(held_rows(environment(view), f"SELECT v.x, b.k FROM v LEFT JOIN b ON {near}")) == 5


def test_changes_as_rows_are_ordered_and_counted() -> None:
    env = environment(f"SELECT op AS o, x, at FROM TO_CHANGELOG(input => ({_LAST}))")
    changes: list[Any] = list(env.sql("SELECT o, at FROM v ORDER BY at").collect())
    assert [row["at"] for row in changes] == sorted(row["at"] for row in changes)
    # The last row of each of three is there.
    comes = [row["o"] in ("INSERT", "UPDATE_AFTER") for row in changes]
    assert comes.count(True) - comes.count(False) == 3


def test_rows_without_the_window_of_the_other_side_have_no_version_by_its_time() -> None:
    windows = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(at), INTERVAL '6' SECOND))"
    env = environment(
        f"SELECT l.x, l.k, l.window_time AS t, r.window_time AS u FROM {windows.format('a')} AS l LEFT JOIN "
        f"(SELECT * FROM {windows.format('b')} WHERE x < 6) AS r "
        "ON l.window_start = r.window_start AND l.window_end = r.window_end AND l.x = r.x"
    )
    env.sql("CREATE VIEW ranked AS SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY at DESC) AS n FROM b")
    env.sql("CREATE VIEW versions AS SELECT k, x, at FROM ranked WHERE n = 1")
    query = "SELECT v.x, w.x AS y FROM v LEFT JOIN versions FOR SYSTEM_TIME AS OF v.u AS w ON v.k = w.k"
    found = [(x, (4, 5)[x % 2] if x < 6 else None) for x in range(12)]
    assert held_rows(env, query) == sorted(found, key=repr)
