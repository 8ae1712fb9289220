"""Expressions of Ibis's as tables: they give what they say in Ibis, and what cannot be said is told."""

from __future__ import annotations

import datetime as dt
import sys
from collections import Counter
from typing import Any

import ibis
import pytest
from ibis import _
from ibis.expr.operations import InMemoryTable
from ibis.formats import TableProxy

from penstock import StreamEnvironment
from penstock.engine.errors import (
    ConfigurationError,
    GraphError,
    SqlSyntaxError,
    SqlUnsupportedError,
    SqlValidationError,
)

ROWS = (
    "('ann', 3, TIMESTAMP '2024-01-02 03:04:05.678'), ('bob', 1, TIMESTAMP '2024-01-02 03:04:06'), "
    "('ann', 4, TIMESTAMP '2024-01-02 03:04:08')"
)


class Rows(TableProxy):  # type: ignore[misc]
    """Rows of Ibis's own: what `ibis.memtable` makes, where the packages are there that it takes."""

    to_frame = to_pyarrow = to_polars = None


@pytest.fixture
def env() -> StreamEnvironment:
    env = StreamEnvironment(runtime="local")
    env.sql(f"CREATE VIEW clicks AS SELECT * FROM (VALUES {ROWS}) AS t (name, n, `at`)")
    return env


def given(env: StreamEnvironment, expression: ibis.Expr) -> list[tuple[Any, ...]]:
    """The rows that an expression has in the end, in order."""
    rows: Counter[tuple[Any, ...]] = Counter()
    for row in env.tables.from_ibis(expression).to_changelog().collect():
        op, *values = row.values()
        rows[tuple(values)] += 1 if op in ("+I", "+U") else -1
    return sorted((+rows).elements())


def test_a_table_has_the_columns_and_types_of_the_catalog(env: StreamEnvironment) -> None:
    env.sql(
        "CREATE TABLE orders (id BIGINT NOT NULL, price DECIMAL(10, 2), paid TIMESTAMP_LTZ(3), tags ARRAY<STRING>, "
        "place ROW<x DOUBLE, y DOUBLE>, counts MAP<STRING, INT>) WITH ('connector' = 'datagen')"
    )
    schema = env.tables.ibis_table("orders").schema()
    assert {name: str(kind) for name, kind in schema.items()} == {
        "id": "!int64",
        "price": "decimal(10, 2)",
        "paid": "timestamp('UTC', 3)",
        "tags": "array<string>",
        "place": "struct<x: float64, y: float64>",
        "counts": "map<string, int32>",
    }


def test_rows_are_filtered_computed_and_grouped(env: StreamEnvironment) -> None:
    clicks = env.tables.ibis_table("clicks")
    assert given(env, clicks.filter(clicks.n > 1).select(shout=_.name.upper(), half=_.n / 2, year=_.at.year())) == [
        ("ANN", 1.5, 2024),
        ("ANN", 2.0, 2024),
    ]
    grouped = clicks.group_by("name").agg(total=_.n.sum(), most=_.n.max(), rows=_.count()).filter(_.total > 5)
    assert given(env, grouped) == [("ann", 7, 4, 2)]
    assert given(env, clicks.n.sum()) == [(8,)]


def test_means_and_variances_of_whole_numbers_are_those_of_ibis(env: StreamEnvironment) -> None:
    clicks = env.tables.ibis_table("clicks")
    by_name = clicks.group_by("name").agg(mean=_.n.mean(), spread=_.n.var(how="pop"))
    assert given(env, by_name) == [("ann", 3.5, 0.25), ("bob", 1.0, 0.0)]
    # One within the other.
    assert given(env, by_name.agg(mean=_.mean.mean(), spread=_.spread.mean())) == [(2.25, 0.125)]


def test_tables_are_joined_united_and_ranked(env: StreamEnvironment) -> None:
    clicks = env.tables.ibis_table("clicks")
    best = clicks.group_by("name").agg(best=_.n.max())
    assert given(env, clicks.join(best, ["name", clicks.n == best.best]).select("name", "n")) == [
        ("ann", 4),
        ("bob", 1),
    ]
    assert given(env, clicks.select("name").union(clicks.select("name"), distinct=True)) == [("ann",), ("bob",)]
    first = ibis.row_number().over(group_by="name", order_by=ibis.desc("n"))
    assert given(env, clicks.filter(first < 1).select("name", "n")) == [("ann", 4), ("bob", 1)]


def test_windows_are_over_event_time(env: StreamEnvironment) -> None:
    stream = env.from_collection(
        [("ann", dt.datetime(2024, 1, 2, 3, 4, 5)), ("ann", dt.datetime(2024, 1, 2, 3, 4, 5, 900_000))],
        schema=["name", "at"],
    )
    env.tables.create_temporary_view("visits", stream.assign_timestamps("at"), rowtime="at")
    visits = env.tables.ibis_table("visits")
    by_window = visits.window_by(visits.at).tumble(size=ibis.interval(seconds=2)).agg(by=["name"], visits=_.count())
    assert given(env, by_window) == [(dt.datetime(2024, 1, 2, 3, 4, 4), dt.datetime(2024, 1, 2, 3, 4, 6), "ann", 2)]


def test_what_ibis_cannot_say_in_sql_is_told(env: StreamEnvironment) -> None:
    clicks = env.tables.ibis_table("clicks")
    with pytest.raises(GraphError, match=r"Ibis cannot say this in Flink's SQL: .*'Median'"):
        env.tables.from_ibis(clicks.n.median())
    with pytest.raises(GraphError, match="holds a memtable"):
        env.tables.from_ibis(InMemoryTable("rows", {"a": "int64"}, Rows([1])).to_expr())
    with pytest.raises(ConfigurationError, match="an expression of Ibis's, not 'SELECT 1'"):
        env.tables.from_ibis("SELECT 1")


def test_what_sql_refuses_is_told_with_the_text_of_ibis(env: StreamEnvironment) -> None:
    clicks = env.tables.ibis_table("clicks")
    with pytest.raises(SqlUnsupportedError, match="LEFT SEMI JOIN"):
        env.tables.from_ibis(clicks.semi_join(clicks.view(), "name"))
    with pytest.raises(SqlSyntaxError, match="ASOF LEFT JOIN"):
        env.tables.from_ibis(clicks.asof_join(clicks.view(), "at"))
    with pytest.raises(SqlValidationError, match=r"no table 'clickz' \(did you mean 'clicks'"):
        env.tables.from_ibis(ibis.table({"n": "int64"}, name="clickz"))


def test_a_column_of_a_type_that_ibis_does_not_have_is_told(env: StreamEnvironment) -> None:
    env.sql("CREATE VIEW documents AS SELECT PARSE_JSON('1') AS document")
    with pytest.raises(GraphError, match="column 'document' is VARIANT"):
        env.tables.ibis_table("documents")


def test_without_ibis_it_is_said_how_to_install_it(env: StreamEnvironment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ibis", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'penstock\[ibis\]'"):
        env.tables.ibis_table("clicks")
