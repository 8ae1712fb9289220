"""The head and the tail of a loop, by hand: when the head lets rows go round, and when it ends."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.engine.elements import (
    FEEDBACK_INPUT,
    INPUT_ENDED,
    MAX_TIMESTAMP,
    Batch,
    EndOfInput,
    IterationBarrier,
    Watermark,
    WatermarkStatus,
)
from penstock.engine.errors import RecordError
from penstock.engine.exchange.partitioners import Rebalance
from penstock.engine.operators.iteration import (
    Asynchronous,
    BulkSynchronous,
    IterationHeadSpec,
    IterationMode,
    IterationTailSpec,
    StaleSynchronous,
)
from tests.engine.helpers import RunningOperator, numbers

LOOP = 7
END = "end"


class Head:
    """A running head; each method gives what it emitted: numbers of rows, barriers as `|0`, complete time as MAX."""

    def __init__(self, mode: IterationMode, max_supersteps: int | None = None) -> None:
        self.running = RunningOperator(IterationHeadSpec(LOOP, mode, max_supersteps).create())

    def enters(self, *values: int) -> list[Any]:
        return self._emitted(self.running.operator.process_batch(numbers(values), 0, self.running.out))

    def comes_back(self, *values: int) -> list[Any]:
        return self._emitted(self.running.operator.process_batch(numbers(values), FEEDBACK_INPUT, self.running.out))

    def input_ends(self) -> list[Any]:
        return self.returns(INPUT_ENDED, 0)

    def returns(self, superstep: int, rows: int) -> list[Any]:
        barrier = IterationBarrier(LOOP, superstep, rows)
        return self._emitted(self.running.operator.on_iteration_barrier(barrier, self.running.out))

    def _emitted(self, passed_on: object) -> list[Any]:
        emitted: list[Any] = []
        for element in self.running.out.elements:
            match element:
                case Batch():
                    emitted.extend(element.data.column("n").to_pylist())
                case IterationBarrier(loop, superstep):
                    assert loop == LOOP
                    emitted.append(f"|{superstep}")
                case Watermark(timestamp):
                    assert timestamp == MAX_TIMESTAMP
                    emitted.append("MAX")
        self.running.out.elements.clear()
        return [*emitted, *([END] if isinstance(passed_on, EndOfInput) else [])]


def test_an_asynchronous_loop_lets_rows_round_at_once_and_ends_behind_two_empty_rounds() -> None:
    head = Head(Asynchronous())
    assert head.enters(1) == [1]
    assert head.comes_back(2) == [2]
    assert head.input_ends() == ["|0"]
    assert head.comes_back(3) == [3]
    assert head.returns(0, 5) == ["|1"]
    assert head.returns(1, 0) == ["MAX", "|2"]
    assert head.returns(2, 1) == ["|3"]
    assert head.returns(3, 0) == [END]


@pytest.mark.parametrize("mode", [BulkSynchronous(), StaleSynchronous(0)])
def test_bulk_synchronous_rows_wait_until_their_superstep_is_over_everywhere(mode: IterationMode) -> None:
    head = Head(mode)
    assert head.enters(1) == [1]
    assert head.comes_back(2) == []
    assert head.input_ends() == ["|0"]
    assert head.comes_back(3) == []
    assert head.returns(0, 2) == [2, 3, "|1"]
    assert head.comes_back(4) == []
    assert head.returns(1, 1) == [4, "|2"]
    # Another head got rows back, and this one none.
    assert head.returns(2, 1) == ["|3"]
    assert head.returns(3, 0) == ["MAX", "|4"]
    assert head.returns(4, 0) == [END]


def test_a_stale_synchronous_head_goes_ahead_by_its_bound() -> None:
    head = Head(StaleSynchronous(2))
    assert head.enters(1) == [1]
    assert head.comes_back(2) == [], "the first superstep is the whole input"
    assert head.input_ends() == ["|0", 2, "|1"]
    assert head.comes_back(3) == [3, "|2"]
    assert head.comes_back(4) == [], "three supersteps ahead of what has returned"
    assert head.comes_back(5) == []
    assert head.returns(0, 1) == [4, 5, "|3"]
    assert head.returns(1, 1) == []
    assert head.returns(2, 1) == []
    assert head.returns(3, 0) == ["|4"], "one empty round says nothing while others may be three ahead"
    assert head.returns(4, 0) == ["|5"]
    assert head.returns(5, 0) == ["MAX", "|6"]
    assert head.returns(6, 0) == ["|7"]
    assert head.returns(7, 0) == ["|8"]
    assert head.returns(8, 0) == [END]


def test_the_last_superstep_ends_the_loop_and_drops_what_it_feeds_back() -> None:
    head = Head(BulkSynchronous(), max_supersteps=2)
    assert (head.enters(1), head.input_ends(), head.comes_back(2)) == ([1], ["|0"], [])
    assert head.returns(0, 1) == [2, "|1"]
    assert head.comes_back(3) == []
    assert head.returns(1, 1) == ["MAX", END]
    assert head.comes_back(4) == []


def test_barriers_that_are_under_way_when_the_loop_ends_do_nothing() -> None:
    head = Head(StaleSynchronous(1), max_supersteps=1)
    head.enters(1)
    assert head.input_ends() == ["|0"]
    assert head.returns(0, 1) == ["MAX", END]
    assert head.returns(1, 0) == []


def test_rows_that_come_back_too_late_are_an_error() -> None:
    head = Head(BulkSynchronous())
    head.input_ends()
    head.returns(0, 0)
    assert head.returns(1, 0) == [END]
    with pytest.raises(RecordError, match="operator 'tested', subtask 0: 2 rows were fed back when the loop had ended"):
        head.comes_back(1, 2)


def test_event_time_is_complete_when_the_loop_is() -> None:
    head = Head(Asynchronous()).running
    for watermark in (5, 9, MAX_TIMESTAMP):
        head.advance(watermark)
    assert head.out.watermarks == [5, 9]


def test_a_tail_counts_its_rows_and_lets_nothing_else_through() -> None:
    tail = RunningOperator(IterationTailSpec(LOOP, Rebalance()).create())
    operator, out = tail.operator, tail.out
    assert operator.on_iteration_barrier(IterationBarrier(LOOP, 0), out) == IterationBarrier(LOOP, 0, 0)
    tail.process(numbers([1, 2]))
    tail.process(numbers([3]))
    assert operator.on_iteration_barrier(IterationBarrier(LOOP + 1, 0), out) is None
    assert operator.on_iteration_barrier(IterationBarrier(LOOP, 1), out) == IterationBarrier(LOOP, 1, 3)
    assert operator.on_watermark(Watermark(5), out) is None
    assert operator.on_watermark_status(WatermarkStatus(True), out) is None
    operator.finish(out)
    assert tail.take_rows() == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_a_tail_whose_input_ends_early_tells_its_last_rows() -> None:
    tail = RunningOperator(IterationTailSpec(LOOP, Rebalance()).create())
    tail.operator.on_iteration_barrier(IterationBarrier(LOOP, 0), tail.out)
    tail.process(numbers([1, 2]))
    tail.operator.finish(tail.out)
    assert tail.out.elements[-1] == IterationBarrier(LOOP, 1, 2)
