"""Expressions of streams in the verbs of tables: rows as of streams, columns as of SQL, and state that fits."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest
from narwhals.stable.v2 import nth

from penstock import StreamEnvironment, col
from penstock.engine.errors import ConfigurationError, GraphError, SqlError
from penstock.engine.expressions import Expr, concat_str, lit
from penstock.tables.table import Table
from tests.tables.test_against_duckdb import _there


@pytest.fixture
def env() -> StreamEnvironment:
    made = StreamEnvironment(runtime="local", parallelism=1)
    made.sql("CREATE VIEW bids AS SELECT * FROM (VALUES ('pen', 3), ('cup', 5), ('pen', 4)) AS t (item, price)")
    return made


def _rows(table: Table) -> list[tuple[Any, ...]]:
    return sorted(_there(list(table.collect())).elements(), key=repr)


def test_verbs_take_the_expressions_of_streams(env: StreamEnvironment) -> None:
    bids = env.tables.table("bids")
    dear = bids.where(col("price") > 3).select("item", (col("price") * 2).alias("twice"))
    assert _rows(dear) == [("cup", 10), ("pen", 8)]
    assert _rows(bids.add_columns(col("item").str.to_uppercase().alias("name"), "price + 1 AS more")) == [
        ("cup", 5, "CUP", 6),
        ("pen", 3, "PEN", 4),
        ("pen", 4, "PEN", 5),
    ]
    totals = bids.group_by("item").select("item", "SUM(price) AS total").where(col("total") > 5)
    assert _rows(totals) == [("pen", 7)]


def test_an_expression_that_does_not_fit_is_refused(env: StreamEnvironment) -> None:
    bids = env.tables.table("bids")
    with pytest.raises(GraphError, match="no column 'pric' \\(did you mean 'price'\\?\\)"):
        bids.select(col("pric"))
    with pytest.raises(GraphError, match="looks at other rows"):
        bids.where(col("price").mean() > 3)
    with pytest.raises(SqlError, match="WHERE needs a condition"):
        bids.where(col("price"))


def test_another_expression_is_another_operator(env: StreamEnvironment) -> None:
    bids = env.tables.table("bids")
    made = [bids.add_columns((col("price") * factor).alias("n")).explain() for factor in (1, 2, 1)]
    assert made[0] == made[2] != made[1]


def test_arrays_that_differ_in_their_middle_are_two(env: StreamEnvironment) -> None:
    every = np.arange(2000)
    given = env.sql("SELECT * FROM (VALUES (1), (1500), (CAST(NULL AS INT))) AS t (a)")
    taken = given.select("a", col("a").is_in(every).alias("x"), col("a").is_in(np.delete(every, 1500)).alias("x"))
    assert {(row["a"], row["x"], row["x0"]) for row in taken.collect()} == {
        (1, True, True),
        (1500, True, False),
        (None, None, None),
    }


def test_a_number_is_not_the_text_of_its_digits(env: StreamEnvironment) -> None:
    made = [env.tables.table("bids").add_columns(lit(one).alias("n")).explain() for one in (1, "1")]
    assert made[0] != made[1]


_SAID = """
from penstock.engine.expressions import col
from penstock.tables.column_expressions import written
from penstock.tables.types import STRING
print(written("where", [col("s").is_in({"a", "b", "c", "d", "e"})], {"s": STRING}, {}))
"""


def test_a_set_is_known_again_by_another_process() -> None:
    def said(seed: str) -> bytes:
        return subprocess.check_output([sys.executable, "-c", _SAID], env={**os.environ, "PYTHONHASHSEED": seed})

    assert said("1") == said("2")


def test_what_another_process_would_not_know_is_refused(env: StreamEnvironment) -> None:
    words = pd.Series(["pen"])
    bids = env.tables.table("bids")
    with pytest.raises(GraphError, match=r"holds a pandas\.Series, .* give its values as a list"):
        bids.where(col("item").is_in(words))
    assert len(_rows(bids.where(col("item").is_in(words.to_list())))) == 2


@pytest.mark.parametrize("at", [col("at"), col("time").alias("at")], ids=["by its name", "by another name"])
def test_a_column_as_it_is_stays_event_time(env: StreamEnvironment, at: Expr) -> None:
    name = "at" if repr(at) == "col(at)" else "time"
    rows = env.from_collection([{"n": 1, name: datetime(2024, 1, 1)}]).assign_timestamps(name)
    env.tables.create_temporary_view("clicks", rows, rowtime=name)
    env.tables.create_temporary_view("taken", env.tables.table("clicks").select(col("n").alias("k"), at))
    hours = "TABLE(TUMBLE(TABLE taken, DESCRIPTOR(at), INTERVAL '1' HOUR))"
    assert _rows(env.sql(f"SELECT SUM(k) AS s FROM {hours} GROUP BY window_start, window_end")) == [(1,)]


def test_a_column_as_it_is_stays_a_key(env: StreamEnvironment) -> None:
    totals = env.tables.table("bids").group_by("item").select("item", "SUM(price) AS total")
    env.sql(
        "CREATE TABLE kept (item STRING, total INT, PRIMARY KEY (item) NOT ENFORCED) WITH ('connector'='blackhole')"
    )
    env.tables.create_temporary_view("by_verbs", totals.select(col("item", "total")))
    env.tables.create_temporary_view("by_sql", totals.select("item", "total"))
    by_verbs, by_sql = (
        _rows(env.sql(f"EXPLAIN INSERT INTO kept SELECT * FROM {view}")) for view in ("by_verbs", "by_sql")
    )
    assert by_verbs == by_sql


def test_an_expression_reads_the_columns_that_it_names(env: StreamEnvironment) -> None:
    bids = env.tables.table("bids")
    assert "(EXPR$1) AS n" in bids.select((col("price") + 1).alias("n")).explain()
    assert "(EXPR$0, EXPR$1) AS n" in bids.select(concat_str("item", "price").alias("n")).explain()
    assert _rows(bids.select(nth(1) + 1)) == [(4,), (5,), (6,)]
    assert _rows(bids.select(lit(1).alias("one"))) == [(1,), (1,), (1,)]


def test_names_may_have_backticks(env: StreamEnvironment) -> None:
    given = env.sql("SELECT 1 AS `a``b`, TRUE AS flag")
    taken = given.where(col("flag")).select(col("a`b").alias("q`x"), (col("a`b") + 1).alias("r`"))
    assert list(taken.collect()) == [{"q`x": 1, "r`": 2}]
    assert list(given.drop_columns("flag").columns) == ["a`b"]


def test_a_condition_is_one_column(env: StreamEnvironment) -> None:
    with pytest.raises(GraphError, match=r"where: the condition gives 2 columns; join them with all_horizontal"):
        env.tables.table("bids").where(col("item", "price"))


def test_groups_and_orders_take_expressions(env: StreamEnvironment) -> None:
    bids = env.tables.table("bids")
    parity = bids.group_by((col("price") % 2).alias("odd"), "item").select("odd", "item", "MAX(price) AS m")
    assert _rows(parity) == [(0, "pen", 4), (1, "cup", 5), (1, "pen", 3)]
    assert _rows(bids.group_by(col("item")).select("item", "COUNT(*) AS n")) == [("cup", 1), ("pen", 2)]
    assert [row["price"] for row in bids.order_by(col("item"), "price DESC").collect()] == [5, 4, 3]
    assert [row["price"] for row in bids.order_by(-col("price")).collect()] == [5, 4, 3]
    assert _rows(bids.first(1, (col("price") - 4).abs())) == [("pen", 4)]
    with pytest.raises(ConfigurationError, match="group_by: there is a column 'price'; name the key"):
        bids.group_by(col("price") % 2)


def test_joins_take_expressions(env: StreamEnvironment) -> None:
    env.sql("CREATE VIEW stock AS SELECT * FROM (VALUES ('pen', 7), ('cup', 0)) AS t (item, pieces)")
    bids, stock = env.tables.table("bids"), env.tables.table("stock")
    same = col("this.item") == col("other.item")
    assert _rows(bids.join(stock, same).select("price", "pieces")) == [(3, 7), (4, 7), (5, 0)]
    dear = bids.join(stock, same & (col("price") + col("pieces") > 10), how="left").select("price", "pieces")
    assert _rows(dear) == [(3, None), (4, 7), (5, None)]
    assert bids.join(stock, same).explain() == bids.join(stock, "this.item = other.item").explain()
    with pytest.raises(GraphError, match="no column 'item'"):
        bids.join(stock, col("item") == col("other.item"))
