"""Behind a join within an interval, what goes by a column of time has this column's times, whichever side it is of."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest

import penstock as ps
from penstock.engine.errors import GraphError

MINUTE = timedelta(minutes=1)
SPANS = ((0, 5), (-4, 0), (-2, 3), (1, 4))
"""By how many minutes the time of the right may be behind that of the left."""


def streams(seed: int, rows: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Two sides, each in the order of time."""
    random_ = random.Random(seed)

    def side(name: str) -> list[dict[str, Any]]:
        at = sorted(random_.sample(range(3 * rows), rows))
        return [{name: i, "k": random_.choice("xy"), "ts": datetime(2024, 1, 1) + m * MINUTE} for i, m in enumerate(at)]

    return side("id"), side("w")


def joined(kind: str, left: Any, right: Any, low: int, high: int) -> list[dict[str, Any]]:
    """By trying all pairs."""
    made = []
    for a in left:
        met = [b for b in right if a["k"] == b["k"] and low * MINUTE <= b["ts"] - a["ts"] <= high * MINUTE]
        made += [{"id": a["id"], "w": b["w"], "ats": a["ts"], "bts": b["ts"]} for b in met]
        if not met and kind == "LEFT":
            made.append({"id": a["id"], "w": None, "ats": a["ts"], "bts": None})
    return made


def _of_each_row(row: ps.Row, timestamp: int) -> int:
    return timestamp - 1


def asked(left: Any, right: Any, join: str, query: str, *views: str) -> list[dict[str, Any]]:
    """What a query gives where `j` is the join; each row moves the watermarks on as far as it may."""
    env = ps.StreamEnvironment(runtime="local", max_batch_rows=1)
    for name, rows in (("a", left), ("b", right)):
        stream = env.from_collection(rows).assign_timestamps("ts", ps.WatermarkStrategy.for_punctuated(_of_each_row))
        env.tables.create_temporary_view(name, stream, rowtime="ts")
    env.sql(f"CREATE VIEW j AS SELECT a.id, b.w, a.ts AS ats, b.ts AS bts FROM {join}")
    for view in views:
        env.sql(f"CREATE VIEW {view}")
    return list(env.sql(query).collect())


def between(low: int, high: int, right: str = "b.ts", left: str = "a.ts") -> str:
    shown = [f"{left} {'-' if m < 0 else '+'} INTERVAL '{abs(m)}' MINUTE" for m in (low, high)]
    return f"{right} BETWEEN {shown[0]} AND {shown[1]}"


def ten_minutes(time: datetime) -> datetime:
    return time.replace(minute=time.minute // 10 * 10)


@pytest.mark.parametrize(("low", "high"), SPANS)
@pytest.mark.parametrize("column", ["ats", "bts"])
def test_windows_hold_the_rows_of_their_times(low: int, high: int, column: str) -> None:
    left, right = streams(low, 30)
    made = joined("INNER", left, right, low, high)
    near = f"a JOIN b ON a.k = b.k AND {between(low, high)}"
    windows = f"TABLE(TUMBLE(TABLE j, DESCRIPTOR({column}), INTERVAL '10' MINUTE))"
    counted = f"SELECT window_start, COUNT(*) AS n FROM {windows} GROUP BY window_start, window_end"
    counts = asked(left, right, near, counted)
    assert {row["window_start"]: row["n"] for row in counts} == Counter(ten_minutes(row[column]) for row in made)
    rows = asked(left, right, near, f"SELECT window_start, id, w, {column} AS at FROM {windows}")
    assert Counter((row["id"], row["w"]) for row in rows) == Counter((row["id"], row["w"]) for row in made)
    assert all(row["window_start"] == ten_minutes(row["at"]) for row in rows)


@pytest.mark.parametrize(("low", "high"), SPANS)
@pytest.mark.parametrize("kind", ["INNER", "LEFT"])
def test_orders_go_by_their_column(low: int, high: int, kind: str) -> None:
    left, right = streams(10 + low, 30)
    made = joined(kind, left, right, low, high)
    near = f"a {kind} JOIN b ON a.k = b.k AND {between(low, high)}"
    times = sorted(row["ats"] for row in made)
    assert [row["ats"] for row in asked(left, right, near, "SELECT ats, id FROM j ORDER BY ats")] == times
    numbered = asked(left, right, near, "SELECT ats, COUNT(*) OVER (ORDER BY ats) AS n FROM j")
    assert {row["ats"]: row["n"] for row in numbered} == {time: number for number, time in enumerate(times, 1)}
    ranked = "SELECT *, ROW_NUMBER() OVER (PARTITION BY w ORDER BY ats) AS n FROM j"
    firsts = asked(left, right, near, f"SELECT w, ats FROM ({ranked}) WHERE n = 1")
    latest_first = sorted(made, key=lambda row: row["ats"], reverse=True)
    assert {row["w"]: row["ats"] for row in firsts} == {row["w"]: row["ats"] for row in latest_first}


@pytest.mark.parametrize("column", ["ats", "bts"])
def test_a_join_of_a_join_has_the_pairs_that_its_condition_is_true_of(column: str) -> None:
    left, right = streams(3, 30)
    near = between(-4, 2, left=f"j.{column}")
    query = f"SELECT j.id, j.w, b.w AS other FROM j JOIN b ON j.id % 3 = b.w % 3 AND {near}"
    pairs = asked(left, right, f"a JOIN b ON a.k = b.k AND {between(-2, 3)}", query)
    assert Counter((row["id"], row["w"], row["other"]) for row in pairs) == Counter(
        (one["id"], one["w"], b["w"])
        for one in joined("INNER", left, right, -2, 3)
        for b in right
        if one["id"] % 3 == b["w"] % 3 and -4 * MINUTE <= b["ts"] - one[column] <= 2 * MINUTE
    )


ALONE = "a LEFT JOIN b ON a.k = b.k AND "


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, w, bts FROM j",
        "SELECT id, w, bts FROM j ORDER BY bts",
        "SELECT id, w, bts, COUNT(*) OVER (ORDER BY bts) AS n FROM j",
        "SELECT id, w, bts FROM j WHERE bts IS NOT NULL OR id >= 0",
    ],
)
def test_rows_without_the_time_are_there(query: str) -> None:
    left, right = streams(11, 20)
    made = joined("LEFT", left, right, -2, 3)
    assert None in (row["bts"] for row in made)
    given = asked(left, right, ALONE + between(-2, 3), query)
    assert Counter((row["id"], row["w"]) for row in given) == Counter((row["id"], row["w"]) for row in made)


@pytest.mark.parametrize("limit", ["", " LIMIT 5", " LIMIT 30 OFFSET 2"])
def test_rows_without_the_time_come_first(limit: str) -> None:
    left, right = streams(11, 20)
    made = [row["bts"] for row in joined("LEFT", left, right, -2, 3)]
    wanted = sorted(made, key=lambda time: (time is not None, time))
    wanted = {"": wanted, " LIMIT 5": wanted[:5]}.get(limit, wanted[2:32])
    found = asked(left, right, ALONE + between(-2, 3), f"SELECT bts FROM j ORDER BY bts{limit}")
    assert [row["bts"] for row in found] == wanted


@pytest.mark.parametrize(("low", "high"), [(-2, 3), (0, 0)])
def test_rows_without_the_time_are_in_no_window_and_meet_none(low: int, high: int) -> None:
    left, right = streams(11, 30)
    made = joined("LEFT", left, right, low, high)
    windows = "TABLE(TUMBLE(TABLE j, DESCRIPTOR(bts), INTERVAL '10' MINUTE))"
    rows = asked(left, right, ALONE + between(low, high), f"SELECT id, w FROM {windows}")
    assert Counter((row["id"], row["w"]) for row in rows) == Counter(
        (row["id"], row["w"]) for row in made if row["bts"] is not None
    )
    versions = asked(
        left,
        right,
        ALONE + between(low, high),
        "SELECT k.bts, v.w FROM k LEFT JOIN last_b FOR SYSTEM_TIME AS OF k.bts AS v ON k.k = v.k",
        "ranked AS SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS n FROM b",
        "last_b AS SELECT k, w, ts FROM ranked WHERE n = 1",
        "k AS SELECT 'x' AS k, bts FROM j",
    )
    assert len(versions) == len(made)
    assert {row["w"] for row in versions if row["bts"] is None} == {None}
    again = f"j LEFT JOIN b ON j.id = b.w AND {between(-9, 9, left='j.bts')}"
    given = asked(left, right, ALONE + between(low, high), f"SELECT j.id, j.w, b.w AS other FROM {again}")
    met = {
        (b["w"], one["bts"]) for b in right for one in made if one["bts"] and abs(b["ts"] - one["bts"]) <= 9 * MINUTE
    }
    assert Counter((row["id"], row["w"], row["other"]) for row in given) == Counter(
        (one["id"], one["w"], one["id"] if (one["id"], one["bts"]) in met else None) for one in made
    )


def test_patterns_and_versions_go_by_their_column() -> None:
    start = datetime(2024, 1, 1)
    left = [{"id": i, "k": "x", "ts": start + 2 * i * MINUTE} for i in range(4)]
    right = [{"w": i, "k": "x", "ts": start + (2 * i + 1) * MINUTE} for i in range(4)]
    near = f"a JOIN b ON a.k = b.k AND {between(0, 3)}"
    pattern = (
        "SELECT * FROM j MATCH_RECOGNIZE (ORDER BY ats, w MEASURES X.id AS one, Y.id AS other "
        "AFTER MATCH SKIP TO NEXT ROW PATTERN (X Y) DEFINE Y AS Y.id >= X.id) AS m"
    )
    found = asked(left, right, near, pattern)
    assert [(row["one"], row["other"]) for row in found] == [(0, 0), (0, 1), (1, 1), (1, 2), (2, 2), (2, 3)]
    versions = asked(
        left,
        right,
        near,
        "SELECT jk.id, v.w FROM jk LEFT JOIN last_b FOR SYSTEM_TIME AS OF jk.ats AS v ON jk.k = v.k",
        "ranked AS SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS n FROM b",
        "last_b AS SELECT k, w, ts FROM ranked WHERE n = 1",
        "jk AS SELECT 'x' AS k, id, ats FROM j",
    )
    assert {(row["id"], row["w"]) for row in versions} == {(0, None), (1, 0), (2, 1), (3, 2)}


def test_what_goes_by_a_second_column_behind_what_does_goes_by_it_too() -> None:
    left, right = streams(8, 30)
    made = joined("INNER", left, right, 0, 5)
    pattern = (
        "SELECT * FROM o MATCH_RECOGNIZE (ORDER BY ats, w MEASURES X.ats AS at "
        "AFTER MATCH SKIP TO NEXT ROW PATTERN (X) DEFINE X AS TRUE) AS m"
    )
    near = f"a JOIN b ON a.k = b.k AND {between(0, 5)}"
    numbered = "o AS SELECT bts, ats, id, w, COUNT(*) OVER (ORDER BY ats) AS n FROM j"
    found = [row["at"] for row in asked(left, right, near, pattern, numbered)]
    assert found == sorted(row["ats"] for row in made)


def test_behind_a_join_of_rows_of_any_times_nothing_goes_by_time() -> None:
    left, right = streams(5, 10)
    pairs = [(a, b) for a in left for b in right if a["k"] == b["k"]]
    plain = "a JOIN b ON a.k = b.k"
    with pytest.raises(GraphError, match=r"column 'ats' is no time attribute behind a join of rows of any times"):
        asked(left, right, plain, "SELECT * FROM TABLE(TUMBLE(TABLE j, DESCRIPTOR(ats), INTERVAL '10' MINUTE))")
    # It is a plain one, by which rows that end can be sorted and joined.
    ordered = asked(left, right, plain, "SELECT ats FROM j ORDER BY ats")
    assert [row["ats"] for row in ordered] == sorted(a["ts"] for a, _ in pairs)
    again = asked(left, right, plain, f"SELECT j.id FROM j JOIN b ON j.w = b.w AND {between(-3, 0, left='j.ats')}")
    assert len(again) == sum(-3 * MINUTE <= b["ts"] - a["ts"] <= 0 * MINUTE for a, b in pairs)
