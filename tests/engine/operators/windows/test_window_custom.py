"""Assigners, triggers and evictors of one's own: what they may do, and what they are told when they may not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

import penstock as ps
from penstock import (
    CountEvictor,
    CountTrigger,
    EventTimeTrigger,
    Evictor,
    OutputTag,
    ReducingStateDescriptor,
    StateError,
    TimeWindow,
    Trigger,
    TriggerResult,
    WindowAssigner,
    global_windows,
    session,
    tumbling,
)
from penstock.engine.elements import MAX_TIMESTAMP
from penstock.engine.errors import RecordError
from tests.engine.operators.windows.window_functions import SUM, Sum, add, summed
from tests.engine.window_driver import WindowDriver

# --- evictors ------------------------------------------------------------------------------------------------


def test_a_fold_over_no_rows_emits_nothing_and_a_process_function_is_called() -> None:
    reduced = WindowDriver(lambda k: k.window(tumbling("10ms")).evictor(CountEvictor(0)).reduce(add))
    processed = WindowDriver(lambda k: k.window(tumbling("10ms")).evictor(CountEvictor(0)).process(Sum, SUM))
    for driver in (reduced, processed):
        driver.add(("a", 1, 1))
        driver.advance(9)
    assert reduced.take() == []
    assert summed(processed) == [("a", 0, 0)]


class OnlyEven(Evictor):
    """Keeps even values; drops what the function has seen."""

    def evict_before(self, elements: Any, window: Any, context: Any) -> Any:
        return [element for element in elements if element.row["v"] % 2 == 0]

    def evict_after(self, elements: Any, window: Any, context: Any) -> Any:
        return ()


@pytest.mark.parametrize("declared", [False, True])
def test_an_evictor_of_ones_own(declared: bool, backend: str) -> None:
    driver = WindowDriver(
        lambda k: (
            k.window(global_windows())
            .trigger(CountTrigger(3))
            .evictor(OnlyEven())
            .aggregate(n=ps.sum("v"), values=ps.collect_list("v"))
        ),
        declared=declared,
        backend=backend,
    )
    driver.add(("a", 0, 1), ("a", 0, 2))
    driver.restore()
    driver.add(("a", 0, 4), ("a", 0, 6))
    assert driver.take() == [{"k": "a", "n": 6, "values": [2, 4]}]
    driver.restore()
    driver.add(("a", 0, 8), ("a", 0, 10))
    assert driver.take() == [{"k": "a", "n": 24, "values": [6, 8, 10]}]
    driver.operator.close()


def test_an_evictor_that_gives_back_something_else_is_told_so() -> None:
    class Bad(Evictor):
        def evict_before(self, elements: Any, window: Any, context: Any) -> Any:
            elements.pop()

    driver = WindowDriver(lambda k: k.count_window(1, 1).evictor(Bad()).reduce(add))
    with pytest.raises(
        RecordError, match=r"operator 'windows', subtask 0: Bad.evict_before returned None; return a list"
    ):
        driver.add(("a", 0, 1))


# --- assigners and triggers of one's own ---------------------------------------------------------------------


class ByValue(WindowAssigner):
    """A window for each value, of 10 ms."""

    def assign_windows(self, row: Any, timestamp: Any, context: Any) -> Iterable[TimeWindow]:
        if row["v"] < 0:
            return ()
        return [TimeWindow(row["v"] * 10, row["v"] * 10 + 10)]


def test_an_assigner_of_ones_own() -> None:
    driver = WindowDriver(lambda k: k.window(ByValue()).aggregate(n=ps.count()))
    driver.add(("a", 5, 1), ("a", 99, 1), ("a", 7, 3), ("a", 50, -1))
    driver.advance(19)
    (row,) = driver.take()
    assert (row["n"], row["window_start"].timestamp() * 1_000) == (2, 10)
    driver.advance(39)
    assert [row["n"] for row in driver.take()] == [1]
    assert driver.metrics.late_rows == 0


def test_a_row_that_no_window_takes_is_late_only_if_it_is_old() -> None:
    late = OutputTag("late")
    driver = WindowDriver(lambda k: k.window(ByValue()).side_output_late_data(late).reduce(add), sides=["late"])
    driver.advance(50)
    driver.add(("a", 60, -1), ("a", 40, -1), ("a", 60, 2))
    assert driver.take_side("late") == [{"k": "a", "at": 40, "v": -1}]
    assert driver.metrics.late_rows == 0


@pytest.mark.parametrize("given", [(0, 10), TimeWindow(10, 10), None])
def test_an_assigner_that_gives_no_window_is_told_so(given: Any) -> None:
    class Bad(WindowAssigner):
        def assign_windows(self, row: Any, timestamp: Any, context: Any) -> Any:
            return [given]

    driver = WindowDriver(lambda k: k.window(Bad()).reduce(add))
    with pytest.raises(RecordError, match=r"the assigner 'Bad' gave .* as a window; give TimeWindow\(start, end\)"):
        driver.add(("a", 0, 1))


class Shrinks(WindowAssigner):
    """Merges windows into one that has ended."""

    @property
    def is_merging(self) -> bool:
        return True

    def assign_windows(self, row: Any, timestamp: Any, context: Any) -> Iterable[TimeWindow]:
        return [TimeWindow(timestamp, timestamp + 10)]

    def merge_windows(self, windows: Any) -> Any:
        return [(TimeWindow(0, 1), list(windows))] if len(windows) > 1 else []


def test_merging_into_a_window_that_is_over_is_an_error() -> None:
    driver = WindowDriver(lambda k: k.window(Shrinks()).reduce(add))
    driver.add(("a", 50, 1))
    driver.advance(40)
    with pytest.raises(
        RecordError, match=r"merged windows of key 'a' into .*, which is over already: the watermark is at 40"
    ):
        driver.add(("a", 52, 1))


@pytest.mark.parametrize(
    ("gap", "message"),
    [
        (lambda row: row["v"], "the gap function of session returned 0; a gap must be more than 0"),
        (lambda row: "-5s", "neither a duration such as '10s' nor a whole number of milliseconds"),
        (lambda row: None, "returned None, which is neither a duration"),
        (lambda row: True, "returned True, which is neither a duration"),
        (lambda row: 2**61, "at most 2\\*\\*60 ms"),
    ],
)
def test_a_gap_that_is_none_is_shown_with_its_row(gap: Any, message: str) -> None:
    driver = WindowDriver(lambda k: k.window(session(gap)).reduce(add))
    with pytest.raises(RecordError, match=message) as error:
        driver.add(("a", 7, 0))
    assert "{'k': 'a', 'at': 7, 'v': 0}" in str(error.value)


class Says(Trigger):
    """Says the same to every row and timer."""

    def __init__(self, result: Any) -> None:
        self.result = result

    @property
    def can_merge(self) -> bool:
        return True

    def on_element(self, row: Any, timestamp: Any, window: Any, context: Any) -> Any:
        return self.result

    def on_merge(self, window: Any, context: Any) -> None:
        """Nothing to merge."""


@pytest.mark.parametrize("result", [None, True, "FIRE"])
def test_a_trigger_that_returns_no_result_is_told_so(result: Any) -> None:
    driver = WindowDriver(lambda k: k.window(tumbling("10ms")).trigger(Says(result)).reduce(add))
    with pytest.raises(
        RecordError, match=r"the trigger Says returned .*, which is no TriggerResult; return TriggerResult"
    ):
        driver.add(("a", 0, 1))


def test_purging_without_firing_forgets_the_rows() -> None:
    driver = WindowDriver(lambda k: k.window(session("10ms")).trigger(Says(TriggerResult.PURGE)).process(Sum, SUM))
    driver.add(("a", 0, 1), ("a", 5, 1))
    assert "window-contents" not in driver.states()
    driver.advance(MAX_TIMESTAMP)
    assert summed(driver) == []
    assert driver.states() == {}


class AfterTotal(Trigger):
    """Fires when the values of a window add up to 10, and 5 ms (event time) after that; keeps state and timers."""

    _TOTAL = ReducingStateDescriptor("total", "int64", function=lambda one, other: one + other)

    @property
    def states(self) -> Any:
        return (self._TOTAL,)

    @property
    def can_merge(self) -> bool:
        return True

    def on_element(self, row: Any, timestamp: Any, window: Any, context: Any) -> TriggerResult:
        total = context.get_partitioned_state(self._TOTAL)
        total.add(row["v"])
        if total.get() < 10:
            return TriggerResult.CONTINUE
        total.clear()
        context.register_event_time_timer(timestamp + 5)
        return TriggerResult.FIRE

    def on_event_time(self, time: Any, window: Any, context: Any) -> TriggerResult:
        return TriggerResult.CONTINUE if time == window.max_timestamp else TriggerResult.FIRE

    def on_merge(self, window: Any, context: Any) -> None:
        context.merge_partitioned_state(self._TOTAL)

    def clear(self, window: Any, context: Any) -> None:
        context.get_partitioned_state(self._TOTAL).clear()


@pytest.mark.parametrize("windows", [tumbling("100ms"), session("50ms")], ids=["tumbling", "session"])
def test_a_trigger_of_ones_own_with_state_and_timers(windows: Any, backend: str) -> None:
    driver = WindowDriver(lambda k: k.window(windows).trigger(AfterTotal()).process(Sum, SUM), backend=backend)
    driver.add(("a", 1, 6), ("b", 1, 1))
    driver.restore()
    driver.add(("a", 2, 5))
    assert [row["n"] for row in driver.take()] == [11]
    driver.restore()
    driver.advance(7)
    assert [row["n"] for row in driver.take()] == [11]
    driver.advance(MAX_TIMESTAMP)
    assert driver.take() == []
    assert driver.states() == {}
    driver.operator.close()


def test_a_trigger_that_uses_state_which_it_did_not_declare_is_told_so() -> None:
    class Undeclared(AfterTotal):
        @property
        def states(self) -> Any:
            return ()

    driver = WindowDriver(lambda k: k.window(tumbling("10ms")).trigger(Undeclared()).reduce(add))
    with pytest.raises(StateError, match="uses state 'total', which it has not declared; give the descriptor"):
        driver.add(("a", 0, 1))


def test_a_timer_at_no_time_is_refused() -> None:
    class Bad(Trigger):
        def on_element(self, row: Any, timestamp: Any, window: Any, context: Any) -> TriggerResult:
            context.register_event_time_timer(1.5)
            return TriggerResult.CONTINUE

    driver = WindowDriver(lambda k: k.window(tumbling("10ms")).trigger(Bad()).reduce(add))
    with pytest.raises(StateError, match="a timer's time is a whole number of milliseconds since the epoch"):
        driver.add(("a", 0, 1))


# --- what assigners and evictors of one's own may return -----------------------------------------------------


class _Assigns(WindowAssigner):
    """Gives the same to every row."""

    def __init__(self, given: Any) -> None:
        self.given = given

    @property
    def is_event_time(self) -> bool:
        return True

    def assign_windows(self, row: Any, timestamp: Any, context: Any) -> Any:
        return self.given

    def default_trigger(self) -> Trigger:
        return EventTimeTrigger()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "returned None; return a list of TimeWindow"),
        (TimeWindow(0, 10), "return a list of TimeWindow"),
        ([TimeWindow(0, 10.5)], r"end=10.5\) as a window; give TimeWindow"),  # type: ignore[arg-type]
        ([TimeWindow("0", 10)], "as a window; give TimeWindow"),  # type: ignore[arg-type]
        ([TimeWindow(0, 2**63)], "as a window; give TimeWindow"),
    ],
)
def test_an_assigner_that_gives_no_windows_is_told_so(given: Any, message: str) -> None:
    driver = WindowDriver(lambda k: k.window(_Assigns(given)).process(Sum, SUM))
    with pytest.raises(RecordError, match=message):
        driver.add(("a", 0, 1))


def test_an_evictor_that_returns_a_row_twice_is_told_so() -> None:
    class Doubles(Evictor):
        def evict_before(self, elements: Any, window: Any, context: Any) -> Any:
            return elements * 2

    driver = WindowDriver(lambda k: k.window(tumbling("10ms")).evictor(Doubles()).process(Sum, SUM))
    driver.add(("a", 0, 1))
    with pytest.raises(RecordError, match=r"Doubles.evict_before returned .* that stay, each once"):
        driver.advance(10)
