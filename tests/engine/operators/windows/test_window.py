"""The general window operator: functions, state, timers and errors that the transcripts of Flink's rules leave out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock import (
    AggregateFunction,
    ContinuousProcessingTimeTrigger,
    CountEvictor,
    CountTrigger,
    EndOfTimeTrigger,
    EventTimeTrigger,
    Evictor,
    OutputTag,
    PickleSerializer,
    ProcessWindowFunction,
    PurgingTrigger,
    ReducingStateDescriptor,
    StateError,
    TimeWindow,
    Trigger,
    TriggerResult,
    ValueStateDescriptor,
    WindowAssigner,
    global_windows,
    session,
    sliding,
    tumbling,
)
from penstock.engine.clock import ManualClock
from penstock.engine.elements import MAX_TIMESTAMP
from penstock.engine.errors import RecordError, UserCodeError
from tests.engine.window_driver import SCHEMA, WindowDriver

SUM = {"k": "string", "start": "int64", "n": "int64"}


class Sum(ProcessWindowFunction):
    """Sums the values of a window."""

    def process(self, key: Any, context: Any, elements: Any) -> Iterator[dict[str, Any]]:
        yield {"k": key, "start": context.window.start, "n": sum(row["v"] for row in elements)}


def summed(driver: WindowDriver) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in driver.take()]


def add(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {**one, "v": one["v"] + other["v"]}


@pytest.fixture(params=["heap", "rocksdb"])
def backend(request: pytest.FixtureRequest) -> str:
    if request.param == "rocksdb":
        pytest.importorskip("rocksdict")
    return str(request.param)


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


# --- functions -----------------------------------------------------------------------------------------------


class Mean(AggregateFunction):
    """The mean of `v`, by a dict."""

    def create_accumulator(self) -> Any:
        return {"total": 0.0, "n": 0}

    def add(self, value: Any, accumulator: Any) -> Any:
        return {"total": accumulator["total"] + value["v"], "n": accumulator["n"] + 1}

    def get_result(self, accumulator: Any) -> Any:
        return {"mean": accumulator["total"] / accumulator["n"]}

    def merge(self, one: Any, other: Any) -> Any:
        return {"total": one["total"] + other["total"], "n": one["n"] + other["n"]}


@pytest.mark.parametrize(
    "accumulator",
    ["struct<total: float64, n: int64>", {"total": "float64", "n": int}, PickleSerializer()],
    ids=["text", "columns", "serializer"],
)
@pytest.mark.parametrize("windows", [tumbling("40ms"), session("20ms")], ids=["tumbling", "session"])
def test_an_aggregate_function_with_its_own_accumulator(accumulator: Any, windows: Any, backend: str) -> None:
    driver = WindowDriver(
        lambda k: k.window(windows).aggregate(Mean(), accumulator=accumulator, returns={"mean": "float64"}),
        backend=backend,
    )
    driver.add(("a", 0, 1), ("a", 30, 9), ("b", 5, 10))
    driver.restore()
    driver.add(("a", 15, 5))
    driver.advance(MAX_TIMESTAMP)
    assert sorted(row["mean"] for row in driver.take()) == [5.0, 10.0]
    driver.operator.close()


class Named(ProcessWindowFunction):
    """Adds key and window to the single result."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        (row,) = elements
        return [{"key": key, "end": context.window.end, **row}]


def test_the_single_result_is_given_to_a_process_function() -> None:
    aggregated = WindowDriver(
        lambda k: k.window(tumbling("10ms")).aggregate(
            n=ps.count(),
            latest=ps.last("v"),
            process=Named,
            returns={"key": "string", "end": "int64", "n": "int64", "latest": "int64"},
        )
    )
    own = WindowDriver(
        lambda k: k.window(tumbling("10ms")).aggregate(
            Mean(),
            accumulator={"total": "float64", "n": "int64"},
            process=Named(),
            returns={"key": "string", "end": "int64", "mean": "float64"},
        )
    )
    reduced = WindowDriver(lambda k: k.window(tumbling("10ms")).reduce(add, process=Named))
    for driver in (aggregated, own, reduced):
        driver.add(("a", 0, 1), ("a", 5, 3))
        driver.advance(9)
    assert aggregated.take() == [{"key": "a", "end": 10, "n": 2, "latest": 3}]
    assert own.take() == [{"key": "a", "end": 10, "mean": 2.0}]
    assert reduced.take() == [{"key": "a", "end": 10, "k": "a", "at": 0, "v": 4}]


def test_what_functions_do_to_their_rows_changes_no_window() -> None:
    class Spoils(ProcessWindowFunction):
        def process(self, key: Any, context: Any, elements: Any) -> Iterator[dict[str, Any]]:
            for row in elements:
                row["v"] += 100
                yield row

    def spoil(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        one["v"] += other["v"]
        return one

    processed = WindowDriver(lambda k: k.window(global_windows()).trigger(CountTrigger(1)).process(Spoils))
    processed.add(("a", 0, 1), ("a", 1, 2))
    assert [row["v"] for row in processed.take()] == [101, 101, 102]
    reduced = WindowDriver(lambda k: k.window(sliding("10ms", "5ms")).trigger(CountTrigger(1)).reduce(spoil))
    reduced.add(("a", 5, 1), ("a", 6, 2))
    assert sorted(row["v"] for row in reduced.take()) == [1, 1, 3, 3]


def test_the_worked_example_of_sliding_sums() -> None:
    driver = WindowDriver(lambda k: k.window(sliding("1m", "30s")).reduce(add))
    for second, value in ((0, 9), (15, 6), (30, 8), (45, 4), (60, 7), (75, 3)):
        driver.add(("a", second * 1_000, value))
    driver.advance(89_999)
    assert [row["v"] for row in driver.take()] == [15, 27, 22]


def test_the_worked_examples_of_count_windows() -> None:
    values = [1, 2, 3, 4, 5, 6, 7, 8]
    whole = WindowDriver(lambda k: k.count_window(4).aggregate(n=ps.sum("v")))
    by_two = WindowDriver(lambda k: k.count_window(4, 2).aggregate(n=ps.sum("v")))
    for driver in (whole, by_two):
        driver.add(*(("a", 0, value) for value in values))
    assert whole.take() == [{"k": "a", "n": 10}, {"k": "a", "n": 26}]
    assert [row["n"] for row in by_two.take()] == [3, 10, 18, 26]


class Remembers(ProcessWindowFunction):
    """Counts the firings of a window, and those of a key."""

    def open(self, context: Any) -> None:
        count = ValueStateDescriptor("firings", "int64", default=0)
        self.of_window = context.window_state.get_state(count)
        self.of_key = context.get_state(count)
        self.cleared = context.global_state.get_state(ValueStateDescriptor("cleared", "int64", default=0))

    def process(self, key: Any, context: Any, elements: Any) -> Iterator[dict[str, Any]]:
        self.of_window.update(self.of_window.value() + 1)
        self.of_key.update(self.of_key.value() + 1)
        again = context.window_state.get_state(ValueStateDescriptor("firings", "int64", default=0))
        yield {"k": key, "window": again.value(), "key": self.of_key.value(), "cleared": self.cleared.value()}

    def clear(self, context: Any) -> None:
        self.cleared.update(self.cleared.value() + 1)


def test_functions_have_state_of_the_window_and_of_the_key(backend: str) -> None:
    driver = WindowDriver(
        lambda k: k.window(tumbling("10ms")).trigger(CountTrigger(1)).process(Remembers), backend=backend
    )
    driver.add(("a", 1, 0), ("a", 2, 0), ("a", 11, 0), ("b", 1, 0))
    assert [tuple(row.values()) for row in driver.take()] == [
        ("a", 1, 1, 0),
        ("a", 2, 2, 0),
        ("a", 1, 3, 0),
        ("b", 1, 1, 0),
    ]
    driver.restore()
    driver.advance(9)
    driver.add(("a", 12, 0))
    assert [tuple(row.values()) for row in driver.take()] == [("a", 2, 4, 1)]
    driver.advance(MAX_TIMESTAMP)
    assert driver.states() == {"global-state-firings": 2, "global-state-cleared": 2}
    driver.operator.close()


def test_state_that_was_not_declared_in_open_is_refused() -> None:
    class Late(ProcessWindowFunction):
        def process(self, key: Any, context: Any, elements: Any) -> Any:
            context.global_state.get_state(ValueStateDescriptor("count", "int64"))

    driver = WindowDriver(lambda k: k.count_window(1).process(Late))
    with pytest.raises(
        StateError, match=r"get_state\('count'\): no such state was declared; declare every state in open"
    ):
        driver.add(("a", 0, 1))


def test_windows_that_merge_have_no_state_of_their_own() -> None:
    with pytest.raises(StateError, match="windows that merge have no state of their own; use global_state"):
        WindowDriver(lambda k: k.window(session("1s")).process(Remembers))


def test_side_outputs_of_window_functions() -> None:
    large = OutputTag("large", {"n": "int64"})

    class Splits(ProcessWindowFunction):
        def process(self, key: Any, context: Any, elements: Any) -> None:
            context.output(large, {"n": len(elements)})

    driver = WindowDriver(lambda k: k.window(tumbling("10ms")).process(Splits), sides=["large"])
    driver.add(("a", 1, 0), ("a", 2, 0))
    driver.advance(9)
    assert driver.take() == []
    assert driver.sides["large"].timestamps == [9]
    assert driver.take_side("large") == [{"n": 2}]


def test_functions_are_opened_and_closed_once_in_each_subtask() -> None:
    events: list[str] = []

    class Counts(ProcessWindowFunction):
        def __deepcopy__(self, memo: Any) -> Any:
            events.append("copied")
            return Counts()

        def open(self, context: Any) -> None:
            events.append(f"open {context.operator} {context.subtask}/{context.parallelism}")

        def close(self) -> None:
            events.append("close")

        def process(self, key: Any, context: Any, elements: Any) -> Any:
            return None

    driver = WindowDriver(lambda k: k.count_window(1).process(Counts()))
    driver.add(("a", 0, 1))
    driver.operator.close()
    assert events == ["copied", "open windows 0/1", "close"]


def test_the_key_of_windows_over_all_rows_is_none() -> None:
    driver = WindowDriver(lambda s: s.window_all(tumbling("10ms")).process(Sum, SUM), keyed=False)
    driver.add(("a", 1, 1), ("b", 2, 2))
    driver.restore()
    driver.advance(9)
    assert summed(driver) == [(None, 0, 3)]


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


# --- errors of the user's code -------------------------------------------------------------------------------


def test_an_error_in_a_function_names_the_row_or_the_window() -> None:
    def fails(one: Any, other: Any) -> Any:
        raise ValueError("no luck")

    reduced = WindowDriver(lambda k: k.window(tumbling("10ms")).reduce(fails))
    with pytest.raises(UserCodeError, match="ValueError: no luck") as on_row:
        reduced.add(("a", 0, 1), ("a", 1, 2))
    assert on_row.value.given == "{'k': 'a', 'at': 1, 'v': 2}"

    class Fails(ProcessWindowFunction):
        def process(self, key: Any, context: Any, elements: Any) -> Any:
            raise ValueError("no luck")

    processed = WindowDriver(lambda k: k.window(tumbling("10ms")).process(Fails))
    processed.add(("a", 0, 1))
    with pytest.raises(UserCodeError, match="ValueError: no luck") as on_timer:
        processed.advance(9)
    assert on_timer.value.given == "a timer at 9 of TimeWindow(start=0, end=10), key 'a'"


@pytest.mark.parametrize(
    ("returned", "message"),
    [(None, "the reduce function returned None"), ([1], r"the reduce function returned \[1\] \(list\), not a row")],
)
def test_a_reduce_function_must_return_a_row(returned: Any, message: str) -> None:
    driver = WindowDriver(lambda k: k.window(tumbling("10ms")).reduce(lambda one, other: returned))
    with pytest.raises(RecordError, match=message):
        driver.add(("a", 0, 1), ("a", 1, 2))


def test_a_process_function_must_return_rows() -> None:
    class Bad(ProcessWindowFunction):
        def process(self, key: Any, context: Any, elements: Any) -> Any:
            return {"n": 1}

    driver = WindowDriver(lambda k: k.count_window(1).process(Bad))
    with pytest.raises(RecordError, match=r"process returned .*, not rows"):
        driver.add(("a", 0, 1))


def test_a_sum_that_does_not_fit_names_the_operator() -> None:
    driver = WindowDriver(lambda k: k.count_window(2).aggregate(n=ps.sum("v")))
    with pytest.raises(RecordError, match="operator 'windows', subtask 0: sum of column 'v' does not fit int64"):
        driver.add(("a", 0, 2**63 - 1), ("a", 0, 1))


# --- columns that are not known before -----------------------------------------------------------------------

COMPUTED: dict[str, Any] = {
    "process": lambda w: w.process(Sum, SUM),
    "reduce": lambda w: w.reduce(add),
    "aggregate": lambda w: w.aggregate(v=ps.sum("v"), first=ps.first("at"), values=ps.collect_list("v")),
}


@pytest.mark.parametrize("computed", COMPUTED)
def test_restored_windows_fire_before_any_row_comes(computed: str, backend: str) -> None:
    expected = None
    for declared in (True, False):
        driver = WindowDriver(
            lambda k: COMPUTED[computed](k.window(session("10ms")).trigger(PurgingTrigger(EventTimeTrigger()))),
            declared=declared,
            backend=backend,
        )
        driver.add(("a", 1, 1), ("b", 3, 3))
        driver.add(("a", 2, 2))
        driver.restore()
        driver.restore()
        driver.advance(MAX_TIMESTAMP)
        rows = sorted(driver.take(), key=repr)
        assert len(rows) == 2
        expected = expected or rows
        assert rows == expected
        driver.operator.close()


def test_a_column_may_get_its_type_with_a_later_batch() -> None:
    driver = WindowDriver(lambda k: COMPUTED["aggregate"](k.count_window(2)), declared=False)
    nulls = pa.schema([("k", pa.string()), ("at", pa.int64()), ("v", pa.null())])
    driver.add(("a", 1, None), schema=nulls)  # type: ignore[arg-type]
    driver.restore()
    driver.add(("a", 2, 5), schema=SCHEMA)
    assert driver.take() == [{"k": "a", "v": 5, "first": 1, "values": [5]}]


def test_times_with_nanoseconds_are_aggregated_whole() -> None:
    schema = pa.schema([("k", pa.string()), ("at", pa.int64()), ("v", pa.timestamp("ns"))])
    driver = WindowDriver(lambda k: k.count_window(2).aggregate(latest=ps.max("v")), declared=False)
    driver.add(("a", 1, 1_000_000_001), ("a", 2, 999), schema=schema)
    (batch,) = driver.out.batches
    assert batch.data.column("latest").cast(pa.int64()).to_pylist() == [1_000_000_001]


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
