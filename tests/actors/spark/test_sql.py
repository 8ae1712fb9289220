"""Queries of SQL in batch mode on Spark: what streaming mode gives, and state that a live job takes over.

All queries are one job: what Spark needs to begin is more than what they need.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.actors.spark.conftest import Environment, on_spark
from tests.tables.test_three_engines import HANDED_OVER, QUERIES, ROWS, changes, declare, environment, rows_of, written

pytestmark = [*on_spark, pytest.mark.timeout(600), pytest.mark.long("tests/tables/test_three_engines.py")]


def test_queries_on_spark_give_what_streaming_mode_gives(spark: Environment, tmp_path: Path) -> None:
    folder = written(tmp_path / "all", ROWS)
    streaming = environment(folder, 1)
    wanted = {query: changes(streaming, query) for query in QUERIES}
    streaming.execute("in this process")
    env = spark()
    declare(env, folder)
    found = {query: changes(env, query) for query in QUERIES}
    env.execute("on Spark", mode="batch")
    for query in QUERIES:
        assert rows_of(found[query]) == rows_of(wanted[query]), query


def test_a_live_job_takes_over_where_queries_on_spark_end(spark: Environment, tmp_path: Path) -> None:
    whole = environment(written(tmp_path / "all", ROWS), 1)
    wanted = {query: changes(whole, query) for query in HANDED_OVER}
    whole.execute("in this process")
    history = spark()
    declare(history, written(tmp_path / "history", ROWS[:25]))
    before = {query: changes(history, query) for query in HANDED_OVER}
    savepoint = (tmp_path / "savepoint").as_uri()
    history.execute("history", mode="batch", savepoint_to=savepoint)
    live = environment(written(tmp_path / "live", ROWS[25:]), 2)
    after = {query: changes(live, query) for query in HANDED_OVER}
    live.execute("live", savepoint=savepoint)
    for query in HANDED_OVER:
        assert rows_of([*before[query], *after[query]]) == rows_of(wanted[query]), query
