"""Durations: what users may write, what is refused, and how plans show them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.durations import format_duration, parse_duration, parse_signed_duration
from penstock.engine.errors import ConfigurationError


@pytest.mark.parametrize(
    ("written", "milliseconds"),
    [
        ("50ms", 50),
        ("5s", 5_000),
        ("5 sec", 5_000),
        ("5m", 300_000),
        ("5min", 300_000),
        ("1h 30min", 5_400_000),
        ("1h30m", 5_400_000),
        (" 1H ", 3_600_000),
        ("2d", 172_800_000),
        ("1w", 604_800_000),
        ("3 seconds", 3_000),
        ("1 minute", 60_000),
        ("1 hour 30 minutes", 5_400_000),
        ("2 Days", 172_800_000),
        ("200 milliseconds", 200),
        ("200 millis", 200),
        ("0", 0),
        ("0ms", 0),
        (timedelta(seconds=1.5), 1_500),
        (timedelta(0), 0),
    ],
)
def test_durations_are_read(written: timedelta | str, milliseconds: int) -> None:
    assert parse_duration(written, "gap") == milliseconds


@pytest.mark.parametrize("written", ["", " ", "5", "m", "5 parsecs", "1h and 5m", "-x", "1.5h", "5m!", "1h x"])
def test_text_that_is_no_duration_is_refused_with_an_example(written: str) -> None:
    with pytest.raises(ConfigurationError, match=r"gap: .* is no duration; write a number with a unit"):
        parse_duration(written, "gap")


@pytest.mark.parametrize("given_value", [5, 1.5, None, b"5s"])
def test_other_objects_are_refused_with_an_example(given_value: object) -> None:
    with pytest.raises(ConfigurationError, match=r"gap: .* is no duration; give a timedelta or a text"):
        parse_duration(given_value, "gap")  # type: ignore[arg-type]


@pytest.mark.parametrize("written", [timedelta(seconds=-1), "-5s"])
def test_a_negative_duration_is_refused_as_such(written: timedelta | str) -> None:
    with pytest.raises(ConfigurationError, match=r"gap: .* is negative"):
        parse_duration(written, "gap")


def test_a_duration_finer_than_a_millisecond_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="finer than a millisecond"):
        parse_duration(timedelta(microseconds=1500), "gap")


@pytest.mark.parametrize(
    ("milliseconds", "shown"), [(0, "0ms"), (5_400_000, "1h 30m"), (86_400_001, "1d 1ms"), (59_999, "59s 999ms")]
)
def test_durations_are_shown_in_their_largest_units(milliseconds: int, shown: str) -> None:
    assert format_duration(milliseconds) == shown


@given(st.integers(0, 10**12))
def test_what_is_shown_can_be_written(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds), "gap") == milliseconds


@given(st.timedeltas(timedelta(0), timedelta(days=10_000)).map(lambda d: d - d % timedelta(milliseconds=1)))
def test_a_timedelta_and_its_text_are_equal(duration: timedelta) -> None:
    milliseconds = parse_duration(duration, "gap")
    assert parse_duration(f"{milliseconds}ms", "gap") == milliseconds
    assert timedelta(milliseconds=milliseconds) == duration


@pytest.mark.parametrize(
    ("written", "milliseconds"),
    [("-5s", -5_000), (" - 1m 30s", -90_000), ("5s", 5_000), ("-0", 0), (timedelta(seconds=-1), -1_000)],
)
def test_signed_durations_may_be_negative(written: timedelta | str, milliseconds: int) -> None:
    assert parse_signed_duration(written, "lower") == milliseconds


@pytest.mark.parametrize("written", ["--5s", "-", "5s -1ms", "-5", 5])
def test_signed_durations_have_one_sign_in_front(written: object) -> None:
    with pytest.raises(ConfigurationError, match=r"lower: .* is no duration"):
        parse_signed_duration(written, "lower")  # type: ignore[arg-type]


def test_negative_durations_are_shown_with_a_sign() -> None:
    assert format_duration(-90_000) == "-1m 30s"
