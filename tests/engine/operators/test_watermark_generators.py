"""Watermarks behind rows: where they stand, that they rise, how users' generators are called, and idleness."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.clock import ManualClock
from penstock.engine.elements import MAX_TIMESTAMP, Batch, Watermark, WatermarkStatus
from penstock.engine.errors import ConfigurationError, UserCodeError
from penstock.engine.operators.base import OperatorContext
from penstock.engine.operators.watermark_generators import TimedInput
from penstock.engine.windows.watermarks import Row, WatermarkGenerator, WatermarkOutput, WatermarkStrategy
from tests.engine.helpers import RecordingCollector

ACTIVE, IDLE = WatermarkStatus(False), WatermarkStatus(True)


class Input:
    """One input with a column `at`, and what came out of it."""

    def __init__(self, strategy: WatermarkStrategy) -> None:
        self.clock, self.out = ManualClock(1_000), RecordingCollector()
        if not strategy.has_timestamps:
            strategy = strategy.with_timestamp_assigner("at")
        self.timed = TimedInput(strategy, OperatorContext("assign", 0, 1, self.clock))

    def rows(self, *times: int) -> list[Any]:
        """Process rows; timestamps of batches as lists, watermarks as numbers, statuses as they are."""
        self.timed.process(Batch(pa.record_batch({"at": pa.array(times, pa.int64())})), self.out)
        return self.take()

    def periodic(self) -> list[Any]:
        self.timed.emit_periodically(self.out)
        return self.take()

    def time_out(self) -> list[Any]:
        self.timed.time_out(self.out)
        return self.take()

    def take(self) -> list[Any]:
        taken: list[Any] = []
        for element in self.out.elements:
            match element:
                case Batch(timestamps=timestamps):
                    assert timestamps is not None
                    taken.append(timestamps.to_pylist())
                case Watermark(timestamp):
                    taken.append(timestamp)
                case _:
                    taken.append(element)
        self.out.elements.clear()
        return taken


def bounded(delay: str) -> Input:
    return Input(WatermarkStrategy.for_bounded_out_of_orderness(delay))


# Built-in


def test_ordered_rows_put_the_watermark_a_millisecond_behind() -> None:
    assert Input(WatermarkStrategy.for_monotonous_timestamps()).rows(90, 100) == [[90, 100], 99]


def test_rows_out_of_order_put_it_further_behind() -> None:
    assert bounded("5s").rows(10_000, 8_000) == [[10_000, 8_000], 4_999]


def test_rows_that_do_not_advance_time_give_no_watermark() -> None:
    tested = bounded("0s")
    assert [tested.rows(at) for at in (5, 5, 3, 6)] == [[[5], 4], [[5]], [[3]], [[6], 5]]


@given(st.integers(0, 100), st.lists(st.lists(st.integers(-1000, 1000), min_size=1), min_size=1))
def test_watermarks_rise_and_follow_the_largest_timestamp(delay: int, batches: list[list[int]]) -> None:
    tested = bounded(f"{delay}ms")
    out = [element for batch in batches for element in tested.rows(*batch)]
    watermarks = [element for element in out if isinstance(element, int)]
    assert watermarks == sorted(set(watermarks))
    assert watermarks[-1] == max(map(max, batches)) - delay - 1
    assert [element for element in out if isinstance(element, list)] == batches


def test_a_strategy_without_watermarks_gives_timestamps_only() -> None:
    assert Input(WatermarkStrategy.no_watermarks()).rows(5, 6) == [[5, 6]]


def test_ingestion_time_goes_with_the_clock_also_without_rows_and_never_back() -> None:
    tested = Input(WatermarkStrategy.for_ingestion_time())
    assert tested.rows(0, 0) == [[1_000, 1_000], 999]
    tested.clock.advance(1)
    assert tested.periodic() == [1_999]
    tested.clock._start_ms = 0
    # The clock was set back by a second: the row still is later than the watermark before it.
    assert tested.rows(0) == [[2_000]]
    tested.clock.advance(2)
    assert tested.rows(0) == [[3_000], 2_999]


# Generators of the user


def test_a_watermark_of_a_row_comes_before_the_next_row() -> None:
    tested = Input(WatermarkStrategy.for_punctuated(lambda row, at: at if at % 10 == 0 else None))
    assert tested.rows(7, 10, 3, 4, 20, 21) == [[7, 10], 10, [3, 4, 20], 20, [21]]
    assert tested.rows(10, 30) == [[10, 30], 30]


@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=8), min_size=1, max_size=6))
def test_a_batch_cut_anywhere_gives_the_same_rows_and_watermarks(batches: list[list[int]]) -> None:
    def merged(*batches: list[int]) -> list[Any]:
        tested = Input(WatermarkStrategy.for_punctuated(lambda row, at: at - 5 if at % 3 == 0 else None))
        flat: list[Any] = []
        for batch in batches:
            for element in tested.rows(*batch):
                flat.extend([("row", at) for at in element] if isinstance(element, list) else [element])
        return flat

    alone = [[at] for batch in batches for at in batch]
    assert merged(*batches) == merged(*alone)


class Periodic(WatermarkGenerator):
    """Remembers the largest timestamp batch by batch, and emits it when it is asked to."""

    largest = 0
    asked = 0

    def on_batch(self, batch: pa.RecordBatch, timestamps: pa.Int64Array, output: WatermarkOutput) -> None:
        assert batch.schema.names == ["at"]
        self.largest = max(self.largest, *timestamps.to_pylist())

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        self.asked += 1
        output.emit_watermark(self.largest + self.asked)


def test_a_periodic_generator_is_asked_behind_each_batch_and_when_its_time_has_come() -> None:
    tested = Input(WatermarkStrategy.for_generator(Periodic))
    assert tested.timed.periodic
    assert tested.rows(10, 20) == [[10, 20], 21]
    assert tested.periodic() == [22]
    assert tested.rows(5) == [[5], 23]


def test_each_input_has_a_generator_of_its_own() -> None:
    strategy = WatermarkStrategy.for_generator(Periodic)
    assert Input(strategy).rows(100) == [[100], 101]
    assert Input(strategy).rows(1, 2) == [[1, 2], 3]


def test_a_generator_that_only_watches_rows_need_not_be_asked_by_the_clock() -> None:
    assert not bounded("1s").timed.periodic
    assert not Input(WatermarkStrategy.for_punctuated(lambda row, at: None)).timed.periodic


class Sleepy(WatermarkGenerator):
    """Says itself that it is idle: after a row at 0."""

    def on_event(self, row: Row, timestamp: int, output: WatermarkOutput) -> None:
        output.emit_watermark(timestamp)
        if not timestamp:
            output.mark_idle()

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        self.wake(output)

    def wake(self, output: WatermarkOutput) -> None:
        """Stays idle."""


def test_a_generator_may_say_that_it_is_idle_until_a_row_comes() -> None:
    tested = Input(WatermarkStrategy.for_generator(Sleepy))
    assert tested.rows(-5, 0) == [[-5], -5, [0], 0, IDLE]
    assert tested.periodic() == []
    assert tested.rows(7) == [ACTIVE, [7], 7]


def test_a_row_ends_idleness_wherever_batches_end() -> None:
    class IdleAtZero(WatermarkGenerator):
        def on_event(self, row: Row, timestamp: int, output: WatermarkOutput) -> None:
            if not timestamp:
                output.mark_idle()

    tested, by_row = (Input(WatermarkStrategy.for_generator(IdleAtZero)) for _ in range(2))
    assert tested.rows(4, 0, 0, 5, 6) == [[4, 0], IDLE, ACTIVE, [0], IDLE, ACTIVE, [5, 6]]
    assert [by_row.rows(at) for at in (0, 5)] == [[[0], IDLE], [ACTIVE, [5]]]


@pytest.mark.parametrize(
    ("wake", "said"),
    [(lambda output: output.mark_active(), [ACTIVE]), (lambda output: output.emit_watermark(9), [ACTIVE, 9])],
)
def test_a_generator_may_say_that_it_is_active_again(wake: Any, said: list[Any]) -> None:
    made: list[Sleepy] = []
    tested = Input(WatermarkStrategy.for_generator(lambda: made.append(Sleepy()) or made[0]))  # type: ignore[func-returns-value]
    assert tested.rows(0) == [[0], 0, IDLE]
    made[0].wake = wake  # type: ignore[method-assign]
    assert tested.periodic() == said


def test_a_quiet_input_is_idle_until_a_row_comes_and_its_generator_is_not_asked() -> None:
    tested = Input(WatermarkStrategy.for_generator(Periodic))
    assert tested.rows(10) == [[10], 11]
    assert tested.time_out() == [IDLE]
    assert tested.timed.idle
    assert tested.periodic() == []
    assert tested.rows(10) == [ACTIVE, [10], 12]
    assert not tested.timed.idle


class Broken(WatermarkGenerator):
    """Fails at a row, or emits what it holds."""

    def __init__(self, emits: Any = None) -> None:
        self.emits = emits

    def on_event(self, row: Row, timestamp: int, output: WatermarkOutput) -> None:
        output.emit_watermark(1 // 0 if self.emits is None else self.emits)


def test_a_generator_that_fails_is_shown_with_the_row() -> None:
    with pytest.raises(UserCodeError, match=r"'assign', subtask 0.*ZeroDivision") as caught:
        Input(WatermarkStrategy.for_generator(Broken)).rows(5)
    assert caught.value.given == "{'at': 5}"


@pytest.mark.parametrize("emits", [1.5, "noon", True, 2**63])
def test_a_watermark_that_is_none_is_refused(emits: Any) -> None:
    with pytest.raises(UserCodeError, match="emit_watermark"):
        Input(WatermarkStrategy.for_generator(lambda: Broken(emits))).rows(5)


def test_a_generator_may_say_that_event_time_is_complete() -> None:
    tested = Input(WatermarkStrategy.for_generator(lambda: Broken(MAX_TIMESTAMP)))
    assert tested.rows(5, 6) == [[5], MAX_TIMESTAMP, [6]]


def test_what_cannot_be_made_or_is_no_generator_is_refused() -> None:
    with pytest.raises(UserCodeError, match="ZeroDivisionError"):
        Input(WatermarkStrategy.for_generator(lambda: 1 / 0))  # type: ignore[arg-type, return-value]
    with pytest.raises(ConfigurationError, match="which made 5 and no WatermarkGenerator"):
        Input(WatermarkStrategy.for_generator(lambda: 5))  # type: ignore[arg-type, return-value]


def test_a_generator_watches_rows_in_one_way() -> None:
    class Both(Periodic):
        def on_event(self, row: Row, timestamp: int, output: WatermarkOutput) -> None:
            output.emit_watermark(timestamp)

    with pytest.raises(ConfigurationError, match="Both overrides on_event and on_batch; keep one"):
        Input(WatermarkStrategy.for_generator(Both))
