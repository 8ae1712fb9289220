"""Compiled conditions of patterns find the matches of plain functions, over columns."""

from __future__ import annotations

import linecache
import logging
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock import Pattern, col
from penstock.engine.errors import GraphError, PatternError, UserCodeError
from penstock.engine.operators.matching import event_tests
from tests.draws import drawn
from tests.engine.compiled.test_random_programs import expressions
from tests.engine.helpers import local_environment
from tests.engine.operators.matching.match_job import MatchJob, row

ROWS = st.lists(
    st.tuples(st.sampled_from("xy"), st.sampled_from("ABC"), st.integers(-3, 3)), min_size=1, max_size=12
).map(lambda given: [row(at, key, name, value, at) for at, (key, name, value) in enumerate(given)])
COLUMNS = {"i": 'row["value"]', "j": 'row["number"]', "x": "f", "y": "(f - 0.5)", "b": '(row["name"] == "A")'}
"""What stands for the columns of the random expressions."""


def function_of(test: str) -> Any:
    """The condition of an expression, whose lines can be read."""
    for column, stand_in in COLUMNS.items():
        test = test.replace(f'row["{column}"]', stand_in)
    source = f'def condition(row):\n    n = row["at"]\n    f = row["value"] / 4\n    return {test}\n'
    file, names = f"<condition {hash(source)}>", dict[str, Any]()
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec"), names)
    return names["condition"]


def matches(first: Any, second: Any, rows: list[dict[str, Any]]) -> list[tuple[str, int | None]]:
    job = MatchJob(Pattern.begin("a").where(first).one_or_more().followed_by("b").where(second))
    job.rows(rows)
    job.advance()
    return job.matches()


@settings(max_examples=drawn(15))
@given(expressions("bool"), expressions("bool"), ROWS)
def test_random_conditions_find_the_matches_of_plain_python(one: str, other: str, rows: list[dict[str, Any]]) -> None:
    first, second = function_of(one), function_of(other)
    try:
        found = matches(ps.compiled(first), ps.compiled(second), rows)
    except UserCodeError:
        return  # all rows are asked, and one of them fails
    assert found == matches(first, second, rows)


def positive(row: Any) -> bool:
    return bool(row["value"] > 0)


def late(row: Any) -> bool:
    return row["name"] != "A" and row["value"] < 0


def test_compiled_conditions_run_on_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row(at, "x", "AB"[at % 2], at % 3 - 1, at) for at in range(20)]
    wanted = matches(positive, late, rows)
    assert wanted
    monkeypatch.setattr(event_tests, "batch_rows", lambda *_: pytest.fail("rows were made"))
    assert matches(ps.compiled(positive, fallback=True), ps.compiled(late), rows) == wanted


@pytest.mark.parametrize("condition", [ps.compiled(positive), col("value") > 0])
def test_explain_says_that_they_run_on_columns(condition: Any) -> None:
    assert "matcher: columns" in Pattern.begin("a").where(condition).explain()


def test_what_fails_for_a_row_names_it() -> None:
    @ps.compiled
    def divided(row: Any) -> bool:
        return 1 // row["value"] > 0

    with pytest.raises(UserCodeError, match="'number': 7"):
        matches(divided, late, [row(7, "x", "A", 0, 1)])


def matched(condition: Any) -> Any:
    source = local_environment(1, 0).from_collection([{"k": "a", "n": 1, "text": "abc"}] * 3)
    keyed = source.key_by("k").match(Pattern.begin("a").where(condition), time="processing")
    return keyed.select(lambda match: {"n": match["a"][0]["n"]})


def by_length(row: Any) -> bool:
    return len(row["text"]) == 3


def no_bool(row: Any) -> int:
    return int(row["n"])


def test_what_is_not_compiled_is_refused_when_the_graph_is_built() -> None:
    with pytest.raises(GraphError, match=r"line \d+: `len\(row\['text'\]\)` is not compiled"):
        matched(ps.compiled(by_length))
    with pytest.raises(GraphError, match="must return a bool"):
        matched(ps.compiled(no_bool))
    with pytest.raises(PatternError, match="takes the match so far; compiled conditions take the row alone"):
        Pattern.begin("a").where(ps.compiled(lambda row, match: True))


def test_it_runs_plain_with_a_message_where_that_is_allowed(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert len(list(matched(ps.compiled(by_length, fallback=True)).collect())) == 3
    assert "it runs as plain Python" in caplog.text
