"""Limits of what a key may have under way: how many partial matches, and for how long one may be idle."""

from __future__ import annotations

import re
from typing import Any

import pytest

from penstock import AfterMatchSkipStrategy, Pattern, col
from penstock.engine.errors import ConfigurationError, RecordError
from penstock.engine.operators.matching.match_spec import DROPPED
from penstock.engine.patterns.limits import MatchLimits, Overflow, limits_of
from tests.engine.operators.matching.match_job import MatchJob, row
from tests.engine.state.saved import snapshot_of

A_THEN_B = Pattern.begin("a").where(col("name") == "A").followed_by("b").where(col("name") == "B")


def _three_then_b(limits: MatchLimits) -> MatchJob:
    job = MatchJob(A_THEN_B, limits=limits)
    job.rows([row(n, "k", "A", 0, n + 1) for n in range(3)] + [row(9, "other", "A", 0, 1)])
    job.rows([row(3, "k", "B", 0, 10)])
    job.advance()
    return job


@pytest.mark.parametrize(
    ("overflow", "kept"), [(Overflow.DROP_OLDEST, [1, 2]), (Overflow.DROP_NEWEST, [0, 1])], ids=["oldest", "newest"]
)
def test_partial_matches_beyond_the_limit_go_and_are_counted(overflow: Overflow, kept: list[int]) -> None:
    job = _three_then_b(MatchLimits(2, overflow))
    assert job.matches() == [(f"k|a={n};b=3", 10) for n in kept]
    assert job.metrics.counter(DROPPED).value == 1


def test_the_job_fails_where_that_was_asked_for() -> None:
    with pytest.raises(RecordError, match=re.escape("a key has 3 partial matches, and max_partial_matches is 2")):
        _three_then_b(MatchLimits(2))


def test_a_limit_that_is_kept_changes_nothing() -> None:
    job = _three_then_b(MatchLimits(3))
    assert len(job.matches()) == 3
    assert job.metrics.counter(DROPPED).value == 0


@pytest.mark.parametrize("is_by_row", [True, False])
def test_an_idle_partial_match_goes_though_its_key_gets_no_row(is_by_row: bool) -> None:
    job = MatchJob(A_THEN_B, limits=MatchLimits(ttl_ms=10))
    job.rows([row(0, "k", "A", 0, 5), row(1, "j", "A", 0, 8)])
    if is_by_row:
        job.advance(8)
    job.advance(14)
    assert snapshot_of(job.operators[0]).tables["partial-matches"].data.num_rows == 2
    job.restart(2)
    job.advance(15)
    rows = [snapshot_of(operator).tables.get("partial-matches") for operator in job.operators]
    assert sum(table.data.num_rows for table in rows if table is not None) == 1
    job.rows([row(2, "k", "B", 0, 16), row(3, "j", "B", 0, 17)])
    job.advance()
    assert job.matches() == [("j|a=1;b=3", 17)]
    assert job.timed_out() == []


def test_what_was_idle_before_the_job_had_a_ttl_goes_as_well() -> None:
    job = MatchJob(A_THEN_B)
    job.rows([row(0, "k", "A", 0, 5)])
    job.advance(8)
    job.limit(MatchLimits(ttl_ms=10))
    job.restart(1)
    job.advance(15)
    assert job.metrics.counter(DROPPED).value == 1
    assert not any(table.data.num_rows for table in snapshot_of(job.operators[0]).tables.values())


def test_a_partial_match_that_goes_releases_what_it_held_back() -> None:
    skip = AfterMatchSkipStrategy.skip_to_first("a")
    loop = Pattern.begin("a", skip).where(col("name") == "A").one_or_more().followed_by("b").where(col("name") == "B")
    job = MatchJob(loop, limits=MatchLimits(ttl_ms=100))
    job.rows([row(0, "k", "A", 0, 1), row(1, "k", "A", 0, 2), row(2, "k", "B", 0, 3)])
    job.advance(50)
    first: list[Any] = job.matches()
    job.advance(102)
    assert [text for text, _ in first] == ["k|a=0,1;b=2", "k|a=0;b=2"]
    assert job.matches()[2:] == [("k|a=1;b=2", 102)]


@pytest.mark.parametrize(
    ("most", "overflow", "ttl"),
    [(0, "fail", None), ("3", "fail", None), (True, "fail", None), (3, "drop", None), (3, "fail", "0s")],
)
def test_limits_that_are_none_are_refused(most: Any, overflow: str, ttl: str | None) -> None:
    with pytest.raises(ConfigurationError, match="match: "):
        limits_of(most, overflow, ttl)
