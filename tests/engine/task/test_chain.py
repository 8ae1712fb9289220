"""Chained operators: each takes what the one before it emits, and counts its rows."""

from __future__ import annotations

import pytest

from penstock.engine.clock import ManualClock
from penstock.engine.elements import MAX_TIMESTAMP, Batch, EndOfInput, LatencyMarker, Watermark, WatermarkStatus
from penstock.engine.errors import RecordError
from penstock.engine.metric_types import read_together
from penstock.engine.operators.base import Collector, Operator, OperatorContext
from penstock.engine.state.snapshot import OperatorSnapshot
from penstock.engine.task.chain import ChainLink, fan_out
from tests.engine.helpers import RecordingCollector, numbers, numbers_in


class Doubling(Operator):
    """Emits each batch twice, holds back odd watermarks, and says goodbye with a row of -1."""

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        out.collect(batch)
        out.collect(batch)

    def on_watermark(self, watermark: Watermark, out: Collector) -> Watermark | None:
        return None if watermark.timestamp % 2 else watermark

    def finish(self, out: Collector) -> None:
        out.collect(numbers([-1]))


class Inputs(Operator):
    """Remembers on which input rows came; emits nothing but a batch without rows."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        self.seen.append(input_index)
        out.collect(batch.slice(0, 0))


def link(operator: Operator, behind: Collector) -> ChainLink:
    return ChainLink(operator, OperatorContext("tested", 0, 1, ManualClock()), behind)


def test_the_end_of_event_time_is_passed_on_again_after_a_restore_and_nothing_else_is_repeated() -> None:
    out, operator = RecordingCollector(), Doubling()
    restored = link(operator, out)
    restored.open(OperatorSnapshot({}, MAX_TIMESTAMP))
    restored.process(0, Watermark(4))
    restored.process(0, Watermark(MAX_TIMESTAMP))
    assert out.elements == [Watermark(MAX_TIMESTAMP)]


def test_rows_go_through_the_whole_chain_and_are_counted() -> None:
    out = RecordingCollector()
    last = link(Doubling(), out)
    first = link(Doubling(), last)
    first.process(0, numbers([1, 2]))
    assert numbers_in(out.elements) == [1, 2] * 4
    assert (first.context.metrics.rows_in, first.context.metrics.rows_out) == (2, 4)
    assert (last.context.metrics.rows_in, last.context.metrics.rows_out) == (4, 8)


def test_an_operator_never_sees_a_batch_without_rows_nor_sends_one_on() -> None:
    out, operator = RecordingCollector(), Inputs()
    tested = link(operator, out)
    tested.process(0, numbers([]))
    assert operator.seen == []
    tested.process(0, numbers([1]))
    assert out.elements == []


def test_rows_come_with_their_input() -> None:
    operator = Inputs()
    tested = link(operator, RecordingCollector())
    tested.process(1, numbers([1]))
    tested.process(0, numbers([1]))
    assert operator.seen == [1, 0]


def test_an_operator_may_hold_a_watermark_back() -> None:
    out = RecordingCollector()
    tested = link(Doubling(), out)
    for timestamp in (1, 2):
        tested.broadcast(Watermark(timestamp))
    assert out.elements == [Watermark(2)]


def test_the_end_comes_behind_the_last_words_of_each_operator() -> None:
    out = RecordingCollector()
    link(Doubling(), link(Doubling(), out)).broadcast(EndOfInput())
    assert numbers_in(out.elements) == [-1, -1, -1]
    assert out.elements[-1] == EndOfInput()
    assert out.elements.count(EndOfInput()) == 1


def test_a_change_of_status_passes_through() -> None:
    out = RecordingCollector()
    link(Doubling(), out).broadcast(WatermarkStatus(True))
    assert out.elements == [WatermarkStatus(True)]


def test_several_consumers_get_the_same_elements() -> None:
    outs = [RecordingCollector(), RecordingCollector()]
    both = fan_out(outs)
    batch = numbers([1])
    both.collect(batch)
    both.broadcast(Watermark(1))
    assert [out.elements for out in outs] == [[batch, Watermark(1)]] * 2


def test_each_operator_notes_the_age_of_a_marker_and_passes_it_on_as_it_is() -> None:
    out, marker = RecordingCollector(), LatencyMarker("2 events", 400)
    last = link(Doubling(), out)
    first = link(Doubling(), last)
    first.context.clock.wait_until(1.0)  # type: ignore[attr-defined]
    age = first.context.clock.now_ms() - 400
    first.broadcast(marker)
    assert out.elements == [marker]
    (noted,) = read_together([first.context.metrics.latency])
    assert (noted.name, noted.value, noted.highest) == ("_2_events", 1, age)
    assert read_together([last.context.metrics.latency])[0].value == 1


def test_where_ways_part_a_marker_takes_one_of_them_in_turn() -> None:
    outs = [RecordingCollector(), RecordingCollector()]
    tested = link(Doubling(), fan_out(outs))
    for time in range(4):
        tested.broadcast(LatencyMarker("events", time))
    assert [[one.marked_ms for one in out.elements] for out in outs] == [[0, 2], [1, 3]]  # type: ignore[union-attr]


def test_rows_for_several_consumers_count_once() -> None:
    tested = link(Doubling(), fan_out([RecordingCollector(), RecordingCollector()]))
    tested.process(0, numbers([1]))
    assert tested.context.metrics.rows_out == 2


def test_a_record_error_names_the_operator_in_which_it_arose() -> None:
    class Refuses(Operator):
        def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
            raise RecordError("sum of column 'v' does not fit int64")

    class Passes(Operator):
        def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
            out.collect(batch)

    behind = ChainLink(Refuses(), OperatorContext("behind", 2, 3, ManualClock()), RecordingCollector())
    front = ChainLink(Passes(), OperatorContext("front", 2, 3, ManualClock()), behind)
    with pytest.raises(RecordError, match=r"^operator 'behind', subtask 2: sum of column 'v' does not fit int64$"):
        front.process(0, numbers([1]))
