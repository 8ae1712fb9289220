"""When the general window operator fires: early and late results, both kinds of time, sessions, timers."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import (
    ContinuousProcessingTimeTrigger,
    EndOfTimeTrigger,
    EventTimeTrigger,
    Trigger,
    TriggerResult,
    global_windows,
    session,
    sliding,
    tumbling,
)
from penstock.engine.clock import ManualClock
from penstock.engine.elements import MAX_TIMESTAMP
from tests.engine.operators.windows.window_functions import SUM, Sum, add, summed
from tests.engine.window_driver import WindowDriver

# --- early and late results ----------------------------------------------------------------------------------


def test_early_results_come_by_the_clock_until_the_watermark_gives_the_final_one() -> None:
    driver = WindowDriver(lambda k: k.window(tumbling("10ms")).trigger(EventTimeTrigger("5s")).process(Sum, SUM))
    driver.come_to(1_000)
    driver.add(("a", 1, 1))
    driver.come_to(5_999)
    assert summed(driver) == []
    driver.come_to(6_000)
    assert summed(driver) == [("a", 0, 1)]
    driver.add(("a", 2, 2))
    driver.come_to(11_000)
    assert summed(driver) == [("a", 0, 3)]
    driver.advance(9)
    assert summed(driver) == [("a", 0, 3)]
    driver.come_to(60_000)
    assert summed(driver) == []
    assert driver.states() == {}


def test_early_results_come_after_some_rows_and_late_ones_one_by_one() -> None:
    trigger = EventTimeTrigger().with_early_firings(count=2)
    driver = WindowDriver(
        lambda k: k.window(tumbling("10ms")).trigger(trigger).allowed_lateness("5ms").process(Sum, SUM)
    )
    driver.add(("a", 1, 1), ("a", 2, 2), ("a", 3, 4))
    assert summed(driver) == [("a", 0, 3)]
    driver.restore()
    driver.add(("a", 4, 8))
    assert summed(driver) == [("a", 0, 15)]
    driver.advance(9)
    assert summed(driver) == [("a", 0, 15)]
    driver.add(("a", 5, 16), ("a", 6, 32))
    assert summed(driver) == [("a", 0, 31), ("a", 0, 63)]
    driver.advance(14)
    assert summed(driver) == []
    assert driver.states() == {}


def test_late_results_can_be_gathered_and_none_is_lost() -> None:
    trigger = EventTimeTrigger().with_late_firings(count=2)
    driver = WindowDriver(
        lambda k: k.window(tumbling("10ms")).trigger(trigger).allowed_lateness("5ms").process(Sum, SUM)
    )
    driver.add(("a", 1, 1))
    driver.advance(9)
    assert summed(driver) == [("a", 0, 1)]
    driver.add(("a", 2, 2))
    assert summed(driver) == []
    driver.add(("a", 3, 4), ("a", 4, 8))
    assert summed(driver) == [("a", 0, 7)]
    driver.advance(14)
    assert summed(driver) == [("a", 0, 15)]
    assert driver.states() == {}


def test_early_results_of_merged_sessions_come_at_the_earliest_time() -> None:
    driver = WindowDriver(
        lambda k: k.window(session("10ms")).trigger(EventTimeTrigger(early_every="5s")).process(Sum, SUM)
    )
    driver.add(("a", 0, 1))
    driver.come_to(2_000)
    driver.add(("a", 15, 2))
    driver.add(("a", 8, 4))
    driver.come_to(5_000)
    assert summed(driver) == [("a", 0, 7)]
    driver.come_to(9_999)
    assert summed(driver) == []
    driver.come_to(10_000)
    assert summed(driver) == [("a", 0, 7)]


def test_late_rows_that_an_on_time_result_has_are_not_given_again() -> None:
    trigger = EventTimeTrigger().with_late_firings(3)
    driver = WindowDriver(
        lambda k: k.window(session("10ms")).allowed_lateness("100ms").trigger(trigger).process(Sum, SUM)
    )
    driver.add(("a", 0, 1))
    driver.advance(20)
    driver.take()
    for time in (0, 10, 18):
        driver.add(("a", time, 1))
    driver.advance(30)
    assert summed(driver) == [("a", 0, 4)]
    driver.advance(1000)
    assert summed(driver) == []


# --- processing time -----------------------------------------------------------------------------------------


def test_a_row_of_the_millisecond_at_which_a_window_fired_belongs_to_the_next_window() -> None:
    driver = WindowDriver(lambda k: k.window(tumbling("10ms", time="processing")).process(Sum, SUM), timed=False)
    driver.add(("a", 0, 1))
    driver.come_to(9)
    assert summed(driver) == [("a", 0, 1)]
    driver.add(("a", 0, 2))
    driver.come_to(19)
    assert summed(driver) == [("a", 10, 2)]


def test_windows_that_the_clock_jumped_over_fire_in_order() -> None:
    driver = WindowDriver(lambda k: k.window(sliding("10ms", "5ms", time="processing")).process(Sum, SUM), timed=False)
    driver.add(("a", 0, 1))
    driver.jump_to(60)
    assert summed(driver) == [("a", -5, 1), ("a", 0, 1)]
    assert driver.states() == {}


def test_results_of_a_stream_without_timestamps_have_none() -> None:
    driver = WindowDriver(lambda k: k.count_window(1).process(Sum, SUM), timed=False)
    driver.add(("a", 0, 1))
    assert driver.take_times() == [None]


# --- the clock, and what triggers do with it -----------------------------------------------------------------


class _RunningClock(ManualClock):
    """Moves on by a millisecond whenever it is read."""

    def now_ms(self) -> int:
        now = super().now_ms()
        self.wait_until((now + 1) / 1000)
        return now


def test_no_row_is_lost_where_the_clock_passes_the_end_of_a_window_within_a_batch() -> None:
    trigger = ContinuousProcessingTimeTrigger("50ms")
    driver = WindowDriver(
        lambda k: k.window(tumbling("10ms", time="processing")).trigger(trigger).process(Sum, SUM), timed=False
    )
    driver.clock = _RunningClock()
    driver.operator.close()
    driver.operator = driver._open()
    driver.clock.wait_until(0.008)
    driver.add(("a", 0, 1), ("b", 0, 1), ("c", 0, 1), ("d", 0, 1))
    driver.jump_to(100)
    assert summed(driver) == [(key, 0, 1) for key in "abcd"]


def test_a_trigger_cannot_delete_the_timer_that_forgets_its_window() -> None:
    trigger = EventTimeTrigger(early_every="7ms")
    driver = WindowDriver(lambda k: k.window(tumbling("10ms", time="processing")).trigger(trigger).process(Sum, SUM))
    driver.come_to(2)
    driver.add(("a", 0, 1))
    driver.advance(20)
    driver.come_to(500)
    assert driver.states() == {}


def test_a_window_of_the_clock_that_has_fired_does_not_fire_again_after_a_restore() -> None:
    driver = WindowDriver(lambda k: k.window(tumbling("10ms", time="processing")).process(Sum, SUM))
    driver.come_to(5)
    driver.add(("a", 0, 1))
    driver.come_to(9)
    assert summed(driver) == [("a", 0, 1)]
    driver.restore()
    driver.add(("a", 0, 1))
    driver.come_to(30)
    assert summed(driver) == [("a", 10, 1)]


class _Again(Trigger):
    """Registers the time that it is called at."""

    def on_element(self, row: Any, timestamp: Any, window: Any, context: Any) -> TriggerResult:
        context.register_processing_time_timer(5)
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: Any, window: Any, context: Any) -> TriggerResult:
        context.register_processing_time_timer(time)
        return TriggerResult.FIRE


def test_a_trigger_that_registers_now_over_and_over_does_not_keep_the_operator() -> None:
    driver = WindowDriver(lambda k: k.window(tumbling("1h")).trigger(_Again()).process(Sum, SUM))
    driver.add(("a", 0, 1))
    for _ in range(2):
        driver.jump_to(5)
        assert summed(driver) == [("a", 0, 1)]


# --- sessions ------------------------------------------------------------------------------------------------


def test_a_session_that_grows_keeps_one_place_and_its_timers() -> None:
    driver = WindowDriver(lambda k: k.window(session("10ms")).allowed_lateness("5ms").process(Sum, SUM))
    driver.add(*(("a", 5 * number, 1) for number in range(20)))
    assert driver.states() == {"window-contents": 1, "merging-window-set": 1, "__event_timers": 2}
    driver.advance(MAX_TIMESTAMP)
    assert summed(driver) == [("a", 0, 20)]
    assert driver.states() == {}


def test_a_late_session_leaves_nothing() -> None:
    driver = WindowDriver(lambda k: k.window(session("10ms")).process(Sum, SUM))
    driver.advance(100)
    driver.add(("a", 5, 1), ("a", 14, 1))
    assert driver.metrics.late_rows == 2
    assert driver.states() == {}


# --- timestamps ----------------------------------------------------------------------------------------------


def test_results_carry_the_last_millisecond_of_their_window() -> None:
    driver = WindowDriver(lambda k: k.window(tumbling("10ms")).process(Sum, SUM))
    driver.add(("a", 1, 1), ("a", 25, 1))
    driver.advance(MAX_TIMESTAMP)
    assert driver.take_times() == [9, 29]


@pytest.mark.parametrize("restores", [False, True])
def test_results_of_the_global_window_carry_the_time_of_its_last_row(restores: bool) -> None:
    driver = WindowDriver(lambda k: k.window(global_windows()).trigger(EndOfTimeTrigger()).reduce(add))
    driver.add(("a", 7, 1), ("a", 3, 1), ("b", 5, 1))
    if restores:
        driver.restore()
    driver.advance(MAX_TIMESTAMP)
    assert driver.take_times() == [3, 5]


def test_a_purged_global_window_leaves_nothing() -> None:
    driver = WindowDriver(lambda k: k.count_window(2).reduce(add))
    driver.add(("a", 7, 1), ("a", 3, 1))
    assert driver.take_times() == [3]
    assert driver.states() == {}
