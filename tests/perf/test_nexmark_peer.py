"""Nexmark beside Flink: what Flink gives is compared as texts, and who has no such program is told."""

from __future__ import annotations

import datetime as dt
import sys
from collections import Counter
from pathlib import Path

import pytest

from perf.harness import BenchmarkError, Options
from perf.nexmark import run
from perf.nexmark_flink import FlinkSide, as_texts
from perf.nexmark_queries import QUERIES
from perf.peers import batch
from perf.peers.engines import engine

ANSWERING = """
import pathlib, sys
for line in sys.stdin:
    order, folder, output = line.rstrip("\\n").split("\\t")
    tables = (pathlib.Path(folder) / "tables.sql").read_text().split(";\\n")
    if order == "check":
        query = (pathlib.Path(folder) / "query.sql").read_text()
        pathlib.Path(output).write_text(f"2\\t{len(tables)}\\t{query}\\n")
    elif order == "run":
        pathlib.Path(folder, "ran").write_text((pathlib.Path(folder) / "insert.sql").read_text())
    else:
        assert order == "plan"
    print("done", flush=True)
"""


def test_a_query_is_checked_by_its_rows_and_timed_once_it_is_planned(tmp_path: Path) -> None:
    with batch.started([sys.executable, "-c", ANSWERING]) as process:
        flink = FlinkSide(process, tmp_path)
        assert flink.given(["CREATE TABLE a", "CREATE TABLE b"], "SELECT 1") == Counter({("2", "SELECT 1"): 2})
        reading = flink.measure(["CREATE TABLE a"], "INSERT INTO a SELECT 1", 1_000_000)
    assert (tmp_path / "ran").read_text() == "INSERT INTO a SELECT 1"
    assert reading.events_per_second is not None
    assert reading.events_per_second > 1_000


def test_a_query_that_flink_refuses_is_an_error(tmp_path: Path) -> None:
    failing = "import sys; sys.stdin.readline(); sys.exit('no such function')"
    started = batch.started([sys.executable, "-c", failing])
    with started as process, pytest.raises(BenchmarkError, match="no such function"):
        FlinkSide(process, tmp_path).given([], "SELECT f(1)")


def test_rows_are_compared_as_flink_shows_them() -> None:
    row = (7, "pen", None, dt.datetime(2024, 1, 2, 3, 4, 5, 6_000), dt.date(2024, 1, 2))
    assert as_texts(Counter({row: 3})) == Counter({("7", "pen", "null", "2024-01-02 03:04:05.006", "2024-01-02"): 3})


def test_all_queries_but_the_sixth_run_on_flink() -> None:
    assert [name for name, query in QUERIES.items() if query.peer is None] == ["q6"]
    assert sorted(QUERIES) == sorted(f"q{number}" for number in range(24))


def test_other_peers_have_no_program() -> None:
    with pytest.raises(BenchmarkError, match="bytewax has no program for nexmark: --peer flink-sql has"):
        list(run(Options(peer=engine("bytewax")), "q0"))
