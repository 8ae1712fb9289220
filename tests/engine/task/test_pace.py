"""The pace of a task: how many rows are worth the target, whatever a batch costs."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.task.pace import FIRST_ROWS, Pace
from tests.draws import drawn

MOST = 131_072
TARGET = 0.1


def after(batches: int, cost: Callable[[int], float], wanted: float = math.inf, blocked: float = 0.0) -> Pace:
    """The pace behind full batches that cost so many seconds by their rows, each behind so long a wait."""
    pace = Pace(TARGET, MOST)
    for _ in range(batches):
        pace.heed(blocked, wanted)
        pace.add(pace.rows, cost(pace.rows))
    pace.heed(blocked, wanted)
    return pace


@given(st.floats(1e-6, 1.0))
def test_a_batch_is_worth_half_of_the_target(seconds_a_row: float) -> None:
    pace = after(30, lambda rows: rows * seconds_a_row)
    assert pace.rows == max(1, int(0.05 / seconds_a_row + 1e-6)) or abs(pace.rows * seconds_a_row - 0.05) < 0.001
    assert pace.worth == pytest.approx(TARGET / seconds_a_row, rel=0.01)


def test_a_fast_task_takes_full_batches_within_a_few() -> None:
    assert after(3, lambda rows: rows * 1e-8).rows == MOST


def test_before_anything_is_known_a_slow_function_has_few_rows_before_it() -> None:
    assert Pace(TARGET, MOST).rows == FIRST_ROWS
    assert after(1, lambda rows: rows * 0.002).rows == 25


@given(st.floats(0.06, 10.0), st.floats(1e-7, 1e-3))
@settings(max_examples=drawn(50))
def test_a_fixed_cost_above_the_target_does_not_starve_a_task(fixed: float, each: float) -> None:
    """As of a service that is asked once for each batch: row by row it would be asked for ever."""
    pace = after(40, lambda rows: fixed + rows * each)
    assert pace.rows * each > fixed / 3 or pace.rows > MOST / 3, "a good part of the time goes into the rows"


def test_a_cost_that_no_row_adds_to_is_paid_for_full_batches() -> None:
    assert after(10, lambda rows: 1.0).rows > MOST / 3


@given(st.integers(1, 1000))
def test_who_waits_for_receivers_takes_what_they_want_and_no_less(wanted: int) -> None:
    """Behind receivers that take a row in 2 ms; and behind one with a fixed cost, which wants many rows at once."""
    pace = Pace(TARGET, MOST)
    for _ in range(40):
        pace.heed(pace.rows * 0.002, wanted)
        pace.add(pace.rows, pace.rows * 1e-6)
    pace.heed(pace.rows * 0.002, wanted)
    assert wanted <= pace.rows <= max(wanted, 50)


def test_it_grows_no_faster_than_receivers_ask_for() -> None:
    assert after(10, lambda rows: rows * 1e-8, wanted=FIRST_ROWS).rows == 2 * FIRST_ROWS


def test_it_follows_a_function_that_gets_slower_and_faster() -> None:
    pace = after(10, lambda rows: rows * 1e-5)
    assert 3_000 < pace.rows < 10_000
    for _ in range(20):
        pace.add(pace.rows, pace.rows * 1e-3)
    assert 30 < pace.rows < 80
    for _ in range(30):
        pace.heed(0.0, math.inf)
        pace.add(pace.rows, pace.rows * 1e-5)
    assert 3_000 < pace.rows < 10_000


def test_one_slow_batch_does_not_starve_the_next_ones() -> None:
    """As where the process was not given a core for a while."""
    pace = after(10, lambda rows: rows * 1e-6)
    pace.add(pace.rows, 1.0)
    for _ in range(12):
        pace.heed(0.0, math.inf)
        pace.add(pace.rows, pace.rows * 1e-6)
    pace.heed(0.0, math.inf)
    assert pace.rows > 25_000


def test_without_a_target_batches_are_bounded_by_their_size() -> None:
    pace = Pace(0.0, MOST)
    pace.add(MOST, 100.0)
    assert (pace.rows, pace.worth, pace.may_grow) == (MOST, math.inf, False)


def test_where_the_clock_stands_still_batches_are_full_soon() -> None:
    pace = after(3, lambda rows: 0.0)
    assert pace.rows == MOST
