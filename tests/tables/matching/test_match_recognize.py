"""MATCH_RECOGNIZE as users write it: measures, skipping, time, and statements that are refused with a remedy."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from penstock import StreamEnvironment
from penstock.engine.errors import (
    JobFailedError,
    SqlError,
    SqlSyntaxError,
    SqlUnsupportedError,
    SqlValidationError,
)

_BEGIN = datetime.datetime(2024, 5, 1)
_TICKS = [
    # symbol, seconds, price, tax; not in order of time
    ("ACME", 2, 17, 2),
    ("ACME", 1, 12, 1),
    ("ACME", 3, 13, 1),
    ("XY", 3, 40, 3),
    ("XY", 5, 30, 1),
    ("ACME", 4, 16, 3),
    ("ACME", 6, 25, 2),
    ("ACME", 7, 2, 1),
    ("XY", 8, 35, 2),
    ("ACME", 9, 4, 1),
    ("XY", 40, 50, 1),
]


def at(seconds: int) -> datetime.datetime:
    """A moment of the ticks."""
    return _BEGIN + datetime.timedelta(seconds=seconds)


@pytest.fixture
def env(tmp_path: Path) -> StreamEnvironment:
    """A session with the table `ticks`."""
    with (tmp_path / "ticks.json").open("w") as file:
        for symbol, seconds, price, tax in _TICKS:
            row = {"symbol": symbol, "ts": str(at(seconds)), "price": price, "tax": tax, "place": {"x": price}}
            file.write(json.dumps(row) + "\n")
    session = StreamEnvironment(runtime="local", parallelism=1, max_batch_rows=3)
    session.sql(
        "CREATE TABLE ticks (symbol STRING, ts TIMESTAMP(3), price INT, tax DECIMAL(4, 2), place ROW<x INT>, "
        f"WATERMARK FOR ts AS ts - INTERVAL '2' SECOND) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', "
        "'format' = 'json')"
    )
    return session


def rows(env: StreamEnvironment, clause: str, select: str = "*", behind: str = "") -> list[dict[str, Any]]:
    """The rows of a clause over the ticks of each symbol."""
    table = env.sql(
        f"SELECT {select} FROM ticks MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY ts {clause}) AS m {behind}"
    )
    assert table is not None
    return list(table.collect())


def test_measures_are_of_the_whole_match(env: StreamEnvironment) -> None:
    found = rows(
        env,
        """MEASURES FIRST(A.ts) AS begins, LAST(DOWN.price) AS low, LAST(DOWN.price, 1) AS before, UP.price AS high,
             AVG(DOWN.price) AS mean, SUM(DOWN.tax) AS taxes, AVG(DOWN.tax) AS tax, COUNT(*) AS n, COUNT(UP.*) AS ups,
             MIN(price) AS least, MAX(price * 2) AS most, LAST(CLASSIFIER()) AS kind, place.x AS x, A.place.x AS a_x
           ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
           PATTERN (A DOWN+ UP)
           DEFINE DOWN AS DOWN.price < LAST(DOWN.price, 1) OR (LAST(DOWN.price, 1) IS NULL AND DOWN.price < A.price),
             UP AS UP.price > LAST(DOWN.price)""",
    )
    one, *others = sorted(found, key=lambda row: (row["symbol"], row["begins"]))
    assert one == {
        "symbol": "ACME",
        "begins": at(2),
        "low": 13,
        "before": None,
        "high": 16,
        "mean": 13,
        "taxes": Decimal("1.00"),
        "tax": Decimal("1.000000"),
        "n": 3,
        "ups": 1,
        "least": 13,
        "most": 34,
        "kind": "UP",
        "x": 16,
        "a_x": 17,
    }
    assert [(row["symbol"], row["low"], row["high"]) for row in others] == [("ACME", 2, 4), ("XY", 30, 35)]


def test_all_rows_have_running_and_final_measures(env: StreamEnvironment) -> None:
    found = rows(
        env,
        """MEASURES CLASSIFIER() AS kind, SUM(price) AS so_far, FINAL LAST(ts) AS ends, CLASSIFIER(EITHER) AS either
           ALL ROWS PER MATCH AFTER MATCH SKIP PAST LAST ROW
           PATTERN (PERMUTE(LOW, HIGH) LAST_ONE) WITHIN INTERVAL '10' SECOND
           SUBSET EITHER = (LOW, HIGH)
           DEFINE LOW AS price < 20, HIGH AS price > 20, LAST_ONE AS price < 10""",
    )
    assert list(found[0]) == ["symbol", "ts", "kind", "so_far", "ends", "either", "price", "tax", "place"]
    assert [(row["ts"], row["kind"], row["so_far"], row["ends"], row["either"]) for row in found] == [
        (at(4), "LOW", 16, at(7), "LOW"),
        (at(6), "HIGH", 41, at(7), "HIGH"),
        (at(7), "LAST_ONE", 43, at(7), "HIGH"),
    ]


@pytest.mark.parametrize(
    ("skip", "begins"),
    [
        ("", [1, 3, 4]),
        ("AFTER MATCH SKIP TO NEXT ROW", [1, 3, 4]),
        ("AFTER MATCH SKIP PAST LAST ROW", [1, 3]),
        ("AFTER MATCH SKIP TO FIRST UP", [1, 3, 4]),
        ("AFTER MATCH SKIP TO LAST UP", [1, 3]),
        ("AFTER MATCH SKIP TO UP", [1, 3]),
    ],
)
def test_where_the_search_goes_on(env: StreamEnvironment, skip: str, begins: list[int]) -> None:
    clause = f"""MEASURES A.ts AS begins {skip} PATTERN (A UP+)
      DEFINE UP AS price > PREV(price)"""
    found = [row["begins"] for row in rows(env, clause) if row["symbol"] == "ACME" and row["begins"] < at(7)]
    assert found == [at(second) for second in begins]


def test_the_preferred_way_counts(env: StreamEnvironment) -> None:
    counts = {}
    for pattern in ("A+ B", "A+? B", "A{2} | A B", "A B | A{2}", "(A A?)+ B"):
        clause = f"""MEASURES COUNT(*) AS n AFTER MATCH SKIP PAST LAST ROW PATTERN ({pattern})
          DEFINE A AS price > 11, B AS price > 11"""
        counts[pattern] = [row["n"] for row in rows(env, clause) if row["symbol"] == "ACME"]
    assert counts == {"A+ B": [5], "A+? B": [2, 2], "A{2} | A B": [2, 2], "A B | A{2}": [2, 2], "(A A?)+ B": [5]}


def test_the_time_of_a_match_is_a_time_attribute(env: StreamEnvironment) -> None:
    table = env.sql(
        """SELECT window_start, COUNT(*) AS n, MIN(symbol) AS first FROM TABLE(TUMBLE((
             SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY ts MEASURES MATCH_ROWTIME() AS ended
               AFTER MATCH SKIP TO NEXT ROW PATTERN (A B) DEFINE B AS B.price > A.price)
           ), DESCRIPTOR(ended), INTERVAL '5' SECOND)) GROUP BY window_start, window_end"""
    )
    assert table is not None
    assert [(row["window_start"], row["n"]) for row in table.collect()] == [(at(0), 2), (at(5), 3), (at(40), 1)]


def test_rows_that_come_too_late_for_a_match_end_it(env: StreamEnvironment) -> None:
    clause = """MEASURES COUNT(*) AS n, MATCH_ROWTIME() AS known AFTER MATCH SKIP PAST LAST ROW
      PATTERN (A B*) WITHIN INTERVAL '4' SECOND DEFINE A AS price >= 30, B AS price >= 30"""
    assert [(row["n"], row["known"]) for row in rows(env, clause)] == [
        # Longer ones may come until 4 seconds are over.
        (2, at(7) - datetime.timedelta(milliseconds=1)),
        (1, at(12) - datetime.timedelta(milliseconds=1)),
        (1, at(44) - datetime.timedelta(milliseconds=1)),
    ]


def test_rows_of_one_time_go_by_further_columns(env: StreamEnvironment) -> None:
    table = env.sql(
        """SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY ts, price DESC MEASURES A.symbol AS a, B.symbol AS b
             PATTERN (A B) DEFINE B AS B.ts = A.ts)"""
    )
    assert table is not None
    assert list(table.collect()) == [{"a": "XY", "b": "ACME"}]


def test_explain_says_what_bounds_the_state(env: StreamEnvironment) -> None:
    text = (
        "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY ts MEASURES A.ts AS a PATTERN (A B+? C) {} "
    )
    text += "DEFINE B AS price > 1)"
    free, bound = (env.sql(text.format(within)).explain() for within in ("", "WITHIN INTERVAL '1' HOUR"))  # type: ignore[union-attr]
    assert "pattern=[A B+? C]" in free
    assert "bound it by WITHIN" in free
    assert "rows of matches under way, for 3600000 ms" in bound


@pytest.mark.parametrize(
    ("skip", "problem"),
    [("TO FIRST B", "of which a match has no row"), ("TO LAST A", "would be found again for ever")],
)
def test_a_search_that_cannot_go_on_fails_the_job(env: StreamEnvironment, skip: str, problem: str) -> None:
    with pytest.raises(JobFailedError, match=problem):
        rows(env, f"MEASURES A.ts AS a AFTER MATCH SKIP {skip} PATTERN (A B?) DEFINE B AS price > 1000")


_REST = "MEASURES A.ts AS a PATTERN (A B) DEFINE B AS price > 1"
BAD: tuple[tuple[type[SqlError], str, str], ...] = (
    # The grammar
    (SqlSyntaxError, "ORDER ts", "expected BY"),
    (
        SqlSyntaxError,
        "ORDER BY ts MEASURES A.ts PATTERN (A) DEFINE A AS TRUE",
        "expected AS behind the value of a measure",
    ),
    (SqlSyntaxError, "ORDER BY ts MEASURES A.ts AS a", "expected PATTERN"),
    (SqlSyntaxError, "ORDER BY ts MEASURES A.ts AS a PATTERN () DEFINE A AS TRUE", "expected a variable"),
    (SqlSyntaxError, "ORDER BY ts MEASURES A.ts AS a PATTERN (A ()) DEFINE A AS TRUE", "expected a variable"),
    (SqlSyntaxError, "ORDER BY ts MEASURES A.ts AS a PATTERN (A, B) DEFINE A AS TRUE", "at the end of PATTERN"),
    (SqlSyntaxError, "ORDER BY ts MEASURES A.ts AS a PATTERN (A{3,2} B) DEFINE A AS TRUE", "takes no rows"),
    (SqlSyntaxError, "ORDER BY ts MEASURES A.ts AS a PATTERN (A{0} B) DEFINE A AS TRUE", "takes no rows"),
    (SqlSyntaxError, "ORDER BY ts MEASURES A.ts AS a PATTERN (A{x} B) DEFINE A AS TRUE", "expected a number of rows"),
    (SqlSyntaxError, "ORDER BY ts MEASURES A.ts AS a PATTERN (A+* B) DEFINE A AS TRUE", "has one quantifier"),
    (SqlSyntaxError, "ORDER BY ts MEASURES A.ts AS a PATTERN (A B)", "expected DEFINE"),
    (SqlSyntaxError, "ORDER BY ts MEASURES A.ts AS a PATTERN (A B) WITHIN 5 DEFINE A AS TRUE", "expected an interval"),
    (SqlSyntaxError, "ORDER BY ts MEASURES A.ts AS a AFTER MATCH SKIP PATTERN (A) DEFINE A AS TRUE", "expected TO"),
    (SqlSyntaxError, "ORDER BY ts MEASURES A.ts AS a ONE ROW PATTERN (A) DEFINE A AS TRUE", "expected PER"),
    (
        SqlSyntaxError,
        "ORDER BY ts MEASURES A.ts AS a PATTERN (A B) DEFINE B price > 1",
        "expected AS behind the variable",
    ),
    # What the standard has, and Penstock has not
    (SqlUnsupportedError, "ORDER BY ts MEASURES A.ts AS a PATTERN (A {- B -} C) DEFINE A AS TRUE", "exclusion"),
    (
        SqlUnsupportedError,
        "ORDER BY ts ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (A) DEFINE A AS TRUE",
        "leave what",
    ),
    (
        SqlUnsupportedError,
        "ORDER BY ts MEASURES NEXT(A.ts) AS a PATTERN (A B) DEFINE B AS TRUE",
        "NEXT would have to wait",
    ),
    (SqlUnsupportedError, "ORDER BY ts MEASURES MATCH_NUMBER() AS a PATTERN (A B) DEFINE B AS TRUE", "for ever"),
    (SqlUnsupportedError, "ORDER BY ts MEASURES SUM(DISTINCT A.price) AS a PATTERN (A B) DEFINE B AS TRUE", "DISTINCT"),
    (
        SqlUnsupportedError,
        "ORDER BY ts MEASURES STDDEV_POP(A.price) AS a PATTERN (A B) DEFINE B AS TRUE",
        "there are COUNT",
    ),
    (SqlUnsupportedError, "ORDER BY ts DESC " + _REST, "time goes forward"),
    (SqlUnsupportedError, "PARTITION BY UPPER(symbol) ORDER BY ts " + _REST, "PARTITION BY takes columns"),
    (
        SqlUnsupportedError,
        "ORDER BY ts MEASURES A.ts AS a PATTERN (PERMUTE(A, B, C, D, E, F, G)) DEFINE B AS TRUE",
        "too many orders",
    ),
    # What makes no sense
    (SqlValidationError, _REST, "needs ORDER BY a time attribute"),
    (SqlValidationError, "ORDER BY price " + _REST, "'price' is none"),
    (SqlValidationError, "ORDER BY ts MEASURES A.ts AS a PATTERN (A* B?) DEFINE B AS price > 1", "no rows at all"),
    (SqlValidationError, "ORDER BY ts MEASURES A.ts AS a PATTERN (A{90000}) DEFINE A AS TRUE", "smaller bounds"),
    (SqlValidationError, "ORDER BY ts MEASURES A.ts AS a PATTERN (A B) DEFINE C AS TRUE", "'C' is not in PATTERN"),
    (SqlValidationError, "ORDER BY ts MEASURES A.ts AS a PATTERN (A B) DEFINE B AS TRUE, B AS TRUE", "defined twice"),
    (SqlValidationError, "ORDER BY ts MEASURES A.ts AS a PATTERN (A B) DEFINE B AS price", "needs a condition"),
    (SqlValidationError, "ORDER BY ts MEASURES A.tz AS a PATTERN (A B) DEFINE B AS TRUE", "no column 'tz'"),
    (SqlValidationError, "ORDER BY ts MEASURES C.ts AS a PATTERN (A B) DEFINE B AS TRUE", "no variable 'C'"),
    (
        SqlValidationError,
        "ORDER BY ts MEASURES LAST(A.price * B.price) AS a PATTERN (A B) DEFINE B AS TRUE",
        "of A and B",
    ),
    (
        SqlValidationError,
        "ORDER BY ts MEASURES SUM(LAST(A.price)) AS a PATTERN (A B) DEFINE B AS TRUE",
        "may not stand",
    ),
    (
        SqlValidationError,
        "ORDER BY ts MEASURES LAST(A.price, B.price) AS a PATTERN (A B) DEFINE B AS TRUE",
        "whole number",
    ),
    (SqlValidationError, "ORDER BY ts MEASURES LAST(1) AS a PATTERN (A B) DEFINE B AS TRUE", "reads no column"),
    (SqlValidationError, "ORDER BY ts MEASURES FIRST() AS a PATTERN (A B) DEFINE B AS TRUE", "FIRST takes a value"),
    (SqlValidationError, "ORDER BY ts MEASURES CLASSIFIER(C) AS a PATTERN (A B) DEFINE B AS TRUE", "CLASSIFIER takes"),
    (SqlValidationError, "ORDER BY ts MEASURES COUNT(C.*) AS a PATTERN (A B) DEFINE B AS TRUE", "no such variable"),
    (SqlValidationError, "ORDER BY ts MEASURES A.ts AS a, B.ts AS a PATTERN (A B) DEFINE B AS TRUE", "two columns 'a'"),
    (SqlValidationError, "ORDER BY ts PATTERN (A B) DEFINE B AS TRUE", "no columns"),
    (SqlValidationError, "ORDER BY ts MEASURES RUNNING LAST(A.ts) AS a PATTERN (A B) DEFINE B AS TRUE", "RUNNING has"),
    (
        SqlValidationError,
        "ORDER BY ts MEASURES A.ts AS a AFTER MATCH SKIP TO FIRST A PATTERN (A B) DEFINE B AS TRUE",
        "would find it again for ever",
    ),
    (
        SqlValidationError,
        "ORDER BY ts MEASURES A.ts AS a AFTER MATCH SKIP TO FIRST C PATTERN (A B) DEFINE B AS TRUE",
        "'C' is not in PATTERN",
    ),
    (
        SqlValidationError,
        "ORDER BY ts MEASURES A.ts AS a PATTERN (A B) SUBSET B = (A) DEFINE B AS TRUE",
        "a variable already",
    ),
    (
        SqlValidationError,
        "ORDER BY ts MEASURES A.ts AS a PATTERN (A B) SUBSET S = (C) DEFINE B AS TRUE",
        "not in PATTERN",
    ),
    (
        SqlValidationError,
        "ORDER BY ts MEASURES A.ts AS a PATTERN (A B) WITHIN INTERVAL '1' MONTH DEFINE B AS TRUE",
        "an interval of days or less",
    ),
    (
        SqlValidationError,
        "ORDER BY ts MEASURES A.ts AS a PATTERN (A B) DEFINE B AS B.ts < MATCH_ROWTIME()",
        "use it in MEASURES",
    ),
)


@pytest.mark.parametrize(("kind", "clause", "problem"), BAD)
def test_what_is_wrong_is_refused(env: StreamEnvironment, kind: type[SqlError], clause: str, problem: str) -> None:
    with pytest.raises(kind) as raised:
        env.sql(f"SELECT * FROM ticks MATCH_RECOGNIZE ({clause})")
    assert problem in str(raised.value)


@pytest.mark.parametrize("per_match", ["ONE ROW PER MATCH", "ALL ROWS PER MATCH"])
@pytest.mark.parametrize(
    "define",
    [
        "B AS B.moment > A.moment AND A.ts > B.moment",
        "B AS B.moment > TIMESTAMP '2024-05-01 00:00:00.1' AND MAX(B.moment) > A.moment",
    ],
)
def test_nanoseconds_of_rows_are_kept(env: StreamEnvironment, define: str, per_match: str) -> None:
    texts = "CONCAT('2024-05-01 00:00:00.1234567', CAST(price + 10 AS STRING))"
    env.sql(f"CREATE VIEW moments AS SELECT symbol, ts, CAST({texts} AS TIMESTAMP(9)) AS moment FROM ticks")
    table = env.sql(
        f"""SELECT CAST(a AS STRING) AS a, CAST(b AS STRING) AS b, CAST(least AS STRING) AS least FROM moments
        MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY ts
        MEASURES A.moment AS a, LAST(B.moment) AS b, MIN(B.moment) AS least {per_match} AFTER MATCH SKIP PAST LAST ROW
        PATTERN (A B) DEFINE {define})"""
    )
    assert table is not None
    found = [(row["a"][-2:], row["b"][-9:], row["least"][-2:]) for row in table.collect() if row["b"] is not None]
    expected = [
        ("22", "123456727", "27"),
        ("23", "123456726", "26"),
        ("40", "123456745", "45"),
        ("12", "123456714", "14"),
    ]
    assert sorted(found) == sorted(expected)
