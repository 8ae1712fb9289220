"""Conditions of WHERE above joins: what they are joined by, and what goes below them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock import StreamEnvironment, WatermarkStrategy
from penstock.tables.catalog.catalog import StreamTable
from penstock.tables.environment import stream_columns

HOUR = 3_600_000


@pytest.fixture
def env() -> StreamEnvironment:
    """Orders and payments with event time."""
    env = StreamEnvironment(runtime="local", parallelism=2)
    for name, hours in (("orders", [0, 1, 2]), ("payments", [0, 3, 2])):
        times = pa.array([hour * HOUR for hour in hours], pa.timestamp("ms"))
        rows = pa.table({"id": [1, 2, 3], "amount": [10, 20, 30], "at": times})
        stream = env.from_collection(rows).assign_timestamps("at", WatermarkStrategy.for_monotonous_timestamps())
        env.tables.catalog.add(StreamTable(name, stream, stream_columns(stream, "at")))
    return env


def explained(env: StreamEnvironment, query: str) -> str:
    table = env.sql(f"EXPLAIN {query}")
    assert table is not None
    return "\n".join(str(next(iter(row.values()))) for row in table.collect())


COMMA_JOIN = "SELECT o.id FROM orders o, payments p WHERE o.id = p.id"


def test_an_equality_in_where_is_a_key_of_the_join(env: StreamEnvironment) -> None:
    plan = explained(env, f"{COMMA_JOIN} AND o.amount + p.amount > 30")
    assert "Join(INNER, ((id = id) AND" in plan
    assert "Filter" not in plan


WITHIN_AN_HOUR = f"{COMMA_JOIN} AND p.at BETWEEN o.at AND o.at + INTERVAL '1' HOUR AND o.amount < 30"


def test_bounds_of_time_in_where_make_an_interval_join(env: StreamEnvironment) -> None:
    assert "IntervalJoin" in explained(env, WITHIN_AN_HOUR)


def test_an_interval_join_of_where_gives_the_pairs_within_its_bounds(env: StreamEnvironment) -> None:
    table = env.sql(WITHIN_AN_HOUR)
    assert table is not None
    assert [row["id"] for row in table.collect()] == [1]


def test_a_condition_of_one_side_is_asked_before_the_join_where_it_cannot_fail(env: StreamEnvironment) -> None:
    plan = explained(env, f"{COMMA_JOIN} AND o.amount > 5 AND p.amount > 5 AND 60 / o.amount > 1")
    join, *sides = plan[plan.index("Join(") :].splitlines()
    assert "(id = id)" in join
    assert "/" in join
    nodes = [side.strip().partition("(")[0] for side in sides]
    assert [node for node in nodes if node != "Project"] == ["Filter", "Scan", "Filter", "Scan"]


def test_what_differs_each_time_stays_above(env: StreamEnvironment) -> None:
    plan = explained(env, f"{COMMA_JOIN} AND RAND() + o.amount > 5")
    assert plan.index("RAND") < plan.index("Join(INNER, (id = id))")


def test_months_are_no_bound_as_they_have_no_length() -> None:
    env = StreamEnvironment(runtime="local", parallelism=1)
    for name, days in (("a", ["2024-01-01", "2024-02-01"]), ("b", ["2024-01-03", "2024-03-02"])):
        rows = pa.table({"k": [1, 2], "at": pa.array(days).cast(pa.timestamp("ms"))})
        stream = env.from_collection(rows).assign_timestamps("at", WatermarkStrategy.for_monotonous_timestamps())
        env.tables.catalog.add(StreamTable(name, stream, stream_columns(stream, "at")))
    table = env.sql("SELECT a.k FROM a JOIN b ON a.k = b.k AND b.at BETWEEN a.at AND a.at + INTERVAL '1' MONTH")
    assert table is not None
    assert [row["k"] for row in table.collect()] == [1]
