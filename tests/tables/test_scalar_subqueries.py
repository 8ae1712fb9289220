"""Queries that stand for a value: each row meets their one row, and null where there is none."""

from __future__ import annotations

from collections import Counter
from typing import Any

import duckdb
import pytest

from penstock import StreamEnvironment
from penstock.engine.errors import SqlError
from tests.tables.held_rows import held_rows

_BIDS = "(VALUES ('pen', 3), ('cup', 5), ('hat', 10)) AS bids (item, price)"


def _held(statement: str, max_batch_rows: int = 1000) -> list[tuple[Any, ...]]:
    """What is there when all changes have come."""
    env = StreamEnvironment(runtime="local", parallelism=1, max_batch_rows=max_batch_rows)
    return sorted(held_rows(env, statement))


@pytest.mark.parametrize("max_batch_rows", [1, 1000])
def test_a_row_is_compared_with_the_value_of_a_query(max_batch_rows: int) -> None:
    dear = f"SELECT item FROM {_BIDS} WHERE price > (SELECT AVG(price) FROM {_BIDS}) - 2"
    assert _held(dear, max_batch_rows) == [("cup",), ("hat",)]


def test_a_value_stands_beside_each_row() -> None:
    share = f"SELECT *, (SELECT MAX(price) FROM {_BIDS}) - price AS behind FROM {_BIDS}"
    assert _held(share) == [("cup", 5, 5), ("hat", 10, 0), ("pen", 3, 7)]


def test_a_query_without_a_row_is_null() -> None:
    assert _held(f"SELECT item, (SELECT price FROM {_BIDS} WHERE price > 99 LIMIT 1) AS p FROM {_BIDS}") == [
        ("cup", None),
        ("hat", None),
        ("pen", None),
    ]


def test_values_stand_in_conditions_of_groups_and_without_from() -> None:
    grouped = f"SELECT COUNT(*) AS n FROM {_BIDS} WHERE price < (SELECT MAX(price) FROM {_BIDS})"
    assert _held(grouped) == [(2,)]
    assert _held("SELECT (SELECT 1) + (SELECT 2) AS three") == [(3,)]


_SOLD = "(VALUES ('pen', 'ada'), ('pen', 'bob'), ('cup', 'ada'), ('hat', 'bob')) AS sold (item, buyer)"


@pytest.mark.parametrize("max_batch_rows", [1, 1000])
@pytest.mark.parametrize(
    ("value", "totals"),
    [
        (f"SUM((SELECT MAX(price) FROM {_BIDS} WHERE bids.item = sold.item))", (8, 13)),
        (f"COUNT(*) FILTER (WHERE EXISTS (SELECT 1 FROM {_BIDS} WHERE bids.item = sold.item AND price > 4))", (1, 1)),
        (f"SUM(CASE WHEN item IN (SELECT item FROM {_BIDS} WHERE price < 9) THEN 1 ELSE 0 END)", (2, 1)),
        (f"COUNT(*) + (SELECT MAX(price) FROM {_BIDS})", (12, 12)),
    ],
)
def test_values_in_aggregates_do_not_divide_the_groups(
    value: str, totals: tuple[int, int], max_batch_rows: int
) -> None:
    query = f"SELECT buyer, {value} AS v FROM {_SOLD} GROUP BY buyer"
    assert _held(query, max_batch_rows) == [("ada", totals[0]), ("bob", totals[1])]


def test_values_beside_aggregates_go_by_what_is_grouped() -> None:
    price = f"(SELECT MAX(price) FROM {_BIDS} WHERE bids.item = sold.item)"
    found = _held(f"SELECT item, {price} AS p, COUNT(*) AS n FROM {_SOLD} GROUP BY item HAVING {price} < 9")
    assert found == [("cup", 5, 1), ("pen", 3, 2)]
    for query in (
        f"SELECT buyer, {price} AS p FROM {_SOLD} GROUP BY buyer",
        f"SELECT MAX(buyer), {price} FROM {_SOLD}",
    ):
        with pytest.raises(SqlError, match=r"sold\.item'.* is neither in GROUP BY nor in an aggregate"):
            StreamEnvironment(runtime="local").sql(query)


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("SELECT price FROM {}", "a query as a value gives one row: aggregate without GROUP BY, or write LIMIT 1"),
        ("SELECT item, MAX(price) FROM {} GROUP BY item", "a query as a value has one column, not 2"),
        ("SELECT MAX(price) FROM {} GROUP BY item", "a query as a value gives one row"),
    ],
)
def test_a_query_of_several_rows_or_columns_is_refused(query: str, says: str) -> None:
    env = StreamEnvironment(runtime="local")
    with pytest.raises(SqlError) as raised:
        env.sql(f"SELECT item FROM {_BIDS} WHERE price > ({query.format(_BIDS)})")
    assert says in str(raised.value)
    assert raised.value.column > 80


def test_a_query_that_stands_there_again_is_joined_once() -> None:
    top = f"(SELECT MAX(price)  FROM {_BIDS})"
    table = StreamEnvironment(runtime="local").sql(
        f"EXPLAIN SELECT {top} - price, {top} FROM {_BIDS} WHERE price < {top}"
    )
    assert table is not None
    assert sum("Join(" in row["plan"] for row in table.collect()) == 1


@pytest.mark.parametrize(
    ("value", "of_cup", "of_hat"),
    [
        ("COUNT(*) + 1", 2, 1),
        ("COALESCE(SUM(CHAR_LENGTH(buyer)), 0)", 3, 0),
        ("MAX(buyer)", "ada", None),
        ("COUNT(*) - COUNT(DISTINCT buyer) + price", 5, 10),
    ],
)
def test_a_row_that_meets_nothing_gets_what_is_computed_of_no_rows(value: str, of_cup: Any, of_hat: Any) -> None:
    sold = f"(SELECT * FROM {_SOLD} WHERE item <> 'hat') AS s"
    query = f"SELECT {value} AS v FROM {sold} WHERE s.item = bids.item"
    wanted = [("cup", of_cup), ("hat", of_hat)]
    assert _held(f"SELECT item, ({query}) AS v FROM {_BIDS} WHERE item <> 'pen'") == wanted
    for join in (", LATERAL ({}) AS q", " LEFT JOIN LATERAL ({}) AS q ON TRUE"):
        assert _held(f"SELECT item, q.v FROM {_BIDS}{join.format(query)} WHERE item <> 'pen'") == wanted


def test_having_decides_whether_there_is_a_row_at_all() -> None:
    query = f"SELECT COUNT(*) AS n FROM {_SOLD} WHERE sold.item = bids.item HAVING COUNT(*) > 1"
    assert _held(f"SELECT item, ({query}) AS n FROM {_BIDS}") == [("cup", None), ("hat", None), ("pen", 2)]
    assert _held(f"SELECT item, q.n FROM {_BIDS}, LATERAL ({query}) AS q") == [("pen", 2)]
    rest = f"SELECT item, q.n FROM {_BIDS} LEFT JOIN LATERAL ({query}) AS q ON q.n < 2 OR item = 'pen'"
    assert _held(rest) == [("cup", None), ("hat", None), ("pen", 2)]


def test_what_is_computed_of_a_row_stands_beside_it() -> None:
    beside = f"{_BIDS}, LATERAL (SELECT price * 2 AS twice, UPPER(item)) AS c (twice, name)"
    assert _held(f"SELECT c.name, c.twice FROM {beside} WHERE price < 9") == [("CUP", 10), ("PEN", 6)]
    chained = f"{_BIDS} JOIN LATERAL (SELECT price + 1 AS more) AS c ON more > 5, LATERAL (SELECT more * 2 AS most)"
    assert _held(f"SELECT item, most FROM {chained}") == [("cup", 12), ("hat", 22)]


@pytest.mark.parametrize("operator", ["<", "<=", ">", ">=", "=", "<>"])
def test_any_and_all_as_values_are_those_of_duckdb(operator: str) -> None:
    queries = [
        f"(SELECT v FROM (VALUES {values}) AS q (v) WHERE {condition})"
        for values, condition in (
            ("(2), (5)", "1 = 1"),
            ("(5), (NULL)", "1 = 1"),
            ("(NULL)", "1 = 1"),
            ("(1)", "1 = 0"),
        )
    ]
    shown = [f"x {operator} {word} {query}" for query in queries for word in ("ANY", "ALL")]
    columns = ", ".join(f"{one} AS c{place}" for place, one in enumerate(shown))
    rows = "(VALUES (1), (2), (5), (6), (CAST(NULL AS INT))) AS t (x)"
    expected = duckdb.execute(f"SELECT x, {columns} FROM {rows}").fetchall()
    flink = columns.replace("(NULL)", "(CAST(NULL AS INT))")
    env = StreamEnvironment(runtime="local", parallelism=1)
    table = env.sql(f"SELECT x, {flink} FROM {rows}")
    assert table is not None
    held: Counter[tuple[Any, ...]] = Counter()
    for row in table.to_changelog().collect():
        op, *found = row.values()
        held[tuple(found)] += 1 if op in ("+I", "+U") else -1
    assert +held == Counter(expected)
