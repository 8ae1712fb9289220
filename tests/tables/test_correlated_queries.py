"""Queries within expressions that compare outer columns in any way: DuckDB says the same after each change."""

from __future__ import annotations

import random
from typing import Final

import pytest

from penstock import StreamEnvironment
from penstock.engine.errors import SqlUnsupportedError
from tests.tables.random_queries import changes, compare

QUERIES: Final = (
    "SELECT id, (SELECT MAX(u.b) FROM u WHERE u.a < t.a) AS m FROM t",
    "SELECT id, (SELECT COUNT(*) FROM u WHERE u.a = t.a AND u.b <> t.b) AS n FROM t",
    "SELECT id FROM t WHERE b > (SELECT AVG(o.b) FROM t AS o WHERE o.a <> t.a OR t.a IS NULL)",
    "SELECT t.a, COUNT(*) AS n FROM t WHERE 1 < (SELECT COUNT(DISTINCT u.b) FROM u WHERE u.a + t.b > 4) GROUP BY t.a",
    "SELECT id, CASE WHEN EXISTS (SELECT 1 FROM u WHERE u.a > t.b) THEN 1 END AS e FROM t",
    "SELECT id, CAST(b IN (SELECT u.b FROM u WHERE u.a = t.a) AS BIGINT) AS i FROM t",
    "SELECT id, CAST(b NOT IN (SELECT u.b + 1 FROM u WHERE u.a >= t.a) AS BIGINT) AS i FROM t",
    "SELECT id, CAST(b <= ALL (SELECT u.b FROM u WHERE u.a >= t.a) AS BIGINT) AS i FROM t",
    "SELECT id, CAST(b <> ANY (SELECT u.b FROM u WHERE u.a = t.a) AS BIGINT) AS i FROM t",
    "SELECT t.id, m.a, m.b FROM t, LATERAL (SELECT * FROM u WHERE u.a < t.a AND u.b >= t.b) AS m",
    "SELECT t.id, m.n FROM t LEFT JOIN LATERAL (SELECT SUM(b) AS n FROM u WHERE u.a > t.a GROUP BY u.a) AS m ON TRUE",
    "SELECT t.id, m.b FROM t, LATERAL (SELECT DISTINCT u.b FROM u WHERE u.a > t.a) AS m",
    "SELECT t.id, m.b FROM t, LATERAL (SELECT o.id, o.b FROM t AS o WHERE o.id > t.id ORDER BY o.id LIMIT 1) AS m",
    "SELECT t.id, m.r FROM t, LATERAL (SELECT ROW_NUMBER() OVER (ORDER BY o.id) AS r FROM t AS o WHERE o.a = t.b) AS m",
    "SELECT id FROM t WHERE b IN (SELECT MAX(u.b) FROM u WHERE u.a <= t.a)",
    "SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a <> t.a QUALIFY ROW_NUMBER() OVER (ORDER BY u.b) = 3)",
    "SELECT t.id, u.a FROM t ASOF LEFT JOIN u ON t.b >= u.a",
    "SELECT t.id, u.a FROM t ASOF JOIN u ON t.a = u.b AND t.b < u.a",
    "SELECT id, CAST((a, b) IN (SELECT u.a, u.b FROM u) AS BIGINT) AS i FROM t",
    "SELECT id, CAST((b, id) NOT IN (SELECT u.a, u.b FROM u) AS BIGINT) AS i FROM t",
)


OF_ONE_ROW: Final = (
    "EXISTS (SELECT COUNT(*) FROM u WHERE u.a < t.a)",
    "NOT EXISTS (SELECT MAX(u.b) FROM u WHERE u.a < t.a)",
    "EXISTS (SELECT COUNT(*) FROM u WHERE u.a = t.a) OR a = 2",
    "b NOT IN (SELECT MAX(u.b) FROM u WHERE u.a < t.a)",
    "b NOT IN (SELECT MAX(u.b) FROM u WHERE u.a = t.a)",
    "b IN (SELECT COUNT(u.b) FROM u WHERE u.a = t.a)",
    "b = ANY (SELECT COUNT(u.b) FROM u WHERE u.a = t.a LIMIT 1) OR a = 2",
    "b >= ALL (SELECT COUNT(u.b) FROM u WHERE u.a < t.a)",
    "(a, b) NOT IN (SELECT MAX(b), COUNT(*) FROM u WHERE a > 3)",
    "EXISTS (SELECT MAX(b) FROM u WHERE a > 3)",
    "b + 1 NOT IN (SELECT MAX(b) FROM u WHERE a > 3)",
    "b < ANY (WITH c AS (SELECT b FROM u WHERE a > 3) SELECT COUNT(*) FROM c)",
    "b > (SELECT COUNT(*) FROM u WHERE a > 3)",
    "NOT EXISTS (SELECT MAX(u.b) FROM u WHERE u.a < t.a HAVING COUNT(*) < 1)",
    "EXISTS (SELECT 1 FROM u WHERE u.a = t.a HAVING COUNT(*) = 0) OR a = 2",
    "b NOT IN (SELECT MAX(u.b) FROM u WHERE u.a = t.a HAVING COUNT(*) > (SELECT COUNT(*) FROM u WHERE a = 1))",
    "b <> ANY (SELECT COUNT(*) FROM u WHERE u.a = t.a HAVING MAX(u.b) > 2)",
    "b < ALL (SELECT COUNT(*) FROM u WHERE a > 3 HAVING MAX(b) > 2)",
    "EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND NOT EXISTS (SELECT COUNT(*) FROM t AS o WHERE o.a = u.b))",
    "EXISTS (SELECT 1 FROM u WHERE u.a = t.a AND u.b >= (SELECT COUNT(*) FROM t AS o WHERE o.a = u.b))",
    "b + (SELECT MIN(b) FROM u) IN (SELECT b FROM u) OR a = 1",
)
"""Conditions about aggregates without GROUP BY, of which there is one row where nothing is met, too."""


@pytest.mark.parametrize("part", [0, 1, 2])
def test_after_each_change_aggregates_without_groups_are_one_row(part: int) -> None:
    queries = [f"SELECT id FROM t WHERE {condition}" for condition in OF_ONE_ROW[part::3]]
    compare(queries, changes(random.Random(part), 10), part)


@pytest.mark.parametrize("part", [0, 1, 2])
def test_after_each_change_outer_columns_meet_what_they_meet_in_duckdb(part: int) -> None:
    compare(QUERIES[part::3], changes(random.Random(part), 10), part)


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("SELECT id, id IN (SELECT COUNT(*) FROM u WHERE u.id > t.id GROUP BY u.id) FROM t", "use EXISTS"),
        ("SELECT id FROM t WHERE id IN (SELECT COUNT(*) FROM u WHERE u.id > t.id OFFSET 1)", "use it in FROM"),
        ("SELECT id FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.id > t.id OFFSET 1)", "without OFFSET"),
        ("SELECT id FROM t WHERE EXISTS (SELECT u.id, COUNT(*) FROM u)", "without columns beside them"),
        (
            "SELECT id FROM t, LATERAL (SELECT * FROM (SELECT id AS a FROM u) WHERE a > t.id LIMIT 1) AS m",
            "name the columns",
        ),
        ("SELECT x, id IN (SELECT id FROM u AS t WHERE t.id > x) FROM t", "rename one of them"),
    ],
)
def test_what_cannot_be_freed_is_refused_with_the_remedy(query: str, told: str) -> None:
    env = StreamEnvironment(runtime="local")
    env.sql("CREATE VIEW t AS SELECT * FROM (VALUES (1, 2)) AS t (id, x)")
    env.sql("CREATE VIEW u AS SELECT * FROM (VALUES 1) AS u (id)")
    with pytest.raises(SqlUnsupportedError, match=told):
        env.sql(query)
