"""Watermark strategies: how far behind the largest timestamp event time stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.errors import ConfigurationError
from penstock.engine.windows.watermarks import WatermarkGenerator, WatermarkStrategy


def test_ordered_rows_put_the_watermark_a_millisecond_behind() -> None:
    generator = WatermarkGenerator(WatermarkStrategy.for_monotonous_timestamps())
    assert generator.advance(100) == 99


def test_rows_out_of_order_put_it_further_behind() -> None:
    generator = WatermarkGenerator(WatermarkStrategy.for_bounded_out_of_orderness("5s"))
    assert generator.advance(10_000) == 4_999


def test_rows_that_do_not_advance_time_give_no_watermark() -> None:
    generator = WatermarkGenerator(WatermarkStrategy.for_monotonous_timestamps())
    assert [generator.advance(at) for at in (5, 5, 3, 6)] == [4, None, None, 5]


@given(st.integers(0, 100), st.lists(st.integers(-1000, 1000), min_size=1))
def test_watermarks_rise_and_follow_the_largest_timestamp(delay: int, times: list[int]) -> None:
    generator = WatermarkGenerator(WatermarkStrategy(delay))
    watermarks = [generator.advance(at) for at in times]
    given_out = [watermark for watermark in watermarks if watermark is not None]
    assert given_out == sorted(set(given_out))
    assert given_out[-1] == max(times) - delay - 1


def test_a_delay_that_is_no_duration_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="for_bounded_out_of_orderness"):
        WatermarkStrategy.for_bounded_out_of_orderness("five seconds")


@pytest.mark.parametrize("delay", [-1, 2**60 + 1])
def test_a_delay_out_of_range_is_refused(delay: int) -> None:
    assert WatermarkStrategy(2**60).out_of_orderness_ms == 2**60
    with pytest.raises(ConfigurationError, match="out_of_orderness_ms must be from 0 to 2"):
        WatermarkStrategy(delay)


def test_plans_describe_strategies() -> None:
    assert WatermarkStrategy.for_monotonous_timestamps().describe() == "monotonous"
    assert WatermarkStrategy.for_bounded_out_of_orderness("5s").describe() == "out of order by 5s"
