"""Functions of the user in SQL: scalar, by columns, table and aggregate functions."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock import StreamEnvironment, arrow_udf, udaf, udf, udtf
from penstock.engine.errors import ConfigurationError, JobFailedError, SqlError
from penstock.tables.functions.user import UserFunction
from penstock.tables.table import Table


@pytest.fixture
def env() -> StreamEnvironment:
    made = StreamEnvironment(runtime="local", parallelism=1)
    made.sql(
        "CREATE VIEW bids AS SELECT * FROM (VALUES ('pen', 3, 'ann bob'), ('cup', 5, ''), "
        "('pen', 4, CAST(NULL AS STRING))) AS t (item, price, who)"
    )
    return made


def _rows(env: StreamEnvironment, statement: str) -> list[tuple[Any, ...]]:
    table = env.sql(statement)
    assert isinstance(table, Table)
    return [tuple(row.values()) for row in table.rows().collect()]


def test_a_scalar_function_gets_the_values_of_a_row_and_none_for_null(env: StreamEnvironment) -> None:
    env.tables.create_temporary_function(
        "words", udf(lambda text: None if text is None else len(text.split()), returns="INT")
    )
    assert _rows(env, "SELECT item, words(who) + 1 FROM bids WHERE Words(who) IS NULL OR words(who) > 0") == [
        ("pen", 3),
        ("pen", None),
    ]


def test_arguments_become_the_types_that_are_taken(env: StreamEnvironment) -> None:
    env.tables.create_temporary_function("kind", udf(lambda x: type(x).__name__, returns="STRING", takes=["DOUBLE"]))
    assert _rows(env, "SELECT kind(price) FROM bids LIMIT 1")[0][-1] == "float"
    with pytest.raises(SqlError, match="KIND takes DOUBLE here, not STRING; cast it") as raised:
        env.sql("SELECT kind(CAST(item AS STRING)) FROM bids")
    assert raised.value.column == 13
    with pytest.raises(SqlError, match="KIND takes 1 arguments, not 2"):
        env.sql("SELECT kind(price, price) FROM bids")


def test_a_function_by_columns_gets_arrays(env: StreamEnvironment) -> None:
    def total(price: pa.Array, more: pa.Array) -> pa.Array:
        return pc.add(price, more)

    env.tables.create_temporary_function("total", arrow_udf(total, returns="BIGINT"))
    assert _rows(env, "SELECT total(price, 10) FROM bids") == [(13,), (15,), (14,)]


def test_a_table_function_gives_rows_beside_each_row(env: StreamEnvironment) -> None:
    def split(text: str | None) -> Iterator[tuple[str, int]]:
        for place, word in enumerate((text or "").split()):
            yield word, place

    env.tables.create_temporary_function("parts", udtf(split, returns={"word": "STRING", "place": "INT"}))
    wanted = [("pen", "ann", 0), ("pen", "bob", 1)]
    assert _rows(env, "SELECT item, word, place FROM bids, LATERAL TABLE(parts(who))") == wanted
    assert _rows(env, "SELECT item, w, p FROM bids CROSS JOIN LATERAL TABLE(parts(who)) AS s (w, p)") == wanted
    kept = _rows(env, "SELECT item, word FROM bids LEFT JOIN LATERAL TABLE(parts(who)) ON TRUE")
    assert kept == [("pen", "ann"), ("pen", "bob"), ("cup", None), ("pen", None)]


def test_an_aggregate_function_gets_the_values_of_a_group(env: StreamEnvironment) -> None:
    env.tables.create_temporary_function("median", udaf(statistics.median, returns="DOUBLE", takes=["DOUBLE"]))
    env.tables.create_temporary_function("pairs", udaf(lambda rows: str(sorted(rows)), returns="STRING"))
    statement = "SELECT item, median(price) + 1, COUNT(*) FROM bids GROUP BY item HAVING median(price) < 9"
    assert sorted(_rows(env, statement)) == [("+I", "cup", 6.0, 1), ("+I", "pen", 4.5, 2)]
    assert _rows(env, "SELECT median(price) FILTER (WHERE item = 'pen') FROM bids")[-1][-1] == 3.5
    with pytest.raises(SqlError, match="PAIRS takes any value, not NULL"):
        env.sql("SELECT pairs(NULL) FROM bids")
    assert _rows(env, "SELECT pairs(item, price) FROM bids")[-1][-1] == "[('cup', 5), ('pen', 3), ('pen', 4)]"


def test_an_aggregate_function_forgets_what_is_taken_back() -> None:
    env = StreamEnvironment(runtime="local", parallelism=1, max_batch_rows=1)
    env.tables.create_temporary_function("spread", udaf(lambda given: max(given) - min(given), returns="BIGINT"))
    changes = [("INSERT", 1), ("INSERT", 9), ("DELETE", 9), ("INSERT", 4)]
    env.tables.create_temporary_view("changes", env.from_collection(changes, schema=["op", "n"]))
    found = _rows(env, "SELECT spread(n) FROM (SELECT * FROM FROM_CHANGELOG(input => TABLE changes))")
    assert [row[-1] for row in found if row[0] in ("+I", "+U")] == [0, 8, 0, 3]


def test_a_view_keeps_the_function_that_it_was_made_with(env: StreamEnvironment) -> None:
    env.tables.create_temporary_function("f", udf(lambda n: n + 1, returns="BIGINT"))
    env.sql("CREATE VIEW v AS SELECT f(price) AS p FROM bids")
    assert env.tables.drop_temporary_function("F")
    assert _rows(env, "SELECT p FROM v")[0] == (4,)
    with pytest.raises(SqlError, match="there is no function F"):
        env.sql("SELECT f(1)")


@pytest.mark.parametrize(
    ("function", "error"),
    [
        (lambda n: 1 // (n - 5), "ZeroDivisionError: .*"),
        (lambda n: n if n != 5 else sys.exit("gone"), "SystemExit: gone"),
    ],
)
def test_what_a_function_raises_is_told_with_the_row(
    env: StreamEnvironment, function: Callable[[int], int], error: str
) -> None:
    env.tables.create_temporary_function("inverse", udf(function, returns="INT"))
    table = env.sql("SELECT inverse(price) FROM bids")
    assert table is not None
    with pytest.raises(
        JobFailedError,
        match=rf"the function INVERSE fails in test_user_functions.py, line \d+ \({error}\) in row .*cup",
    ):
        list(table.collect())


def test_what_a_function_raises_in_the_condition_of_a_join_is_told_with_the_rows(env: StreamEnvironment) -> None:
    env.tables.create_temporary_function("near", udf(lambda x, y: 1 / (x - y) < 0, returns="BOOLEAN"))
    with pytest.raises(
        JobFailedError,
        match=r"condition of a join: the function NEAR fails .*ZeroDivisionError.* in row \{.*mend the function",
    ):
        _rows(env, "SELECT a.item FROM bids AS a JOIN bids AS b ON a.item = b.item AND near(a.price, b.price)")


def test_a_function_that_is_not_deterministic_is_refused_where_rows_change(env: StreamEnvironment) -> None:
    env.tables.create_temporary_function("draw", udf(lambda: 4, returns="INT", deterministic=False))
    assert _rows(env, "SELECT draw() FROM bids LIMIT 1")[0][-1] == 4
    with pytest.raises(SqlError, match="DRAW gives another value when a row is taken back"):
        env.sql("SELECT item, n + draw() FROM (SELECT item, COUNT(*) AS n FROM bids GROUP BY item)")


@pytest.mark.parametrize(
    ("name", "function", "says"),
    [
        ("upper", udf(str, returns="STRING"), "SQL has a function UPPER already"),
        ("coalesce", udf(str, returns="STRING"), "SQL has a function COALESCE already"),
        ("tumble", udf(str, returns="STRING"), "SQL has a function TUMBLE already"),
        ("hop_start", udf(str, returns="STRING"), "SQL has a function HOP_START already"),
        ("lag", udf(str, returns="STRING"), "SQL has a function LAG already"),
        ("row_number", udf(str, returns="STRING"), "SQL has a function ROW_NUMBER already"),
        ("prev", udf(str, returns="STRING"), "SQL has a function PREV already"),
        ("try_cast", udf(str, returns="STRING"), "SQL has a function TRY_CAST already"),
        ("a b", udf(str, returns="STRING"), "cannot be called in SQL"),
        ("select", udf(str, returns="STRING"), "cannot be called in SQL"),
        ("f", str, "takes udf"),
    ],
)
def test_a_wrong_registration_is_refused(env: StreamEnvironment, name: str, function: UserFunction, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        env.tables.create_temporary_function(name, function)


def test_wrong_types_and_places_are_refused(env: StreamEnvironment) -> None:
    with pytest.raises(ConfigurationError, match="'INTT' is no SQL type"):
        udf(str, returns="INTT")
    env.tables.create_temporary_function("rows", udtf(str.split, returns={"w": "STRING"}))
    with pytest.raises(SqlError, match=r"it may stand in FROM, as LATERAL TABLE\(...\)"):
        env.sql("SELECT rows('a b')")


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (udf(lambda _: 2.5, returns="INT"), "the function F gives what is no INT.*float in a column of int32"),
        (
            udf(lambda price: 1 // (price - price), returns="INT"),
            "F fails in test_user_functions.py, line .*ZeroDivision",
        ),
        (arrow_udf(lambda _: pa.scalar(3), returns="INT"), "F gives a Int64Scalar; it must give an array or a list"),
        (arrow_udf(lambda _: None, returns="INT"), "F gives a NoneType; it must give an array or a list"),
    ],
)
def test_what_a_function_gives_is_held_to_its_type(env: StreamEnvironment, function: UserFunction, says: str) -> None:
    env.tables.create_temporary_function("f", function)
    with pytest.raises(JobFailedError, match=f"{says}.*mend the function, or keep such rows from it by CASE"):
        _rows(env, "SELECT f(price) FROM bids")


def test_results_are_rows_as_tuples_and_arrays_of_numpy(env: StreamEnvironment) -> None:
    env.tables.create_temporary_function(
        "pair", udf(lambda n: (n, "x") if n > 3 else None, returns="ROW<a INT, b STRING>")
    )
    env.tables.create_temporary_function("twice", arrow_udf(lambda n: n.to_numpy() * 2, returns="BIGINT"))
    assert _rows(env, "SELECT pair(price).a, twice(price) FROM bids") == [(None, 6), (5, 10), (4, 8)]


def test_a_function_by_columns_needs_one(env: StreamEnvironment) -> None:
    env.tables.create_temporary_function("one", arrow_udf(lambda: [1], returns="INT"))
    with pytest.raises(SqlError, match="ONE is called with columns, which say how many rows there are"):
        env.sql("SELECT one() FROM bids")


def test_show_functions_has_those_that_are_bound_by_themselves(env: StreamEnvironment) -> None:
    assert {("coalesce",), ("row_number",), ("lag",), ("upper",)} <= set(_rows(env, "SHOW FUNCTIONS"))


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM counts, LATERAL TABLE(noisy(n)) AS s (one)",
        "SELECT * FROM counts CROSS JOIN UNNEST(ARRAY[RAND()]) AS s (one)",
        "SELECT * FROM counts JOIN bids ON counts.item = bids.item AND RAND() < 0.5",
    ],
)
def test_what_differs_each_time_is_refused_where_rows_change(env: StreamEnvironment, query: str) -> None:
    noisy = udtf(lambda n: [n], returns={"one": "BIGINT"}, deterministic=False)
    env.tables.create_temporary_function("noisy", noisy)
    env.sql("CREATE VIEW counts AS SELECT item, COUNT(*) AS n FROM bids GROUP BY item")
    with pytest.raises(SqlError, match="gives another value when a row is taken back, and rows change here"):
        _rows(env, query)
