"""Watermark strategies as users write them: what they hold, how plans show them, and what they refuse."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from penstock.engine.errors import ConfigurationError
from penstock.engine.windows.watermarks import (
    BoundedOutOfOrderness,
    Row,
    WatermarkGenerator,
    WatermarkStrategy,
)

IN_ORDER = WatermarkStrategy.for_monotonous_timestamps()


class Hourly(WatermarkGenerator):
    """A generator of the user."""


def last_of_hour(row: Row, timestamp: int) -> int | None:
    return timestamp if row["last"] else None


@pytest.mark.parametrize("delay", [-1, 2**60 + 1])
def test_a_delay_out_of_range_is_refused(delay: int) -> None:
    assert BoundedOutOfOrderness(2**60).delay_ms == 2**60
    with pytest.raises(ConfigurationError, match="out of orderness must be from 0 to 2"):
        BoundedOutOfOrderness(delay)


@pytest.mark.parametrize(
    ("strategy", "text"),
    [
        (IN_ORDER, "monotonous"),
        (WatermarkStrategy.for_bounded_out_of_orderness("5s"), "out of order by 5s"),
        (WatermarkStrategy.for_generator(Hourly), "by Hourly"),
        (WatermarkStrategy.for_punctuated(last_of_hour), "punctuated by last_of_hour"),
        (WatermarkStrategy.for_ingestion_time(), "ingestion time"),
        (WatermarkStrategy.no_watermarks(), "no watermarks"),
        (
            WatermarkStrategy.for_bounded_out_of_orderness(timedelta(seconds=90))
            .with_timestamp_assigner("at")
            .with_idleness("30s")
            .with_watermark_alignment("trips", "1m", update_interval="500ms"),
            "at, out of order by 1m 30s, idle after 30s, within 1m of group 'trips'",
        ),
        (IN_ORDER.with_timestamp_assigner(len), "len, monotonous"),
    ],
)
def test_plans_describe_strategies_which_can_travel(strategy: WatermarkStrategy, text: str) -> None:
    assert strategy.describe() == text
    assert pickle.loads(pickle.dumps(strategy)) == strategy


def test_a_strategy_stays_as_it_is_when_another_is_made_of_it() -> None:
    timed = IN_ORDER.with_timestamp_assigner("at")
    assert timed.with_idleness("1s").with_idleness("2s").idle_after_ms == 2000
    assert timed.idle_after_ms is None
    assert not IN_ORDER.has_timestamps
    assert timed.has_timestamps
    assert WatermarkStrategy.for_ingestion_time().has_timestamps


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: WatermarkStrategy.for_bounded_out_of_orderness("five seconds"), "for_bounded_out_of_orderness: 'five"),
        (lambda: WatermarkStrategy.for_bounded_out_of_orderness("-1s"), "for_bounded_out_of_orderness"),
        (lambda: WatermarkStrategy.for_generator(Hourly()), "what makes a WatermarkGenerator.*give the class"),  # type: ignore[arg-type]
        (lambda: WatermarkStrategy.for_generator(5), "what makes a WatermarkGenerator, not 5"),  # type: ignore[arg-type]
        (lambda: WatermarkStrategy.for_punctuated("last"), "takes a function of a row and its timestamp, not 'last'"),  # type: ignore[arg-type]
        (lambda: IN_ORDER.with_timestamp_assigner(5), "name of a column, or a function of a row, not 5"),  # type: ignore[arg-type]
        (lambda: WatermarkStrategy.for_ingestion_time().with_timestamp_assigner("at"), "are the clock's"),
        (lambda: IN_ORDER.with_idleness("0s"), "with_idleness must be a millisecond or more, not '0s'"),
        (lambda: IN_ORDER.with_idleness(30), "with_idleness: 30 is no duration"),  # type: ignore[arg-type]
        (lambda: IN_ORDER.with_watermark_alignment("", "1m"), "the group's name is a text, not ''"),
        (lambda: IN_ORDER.with_watermark_alignment("g", "1 parsec"), "with_watermark_alignment max_drift"),
        (lambda: IN_ORDER.with_watermark_alignment("g", "1m", "0s"), "update_interval must be a millisecond or more"),
        (
            lambda: WatermarkStrategy.no_watermarks().with_watermark_alignment("g", "1m"),
            "without watermarks would stop its group",
        ),
    ],
)
def test_what_makes_no_strategy_is_refused(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        build()
