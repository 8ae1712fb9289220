"""Rates by columns are those that each subtask has by itself, whoever came or went between two readings."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.metrics import OperatorMetrics, OutputStatistics, SubtaskMetrics
from penstock.web.figures import Columns, Rates, Subtasks, Totals, rates_between
from tests.draws import drawn

COUNT = st.integers(0, 1_000_000)
SECONDS = st.sampled_from([0.0, 0.25, 0.5, 2.0])


@st.composite
def subtasks(draw: st.DrawFn) -> list[SubtaskMetrics]:
    """Some of the subtasks of two tasks, sorted."""
    places = sorted(draw(st.sets(st.tuples(st.integers(1, 2), st.integers(0, 3)))))
    return [
        SubtaskMetrics(
            task,
            subtask,
            [("f", OperatorMetrics(draw(COUNT), draw(COUNT)))] if draw(st.booleans()) else [],
            draw(SECONDS),
            draw(SECONDS),
            draw(SECONDS),
            output=OutputStatistics(bytes_sent=draw(COUNT)),
            garbage_seconds=draw(SECONDS),
        )
        for task, subtask in places
    ]


def totals_of(one: SubtaskMetrics) -> Totals:
    counters = [counters for _, counters in one.operators]
    rows_in = (counters[0].rows_in or counters[0].rows_out) if counters else 0
    rows_out = counters[-1].rows_out if counters else 0
    output = one.output
    times = one.busy_seconds, one.blocked_seconds, one.idle_seconds, one.garbage_seconds
    return Totals(rows_in, rows_out, output.bytes_sent, output.messages_sent, *times)


def rates_of(before: Totals | None, now: Totals, seconds: float) -> Rates:
    """One by one, as the words say."""
    before = before or (Totals() if seconds > 0 else now)
    spent = [now.busy - before.busy, now.blocked - before.blocked, now.idle - before.idle]
    garbage = now.garbage - before.garbage
    if sum(spent) <= 0:
        spent, garbage = [now.busy, now.blocked, now.idle], now.garbage
        return Rates(0.0, 0.0, 0.0, *(one / sum(spent) if sum(spent) else 0.0 for one in (*spent, garbage)))
    counts = ((now.rows_in, before.rows_in), (now.rows_out, before.rows_out), (now.bytes_out, before.bytes_out))
    done = [max(0, later - earlier) / seconds if seconds > 0 else 0.0 for later, earlier in counts]
    return Rates(*done, *(one / sum(spent) for one in (*spent, garbage)))


@settings(max_examples=drawn(40))
@given(subtasks(), subtasks(), st.sampled_from([0.0, 2.0]))
def test_rates_are_those_of_each_by_itself(
    earlier: list[SubtaskMetrics], later: list[SubtaskMetrics], seconds: float
) -> None:
    before, now = Columns.of(earlier), Columns.of(later)
    found = Subtasks(later, now, rates_between(before, now, seconds))
    known = {(one.task, one.subtask): totals_of(one) for one in earlier}
    for one, view in zip(later, found, strict=True):
        assert view.totals == totals_of(one)
        right = rates_of(known.get((one.task, one.subtask)), totals_of(one), seconds)
        for name in Rates.__slots__:
            assert getattr(view.rates, name) == pytest.approx(getattr(right, name))
    assert found.rate("rows_in") == pytest.approx(sum(view.rates.rows_in for view in found))
    assert found.total("bytes_out") == sum(view.totals.bytes_out for view in found)
    assert found.highest("busy") == pytest.approx(max([0.0, *(view.rates.busy for view in found)]))
    assert [found[place] for place in range(len(found))] == list(found)
    assert found.each("rows_out") == [view.totals.rows_out for view in found]
    assert found.each_rate("idle") == [view.rates.idle for view in found]


def test_counters_are_of_whole_chains_however_many_subtasks_there_are() -> None:
    read = [
        SubtaskMetrics(1, subtask, [("f", OperatorMetrics(subtask, 1, 2, 5)), ("g", OperatorMetrics(1, 7, 3, subtask))])
        for subtask in range(3000)
    ]
    columns = Columns.of(read)
    found = Subtasks(read, columns, rates_between(columns, columns, 1.0))
    everyone = list(range(3000))
    assert found.each("rows_in") == [1, *everyone[1:]]
    assert (found.each("rows_out"), found.each("late_rows")) == ([7] * 3000, [5] * 3000)
    assert found.each("watermark") == everyone
