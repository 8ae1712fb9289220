"""Windows are ranges of time; those that touch merge."""

from __future__ import annotations

import pickle

import pytest

from penstock.engine.elements import MAX_TIMESTAMP
from penstock.engine.windows.windows import GLOBAL_WINDOW, TimeWindow, merge_intersecting


def test_a_window_ends_one_millisecond_behind_its_last() -> None:
    assert TimeWindow(0, 10).max_timestamp == 9
    assert TimeWindow(0, 10) == TimeWindow(0, 10) != TimeWindow(0, 11)
    with pytest.raises(AttributeError):
        TimeWindow(0, 10).start = 5  # type: ignore[misc]


def test_the_global_window_reaches_to_the_end_of_time() -> None:
    assert GLOBAL_WINDOW.max_timestamp == MAX_TIMESTAMP
    assert pickle.loads(pickle.dumps(GLOBAL_WINDOW)) == GLOBAL_WINDOW


def test_windows_that_touch_intersect() -> None:
    assert TimeWindow(0, 10).intersects(TimeWindow(10, 20))
    assert TimeWindow(10, 20).intersects(TimeWindow(0, 10))
    assert not TimeWindow(0, 10).intersects(TimeWindow(11, 20))


def test_windows_merge_in_chains() -> None:
    windows = [TimeWindow(20, 25), TimeWindow(0, 5), TimeWindow(9, 20), TimeWindow(5, 8)]
    assert merge_intersecting(windows) == [
        (TimeWindow(0, 8), [TimeWindow(0, 5), TimeWindow(5, 8)]),
        (TimeWindow(9, 25), [TimeWindow(9, 20), TimeWindow(20, 25)]),
    ]


def test_a_long_window_takes_in_several_short_ones() -> None:
    windows = [TimeWindow(10, 12), TimeWindow(0, 100), TimeWindow(40, 50)]
    assert merge_intersecting(windows) == [(TimeWindow(0, 100), sorted(windows))]
