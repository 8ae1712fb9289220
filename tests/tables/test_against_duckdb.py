"""Queries over random rows with nulls: what is there in the end is what DuckDB says."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from penstock import StreamEnvironment

_DATABASE = duckdb.connect(config={"threads": 1})
QUERIES = (
    "SELECT a, b FROM t WHERE a > 2 AND b IS NOT NULL OR c = 'x'",
    "SELECT a, COUNT(*) AS n, COUNT(b) AS m, SUM(b) AS s, MIN(c) AS lo, MAX(c) AS hi FROM t GROUP BY a",
    "SELECT c, COUNT(DISTINCT a) AS n, SUM(b) FILTER (WHERE a > 2) AS s FROM t GROUP BY c HAVING COUNT(*) > 1",
    "SELECT COUNT(*) AS n, MAX(b) AS m FROM t",
    "SELECT DISTINCT a, c FROM t",
    "SELECT t.a, t.b, u.d FROM t JOIN u ON t.a = u.a",
    "SELECT t.a, t.b, u.d FROM t LEFT JOIN u ON t.a = u.a AND u.d > 3",
    "SELECT t.b, u.d FROM t FULL JOIN u ON t.a = u.a",
    "SELECT t.b, u.d FROM t RIGHT JOIN u ON t.a = u.a AND t.b < u.d",
    "SELECT x.a, y.a AS other FROM t x, t y WHERE x.b = y.b AND x.a < y.a",
    "SELECT a, b FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.d > t.b)",
    "SELECT a, b FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.a = t.a)",
    "SELECT a, b FROM t WHERE a IN (SELECT a FROM u)",
    "SELECT a, b FROM t WHERE a NOT IN (SELECT a FROM u)",
    "SELECT a, b FROM t WHERE a NOT IN (SELECT a FROM u WHERE a IS NOT NULL)",
    "SELECT a FROM t UNION SELECT a FROM u",
    "SELECT a FROM t UNION ALL SELECT a FROM u",
    "SELECT a FROM t INTERSECT SELECT a FROM u",
    "SELECT a FROM t EXCEPT SELECT a FROM u",
    "SELECT a, n FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a) WHERE n > 1",
    "SELECT n, COUNT(*) AS groups FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a) AS g GROUP BY n",
    "SELECT q.a, q.s, u.d FROM (SELECT a, SUM(b) AS s FROM t GROUP BY a) AS q LEFT JOIN u ON q.a = u.a",
    "SELECT a, b FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY a ORDER BY b NULLS FIRST, id) r FROM t) WHERE r < 3",
    "SELECT a, c, COUNT(*) AS n, SUM(b) AS s, MAX(a) AS m FROM t GROUP BY GROUPING SETS ((a), (c), (a, c))",
    "SELECT a, GROUPING(a, c) AS g, COUNT(a) AS n FROM t GROUP BY ROLLUP (a, c)",
    "SELECT c, a, COUNT(*) AS n FROM t GROUP BY ROLLUP (c, a)",
    "SELECT a + 1 AS x, GROUPING(a + 1) AS g, COUNT(b) AS n FROM t GROUP BY CUBE (a + 1), c HAVING COUNT(*) > 2",
    "SELECT a, b, SUM(b) OVER (PARTITION BY a ORDER BY b NULLS FIRST) AS s FROM t",
    "SELECT a, id, COUNT(b) OVER (ORDER BY id DESC ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS n FROM t",
    "SELECT a, MAX(b) FILTER (WHERE a > 1) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) AS m FROM t",
    "SELECT a, n, SUM(n) OVER (ORDER BY a NULLS FIRST) AS s FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a)",
    "SELECT a, id, LAG(b) OVER (PARTITION BY a ORDER BY id) AS l, RANK() OVER (ORDER BY a NULLS FIRST) AS r FROM t",
    "SELECT a, COALESCE(b, -1) AS b, CASE c WHEN 'x' THEN 1 ELSE 2 END AS k FROM t WHERE c LIKE '%' OR c IS NULL",
    "WITH big AS (SELECT * FROM t WHERE b > 2) SELECT big.a, COUNT(*) AS n FROM big JOIN u USING (a) GROUP BY big.a",
)


def _tables(seed: int, rows: int | None = None) -> dict[str, pa.Table]:
    """Two tables: with a few rows, or with so many in the first one that batches are computed as large ones are."""
    chance = random.Random(seed)

    def maybe(value: Any) -> Any:
        return None if chance.random() < 0.2 else value

    rows, others = rows or chance.randrange(1, 25), chance.randrange(1, 12)
    times = chance.sample(range(0, max(30_000, 500 * rows), 500), rows)
    t = {
        "id": list(range(rows)),
        "a": [maybe(chance.randrange(5)) for _ in range(rows)],
        "b": [maybe(chance.randrange(8)) for _ in range(rows)],
        "c": [maybe(chance.choice("xyz")) for _ in range(rows)],
        "at": pa.array(times, pa.timestamp("ms")),
    }
    u = {"a": [maybe(chance.randrange(5)) for _ in range(others)], "d": [chance.randrange(8) for _ in range(others)]}
    integers = {"id": pa.int64(), "a": pa.int64(), "b": pa.int64(), "d": pa.int64(), "c": pa.string()}
    made = {}
    for name, columns in (("t", t), ("u", u)):
        made[name] = pa.table(
            {n: v if isinstance(v, pa.Array) else pa.array(v, integers[n]) for n, v in columns.items()}
        )
    return made


def _wanted(query: str, tables: dict[str, pa.Table]) -> Counter[tuple[Any, ...]]:
    for name, table in tables.items():
        _DATABASE.register(name, table)
    return Counter(_DATABASE.sql(query).fetchall())


def _there(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    held: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        comes = row.pop("op", "+I") in ("+I", "+U")
        held[tuple(row.values())] += 1 if comes else -1
    assert min(held.values(), default=0) >= 0
    return +held


@pytest.mark.parametrize("query", QUERIES)
def test_what_is_there_in_the_end(query: str) -> None:
    for seed, rows, batch in ((0, None, 1), (2, 300, 1024)):
        tables = _tables(seed, rows)
        env = StreamEnvironment(runtime="local", parallelism=seed + 1, max_batch_rows=batch, seed=seed)
        for name, table in tables.items():
            env.tables.create_temporary_view(name, env.from_collection(table))
        result = env.sql(query)
        assert result is not None
        assert _there(list(result.collect())) == _wanted(query, tables), seed
