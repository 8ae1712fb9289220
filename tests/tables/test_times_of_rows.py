"""What goes by PROCTIME, and which of several rows of one time counts: many queries in one job each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock import StreamEnvironment
from penstock.engine.errors import JobFailedError
from tests.tables.own_programs import at, sink, source
from tests.tables.programs import check, run, run_by_clock

_TUMBLE = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(p), INTERVAL '10' SECOND))"
_WORDS = source(
    "words", ["k STRING", "v INT", "p AS PROCTIME()"], [("a", 1), ("b", 2), ("a", 3), ("a", 1)], [("a", 10), ("c", 5)]
)
_OTHERS = source("others", ["k STRING", "w INT", "p AS PROCTIME()"], [("a", 7), ("z", 8)], [("c", 9)])
_NEAR = "words s {} JOIN others o ON s.k = o.k AND o.p BETWEEN s.p - INTERVAL '2' SECOND AND s.p + INTERVAL '2' SECOND"
_Case = tuple[list[str], str, list[str], list[str]]
"""Columns, query, and what comes of each half."""


def _program(name: str, tables: Sequence[Any], cases: Sequence[_Case]) -> dict[str, Any]:
    """A program that writes the results of many queries."""
    steps = list(tables)
    for place, (columns, query, before, after) in enumerate(cases):
        steps.append(sink(columns, before, after, f"sink_{place}"))
        steps.append({"step": "SqlTestStep", "sql": f"INSERT INTO sink_{place} {query}"})
    return {"id": name, "class": "Windows", "run": steps}


def test_a_row_without_a_time_says_what_to_do_in_sql(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"x": 1, "at": "2024-01-01 00:00:00"}\n{"x": 2, "at": null}\n')
    made = "CREATE TABLE t (x INT, at TIMESTAMP(3), {}) WITH ('connector' = 'filesystem', 'path' = '{}', "
    made += "'format' = 'json')"
    windows = "TABLE(TUMBLE(TABLE t, DESCRIPTOR({}), INTERVAL '1' DAY)) {} GROUP BY window_start, window_end"

    def counted(watermark: str, column: str, where: str = "") -> list[Any]:
        env = StreamEnvironment(runtime="local", parallelism=1)
        env.sql(made.format(watermark, tmp_path / "t.json"))
        table = env.sql(f"SELECT COUNT(*) AS n FROM {windows.format(column, where)}")
        assert table is not None
        return [row["n"] for row in table.collect()]

    with pytest.raises(JobFailedError, match=r"is null in row .*; in CREATE TABLE, declare the WATERMARK") as failed:
        counted("WATERMARK FOR at AS at", "at")
    assert "with_timestamp_assigner" not in str(failed.value)
    early = "t AS COALESCE(at, TIMESTAMP '1970-01-01 00:00:00'), WATERMARK FOR t AS t"
    assert counted(early, "t", "WHERE at IS NOT NULL") == [1]


@pytest.mark.parametrize("behind_ms", [0, 70_000])
def test_windows_and_joins_by_the_clock(behind_ms: int, tmp_path: Path) -> None:
    words, others = _TUMBLE.format("words"), _TUMBLE.format("others")
    cases: list[_Case] = [
        (
            ["l STRING", "f INT", "s INT", "c BIGINT"],
            "SELECT LISTAGG(k), FIRST_VALUE(v), SUM(DISTINCT v), COUNT(DISTINCT v) "
            f"FROM {words} GROUP BY window_start, window_end",
            ["a,b,a,a, 1, 6, 3"],
            ["a,c, 10, 15, 2"],
        ),
        (
            ["k STRING", "v INT", "n BIGINT"],
            "SELECT k, v, n FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, k "
            f"ORDER BY v DESC) n FROM {words}) WHERE n <= 2",
            ["a, 3, 1", "a, 1, 2", "b, 2, 1"],
            ["a, 10, 1", "c, 5, 1"],
        ),
        (
            ["k STRING", "v INT", "w INT"],
            f"SELECT l.k, l.v, r.w FROM (SELECT * FROM {words}) l LEFT JOIN (SELECT * FROM {others}) r "
            "ON l.k = r.k AND l.window_start = r.window_start AND l.window_end = r.window_end",
            ["a, 1, 7", "a, 1, 7", "a, 3, 7", "b, 2, null"],
            ["a, 10, null", "c, 5, 9"],
        ),
        (
            ["k STRING", "l STRING"],
            "SELECT k, LISTAGG(CAST(v AS STRING)) FROM words GROUP BY k, SESSION(p, INTERVAL '3' SECOND)",
            ["a, 1,3,1", "b, 2"],
            ["a, 10", "c, 5"],
        ),
        (
            ["k STRING", "c BIGINT"],
            "SELECT k, COUNT(*) FROM TABLE(SESSION(TABLE words, DESCRIPTOR(p), INTERVAL '3' SECOND)) "
            "GROUP BY k, window_start, window_end",
            ["a, 3", "b, 1"],
            ["a, 1", "c, 1"],
        ),
        (
            ["k STRING", "v INT", "w INT"],
            f"SELECT o.k, s.v, o.w FROM {_NEAR.format('FULL')}",
            ["a, 1, 7", "a, 3, 7", "a, 1, 7", "null, 2, null", "z, null, 8"],
            ["null, 10, null", "c, 5, 9"],
        ),
        (
            ["d DOUBLE", "c BIGINT"],
            f"SELECT CAST(v AS DOUBLE), COUNT(*) FROM {words} GROUP BY CAST(v AS DOUBLE), window_start, window_end",
            ["1.0, 2", "2.0, 1", "3.0, 1"],
            ["5.0, 1", "10.0, 1"],
        ),
        (
            ["k STRING", "c BIGINT"],
            "SELECT k, COUNT(*) FROM words GROUP BY k, TUMBLE(p, INTERVAL '10' SECOND)",
            ["a, 3", "b, 1"],
            ["a, 1", "c, 1"],
        ),
    ]
    program = _program("by-proc-time", (_WORDS, _OTHERS), cases)
    before, after = run_by_clock(program, tmp_path, 100, behind_ms)
    check(program, {"Before": before, "After": after})


@pytest.mark.parametrize("parallelism", [(1, 3), (3, 2)])
def test_rescaled_on_a_clock_that_is_behind_no_row_is_late(parallelism: tuple[int, int], tmp_path: Path) -> None:
    window, results = "TUMBLE(p, INTERVAL '10' SECOND)", (["a, 3", "b, 1"], ["a, 1", "c, 1"])
    cases: list[_Case] = [
        (["k STRING", "c BIGINT"], f"SELECT k, COUNT(*) FROM words GROUP BY k, {window}", *results),
        (
            ["k STRING", "c BIGINT"],
            f"SELECT k, COUNT(*) FROM {_TUMBLE.format('words')} GROUP BY k, window_start, window_end",
            *results,
        ),
    ]
    program = _program("by-proc-time", (_WORDS,), cases)
    before, after = run_by_clock(program, tmp_path, 300, 70_000, parallelism)
    check(program, {"Before": before, "After": after})


def test_days_of_the_clock_lie_in_the_zone_of_the_session(tmp_path: Path) -> None:
    # The clock is at 22:13:20 of UTC, and a minute on.
    zoned = {"step": "SqlTestStep", "sql": "SET 'table.local-time-zone' = 'Asia/Kolkata'"}
    query = (
        "SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(TABLE words, DESCRIPTOR(p), INTERVAL '1' MINUTE)) "
        "GROUP BY window_start, window_end"
    )
    expected = ["2023-11-15T03:43, 4"], ["2023-11-15T03:45, 2"]
    program = _program("by-proc-time", (zoned, _WORDS), [(["s TIMESTAMP(3)", "c BIGINT"], query, *expected)])
    before, after = run_by_clock(program, tmp_path, 100)
    check(program, {"Before": before, "After": after})


def test_rows_that_are_near_may_be_compared_by_any_type(tmp_path: Path) -> None:
    timed = ["k STRING", "d DOUBLE", "l ARRAY<INT>", "at TIMESTAMP(3)", "WATERMARK FOR at AS at"]
    first = source("first", timed, [("a", 0.5, [1], at(1)), ("b", None, [2], at(3))], [("c", 0.5, [2], at(9))])
    second = source("second", timed, [("x", 0.5, [1], at(2)), ("y", 1.5, None, at(4))], [("z", 0.5, [2], at(10))])
    near = "ON {} AND s.at BETWEEN f.at - INTERVAL '2' SECOND AND f.at + INTERVAL '2' SECOND"
    columns = ["k STRING", "s STRING"]
    cases: list[_Case] = [
        (columns, f"SELECT f.k, s.k FROM first f JOIN second s {near.format('f.d = s.d')}", ["a, x"], ["c, z"]),
        (
            columns,
            f"SELECT f.k, s.k FROM first f LEFT JOIN second s {near.format('f.l = s.l AND f.k < s.k')}",
            ["a, x", "b, null"],
            ["c, z"],
        ),
    ]
    before, after = run(_program("near-rows", (first, second), cases), tmp_path, 1)
    assert after is not None
    check(_program("near-rows", (first, second), cases), {"Before": before, "After": after})


def test_of_rows_of_one_time_the_last_to_come_is_the_last(tmp_path: Path) -> None:
    timed = ["a INT", "b INT", "at TIMESTAMP(3)", "p AS PROCTIME()", "WATERMARK FOR at AS at"]
    rows = source("timed", timed, [(1, 10, at(1)), (2, 20, at(1)), (1, 30, at(1))], [(2, 5, at(0)), (3, 9, at(20))])
    numbered = "SELECT a, b FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {} ORDER BY {}) n FROM {}) WHERE n = 1"
    windows = "TABLE(TUMBLE(TABLE timed, DESCRIPTOR(at), INTERVAL '10' SECOND))"
    columns = ["a INT", "b INT"]
    cases: list[_Case] = [
        (columns, numbered.format("a", "p DESC", "timed"), ["2, 20", "1, 30"], ["-D[2, 20]", "2, 5", "3, 9"]),
        (columns, numbered.format("a", "p", "timed"), ["1, 10", "2, 20"], ["3, 9"]),
        (columns, numbered.format("a", "at DESC", "timed"), ["2, 20", "1, 30"], ["3, 9"]),
        (columns, numbered.format("a", "at", "timed"), ["1, 10", "2, 20"], ["3, 9"]),
        (columns, numbered.format("a, window_start, window_end", "at DESC", windows), [], ["1, 30", "2, 20", "3, 9"]),
        (columns, numbered.format("a, window_start, window_end", "at", windows), [], ["1, 10", "2, 5", "3, 9"]),
    ]
    program = _program("last-rows", (rows,), cases)
    before, after = run(program, tmp_path, 1)
    assert after is not None
    check(program, {"Before": before, "After": after})
