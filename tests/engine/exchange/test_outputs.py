"""Output buffers: what waits for a channel, how it is cut into messages, and in which order it leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.elements import (
    Batch,
    Control,
    Element,
    EndOfInput,
    LatencyMarker,
    Watermark,
    WatermarkStatus,
    concat_batches,
)
from penstock.engine.exchange import outputs
from penstock.engine.exchange.outputs import BatchLimits, ChannelBuffer, Message
from tests.engine.helpers import RecordingChannel, numbers, numbers_in

ROW_BYTES = 8
IDLE, ACTIVE, END = WatermarkStatus(True), WatermarkStatus(False), EndOfInput()


def buffer(channel: RecordingChannel, rows: int = 4, size: int = 1_000_000, timeout: float = 1.0) -> ChannelBuffer:
    return ChannelBuffer(channel, BatchLimits(rows, size, timeout))


def shape(message: Message) -> list[object]:
    """A message as the numbers in its batch, and its control elements."""
    return [numbers_in([element]) if isinstance(element, Batch) else element for element in message]


# When to send


def test_a_part_of_a_batch_waits_for_the_timeout() -> None:
    channel = RecordingChannel()
    tested = buffer(channel, timeout=0.05)
    tested.add(numbers([1]), now=10.0)
    tested.flush(10.0)
    assert channel.sent == []
    assert tested.deadline == 10.05
    tested.flush(10.05)
    assert [shape(message) for message in channel.sent] == [[[1]]]
    assert tested.empty
    assert tested.deadline is None


def test_a_latency_marker_waits_with_the_rows_before_it_and_ends_no_message() -> None:
    channel, marker = RecordingChannel(), LatencyMarker("events", 1)
    tested = buffer(channel, rows=4, timeout=0.05)
    for numbered in ([1, 2, 3], [4, 5], [6]):
        tested.add(numbers(numbered), now=0.0)
        tested.add_control(LatencyMarker("events", numbered[-1]), now=0.0)
    tested.flush(0.05)
    third, fifth, sixth = (LatencyMarker("events", number) for number in (3, 5, 6))
    assert [shape(message) for message in channel.sent] == [[[1, 2, 3, 4], third], [[5, 6], fifth, sixth]]
    tested.add_control(marker, now=1.0)
    tested.flush(1.0)
    assert tested.deadline == 1.05
    tested.flush(1.05)
    assert channel.sent[2:] == [(marker,)]


def test_a_watermark_alone_keeps_its_distance_from_the_one_before_and_rows_take_it_along() -> None:
    channel = RecordingChannel()
    tested = ChannelBuffer(channel, BatchLimits(4, 1_000_000, timeout=0.05, watermark_interval=0.2))
    tested.add_control(Watermark(1), now=1.0)
    assert tested.deadline == 1.05, "nothing was sent before it"
    tested.flush(1.05)
    tested.add_control(Watermark(2), now=1.1)
    assert tested.deadline == 1.25
    tested.flush(1.2)
    assert channel.sent == [(Watermark(1),)]
    tested.add(numbers([1]), now=1.2)
    tested.add_control(Watermark(3), now=1.21)
    tested.flush(1.21)
    assert [shape(message) for message in channel.sent[1:]] == [[[1], Watermark(3)]], "its wait had been over"
    tested.add_control(Watermark(4), now=2.0)
    assert tested.deadline == 2.05


def test_the_oldest_row_says_when_the_batch_is_due() -> None:
    channel = RecordingChannel()
    tested = buffer(channel, timeout=1.0)
    tested.add(numbers([1]), now=0.0)
    tested.add(numbers([2]), now=0.9)
    tested.flush(1.0)
    assert numbers_in(channel.elements) == [1, 2]


def test_a_part_of_a_batch_waits_for_the_message_before_it_and_grows_meanwhile() -> None:
    channel = RecordingChannel()
    tested = buffer(channel, rows=4, timeout=0.0)
    channel.waiting = 1
    tested.add(numbers([1]), now=0.0)
    tested.flush(5.0)
    tested.add(numbers([2]), now=5.0)
    tested.flush(9.0)
    assert channel.sent == []
    assert tested.deadline is None
    channel.waiting = 0
    tested.flush(9.0)
    assert [shape(message) for message in channel.sent] == [[[1, 2]]]


def test_a_full_batch_does_not_wait_for_the_message_before_it() -> None:
    channel = RecordingChannel()
    tested = buffer(channel, rows=2)
    channel.waiting = 1
    tested.add(numbers([1, 2]), now=0.0)
    tested.flush(0.0)
    assert [shape(message) for message in channel.sent] == [[[1, 2]]]


def test_a_full_batch_is_sent_at_once() -> None:
    channel = RecordingChannel()
    tested = buffer(channel, rows=3)
    tested.add(numbers([1, 2]), 0.0)
    assert not tested.full
    tested.add(numbers([3]), 0.0)
    assert tested.full
    tested.flush(0.0)
    assert [shape(message) for message in channel.sent] == [[[1, 2, 3]]]
    assert not tested.full


def test_rows_are_full_by_bytes_too() -> None:
    channel = RecordingChannel()
    tested = buffer(channel, rows=1000, size=2 * ROW_BYTES)
    tested.add(numbers([1, 2, 3]), 0.0)
    assert tested.full
    tested.flush(0.0)
    assert [shape(message) for message in channel.sent] == [[[1, 2]]]


def test_without_a_timeout_a_single_row_is_sent_at_once() -> None:
    channel = RecordingChannel()
    tested = buffer(channel, timeout=0.0)
    tested.add(numbers([1]), 5.0)
    tested.flush(5.0)
    assert numbers_in(channel.elements) == [1]


def test_a_watermark_alone_is_sent_after_the_timeout() -> None:
    channel = RecordingChannel()
    tested = buffer(channel, timeout=1.0)
    tested.add_control(Watermark(7), 0.0)
    assert not tested.empty
    tested.flush(0.5)
    assert channel.sent == []
    tested.flush(1.0)
    assert channel.sent == [(Watermark(7),)]


def test_more_rows_than_a_message_holds_leave_in_several() -> None:
    channel = RecordingChannel()
    tested = buffer(channel, rows=2)
    tested.add(numbers(range(5)), 0.0)
    tested.flush(0.0)
    assert [shape(message) for message in channel.sent] == [[[0, 1]], [[2, 3]]]
    tested.flush(1.0)
    assert numbers_in(channel.elements) == [0, 1, 2, 3, 4]


# Credit


def test_nothing_is_sent_without_credit_and_no_time_is_waited_for() -> None:
    channel = RecordingChannel(credit=0)
    channel.waiting = 1
    tested = buffer(channel, rows=1)
    tested.add(numbers([1]), 0.0)
    tested.flush(100.0)
    assert channel.sent == []
    assert tested.full
    assert tested.deadline is None


def test_rows_coalesce_while_there_is_no_credit() -> None:
    channel = RecordingChannel(credit=0)
    tested = buffer(channel, rows=4, timeout=0.0)
    for n in range(3):
        tested.add(numbers([n]), float(n))
        tested.flush(float(n))
    channel.credits = 1
    tested.flush(3.0)
    assert [shape(message) for message in channel.sent] == [[[0, 1, 2]]]


def test_each_message_uses_one_credit() -> None:
    channel = RecordingChannel(credit=1)
    tested = buffer(channel, rows=1)
    tested.add(numbers([1, 2]), 0.0)
    tested.flush(0.0)
    assert numbers_in(channel.elements) == [1]
    assert tested.full
    channel.credits = 1
    tested.flush(0.0)
    assert numbers_in(channel.elements) == [1, 2]


# Control elements


def test_a_watermark_travels_behind_its_rows_in_one_message() -> None:
    channel = RecordingChannel()
    tested = buffer(channel)
    tested.add(numbers([1]), 0.0)
    tested.add_control(Watermark(1), 0.0)
    tested.flush(1.0)
    assert [shape(message) for message in channel.sent] == [[[1], Watermark(1)]]


def test_a_waiting_watermark_is_overtaken_by_rows_and_replaced_by_the_next() -> None:
    channel = RecordingChannel()
    tested = buffer(channel)
    for n in range(3):
        tested.add(numbers([n]), 0.0)
        tested.add_control(Watermark(n), 0.0)
    tested.flush(1.0)
    assert [shape(message) for message in channel.sent] == [[[0, 1, 2], Watermark(2)]]


def test_a_watermark_waits_for_all_the_rows_before_it() -> None:
    channel = RecordingChannel()
    tested = buffer(channel, rows=2)
    tested.add(numbers([0, 1, 2]), 0.0)
    tested.add_control(Watermark(9), 0.0)
    tested.flush(0.0)
    assert [shape(message) for message in channel.sent] == [[[0, 1]]]
    tested.flush(1.0)
    assert [shape(message) for message in channel.sent] == [[[0, 1]], [[2], Watermark(9)]]


def test_the_end_sends_what_waits_without_waiting_for_the_timeout() -> None:
    channel = RecordingChannel()
    tested = buffer(channel, timeout=1000.0)
    tested.add(numbers([1]), 0.0)
    tested.add_control(Watermark(5), 0.0)
    tested.add_control(END, 0.0)
    tested.flush(0.0)
    assert [shape(message) for message in channel.sent] == [[[1], Watermark(5), END]]
    assert tested.empty


def test_rows_never_overtake_a_change_of_status() -> None:
    channel = RecordingChannel()
    tested = buffer(channel)
    tested.add(numbers([1]), 0.0)
    tested.add_control(Watermark(1), 0.0)
    tested.add_control(IDLE, 0.0)
    tested.add_control(ACTIVE, 0.0)
    tested.add(numbers([2]), 0.0)
    tested.flush(1.0)
    assert [shape(message) for message in channel.sent] == [[[1], Watermark(1), IDLE], [ACTIVE], [[2]]]


def test_more_should_wait_upstream_while_a_control_element_waits_for_credit() -> None:
    channel = RecordingChannel(credit=0)
    tested = buffer(channel)
    tested.add_control(END, 0.0)
    tested.flush(0.0)
    assert tested.full
    assert not tested.empty
    assert tested.deadline is None


# Sizes


def test_a_row_larger_than_the_limit_travels_alone() -> None:
    channel = RecordingChannel()
    tested = buffer(channel, rows=100, size=50)
    tested.add(Batch(pa.record_batch({"text": ["a", "b" * 1000, "c"]})), 0.0)
    tested.flush(0.0)
    tested.flush(1.0)
    assert [element.data.column("text").to_pylist() for element in channel.elements] == [["a"], ["b" * 1000], ["c"]]


@given(
    st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=6), max_size=12),
    st.integers(1, 8),
    st.integers(1, 120),
)
def test_no_message_is_over_a_limit_unless_it_is_a_single_row(lengths: list[list[int]], rows: int, size: int) -> None:
    channel = RecordingChannel()
    tested = buffer(channel, rows, size, timeout=1.0)
    for batch in lengths:
        tested.add(Batch(pa.record_batch({"text": ["x" * length for length in batch]})), 0.0)
        tested.flush(0.0)
    tested.flush(1.0)
    batches = [element for element in channel.elements if isinstance(element, Batch)]
    assert all(batch.num_rows <= rows and (batch.nbytes <= size or batch.num_rows == 1) for batch in batches)
    sent = [len(text) for batch in batches for text in batch.data.column("text").to_pylist()]
    assert sent == [length for batch in lengths for length in batch]
    assert tested.empty


def test_rows_that_do_not_fit_one_message_are_not_copied_for_it() -> None:
    part = Batch(pa.record_batch({"text": ["x" * 100_000]}))
    channel = RecordingChannel(credit=1)
    tested = buffer(channel, rows=1_000, size=300_000)
    for _ in range(100):
        tested.add(part, 0.0)
    before = pa.total_allocated_bytes()
    tested.flush(0.0)
    assert pa.total_allocated_bytes() - before < 1_000_000
    assert [element.num_rows for element in channel.elements if isinstance(element, Batch)] == [2]


def test_many_small_parts_are_copied_together_once(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []

    def counting(batches: Sequence[Batch]) -> Batch:
        copied.append(len(batches))
        return concat_batches(batches)

    monkeypatch.setattr(outputs, "concat_batches", counting)
    channel = RecordingChannel()
    tested = buffer(channel, rows=100)
    for n in range(250):
        tested.add(numbers([n]), 0.0)
    tested.flush(1.0)
    assert copied == [100, 100, 50]
    assert numbers_in(channel.elements) == list(range(250))


def test_parts_that_are_larger_together_than_alone_keep_to_the_limit() -> None:
    channel = RecordingChannel()
    tested = buffer(channel, rows=100, size=160)
    tested.add(Batch(pa.record_batch({"n": pa.nulls(30)})), 0.0)
    tested.add(numbers([1]), 0.0)
    tested.flush(1.0)
    batches = [element for element in channel.elements if isinstance(element, Batch)]
    assert all(batch.nbytes <= 160 for batch in batches)
    assert numbers_in(channel.elements) == [None] * 30 + [1]


def test_columns_of_nulls_wait_together_with_typed_ones() -> None:
    channel = RecordingChannel()
    tested = buffer(channel)
    tested.add(Batch(pa.record_batch({"n": pa.nulls(1)})), 0.0)
    tested.add(numbers([1]), 0.0)
    tested.flush(1.0)
    assert numbers_in(channel.elements) == [None, 1]


# Everything together


@dataclass
class _Sent:
    """What must hold for all that was added so far: the rows, and the controls with the rows before them."""

    rows: list[int] = field(default_factory=list)
    watermarks: list[tuple[int, int]] = field(default_factory=list)
    others: list[tuple[int, Control]] = field(default_factory=list)

    def see(self, element: Element) -> None:
        match element:
            case Batch():
                self.rows.extend(element.data.column("n").to_pylist())
            case Watermark(timestamp):
                self.watermarks.append((len(self.rows), timestamp))
            case _:
                self.others.append((len(self.rows), element))


ACTIONS = st.lists(
    st.one_of(
        st.integers(1, 7),
        st.sampled_from(["watermark", "status", "credit", "wait"]),
    ),
    max_size=40,
)


@given(ACTIONS, st.integers(1, 5), st.integers(8, 40), st.integers(0, 3))
def test_rows_are_fifo_and_controls_keep_their_place(
    actions: list[int | str], rows: int, size: int, credit: int
) -> None:
    channel, given_to = RecordingChannel(credit), _Sent()
    tested = buffer(channel, rows, size, timeout=1.0)
    now, number, idle = 0.0, 0, False
    for action in actions:
        if action == "credit":
            channel.credits += 1
        elif action == "wait":
            now += 0.7
        elif action == "watermark":
            tested.add_control(Watermark(number), now)
            given_to.see(Watermark(number))
        elif action == "status":
            idle = not idle
            tested.add_control(WatermarkStatus(idle), now)
            given_to.see(WatermarkStatus(idle))
        else:
            assert isinstance(action, int)
            batch = numbers(range(number, number + action))
            number += action
            tested.add(batch, now)
            given_to.see(batch)
        tested.flush(now)
    tested.add_control(END, now)
    given_to.see(END)
    channel.credits = 1_000
    tested.flush(now)

    received = _Sent()
    for element in channel.elements:
        received.see(element)
    assert received.rows == given_to.rows
    assert received.others == given_to.others
    # A watermark may come later than it was given, never earlier, and the last one always comes.
    assert all((rows_before >= timestamp) for rows_before, timestamp in received.watermarks)
    assert {t for _, t in received.watermarks} <= {t for _, t in given_to.watermarks}
    assert [t for _, t in received.watermarks[-1:]] == [t for _, t in given_to.watermarks[-1:]]
    for message in channel.sent:
        assert message, "an empty message would waste a credit"
        assert not any(isinstance(element, Batch) for element in message[1:])


# What the receiver wants


class Untaken(RecordingChannel):
    """Counts what the receiver has not taken."""

    @property
    def under_way(self) -> int:
        return len(self.sent)


def test_messages_are_half_of_what_the_receiver_wants_and_two_are_under_way() -> None:
    channel = Untaken()
    channel.wanted_rows = 6
    tested = buffer(channel, rows=100)
    tested.add(numbers(range(20)), now=0.0)
    assert tested.full
    tested.flush(0.0)
    assert [numbers_in(message) for message in channel.sent] == [[0, 1, 2], [3, 4, 5]]
    channel.sent.clear()
    channel.wanted_rows = 20
    tested.flush(0.0)
    assert [numbers_in(message) for message in channel.sent] == [list(range(6, 16))]
    assert not tested.full, "what is left is a part of a batch, and waits for the message before it"


def test_all_credit_is_used_where_the_receiver_wants_more_than_that() -> None:
    channel = RecordingChannel(credit=3)
    channel.wanted_rows = 8
    tested = buffer(channel, rows=4)
    channel.waiting = 2
    tested.add(numbers(range(20)), now=0.0)
    tested.flush(0.0)
    assert len(channel.sent) == 3


def test_a_receiver_that_wants_less_than_a_row_gets_one() -> None:
    channel = RecordingChannel()
    channel.wanted_rows = 0.1
    tested = buffer(channel)
    assert not tested.full
    tested.add(numbers([1, 2]), now=0.0)
    tested.flush(0.0)
    assert [numbers_in(message) for message in channel.sent] == [[1], [2]]
