"""How many subtasks a task is given, by what is shared out among them."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.autoscaler.scaling import least


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
