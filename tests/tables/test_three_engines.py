"""The same query in streaming mode, in batch mode, and in batch mode for its first rows and live for the others.

Batch mode runs here as on Spark, but without it (`tests/parity`): its stages in this process.
`tests/actors/spark/test_sql.py` runs the queries on Spark.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock import StreamEnvironment
from tests.parity.runs import run_by_parcels

_WORDS = ("pen", "cup", "ink", "pen", "cap", "cup", "pen")
ROWS = [
    {"id": n, "item": _WORDS[n % 7], "price": (n * 7) % 11, "at": f"2024-01-01 00:{n % 50:02}:{n % 60:02}"}
    for n in range(40)
]
_TABLES = """
CREATE TABLE orders (id INT, item STRING, price INT, `at` STRING, ts AS TO_TIMESTAMP(`at`),
  WATERMARK FOR ts AS ts - INTERVAL '1' HOUR) WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'json');
CREATE VIEW items AS SELECT * FROM (VALUES ('pen', 'blue'), ('cup', 'red'), ('nib', 'old')) AS t (item, color);
"""
QUERIES = (
    "SELECT id, UPPER(item) AS item FROM orders WHERE price > 5",
    "SELECT item, COUNT(*) AS n, SUM(price) AS total, MIN(price) AS least FROM orders GROUP BY item",
    "SELECT COUNT(DISTINCT item) AS items, AVG(price) AS average FROM orders",
    "SELECT n, COUNT(*) AS items FROM (SELECT item, COUNT(*) AS n FROM orders GROUP BY item) GROUP BY n",
    "SELECT o.id, i.color FROM orders o LEFT JOIN items i ON o.item = i.item",
    "SELECT i.item FROM items i WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.item = i.item AND o.price > 8)",
    """SELECT item, price, id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY item ORDER BY price DESC, id) AS r
    FROM orders) WHERE r <= 2""",
    """SELECT window_start, item, SUM(price) AS total FROM TABLE(TUMBLE(TABLE orders, DESCRIPTOR(ts),
    INTERVAL '10' MINUTE)) GROUP BY window_start, window_end, item""",
    "SELECT id, SUM(price) OVER (PARTITION BY item ORDER BY ts) AS so_far FROM orders",
    "SELECT item FROM orders INTERSECT SELECT item FROM items",
)
HANDED_OVER = tuple(query for query in QUERIES if "items" not in query)
"""Those whose tables have further rows when they are live."""


def environment(path: Path, parallelism: int) -> StreamEnvironment:
    """One in this process, with the tables."""
    env = StreamEnvironment(runtime="local", parallelism=parallelism, max_batch_rows=7)
    declare(env, path)
    return env


def declare(env: StreamEnvironment, path: Path) -> None:
    """Make the tables of the queries, over the files of a folder."""
    for statement, source in env.tables.script(_TABLES.format(path=path)):
        env.tables.run(statement, source)


def written(folder: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """A new folder with the rows."""
    folder.mkdir()
    (folder / "rows.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


def rows_of(changes: Iterable[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """The rows that are there after all changes."""
    table: Counter[tuple[Any, ...]] = Counter()
    for row in changes:
        op, *values = row.values()
        table[tuple(values)] += 1 if op in ("+I", "+U") else -1
    return +table


def changes(env: StreamEnvironment, query: str) -> Any:
    """The changes of a query, which the environment's next job gives."""
    table = env.sql(query)
    assert table is not None
    return table.to_changelog().collect()


@pytest.mark.parametrize("query", QUERIES)
def test_batch_mode_gives_what_streaming_mode_gives(query: str, tmp_path: Path) -> None:
    folder = written(tmp_path / "all", ROWS)
    streaming = rows_of(changes(environment(folder, 2), query))
    assert streaming
    env = environment(folder, 3)
    result = changes(env, query)
    run_by_parcels(env)
    assert rows_of(result.take().to_pylist()) == streaming


@pytest.mark.parametrize("query", HANDED_OVER)
def test_a_live_job_takes_over_where_the_batch_job_ends(query: str, tmp_path: Path) -> None:
    whole = rows_of(changes(environment(written(tmp_path / "all", ROWS), 1), query))
    history = environment(written(tmp_path / "history", ROWS[:25]), 3)
    before = changes(history, query)
    savepoint = (tmp_path / "savepoint").as_uri()
    run_by_parcels(history, savepoint)
    live = environment(written(tmp_path / "live", ROWS[25:]), 2)
    after = changes(live, query)
    live.execute("live", savepoint=savepoint)
    assert rows_of([*before.take().to_pylist(), *after]) == whole
