"""How many subtasks a task is given, by what is shared out among them and by how busy they are."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.autoscaler.evaluation import JobFigures, TaskFigures, evaluate
from penstock.engine.autoscaler.readings import JobReading, SubtaskCounters, TaskReading
from penstock.engine.autoscaler.scaling import advise, least
from penstock.engine.autoscaler_config import AutoscalerConfig


@pytest.mark.parametrize(
    ("needed", "groups", "subtasks"),
    [
        # Of 128 key groups 7 subtasks have 19 at most, 6.7 times the part of one: 8 are not needed.
        pytest.param(6.5, 128, 7, id="a few more key groups do no harm"),
        # 65 to 127 would have two key groups each, and so do 64.
        pytest.param(65, 128, 64, id="more subtasks with as much each are useless"),
        pytest.param(70, 128, 128, id="the next number that helps"),
        # 5, 6 and 7 subtasks leave one with two splits.
        pytest.param(5, 8, 8, id="splits"),
        pytest.param(300, 128, 128, id="more than there are key groups"),
        pytest.param(2.04, 0, 2, id="nothing is shared out"),
        pytest.param(2.2, 0, 3, id="nothing is shared out, and too much"),
    ],
)
def test_no_more_subtasks_are_taken_than_the_fullest_needs(needed: float, groups: int, subtasks: int) -> None:
    assert least(needed, groups, 200) == subtasks


@given(st.floats(0.01, 300), st.integers(1, 300), st.integers(1, 200))
def test_fewer_would_leave_too_much_to_the_fullest(needed: float, groups: int, most: int) -> None:
    """The groups are dealt out one by one, and those of the fullest subtask are counted."""

    def fullest(subtasks: int) -> int:
        return max(Counter(group % subtasks for group in range(groups)).values())

    found = least(needed, groups, most)
    too_many = groups / needed * 1.05 + 1e-4
    assert fullest(found) <= too_many or fullest(found) == fullest(most)
    assert found == 1 or fullest(found - 1) > min(fullest(found), groups / needed * 1.05 - 1e-4)


def busy(rows: list[int], row_seconds: float) -> float:
    """What counts as busy in ten seconds, in which the subtasks had these rows."""
    spent = tuple(SubtaskCounters(one, one, one * row_seconds, 0.0, 10 - one * row_seconds) for one in rows)
    ends = (tuple(SubtaskCounters() for _ in rows), 0.0), (spent, 10.0)
    first, last = (
        JobReading(at, 0, 1, (TaskReading(1, "rows", ("rows",), ("rows",), (), (1,), 128, 0, counters),))
        for counters, at in ends
    )
    return evaluate(first, last, AutoscalerConfig()).tasks[0].busy


def test_that_one_subtask_has_more_rows_by_chance_counts_for_nothing() -> None:
    draw = random.Random(3).choices
    told = [busy(list(Counter(draw(range(8), k=2000)).values()), 0.02) for _ in range(200)]
    assert sum(told) / len(told) == pytest.approx(0.5, abs=0.01)
    assert max(told) < 0.54


@pytest.mark.parametrize("rows", [[300, 400, 800], [0, 0, 500]])
def test_that_one_has_many_more_counts_and_all_the_more_rows_there_are(rows: list[int]) -> None:
    fullest = max(rows) * 0.001
    told = [busy([one * times for one in rows], 0.01 / times) for times in (1, 100, 10_000)]
    assert sum(rows) / 3 * 0.001 < told[0] < told[1] < told[2] < fullest
    assert told[2] == pytest.approx(fullest, rel=0.01)


def test_a_subtask_alone_is_as_busy_as_it_is() -> None:
    assert busy([400], 0.02) == pytest.approx(0.8)


@pytest.mark.parametrize(("share", "wanted"), [(0.97, 2), (0.3, 1)])
def test_a_busy_task_never_gets_fewer_subtasks_whatever_its_source_tells(share: float, wanted: int) -> None:
    """A source that waits for a long batch of it has read nothing in the window."""
    task = TaskReading(2, "slow", ("slow",), ("slow",), (1,), (2,), 128, 0, (SubtaskCounters(), SubtaskCounters()))
    figures = TaskFigures(task, 19.0, share, 0.0, 19.0 / share, 0.0, 0.0, 0.0)
    advice = advise(figures, JobFigures((figures,), 0.0), 1.0, AutoscalerConfig())
    assert (advice.wanted, advice.needed) == (wanted, wanted)
