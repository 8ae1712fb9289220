"""Cumulative windows, and what all windows made of slices say about them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.errors import ConfigurationError
from penstock.engine.windows.assigners import AlignedWindows, CumulativeWindows, SlicedWindows, cumulative

TIMES = st.integers(-200, 200)
ALIGNED = st.builds(AlignedWindows, st.integers(1, 40), st.integers(1, 40), st.integers(0, 50))
CUMULATIVE = st.builds(
    lambda step, steps, offset: CumulativeWindows(step * steps, step, offset),
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(-50, 50),
)


class _Clock:
    current_processing_time = 0


@given(CUMULATIVE, TIMES)
def test_a_row_belongs_to_all_windows_of_its_period_that_end_behind_it(windows: CumulativeWindows, time: int) -> None:
    found = [(window.start, window.end) for window in windows.assign_windows({}, time, _Clock())]
    start = next(
        t for t in range(time, time - windows.max_size_ms, -1) if (t - windows.offset_ms) % windows.max_size_ms == 0
    )
    ends = [start + (number + 1) * windows.step_ms for number in range(windows.max_size_ms // windows.step_ms)]
    assert found == [(start, end) for end in ends if end > time]


@given(ALIGNED | CUMULATIVE, TIMES, TIMES, st.integers(0, 60))
def test_slices_know_their_windows(windows: SlicedWindows, time: int, above: int, further: int) -> None:
    covering = [(window.start, window.end) for window in windows.assign_windows({}, time, _Clock())]
    last_end = int(windows.last_ends(np.array([time]))[0])
    assert (last_end > time) == bool(covering)
    assert windows.has_gaps or covering
    if covering:
        assert last_end == max(end for _, end in covering)
        assert max(end - start for start, end in covering) <= windows.longest_ms
        assert all(windows.start_of(end) == start for start, end in covering)
        slice_start = time - (time - windows.offset_ms) % windows.slice_ms
        wanted = sorted(end for _, end in covering if above < end <= above + further)
        assert list(windows.ends_over(slice_start, above, above + further)) == wanted


def test_cumulative_windows_say_what_they_are() -> None:
    assert cumulative("1d", "1h").describe() == "cumulative 1d by 1h"
    assert cumulative("1d", "1h", offset="16h") == CumulativeWindows(86_400_000, 3_600_000, 57_600_000)
    assert cumulative("1d", "1h", offset="16h").describe() == "cumulative 1d by 1h, offset 16h"


@pytest.mark.parametrize(
    ("size", "step", "message"),
    [
        ("0s", "1s", "window size must be more than 0"),
        ("1h", "0s", "window step must be more than 0"),
        ("1h", "25m", "must be a multiple of their step: 3600000 ms is none of 1500000 ms"),
    ],
)
def test_windows_that_cannot_be_are_refused(size: str, step: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        cumulative(size, step)
