"""ORDER BY and LIMIT of streams without end: by time as it goes on, and the first rows as they change."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from penstock import StreamEnvironment, WatermarkStrategy
from penstock.engine.errors import PenstockError
from penstock.tables.catalog.catalog import StreamTable
from penstock.tables.environment import stream_columns
from tests.tables.held_rows import held_rows

TIMES = "(VALUES (3, 1), (1, 2), (2, 3)) AS t (a, n)"


@pytest.fixture
def env(tmp_path: Path) -> StreamEnvironment:
    made = StreamEnvironment(runtime="local", parallelism=3)
    made.sql(
        "CREATE TABLE endless (a INT, at TIMESTAMP(3), now AS PROCTIME(), WATERMARK FOR at AS at) "
        f"WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'json', 'source.monitor-interval' = '1s')"
    )
    return made


def _modes(env: StreamEnvironment, query: str) -> str:
    result = env.sql(f"EXPLAIN {query}")
    assert result is not None
    return next(iter(result.collect()))["plan"]


def test_rows_in_the_order_of_time_come_once(env: StreamEnvironment) -> None:
    assert "changelogMode=[I]" in _modes(env, "SELECT a FROM endless ORDER BY at, a")
    assert "changelogMode=[I]" in _modes(env, "SELECT a FROM endless ORDER BY now LIMIT 3")


def test_the_first_rows_of_another_order_change(env: StreamEnvironment) -> None:
    assert "changelogMode=[I,UB,UA,D]" in _modes(env, "SELECT a FROM endless ORDER BY a LIMIT 3")


def test_the_first_rows_of_what_changes(env: StreamEnvironment) -> None:
    result = env.sql(f"SELECT a, SUM(n) AS s FROM {TIMES} GROUP BY a ORDER BY s DESC LIMIT 1 OFFSET 1")
    assert result is not None
    there: list[tuple[int, int]] = []
    for row in result.collect():
        (there.append if row["op"] in ("+I", "+U") else there.remove)((row["a"], row["s"]))
    assert there == [(1, 2)]


def test_rows_that_come_together_by_the_clock_are_in_the_order_of_other_columns() -> None:
    env = StreamEnvironment(runtime="local", parallelism=2)
    rows = "(VALUES (3, 'a'), (1, 'b'), (CAST(NULL AS INT), 'c'), (2, 'e'), (2, 'd')) AS t (n, w)"
    table = env.sql(f"SELECT n, w FROM (SELECT *, PROCTIME() AS now FROM {rows}) AS u ORDER BY now, n DESC, w")
    assert table is not None
    assert [row["w"] for row in table.collect()] == ["a", "d", "e", "b", "c"]
    assert "changelogMode=[I]" in _modes(
        env, f"SELECT n FROM (SELECT *, PROCTIME() AS now FROM {rows}) ORDER BY now, n"
    )


def test_all_rows_of_a_stream_without_end_have_no_order(env: StreamEnvironment) -> None:
    with pytest.raises(PenstockError, match="ORDER BY of a stream without end"):
        env.tables.lowered(env.sql("SELECT a FROM endless ORDER BY a").plan)  # type: ignore[union-attr]
    with pytest.raises(PenstockError, match="add LIMIT"):
        env.sql(f"SELECT a, SUM(n) AS s FROM {TIMES} GROUP BY a ORDER BY s")


def test_what_is_in_order_stays_so_on_its_way_to_changes_and_sinks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query, wanted = "SELECT n FROM events ORDER BY at, n DESC", [3, 2, 1, 4, 6, 5, 7]
    rows = zip((1, 2, 3, 4, 5, 6, 7), ("01", "01", "01", "04", "20", "20", "23"), strict=True)
    texts = [json.dumps({"n": n, "ts": f"2024-01-01 00:00:{second}"}) for n, second in rows]
    (tmp_path / "events.json").write_text("\n".join(texts) + "\n")
    env = StreamEnvironment(runtime="local", parallelism=3, max_batch_rows=1)
    env.sql(
        "CREATE TABLE events (n BIGINT, ts STRING, at AS TO_TIMESTAMP(ts), "
        "WATERMARK FOR at AS at - INTERVAL '1' SECOND) "
        f"WITH ('connector' = 'filesystem', 'path' = '{tmp_path / 'events.json'}', 'format' = 'json')"
    )
    env.sql("CREATE TABLE shown (n BIGINT) WITH ('connector' = 'print')")
    table = env.sql(query)
    assert table is not None
    assert [row["n"] for row in table.to_changelog().collect()] == wanted
    capsys.readouterr()
    env.sql(f"INSERT INTO shown {query}")
    env.execute()
    assert [int(line[3:-1]) for line in capsys.readouterr().out.splitlines()] == wanted


@pytest.mark.parametrize(("limit", "wanted"), [("LIMIT 1", [1]), ("LIMIT 1 OFFSET 1", [2])])
def test_the_first_rows_by_time_of_what_changes(limit: str, wanted: list[int]) -> None:
    env = StreamEnvironment(runtime="local", parallelism=1)
    rows = pa.table({"k": [1, 2, 1], "at": pa.array([1, 5, 3], pa.timestamp("ms"))})
    stream = env.from_collection(rows).assign_timestamps("at", WatermarkStrategy.for_monotonous_timestamps())
    env.tables.catalog.add(StreamTable("t", stream, stream_columns(stream, "at")))
    last = "SELECT k, at FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY at DESC) AS n FROM t) WHERE n = 1"
    assert [k for k, _ in held_rows(env, f"{last} ORDER BY at {limit}")] == wanted
