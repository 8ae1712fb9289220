"""What `penstock sql` shows of results that change."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from penstock.console.sql_results import ResultTable, paged, show_live
from tests.console.conftest import Penstock

_COUNTS = "SELECT item, COUNT(*) AS n FROM (VALUES ('pen'), ('cup'), ('pen')) AS t (item) GROUP BY item"


def test_a_table_has_the_rows_that_are_there_in_the_end(penstock: Penstock) -> None:
    done = penstock("sql", f"SET 'sql-client.execution.result-mode' = 'table'; {_COUNTS}", "--json", "-p", "1")
    (result,) = json.loads(done.out)["results"]
    assert sorted(result["rows"], key=lambda row: row["n"]) == [{"item": "cup", "n": 1}, {"item": "pen", "n": 2}]


def test_values_and_names_are_shown_as_they_are(penstock: Penstock) -> None:
    shown = penstock("sql", "SELECT '[/b] [red]x[/red]' AS `[red]v`", "-p", "1")
    assert (shown.code, "[/b] [red]x[/red]" in shown.out, "[red]v" in shown.out) == (0, True, True)


def test_a_mode_that_there_is_not_is_refused(penstock: Penstock) -> None:
    done = penstock("sql", "SET 'sql-client.execution.result-mode' = 'TABLES'")
    assert done.code == 1
    assert "takes CHANGELOG, TABLE, not 'TABLES' (did you mean 'TABLE'?)" in done.err


@given(st.lists(st.tuples(st.sampled_from(["+I", "-D"]), st.integers(0, 3)), max_size=20))
def test_rows_are_those_that_came_and_did_not_go(changes: list[tuple[str, int]]) -> None:
    left: list[int] = []
    given_changes: list[dict[str, Any]] = []
    for op, value in changes:
        if op == "+I":
            left.append(value)
        elif value in left:
            left.remove(value)
        else:
            continue
        given_changes.append({"op": op, "v": [value]})
    result = ResultTable(["v"])
    result.apply(given_changes)
    assert sorted(row["v"][0] for row in result.rows()) == sorted(left)


def test_the_live_table_ends_with_the_last_rows() -> None:
    def changes() -> Iterator[dict[str, Any]]:
        yield {"op": "+I", "item": "pen", "n": 1}
        yield {"op": "-U", "item": "pen", "n": 1}
        yield {"op": "+U", "item": "pen", "n": 42}

    console = Console(file=io.StringIO(), force_terminal=True, width=40)
    show_live(ResultTable(["item", "n"]), changes(), console)
    assert isinstance(console.file, io.StringIO)
    assert "42" in console.file.getvalue().rpartition("item")[2]


def test_the_first_page_is_shown_before_the_last_row_comes() -> None:
    came: list[int] = []

    def polls() -> Iterator[list[int]]:
        for number in range(5):
            came.append(number)
            yield [number]

    seconds = iter(range(100))
    pages = paged(polls(), 2, lambda: float(next(seconds)))
    assert (next(pages), came) == ([0, 1], [0, 1])
    assert list(pages) == [[2, 3], [4]]


def test_a_row_is_shown_though_no_further_one_comes() -> None:
    looked: list[int] = []

    def polls() -> Iterator[list[int]]:
        for number in range(100):
            looked.append(number)
            yield [7] if number == 0 else []

    seconds = iter(range(200))
    pages = paged(polls(), 3, lambda: float(next(seconds)))
    assert (next(pages), looked) == ([7], [0, 1, 2])
    assert list(pages) == []
