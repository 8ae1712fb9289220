"""`reduce` with a compiled function gives the rows of plain Python, and says what it does not compile."""

from __future__ import annotations

import datetime as dt
import logging
import sys
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock.engine.errors import GraphError, JobFailedError
from penstock.engine.operators.functions.keyed_process import KeyedProcessOperator
from tests.engine.helpers import local_environment

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("n", pa.int64()),
        ("small", pa.int16()),
        ("what", pa.dictionary(pa.int32(), pa.string())),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.timezone.utc)
ROWS = [
    {"k": "ab"[i % 2], "n": i * 7 % 5, "small": i, "what": ["x", "y", None][i % 3], "at": [NOON, None][i % 2]}
    for i in range(12)
]


def total(one: Any, other: Any) -> Any:
    """Sums up what is a number, and keeps the rest of the later row."""
    return {**other, "n": one["n"] + other["n"], "small": max(one["small"], other["small"])}


def best(one: Any, other: Any) -> Any:
    return one if one["n"] >= other["n"] else other


def counted(one: Any, other: Any) -> Any:
    """Changes the row so far."""
    if other["n"] > 2:
        one["n"] += 1
    one["at"] = other["at"]
    return one


def too_large(one: Any, other: Any) -> Any:
    return {**other, "small": one["small"] * 30_000 + other["small"]}


def outcome(function: Any, **options: Any) -> str:
    env = local_environment(1, 0)
    made = env.from_collection(ROWS, SCHEMA).key_by("k").reduce(function, **options).collect()
    try:
        env.execute("reduced")
    except JobFailedError as error:
        return str(error).replace(", compiled", "")
    return repr(list(made))


@pytest.mark.parametrize("function", [total, best, counted])
def test_rows_are_those_of_plain_python(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = outcome(function)
    monkeypatch.setattr(KeyedProcessOperator, "process_batch", lambda *_: pytest.fail("rows were made"))
    assert outcome(ps.compiled(function)) == wanted


def test_what_does_not_fit_its_column_is_the_error_of_plain_python() -> None:
    assert "60004 too large" in outcome(too_large)
    assert outcome(ps.compiled(too_large)) == outcome(too_large)


def of_both(one: Any, other: Any) -> Any:
    return {**other, "n": (one["n"] or 3) + (other["n"] or 0)}


def of_those_that_are_given(one: Any, other: Any) -> Any:
    if one["n"] is None or other["n"] is None:
        return {**one, "small": one["small"] + 1}
    return {**other, "n": one["n"] + other["n"]}


def by_a_variable(one: Any, other: Any) -> Any:
    n = one["n"]
    return {**one, "n": n + (other["n"] or 0)}


def by_a_tested_variable(one: Any, other: Any) -> Any:
    n = one["n"]
    if n is None:
        n = 7
    return {**one, "n": n + (other["n"] or 0)}


@pytest.mark.parametrize("nulls", [(), (2, 5), (0,), (0, 1, 2, 3), (7,)])
@pytest.mark.parametrize("function", [of_both, of_those_that_are_given, by_a_variable, by_a_tested_variable])
def test_nulls_of_both_rows_may_be_asked_for(function: Any, nulls: Sequence[int], monkeypatch: Any) -> None:
    rows = [{**row, "n": None if i in nulls else row["n"]} for i, row in enumerate(ROWS)]
    monkeypatch.setattr(sys.modules[__name__], "ROWS", rows)
    assert outcome(ps.compiled(function)) == outcome(function)


def first_time(one: Any, other: Any) -> Any:
    if one["at"] is None:
        return other
    return one


def test_a_field_that_is_only_passed_on_is_not_asked_for_a_null() -> None:
    env = local_environment(1, 0)
    with pytest.raises(GraphError, match="the constant None is not compiled"):
        env.from_collection(ROWS, SCHEMA).key_by("k").reduce(ps.compiled(first_time))


def missing(one: Any, other: Any) -> Any:
    return {"k": one["k"], "n": one["n"] + other["n"]}


def of_another_kind(one: Any, other: Any) -> Any:
    return {**one, "n": one["n"] / 2}


def unknown(one: Any, other: Any) -> Any:
    return {**one, "n": one["m"]}


def of_itself(one: Any, other: Any) -> Any:
    return one["n"]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (missing, "line .*: the result differs in 'at', 'small', 'what'; give all fields"),
        (of_another_kind, "line .*: 'n' is a float here, and kept as int64; convert it"),
        (unknown, "line .*: the accumulator has no 'm'.*; name a field that is there"),
        (of_itself, "line .*: .* is no accumulator; return a dict with all its fields"),
    ],
)
def test_what_is_not_compiled_is_refused_when_the_graph_is_built(function: Any, message: str) -> None:
    keyed = local_environment(1, 0).from_collection(ROWS, SCHEMA).key_by("k")
    with pytest.raises(GraphError, match=message):
        keyed.reduce(ps.compiled(function))


def test_it_runs_plain_with_a_message_where_that_is_allowed(caplog: pytest.LogCaptureFixture) -> None:
    def joined(one: Any, other: Any) -> Any:
        return {**other, "what": "+".join([one["k"], other["k"]])}

    with caplog.at_level(logging.WARNING):
        assert outcome(ps.compiled(joined, fallback=True)) == outcome(joined)
    assert "it runs as plain Python" in caplog.text
