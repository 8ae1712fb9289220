"""Joins and first rows keep the columns alone that are read above them; what comes of it is as if they kept all."""

from __future__ import annotations

import re

import pytest

from penstock import StreamEnvironment
from tests.tables.held_rows import held_rows

_WIDE = """SELECT * FROM (VALUES (1, 'a', 7, 'x'), (2, 'b', 7, 'y'), (3, 'a', 7, 'z'), (4, 'a', 9, 'x'))
  AS t (id, k, n, extra)"""


@pytest.fixture
def env() -> StreamEnvironment:
    """A table of which most columns are not read."""
    env = StreamEnvironment(runtime="local", parallelism=1)
    env.sql(f"CREATE VIEW wide AS {_WIDE}")
    return env


def _kept(env: StreamEnvironment, query: str, node: str) -> list[str]:
    """The columns that come into each node of a kind: those of the nodes below it."""
    table = env.sql(f"EXPLAIN {query}")
    assert table is not None
    lines = [str(row["plan"]) for row in table.collect()]
    found = []
    for number, line in enumerate(lines):
        if line.strip().startswith(node):
            deeper = len(line) - len(line.lstrip()) + 2
            below = [one.strip() for one in lines[number + 1 :] if len(one) - len(one.lstrip()) == deeper]
            found += [re.sub(r"EXPR\$\d AS ", "", one.partition("(")[2].partition(")")[0]) for one in below]
    return found


def test_a_join_keeps_what_is_read_above_it_or_in_its_condition(env: StreamEnvironment) -> None:
    query = "SELECT l.n FROM wide l JOIN wide r ON l.k = r.k AND l.id < r.id WHERE r.n > 1"
    assert _kept(env, query, "Join") == ["id, k, n", "id, k"]
    assert held_rows(env, query) == [(7,), (7,), (7,)]


def test_rows_that_become_alike_are_counted(env: StreamEnvironment) -> None:
    query = "SELECT l.k FROM wide l JOIN wide r ON l.n = r.n"
    assert _kept(env, query, "Join") == ["k, n", "n"]
    assert held_rows(env, query) == [("a",)] * 7 + [("b",)] * 3


def test_a_join_of_which_nothing_is_read_has_as_manyheld_rows(env: StreamEnvironment) -> None:
    assert held_rows(env, "SELECT 1 AS one FROM wide l CROSS JOIN wide r") == [(1,)] * 16
    assert held_rows(env, "SELECT COUNT(*) AS n FROM wide l LEFT JOIN wide r ON l.id = r.id + 1") == [(4,)]


def _ranked(columns: str, order: str, last: int, function: str = "ROW_NUMBER") -> str:
    number = f"{function}() OVER (PARTITION BY n ORDER BY {order}) AS r"
    return f"SELECT {columns} FROM (SELECT *, {number} FROM wide) WHERE r <= {last}"


def test_first_rows_keep_what_is_read_and_ordered_by(env: StreamEnvironment) -> None:
    query = _ranked("n, r", "k, id", 2)
    assert _kept(env, query, "TopN") == ["id, k, n"]
    assert held_rows(env, query) == [(7, 1), (7, 2), (9, 1)]


def test_the_first_row_of_equal_ones_is_the_first_to_come_whatever_is_read(env: StreamEnvironment) -> None:
    query = _ranked("k", "n", 1)
    assert _kept(env, query, "TopN") == ["k, n"]
    assert held_rows(env, query) == [("a",), ("a",)]


def test_of_equal_rows_those_come_first_that_came_first_also_where_others_are_alike(env: StreamEnvironment) -> None:
    # Without their ids the first and the third row were one that came twice, before the second.
    query = _ranked("k", "n", 2)
    assert _kept(env, query, "TopN") == ["id, k, n, extra"]
    assert held_rows(env, query) == [("a",), ("a",), ("b",)]


def test_equal_ranks_need_no_order_of_arrival(env: StreamEnvironment) -> None:
    query = _ranked("k, r", "n", 1, "RANK")
    assert _kept(env, query, "TopN") == ["k, n"]
    assert held_rows(env, query) == [("a", 1), ("a", 1), ("a", 1), ("b", 1)]
