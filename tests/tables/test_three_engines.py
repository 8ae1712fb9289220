"""The same query in streaming mode, in batch mode, and in batch mode for its first rows and live for the others.

Batch mode runs here as on Spark, but without it (`tests/parity`): its stages in this process.
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
_ROWS = [
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


def _environment(path: Path, parallelism: int) -> StreamEnvironment:
    env = StreamEnvironment(runtime="local", parallelism=parallelism, max_batch_rows=7)
    for statement, source in env.tables.script(_TABLES.format(path=path)):
        env.tables.run(statement, source)
    return env


def _written(folder: Path, rows: Sequence[dict[str, Any]]) -> Path:
    folder.mkdir()
    (folder / "rows.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


def _table(changes: Iterable[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """The rows that are there after all changes."""
    table: Counter[tuple[Any, ...]] = Counter()
    for row in changes:
        op, *values = row.values()
        table[tuple(values)] += 1 if op in ("+I", "+U") else -1
    return +table


def _changes(env: StreamEnvironment, query: str) -> Any:
    table = env.sql(query)
    assert table is not None
    return table.to_changelog().collect()


@pytest.mark.parametrize("query", QUERIES)
def test_batch_mode_gives_what_streaming_mode_gives(query: str, tmp_path: Path) -> None:
    folder = _written(tmp_path / "all", _ROWS)
    streaming = _table(_changes(_environment(folder, 2), query))
    assert streaming
    env = _environment(folder, 3)
    result = _changes(env, query)
    run_by_parcels(env)
    assert _table(result.take().to_pylist()) == streaming


@pytest.mark.parametrize("query", [query for query in QUERIES if "items" not in query])
def test_a_live_job_takes_over_where_the_batch_job_ends(query: str, tmp_path: Path) -> None:
    whole = _table(_changes(_environment(_written(tmp_path / "all", _ROWS), 1), query))
    history = _environment(_written(tmp_path / "history", _ROWS[:25]), 3)
    before = _changes(history, query)
    savepoint = (tmp_path / "savepoint").as_uri()
    run_by_parcels(history, savepoint)
    live = _environment(_written(tmp_path / "live", _ROWS[25:]), 2)
    after = _changes(live, query)
    live.execute("live", savepoint=savepoint)
    assert _table([*before.take().to_pylist(), *after]) == whole
