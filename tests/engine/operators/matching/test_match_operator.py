"""What a user of `match` notices beside Flink's cases: the clock, readable state, ties, and large patterns."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import AfterMatchSkipStrategy, Pattern, col
from penstock.engine.errors import RecordError, StateError
from penstock.engine.operators.matching import match_spec
from penstock.engine.state.snapshot import OperatorSnapshot
from tests.engine.operators.matching.match_job import MatchJob, row
from tests.engine.state.saved import snapshot_of

A_THEN_B = Pattern.begin("a").where(col("name") == "A").followed_by("b").where(col("name") == "B")


def test_by_the_clock_partial_matches_time_out_without_a_further_row() -> None:
    job = MatchJob(A_THEN_B.within("10ms"), is_event_time=False)
    job.rows([row(0, "k", "A", 0, 0)])
    start = job.clock.now_ms()
    job.clock.advance(0.010)
    job.tick()
    assert job.timed_out() == []
    job.clock.advance(0.001)
    job.tick()
    assert job.timed_out() == [f"k|a=0@{start + 10}"]


def test_by_the_clock_rows_are_matched_as_they_come() -> None:
    job = MatchJob(A_THEN_B, is_event_time=False)
    job.rows([row(0, "k", "A", 0, 9), row(1, "k", "A", 0, 5), row(2, "k", "B", 0, 1)])
    job.rows([row(3, "k", "A", 0, 9)])
    job.restart(2)
    job.rows([row(4, "k", "B", 0, 1)])
    assert job.matches() == [("k|a=0;b=2", None), ("k|a=1;b=2", None), ("k|a=3;b=4", None)]


def test_the_state_is_readable() -> None:
    job = MatchJob(A_THEN_B.within("1s"))
    job.rows([row(0, "k", "A", 7, 10), row(1, "k", "A", 8, 20), row(2, "j", "X", 9, 20), row(3, "j", "A", 1, 90)])
    job.advance(50)
    tables = {name: table.data.to_pylist() for name, table in snapshot_of(job.operators[0]).tables.items()}
    (matches,) = tables["partial-matches"]
    assert matches["key"] == "k"
    assert sorted((one["state"], one["start_time"]) for one in matches["value"]) == [("a", -1), ("b", 10), ("b", 20)]
    assert [event["row"]["value"] for event in tables["match-events"][0]["value"]] == [7, 8]
    assert [waiting["number"] for waiting in tables["waiting-rows"]] == [3]


def test_a_key_without_partial_matches_keeps_nothing() -> None:
    job = MatchJob(A_THEN_B.within("10ms"))
    job.rows([row(n, f"k{n}", "A", 0, n + 1) for n in range(20)])
    job.advance(5)
    assert snapshot_of(job.operators[0]).tables
    job.advance(100)
    assert len(job.timed_out()) == 20
    assert not any(table.data.num_rows for table in snapshot_of(job.operators[0]).tables.values())


def test_state_of_another_pattern_is_refused() -> None:
    job = MatchJob(A_THEN_B)
    job.rows([row(0, "k", "A", 0, 1)])
    job.advance(5)
    other = MatchJob(Pattern.begin("c").next("d"))
    with pytest.raises(StateError, match="saved for another pattern"):
        other.operators[0].restore(OperatorSnapshot(snapshot_of(job.operators[0]).tables, 5))


def test_a_match_without_the_variable_fails_the_job_where_that_was_asked_for() -> None:
    skip = AfterMatchSkipStrategy.skip_to_first("b").throw_exception_on_miss()
    pattern = (
        Pattern.begin("a", skip).where(col("name") == "A").next("b").where(col("name") == "B").optional().next("c")
    )
    job = MatchJob(pattern)
    job.rows([row(0, "k", "A", 0, 1), row(1, "k", "C", 0, 2)])
    with pytest.raises(RecordError, match="has no event of it"):
        job.advance()


def test_times_may_be_far_apart() -> None:
    job = MatchJob(A_THEN_B)
    far = 2**61
    job.rows([row(0, "k", "B", 0, far), row(1, "j", "A", 0, 5), row(2, "k", "A", 0, 5), row(3, "j", "B", 0, 5)])
    job.advance()
    assert sorted(job.matches()) == [("j|a=1;b=3", 5), ("k|a=2;b=0", far)]


@pytest.mark.parametrize("tests", [15, 80])
def test_a_pattern_may_have_many_tests(tests: int) -> None:
    pattern = Pattern.begin("s0").where(col("value") == 0)
    for number in range(1, tests):
        pattern = pattern.next(f"s{number}").where(col("value") == number)
    job = MatchJob(pattern)
    job.rows([row(n, "k", "A", n, n + 1) for n in range(tests)])
    job.advance()
    ((text, at),) = job.matches()
    assert text.startswith("k|s0=0;s1=1;")
    assert at == tests


def test_results_of_all_keys_are_in_order_of_time() -> None:
    job = MatchJob(A_THEN_B)
    rows = [row(2 * n, f"k{n % 3}", "A", 0, 10 * n + 1) for n in range(9)]
    rows += [row(2 * n + 1, f"k{n % 3}", "B", 0, 10 * n + 5) for n in range(9)]
    job.rows(rows)
    job.advance()
    times: list[Any] = [at for _, at in job.matches()]
    assert times == sorted(times)
    assert len(times) == 9


@pytest.mark.parametrize("on_columns", [True, False], ids=["columns", "objects"])
@pytest.mark.parametrize(("letters", "found"), [("AC", {""}), ("ABC", {"b=1"}), ("ABXBC", {"b=1,3"}), ("AXC", set())])
def test_a_loop_of_what_may_be_left_out_ends(
    letters: str, found: set[str], on_columns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not on_columns:
        monkeypatch.setattr(match_spec, "fits", lambda pattern: False)
    name = col("name")
    either = Pattern.begin("b").where(name == "B").optional()
    pattern = Pattern.begin("a").where(name == "A").next(either).one_or_more().next("c").where(name == "C")
    job = MatchJob(pattern)
    job.rows([row(number, "k", letter, 0, number + 1) for number, letter in enumerate(letters)])
    job.advance()
    ways = {text.removeprefix("k|a=0;").partition("c=")[0].removesuffix(";") for text, _ in job.matches()}
    assert ways == found
