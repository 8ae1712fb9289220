"""What a statement computes twice of the same rows is computed once; the rows are those of two computations."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import StreamEnvironment
from tests.tables.held_rows import held_rows

_COUNTS = "SELECT k, COUNT(*) AS n FROM t GROUP BY k"
_WINDOWS = """SELECT k, COUNT(*) AS n, window_start AS ws
  FROM TABLE(HOP(TABLE t, DESCRIPTOR(`at`), INTERVAL '1' SECOND, INTERVAL '2' SECOND))
  GROUP BY k, window_start, window_end"""


def _env(folder: Path, shared: str = "true") -> StreamEnvironment:
    rows = 300
    table = pa.table(
        {
            "k": [number * number % 7 for number in range(rows)],
            "at": pa.array([number * 20 for number in range(rows)], pa.timestamp("ms")),
        }
    )
    for file in range(2):
        pq.write_table(table.slice(file * 150, 150), folder / f"{file}.parquet")
    env = StreamEnvironment(runtime="local", parallelism=2, max_batch_rows=32)
    env.sql(
        "CREATE TABLE t (k BIGINT, `at` TIMESTAMP(3), WATERMARK FOR `at` AS `at` - INTERVAL '4' SECOND) "
        f"WITH ('connector' = 'filesystem', 'path' = '{folder}', 'format' = 'parquet')"
    )
    env.sql(f"SET 'table.optimizer.reuse-sub-plan-enabled' = '{shared}'")
    return env


def _reads(env: StreamEnvironment, query: str) -> int:
    """How often the tables are read."""
    env.sql("CREATE TABLE sink WITH ('connector' = 'blackhole') AS " + query)
    return env.explain().count("source t\n")


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT a.k, a.n, b.n FROM ({_COUNTS}) a JOIN ({_COUNTS}) b ON a.k = b.k",
        f"SELECT a.k, b.k FROM ({_COUNTS}) a LEFT JOIN ({_COUNTS}) b ON a.n < b.n",
        f"{_COUNTS} UNION ALL {_COUNTS}",
        f"{_COUNTS} INTERSECT {_COUNTS}",
        f"SELECT k, n FROM ({_COUNTS}) WHERE n > (SELECT AVG(n) FROM ({_COUNTS}))",
        f"""SELECT c.k, c.n, c.ws FROM ({_WINDOWS}) c JOIN (SELECT MAX(n) AS most, ws FROM ({_WINDOWS}) GROUP BY ws) m
        ON c.ws = m.ws AND c.n >= m.most""",
    ],
)
def test_a_table_of_an_aggregate_that_stands_twice_is_read_once(tmp_path: Path, query: str) -> None:
    assert held_rows(_env(tmp_path), query) == held_rows(_env(tmp_path, "false"), query) != []
    assert _reads(_env(tmp_path), query) == 1
    assert _reads(_env(tmp_path, "false"), query) == 2


def _uids_over_upserts(aggregate: str) -> set[str | None]:
    """Of two aggregates of a table that gives upserts; the first one as given."""
    env = StreamEnvironment(runtime="local", parallelism=1)
    env.sql(
        "CREATE TABLE t (id BIGINT, a BIGINT, b BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ("
        "'connector' = 'upsert-kafka', 'topic' = 't', 'properties.bootstrap.servers' = 'h:1', "
        "'key.format' = 'json', 'value.format' = 'json')"
    )
    query = f"SELECT a, {aggregate}(b) AS n FROM t GROUP BY a UNION ALL SELECT b, SUM(a) FROM t GROUP BY b"
    env.sql(f"CREATE TABLE sink WITH ('connector' = 'blackhole') AS {query}")
    graph = env.tables.graph
    uids = {graph[node].uid for node in range(1, graph.next_id)}
    graph.forget(1)
    return uids


def test_positions_in_a_table_of_upserts_stay_with_the_reader_that_does_not_change() -> None:
    kept = _uids_over_upserts("SUM") & _uids_over_upserts("MIN")
    kinds = {str(uid).split("-")[1] for uid in kept}
    assert {"scan", "aggregate"} <= kinds


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT a.k FROM ({_COUNTS}) a JOIN (SELECT k, COUNT(*) AS n FROM t WHERE k > 1 GROUP BY k) b ON a.k = b.k",
        "SELECT a.r, b.r FROM (SELECT DISTINCT k, RAND() AS r FROM t) a JOIN (SELECT DISTINCT k, RAND() AS r FROM t) b "
        "ON a.k = b.k",
        f"SELECT a.k FROM ({_COUNTS}) a JOIN (SELECT k, COUNT(*) AS n FROM t /*+ OPTIONS('path'='{{path}}/0.parquet') "
        "*/ GROUP BY k) b ON a.k = b.k",
    ],
)
def test_what_may_have_other_rows_is_computed_for_itself(tmp_path: Path, query: str) -> None:
    assert _reads(_env(tmp_path), query.format(path=tmp_path)) == 2
