"""assign_timestamps: rows get event time, watermarks from upstream give way, and a quiet input becomes idle."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.clock import ManualClock
from penstock.engine.config import JobConfig
from penstock.engine.elements import MAX_TIMESTAMP, Batch, Control, Watermark, WatermarkStatus
from penstock.engine.errors import GraphError
from penstock.engine.operators.base import OperatorContext
from penstock.engine.operators.timestamps import TimestampSpec, complete_strategy
from penstock.engine.task.chain import ChainLink
from penstock.engine.windows.watermarks import WatermarkGenerator, WatermarkOutput, WatermarkStrategy
from tests.engine.helpers import RecordingCollector

ACTIVE, IDLE = WatermarkStatus(False), WatermarkStatus(True)
IN_ORDER = WatermarkStrategy.for_monotonous_timestamps()


class Assigning:
    """The operator over a column `at`, in a chain, on a clock that the test moves."""

    def __init__(self, strategy: WatermarkStrategy = IN_ORDER, interval_ms: int = 200) -> None:
        if not strategy.has_timestamps:
            strategy = strategy.with_timestamp_assigner("at")
        self.clock, self.out = ManualClock(1_000_000), RecordingCollector()
        config = JobConfig(auto_watermark_interval_ms=interval_ms)
        context = OperatorContext("assign", 2, 3, self.clock, config=config)
        self.link = ChainLink(TimestampSpec(strategy).create(), context, self.out)
        self.link.operator.open(context)

    def at(self, *times: int) -> None:
        self.link.collect(Batch(pa.record_batch({"at": pa.array(times, pa.int64()), "n": range(len(times))})))

    def controls(self) -> list[Control]:
        """What was said since the last call."""
        said: list[Control] = [element for element in self.out.elements if not isinstance(element, Batch)]
        self.out.elements.clear()
        return said

    def wait(self, seconds: float) -> None:
        """Let time pass, and the operator act whenever it asks for it."""
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end:
            due = self.link.next_processing_time
            pause = end - self.clock.monotonic()
            if due is not None:
                pause = min(pause, (due - self.clock.now_ms()) / 1000)
            self.clock.advance(pause)
            self._act()

    def hold_up(self, seconds: float) -> None:
        """Let time pass without a call, as backpressure does; then the operator may act."""
        self.clock.advance(seconds)
        self._act()

    def _act(self) -> None:
        due = self.link.next_processing_time
        if due is not None and due <= self.clock.now_ms():
            self.link.on_processing_time(self.clock.now_ms())


# Rows and watermarks


def test_rows_keep_their_columns_and_get_timestamps() -> None:
    assigning = Assigning()
    assigning.at(5, 3)
    assert assigning.out.rows == [{"at": 5, "n": 0}, {"at": 3, "n": 1}]
    assert assigning.out.timestamps == [5, 3]


def test_a_watermark_follows_the_rows_that_moved_time_on() -> None:
    assigning = Assigning(WatermarkStrategy.for_bounded_out_of_orderness("2ms"))
    assigning.at(10, 20)
    assigning.at(15)
    assigning.at(21)
    kinds = [type(element) for element in assigning.out.elements]
    assert kinds == [Batch, Watermark, Batch, Batch, Watermark]
    assert assigning.out.watermarks == [17, 18]


def test_what_upstream_says_about_event_time_is_replaced_but_for_the_end() -> None:
    assigning = Assigning()
    for element in (Watermark(1_000), IDLE, ACTIVE, Watermark(MAX_TIMESTAMP)):
        assigning.link.broadcast(element)
    assert assigning.controls() == [Watermark(MAX_TIMESTAMP)]


def test_event_time_of_the_clock_goes_on_without_rows_up_to_the_end() -> None:
    assigning = Assigning(WatermarkStrategy.for_ingestion_time())
    assigning.wait(0.4)
    assert assigning.controls() == [Watermark(1_000_199), Watermark(1_000_399)]
    assigning.link.broadcast(Watermark(MAX_TIMESTAMP))
    assigning.controls()
    assigning.wait(1)
    assert assigning.controls() == []


class Counting(WatermarkGenerator):
    """Emits how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        self.asked += 1
        output.emit_watermark(self.asked)


def test_a_periodic_generator_is_asked_an_interval_after_the_last_rows() -> None:
    assigning = Assigning(WatermarkStrategy.for_generator(Counting), interval_ms=300)
    assigning.wait(0.299)
    assert assigning.controls() == []
    assigning.at(5)
    assert assigning.controls() == [Watermark(1)]
    assigning.wait(0.299)
    assert assigning.controls() == []
    assigning.wait(0.001)
    assert assigning.controls() == [Watermark(2)]


def test_an_interval_of_nothing_asks_behind_rows_only() -> None:
    assigning = Assigning(WatermarkStrategy.for_generator(Counting), interval_ms=0)
    assert assigning.link.next_processing_time is None
    assigning.at(5)
    assert assigning.controls() == [Watermark(1)]


def test_a_strategy_that_needs_no_clock_asks_for_none() -> None:
    assigning = Assigning()
    assigning.at(5)
    assert assigning.link.next_processing_time is None


# Idleness


def test_an_input_without_rows_for_the_timeout_is_idle_until_a_row_comes() -> None:
    assigning = Assigning(IN_ORDER.with_idleness("10s"))
    assigning.at(5)
    assigning.wait(9.9)
    assert assigning.controls() == [Watermark(4)]
    assigning.wait(0.2)
    assert assigning.controls() == [IDLE]
    assigning.wait(100)
    assert assigning.controls() == []
    assigning.at(6)
    assert [type(element) for element in assigning.out.elements] == [WatermarkStatus, Batch, Watermark]
    assert assigning.controls() == [ACTIVE, Watermark(5)]


def test_an_input_that_never_had_rows_is_idle_too() -> None:
    assigning = Assigning(IN_ORDER.with_idleness("1s"))
    assigning.wait(1.1)
    assert assigning.controls() == [IDLE]


@pytest.mark.parametrize("waited", [0.0, 2.6, 7.6, 9.9])
def test_a_subtask_held_up_by_backpressure_gets_the_time_to_take_its_rows(waited: float) -> None:
    assigning = Assigning(IN_ORDER.with_idleness("10s"))
    assigning.wait(waited)
    assigning.hold_up(60)
    assert assigning.controls() == []
    assigning.at(5)
    assigning.wait(9.9)
    assert assigning.controls() == [Watermark(4)]


def test_no_status_follows_the_end() -> None:
    assigning = Assigning(IN_ORDER.with_idleness("1s"))
    assigning.link.broadcast(Watermark(MAX_TIMESTAMP))
    assigning.wait(5)
    assert assigning.controls() == [Watermark(MAX_TIMESTAMP)]


@given(st.lists(st.integers(0, 16), max_size=12), st.integers(1, 3))
def test_idleness_comes_exactly_at_the_timeout(gaps: list[int], seconds: int) -> None:
    """Against a model: a gap (in quarter seconds) of the timeout or more between rows is idle, and no other."""
    assigning, timeout = Assigning(IN_ORDER.with_idleness(f"{seconds}s")), seconds * 4
    for gap in gaps:
        assigning.wait(gap * 0.25)
        assert [element for element in assigning.controls() if element == IDLE] == [IDLE] * (gap >= timeout)
        assigning.at(1)
        assert [element for element in assigning.controls() if element == ACTIVE] == [ACTIVE] * (gap >= timeout)


# Arguments


def test_a_column_beside_a_strategy_or_within_it_is_the_same() -> None:
    delayed = WatermarkStrategy.for_bounded_out_of_orderness("5s")
    inside = delayed.with_timestamp_assigner("at")
    assert complete_strategy("at", delayed) == complete_strategy(inside, None) == complete_strategy(None, inside)
    assert complete_strategy("at", None) == IN_ORDER.with_timestamp_assigner("at")


@pytest.mark.parametrize(
    ("column", "strategy", "message"),
    [
        (None, None, "does not say where event time is"),
        (IN_ORDER, None, r"does not say where event time is; name a column before it, or add \.with_timestamp_assig"),
        ("at", IN_ORDER.with_timestamp_assigner("at"), "has timestamps already, and so takes no column 'at'"),
        ("at", WatermarkStrategy.for_ingestion_time(), r"\(ingestion time\) has timestamps already"),
        ("at", IN_ORDER.with_watermark_alignment("g", "1m"), r"takes no strategy with watermark alignment.*from_sour"),
        ("at", "5s", "'5s' is no WatermarkStrategy"),
        (5, None, "takes the name of a column, not 5"),
        (IN_ORDER, IN_ORDER, "takes the name of a column, not WatermarkStrategy"),
    ],
)
def test_arguments_that_say_too_little_or_too_much_are_refused(column: Any, strategy: Any, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        complete_strategy(column, strategy)


def test_the_clock_is_asked_in_whole_milliseconds_and_never_too_early() -> None:
    assigning = Assigning(IN_ORDER.with_idleness("1s"))
    assigning.clock.advance(0.0004)
    due = assigning.link.next_processing_time
    assert due is not None
    assert due - 1_000_000 == math.ceil(250 - 0.4)
