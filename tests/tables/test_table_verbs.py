"""The verbs of `Table`: each gives what its query in SQL gives."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from penstock import StreamEnvironment
from penstock.engine.errors import ConfigurationError, GraphError, SqlError
from penstock.tables.table import Table
from tests.tables.test_against_duckdb import _there


@pytest.fixture
def env() -> StreamEnvironment:
    made = StreamEnvironment(runtime="local", parallelism=1)
    made.sql("CREATE VIEW bids AS SELECT * FROM (VALUES ('pen', 3), ('cup', 5), ('pen', 4)) AS t (item, price)")
    made.sql("CREATE VIEW stock AS SELECT * FROM (VALUES ('pen', 7), ('hat', 0)) AS t (item, pieces)")
    return made


def _rows(table: Table) -> list[tuple[Any, ...]]:
    return sorted(_there(list(table.collect())).elements(), key=repr)


def test_each_verb_gives_what_its_query_gives(env: StreamEnvironment) -> None:
    bids, stock = env.tables.table("bids"), env.tables.table("stock")
    assert _rows(bids.where("price > 3").select("item", "price * 2 AS twice")) == [("cup", 10), ("pen", 8)]
    assert _rows(bids.select("item").distinct()) == [("cup",), ("pen",)]
    assert _rows(bids.group_by("item").select("item", "COUNT(*) AS n", "MAX(price) AS m")) == [
        ("cup", 1, 5),
        ("pen", 2, 4),
    ]
    met = bids.join(stock, "this.item = other.item", how="left").select("price", "pieces")
    assert _rows(met) == [(3, 7), (4, 7), (5, None)]
    items, names = bids.select("item"), stock.select("item")
    assert len(_rows(items.union_all(names))) == 5
    assert _rows(items.union(names)) == [("cup",), ("hat",), ("pen",)]
    assert _rows(items.intersect(names)) == [("pen",)]
    assert _rows(items.minus(names)) == [("cup",)]
    assert [row["price"] for row in bids.order_by("price DESC").collect()] == [5, 4, 3]
    assert _rows(bids.first(1, "price DESC")) == [("cup", 5)]
    assert len(_rows(bids.limit(2))) == 2
    assert list(bids.add_columns("price + 1 AS more").drop_columns("price").columns) == ["item", "more"]
    assert _rows(bids.sql("SELECT SUM(price) AS s FROM this WHERE item IN (SELECT item FROM stock)")) == [(7,)]


def test_verbs_stand_upon_verbs(env: StreamEnvironment) -> None:
    best = env.tables.table("bids").group_by("item").select("item", "SUM(price) AS total").where("total > 5")
    assert _rows(best.first(1, "total DESC").select("UPPER(item) AS item")) == [("PEN",)]


def test_rows_go_into_a_table(env: StreamEnvironment) -> None:
    env.sql("CREATE TABLE totals (item STRING, total INT) WITH ('connector' = 'blackhole')")
    env.tables.table("bids").insert_into("totals")
    env.execute()
    with pytest.raises(SqlError, match="there is no table 'total'"):
        env.tables.table("bids").insert_into("total")


def test_what_is_wrong_is_said(env: StreamEnvironment) -> None:
    bids = env.tables.table("bids")
    with pytest.raises(SqlError, match="no column 'prise' \\(did you mean 'price'"):
        bids.where("prise > 3")
    with pytest.raises(ConfigurationError, match="how='outer' is no join; take INNER"):
        bids.join(bids, "TRUE", how="outer")
    with pytest.raises(ConfigurationError, match="no column 'prise'"):
        bids.drop_columns("prise")
    with pytest.raises(ConfigurationError, match="select: name a column"):
        bids.select()
    with pytest.raises(ConfigurationError, match="of one environment"):
        bids.union_all(StreamEnvironment(runtime="local").sql("SELECT 'a', 1"))  # type: ignore[arg-type]
    with pytest.raises(SqlError, match="a query is wanted here"):
        bids.sql("SHOW TABLES")


def test_a_table_shows_its_columns_and_how_its_rows_are_read(env: StreamEnvironment) -> None:
    bids = env.tables.table("bids")
    assert "<th>item<br><small>" in bids._repr_html_()
    assert "rows only come; collect() gives them" in repr(bids)
    assert "rows change: each has an `op`" in repr(bids.group_by("item").select("item", "SUM(price) AS total"))


def test_a_table_gets_a_name_in_sql(env: StreamEnvironment) -> None:
    totals = env.tables.table("bids").group_by("item").select("item", "SUM(price) AS total")
    env.tables.create_temporary_view("totals", totals)
    assert _rows(env.sql("SELECT item FROM totals WHERE total > 5")) == [("pen",)]
    assert ("totals",) in _rows(env.sql("SHOW TABLES"))
    assert _rows(env.sql("DESCRIBE totals"))[1][:2] == ("total", "INT")
    with pytest.raises(SqlError, match="'totals' is a stream or table of the program"):
        env.sql("SHOW CREATE VIEW totals")
    with pytest.raises(ConfigurationError, match="the table for 'theirs' is of another environment"):
        StreamEnvironment(runtime="local").tables.create_temporary_view("theirs", totals)


def test_a_stream_keeps_its_event_time_in_sql(env: StreamEnvironment) -> None:
    rows = [{"k": "a", "ts": datetime(2024, 1, 1, 0, minute)} for minute in (0, 0, 1)]
    stream = env.from_collection(rows)
    with pytest.raises(GraphError, match=r"rowtime: call assign_timestamps\('ts', ...\) before"):
        env.tables.create_temporary_view("clicks", stream, rowtime="ts")
    env.tables.create_temporary_view("clicks", stream.assign_timestamps("ts"), rowtime="ts")
    minutes = "TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"
    counts = env.sql(f"SELECT window_start, COUNT(*) AS n FROM {minutes} GROUP BY window_start, window_end")
    assert _rows(counts) == [(datetime(2024, 1, 1), 2), (datetime(2024, 1, 1, 0, 1), 1)]


def test_a_name_is_given_again_when_its_program_has_run(env: StreamEnvironment) -> None:
    def named() -> None:
        env.tables.create_temporary_view("clicks", env.from_collection([("a", 1), ("b", 2)], schema=["k", "n"]))
        env.tables.create_temporary_view("more", env.sql("SELECT k FROM clicks WHERE n > 1"))

    for _ in range(2):  # as a cell of a notebook that is run again
        named()
        with pytest.raises(ConfigurationError, match="there is a table 'clicks' already"):
            named()
        assert _rows(env.sql("SELECT k FROM more")) == [("b",)]
    for query in ("SELECT k FROM clicks", "SELECT k FROM more"):
        with pytest.raises(SqlError, match="'clicks' is a stream of a program that has run"):
            env.sql(query).collect()


def test_a_query_does_not_read_another_table_than_it_was_made_of(env: StreamEnvironment) -> None:
    env.tables.create_temporary_view("clicks", env.from_collection([("a", 1), ("b", 2)], schema=["k", "n"]))
    many = env.sql("SELECT k FROM clicks WHERE n > 1")
    assert _rows(many) == [("b",)]
    env.tables.create_temporary_view("clicks", env.from_collection([(3, "c")], schema=["n", "k"]))
    with pytest.raises(SqlError, match="'clicks' is another table now than when this query was made"):
        many.collect()
    assert _rows(env.sql("SELECT k FROM clicks WHERE n > 1")) == [("c",)]
    env.tables.create_temporary_view("clicks", many)
    with pytest.raises(SqlError, match="'clicks' is another table now"):
        env.sql("SELECT k FROM clicks").collect()


def test_streams_without_a_name_stay_apart_when_a_table_goes(env: StreamEnvironment) -> None:
    first = env.tables.from_stream(env.from_collection([("a",)], schema=["k"]))
    second = env.tables.from_stream(env.from_collection([("b",)], schema=["k"]))
    env.sql("DROP VIEW stock")
    third = env.tables.from_stream(env.from_collection([("c",)], schema=["k"]))
    assert _rows(first.union_all(second).union_all(third)) == [("a",), ("b",), ("c",)]


def test_a_query_that_cannot_start_is_gone_and_what_else_was_written_stays(
    env: StreamEnvironment, tmp_path: Path
) -> None:
    (tmp_path / "taken").write_text("")
    folder = tmp_path / "taken" / "rows"
    rows = env.sql("SELECT item FROM stock").collect()
    env.configure({"execution.runtime-mode": "batch"})
    with pytest.raises(ConfigurationError, match="batch mode"):
        rows.to_arrow()
    env.configure({"execution.runtime-mode": "streaming"})
    with pytest.raises(GraphError, match="the program is empty"):
        env.explain()
    assert _rows(env.sql("SELECT item FROM stock")) == [("hat",), ("pen",)]
    env.sql(f"CREATE TABLE t (item STRING) WITH ('connector'='filesystem', 'path'='{folder}', 'format'='json')")
    env.sql("INSERT INTO t SELECT item FROM stock")
    with pytest.raises(ConfigurationError, match="cannot be written to"):
        env.sql("SELECT item FROM stock").collect().to_arrow()
    (tmp_path / "taken").unlink()
    env.execute()
    assert list(folder.glob("*.json"))
