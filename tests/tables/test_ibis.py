"""Expressions of Ibis's as tables: they give what they say in Ibis, and what cannot be said is told."""

from __future__ import annotations

import datetime as dt
import sys
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import duckdb
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
from penstock.tables.ibis_queries import unbound_table

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


NUMBERS = """CREATE VIEW numbers AS
    SELECT CAST(a AS TINYINT) AS i8, CAST(b AS SMALLINT) AS i16, c AS i32, d AS i64, CAST(e AS FLOAT) AS f32,
        CAST(e AS DOUBLE) AS f64, e AS dec, f AS yes, g AS word, h AS `at`
    FROM (VALUES
        (100, 30000, 2000000000, 9007199254740993, 1.25, TRUE, 'ann', TIMESTAMP '2024-01-02 03:04:05.678'),
        (-7, -30000, -1, -9223372036854775800, -2.75, FALSE, 'bob', TIMESTAMP '2023-01-02 03:04:06.789')
    ) AS v (a, b, c, d, e, f, g, h)"""
LONG = (9007199254740993, -9223372036854775800)
EXPRESSIONS: dict[str, tuple[Callable[[ibis.Table], ibis.Expr], list[Any]]] = {
    "a sum beyond INT": (lambda t: t.union(t).i32.sum(), [3999999998]),
    "a sum beyond TINYINT": (lambda t: t.union(t).i8.sum(), [186]),
    "a sum of some": (lambda t: t.i16.sum(where=t.i16 < 0), [-30000]),
    "a sum of sums of SMALLINT": (lambda t: t.filter(t.yes).select(n=t.i16 + t.i16).n.sum(), [60000]),
    "a sum of what is written": (lambda t: t.select(n=ibis.literal(2000000000, "int64")).n.sum(), [4000000000]),
    "a sum of places": (lambda t: (t.word.find("n") * 3000000000).sum(), [0]),
    "a sum of two sums": (lambda t: t.i32.sum() + t.i32.sum(), [3999999998]),
    "a sum of booleans": (lambda t: t.yes.sum(), [1]),
    "a sum of FLOATs": (lambda t: t.f32.sum(), [-1.5]),
    "a sum of DECIMALs": (lambda t: t.dec.sum(), [Decimal("-1.50")]),
    "a running sum": (lambda t: t.i32.sum().over(ibis.cumulative_window(order_by=t.at)), [-1, 1999999999]),
    "INT + INT": (lambda t: t.i32 + t.i32, [-2, 4000000000]),
    "INT * 2": (lambda t: t.i32 * 2, [-2, 4000000000]),
    "-2 * INT": (lambda t: -2 * t.i32, [-4000000000, 2]),
    "INT - INT": (lambda t: -t.i32 - t.i32, [-4000000000, 2]),
    "INT * INT": (lambda t: t.i32 * t.i32, [1, 4 * 10**18]),
    "TINYINT + TINYINT": (lambda t: t.i8 + t.i8, [-14, 200]),
    "TINYINT * TINYINT * TINYINT": (lambda t: t.i8 * t.i8 * t.i8, [-343, 1000000]),
    "TINYINT + BIGINT": (lambda t: t.i8 + t.i64, [LONG[1] - 7, LONG[0] + 100]),
    "SMALLINT % 7": (lambda t: t.i16 % 7, [-5, 5]),
    "INT + 1.5": (lambda t: t.i32 + 1.5, [0.5, 2000000001.5]),
    "FLOAT - 1": (lambda t: t.f32 - 1, [-3.75, 0.25]),
    "INT / 2": (lambda t: t.i32 / 2, [-0.5, 1e9]),
    "INT // 2": (lambda t: t.i32 // 2, [-1, 1000000000]),
    "TINYINT // -2": (lambda t: t.i8 // -2, [-50, 3]),
    "BIGINT // 2": (lambda t: t.i64 // 2, [LONG[1] // 2, LONG[0] // 2]),
    "BIGINT // 1": (lambda t: t.i64 // 1, [LONG[1], LONG[0]]),
    "-1 // the greatest BIGINT": (lambda t: ibis.least(t.i8, -1) // (2**63 - 1), [-1, -1]),
    "DOUBLE // 2": (lambda t: t.f64 // 2, [-2, 0]),
    "DECIMAL // 2": (lambda t: t.dec // 2, [-2, 0]),
    "(n * 2) // 3 * 4 // -5": (lambda t: (t.i8 * 2) // 3 * 4 // -5, [-53, 4]),
    "means of whole numbers": (lambda t: t.i32.mean(), [999999999.5]),
    "means of booleans": (lambda t: t.yes.mean(), [0.5]),
    "variances of booleans": (lambda t: t.yes.var(how="pop"), [0.25]),
    "standard deviations": (lambda t: t.i8.std(how="pop"), [53.5]),
    "means of FLOATs": (lambda t: t.f32.mean(), [-0.75]),
    "of a group": (lambda t: t.group_by(k=t.i32 * 2).agg(n=_.i32.sum() * 2).filter(_.n > 0).n, [4000000000]),
    "powers": (lambda t: t.i8**2, [49.0, 10000.0]),
    "floors": (lambda t: t.f64.floor(), [-3, 1]),
    "rounded": (lambda t: t.f64.round(), [-3, 1]),
    "absolute": (lambda t: t.i16.abs(), [30000, 30000]),
    "one of two": (lambda t: t.yes.ifelse(t.i8, t.i32), [-1, 100]),
    "any": (lambda t: t.yes.any(), [True]),
    "all": (lambda t: t.yes.all(), [False]),
    "lengths": (lambda t: t.word.length(), [3, 3]),
    "days": (lambda t: t["at"].date(), [dt.date(2023, 1, 2), dt.date(2024, 1, 2)]),
    "counts": (lambda t: t.word.nunique() + t.count(), [4]),
    "ranks": (lambda t: ibis.rank().over(order_by=t.i32), [0, 1]),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_values_and_types_are_those_of_ibis(env: StreamEnvironment, name: str) -> None:
    env.sql(NUMBERS)
    made, values = EXPRESSIONS[name]
    expression = made(env.tables.ibis_table("numbers"))
    table = env.tables.from_ibis(expression)
    wanted = expression.as_table().schema()
    assert list(table.columns) == list(wanted)
    kinds = unbound_table(["any"], table.columns).schema().types
    assert [kind(nullable=True) for kind in kinds] == [kind(nullable=True) for kind in wanted.types]
    assert [row[0] for row in given(env, expression)] == values


def test_a_mean_of_means_is_that_of_ibis(env: StreamEnvironment) -> None:
    clicks = env.tables.ibis_table("clicks")
    by_name = clicks.group_by("name").agg(mean=_.n.mean(), spread=_.n.var(how="pop"))
    assert given(env, by_name) == [("ann", 3.5, 0.25), ("bob", 1.0, 0.0)]
    assert given(env, by_name.agg(mean=_.mean.mean(), spread=_.spread.mean())) == [(2.25, 0.125)]


@pytest.mark.parametrize(
    "name",
    ["`odd name`", "`a``b`", "`a.b`", "default_catalog.default_database.c", "other.`a.b`", "lake.raw.c"],
)
def test_a_table_is_had_by_any_name_of_sql(env: StreamEnvironment, name: str) -> None:
    env.sql("CREATE DATABASE other")
    env.sql("CREATE CATALOG lake WITH ('type' = 'generic_in_memory', 'default-database' = 'raw')")
    env.sql(f"CREATE VIEW {name} AS SELECT * FROM clicks")
    assert given(env, env.tables.ibis_table(name).n.sum()) == [(8,)]


def test_what_is_no_name_is_told(env: StreamEnvironment) -> None:
    with pytest.raises(SqlSyntaxError, match="expected nothing more behind the name, but there is 'AS'"):
        env.tables.ibis_table("clicks AS c")


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


JOINS: dict[str, Callable[[ibis.Table, ibis.Table], ibis.Expr]] = {
    "semi": lambda one, other: one.semi_join(other, "name"),
    "anti": lambda one, other: one.anti_join(other, "name"),
    "semi, by other comparisons": lambda one, other: one.semi_join(other, ["name", one.n > other.n]),
    "anti, by other comparisons": lambda one, other: one.anti_join(other, ["name", one.n > other.n]),
    "anti, by an order alone": lambda one, other: one.anti_join(other, one.n >= other.n + 2),
    "semi, behind another": lambda one, other: (
        one.join(other, "name").semi_join(other.filter(_.n > 1), "name").select("name", "n")
    ),
    "anti, of groups": lambda one, other: one.group_by("name").agg(n=_.n.sum()).anti_join(other, "n"),
}


@pytest.mark.parametrize("name", JOINS)
def test_semi_and_anti_joins_are_those_of_duckdb(env: StreamEnvironment, name: str) -> None:
    rows = "(VALUES ('ann', 1), ('ann', 5), (CAST(NULL AS VARCHAR), 2), ('cat', 7))"
    env.sql(f"CREATE VIEW others AS SELECT * FROM {rows} AS t (name, n)")
    expression = JOINS[name](env.tables.ibis_table("clicks").select("name", "n"), env.tables.ibis_table("others"))
    with duckdb.connect() as database:
        database.sql(f"CREATE VIEW clicks AS SELECT * FROM (VALUES {ROWS}) AS t (name, n, moment)")
        database.sql(f"CREATE VIEW others AS SELECT * FROM {rows} AS t (name, n)")
        wanted = database.sql(str(ibis.to_sql(expression, dialect="duckdb"))).fetchall()
    assert given(env, expression) == sorted(wanted)


def test_windows_are_over_event_time(env: StreamEnvironment) -> None:
    stream = env.from_collection(
        [("ann", dt.datetime(2024, 1, 2, 3, 4, 5)), ("ann", dt.datetime(2024, 1, 2, 3, 4, 5, 900_000))],
        schema=["name", "at"],
    )
    env.tables.create_temporary_view("visits", stream.assign_timestamps("at"), rowtime="at")
    visits = env.tables.ibis_table("visits")
    by_window = visits.window_by(visits.at).tumble(size=ibis.interval(seconds=2)).agg(by=["name"], visits=_.count())
    assert given(env, by_window) == [(dt.datetime(2024, 1, 2, 3, 4, 4), dt.datetime(2024, 1, 2, 3, 4, 6), "ann", 2)]

    visits = env.tables.ibis_table("default_database.visits")
    by_window = visits.window_by(visits.at).tumble(size=ibis.interval(seconds=2)).agg(visits=_.count())
    with pytest.raises(GraphError, match="a window is over 'visits' of the database 'default_database'"):
        env.tables.from_ibis(by_window)


def test_each_row_meets_the_last_one_before_it(env: StreamEnvironment) -> None:
    rows = "CREATE VIEW {} AS SELECT who, TO_TIMESTAMP(`at`) AS `at`, n FROM (VALUES {}) AS v (who, `at`, n)"
    at = "'2024-01-01 00:00:0{}'".format
    env.sql(rows.format("orders", f"('a', {at(5)}, 1), ('a', {at(9)}, 2), ('b', {at(1)}, 3)"))
    env.sql(rows.format("rates", f"('a', {at(3)}, 10), ('a', {at(5)}, 11), ('a', {at(6)}, 12), ('b', {at(2)}, 13)"))
    orders, rates = env.tables.ibis_table("orders"), env.tables.ibis_table("rates")

    def met(**how: Any) -> list[tuple[Any, ...]]:
        joined = orders.asof_join(rates, "at", predicates=["who"], **how)
        return given(env, joined.select("n", rate=joined.n_right))

    assert met() == [(1, 11), (2, 12), (3, None)]
    assert met(tolerance=ibis.interval(seconds=2)) == [(1, 11), (2, None), (3, None)]


def test_what_ibis_cannot_say_in_sql_is_told(env: StreamEnvironment) -> None:
    clicks = env.tables.ibis_table("clicks")
    with pytest.raises(GraphError, match=r"Ibis cannot say this in Flink's SQL: .*'Median'"):
        env.tables.from_ibis(clicks.n.median())
    with pytest.raises(GraphError, match=r"TimestampUnit.MICROSECOND: 'us'> unit is not supported"):
        env.tables.from_ibis(clicks.n.as_timestamp("us"))
    with pytest.raises(GraphError, match=r"holds ibis.param\('int32'\), which has no value: write the value"):
        env.tables.from_ibis(clicks.filter(clicks.n > ibis.param("int32")))
    with pytest.raises(GraphError, match="holds a memtable"):
        env.tables.from_ibis(InMemoryTable("rows", {"a": "int64"}, Rows([1])).to_expr())
    with pytest.raises(ConfigurationError, match="an expression of Ibis's, not 'SELECT 1'"):
        env.tables.from_ibis("SELECT 1")


def test_what_sql_refuses_is_told_with_the_text_of_ibis(env: StreamEnvironment) -> None:
    clicks = env.tables.ibis_table("clicks")
    other = clicks.view()
    with pytest.raises(SqlUnsupportedError, match="compares one column of t2, as it is, by >="):
        env.tables.from_ibis(clicks.asof_join(other, clicks.n == other.n))
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
