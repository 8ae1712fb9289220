"""Window assigners: which windows cover a time, and arguments that make no window."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.errors import ConfigurationError
from penstock.engine.windows.assigners import AlignedWindows, SessionWindows, session, sliding, tumbling

TIMES = st.integers(-(10**13), 10**13)
WINDOWS = st.builds(AlignedWindows, st.integers(1, 40), st.integers(1, 40), st.integers(0, 50))


@given(WINDOWS, TIMES)
def test_the_last_window_starts_at_or_before_the_time_and_the_next_behind_it(
    windows: AlignedWindows, time: int
) -> None:
    start = windows.last_start(time)
    assert start <= time < start + windows.slide_ms
    assert (start - windows.offset_ms) % windows.slide_ms == 0


@given(WINDOWS, TIMES)
def test_a_slice_is_covered_by_the_windows_that_contain_it_latest_first(windows: AlignedWindows, time: int) -> None:
    slice_start = time - (time - windows.offset_ms) % windows.slice_ms
    expected = [
        start
        for start in range(slice_start, slice_start - windows.size_ms, -1)
        if (start - windows.offset_ms) % windows.slide_ms == 0
    ]
    assert list(windows.starts_covering(slice_start)) == expected
    assert all(slice_start + windows.slice_ms <= start + windows.size_ms for start in expected)


@given(WINDOWS, TIMES)
def test_window_bounds_are_slice_bounds(windows: AlignedWindows, time: int) -> None:
    start = windows.last_start(time)
    assert (start - windows.offset_ms) % windows.slice_ms == 0
    assert (start + windows.size_ms - windows.offset_ms) % windows.slice_ms == 0


def test_days_of_another_time_zone_start_at_their_midnight() -> None:
    windows = tumbling("1d", offset="16h")
    assert windows.last_start(0) == -8 * 3_600_000


def test_durations_may_be_text_or_timedelta() -> None:
    assert tumbling(timedelta(hours=1)) == tumbling("1h") == AlignedWindows(3_600_000, 3_600_000)
    assert sliding("24h", "6h") == AlignedWindows(86_400_000, 21_600_000)
    assert session("30m") == SessionWindows(1_800_000)


@pytest.mark.parametrize("windows", [lambda: tumbling("0s"), lambda: sliding("1h", "0s"), lambda: session("0s")])
def test_a_window_of_no_length_is_refused(windows: object) -> None:
    assert callable(windows)
    with pytest.raises(ConfigurationError, match="must be more than 0"):
        windows()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda ms: AlignedWindows(ms, 1), "window size must be at most 2[*][*]60 ms"),
        (lambda ms: AlignedWindows(1, ms), "window slide must be at most 2[*][*]60 ms"),
        (lambda ms: AlignedWindows(1, 1, ms), "window offset must be at most 2[*][*]60 ms"),
        (lambda ms: AlignedWindows(1, 1, -ms), "window offset must be at most 2[*][*]60 ms"),
        (SessionWindows, "session gap must be at most 2[*][*]60 ms"),
    ],
)
def test_spans_that_would_overflow_are_refused(make: Callable[[int], object], message: str) -> None:
    make(2**60)
    with pytest.raises(ConfigurationError, match=message):
        make(2**60 + 1)


@pytest.mark.parametrize("size", ["an hour", "5", 5, None, "-1h"])
def test_what_is_no_duration_is_refused_by_name(size: object) -> None:
    with pytest.raises(ConfigurationError, match="window size"):
        tumbling(size)  # type: ignore[arg-type]


def test_plans_describe_windows() -> None:
    described = [
        windows.describe()
        for windows in (
            tumbling("90m"),
            tumbling("1d", offset="16h"),
            tumbling("1h", offset="1h"),
            sliding("24h", "6h"),
            session("30m"),
        )
    ]
    assert described == [
        "tumbling 1h 30m",
        "tumbling 1d, offset 16h",
        "tumbling 1h",
        "sliding 1d by 6h",
        "session gap 30m",
    ]
