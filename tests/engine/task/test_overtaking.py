"""Barriers that overtake rows in the output buffers: what they overtake, what they do not, and that nothing is lost."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.clock import ManualClock
from penstock.engine.elements import Barrier, CheckpointMode, Element, EndOfInput, Watermark
from penstock.engine.exchange.outputs import BatchLimits, ChannelBuffer, Message
from penstock.engine.exchange.partitioners import (
    Broadcast,
    Forward,
    Global,
    Hash,
    Partitioner,
    Rebalance,
    Rescale,
    is_overtakable,
)
from penstock.engine.task.router import Router, RouterEdge
from tests.engine.helpers import RecordingChannel, numbers, numbers_in

UNALIGNED = Barrier(1, CheckpointMode.UNALIGNED)
END = EndOfInput()


class Channel(RecordingChannel):
    """Lets barriers through without credit, as channels do."""

    def send(self, message: Message) -> None:
        assert self.credits > 0 or message[:-1] == (), "sent without credit"
        self.credits -= 1
        self.sent.append(message)


def filled(channel: RecordingChannel, *elements: Element | int, rows: int = 2) -> ChannelBuffer:
    """A buffer in which `elements` wait; a number is a row."""
    tested = ChannelBuffer(channel, BatchLimits(rows, 1_000_000, 0.0))
    for element in elements:
        if isinstance(element, int):
            tested.add(numbers([element]), 0.0)
        else:
            assert not hasattr(element, "data")
            tested.add_control(element, 0.0)
    return tested


def drained(channel: RecordingChannel, tested: ChannelBuffer) -> list[Element]:
    """All that was sent, once there is credit enough."""
    channel.credits = 1_000
    while not tested.empty:
        tested.flush(0.0)
    return channel.elements


def test_a_barrier_overtakes_all_rows_and_they_are_sent_behind_it() -> None:
    channel = Channel(credit=0)
    tested = filled(channel, 1, 2, 3, END)
    assert numbers_in(tested.overtake(UNALIGNED)) == [1, 2, 3]
    assert channel.elements == [UNALIGNED]
    assert channel.credits == -1
    sent = drained(channel, tested)
    assert numbers_in(sent) == [1, 2, 3]
    assert sent[-1] == END


def test_a_barrier_that_waits_overtakes_the_rows_before_it_alone() -> None:
    channel = Channel(credit=0)
    tested = filled(channel, 1, 2, 3, Barrier(1), 4)
    assert tested.holds(1)
    assert numbers_in(tested.overtake(UNALIGNED)) == [1, 2, 3]
    assert not tested.holds(1)
    sent = drained(channel, tested)
    assert numbers_in(sent) == [1, 2, 3, 4]
    assert [element for element in sent if isinstance(element, Barrier)] == [UNALIGNED]


def test_a_barrier_does_not_overtake_an_older_one() -> None:
    channel = Channel(credit=0)
    later = Barrier(2, CheckpointMode.UNALIGNED)
    tested = filled(channel, 1, Barrier(1), 2, 3)
    assert numbers_in(tested.overtake(later)) == [2, 3]
    assert channel.sent == []
    sent = drained(channel, tested)
    assert [numbers_in(sent[: sent.index(barrier)]) for barrier in (Barrier(1), later)] == [[1], [1]]
    assert numbers_in(sent) == [1, 2, 3]


@given(
    st.lists(st.one_of(st.integers(0, 9), st.sampled_from([Watermark(1), Watermark(2)])), max_size=12),
    st.integers(1, 4),
    st.booleans(),
)
def test_whatever_waits_nothing_is_lost_or_doubled(elements: list[Element | int], rows: int, queued: bool) -> None:
    channel = Channel(credit=0)
    waiting: Sequence[Element | int] = [*elements, Barrier(1)] if queued else elements
    tested = filled(channel, *waiting, rows=rows)
    rows_before = [element for element in elements if isinstance(element, int)]
    assert numbers_in(tested.overtake(UNALIGNED)) == rows_before
    sent = drained(channel, tested)
    assert sent[0] == UNALIGNED
    assert numbers_in(sent) == rows_before


@pytest.mark.parametrize(
    ("partitioner", "overtakable"),
    [
        (Forward(), False),
        (Broadcast(), False),
        (Rescale(), False),
        (Hash(("n",)), True),
        (Rebalance(), True),
        (Global(), True),
    ],
)
def test_rows_are_overtaken_where_they_can_be_routed_anew(partitioner: Partitioner, overtakable: bool) -> None:
    assert is_overtakable(partitioner) == overtakable


def test_a_barrier_that_was_given_up_is_withdrawn_and_its_rows_and_watermarks_stay() -> None:
    channel = Channel(credit=0)
    tested = filled(channel, 1, Watermark(5), Barrier(1), Barrier(2), 2, Barrier(3))
    for checkpoint in (2, 1, 1, 9):
        tested.withdraw(checkpoint)
    assert numbers_in(tested.overtake(Barrier(4, CheckpointMode.UNALIGNED))) == [], "Barrier(3) stands before it"
    sent = drained(channel, tested)
    assert numbers_in(sent) == [1, 2]
    assert [element for element in sent if not hasattr(element, "data")] == [
        Watermark(5),
        Barrier(3),
        Barrier(4, CheckpointMode.UNALIGNED),
    ]


def test_rows_in_front_of_a_barrier_that_was_withdrawn_are_overtaken() -> None:
    channel = Channel(credit=0)
    tested = filled(channel, 1, Barrier(1), 2)
    tested.withdraw(1)
    assert numbers_in(tested.overtake(Barrier(2, CheckpointMode.UNALIGNED))) == [1, 2]
    assert channel.elements == [Barrier(2, CheckpointMode.UNALIGNED)]


def test_where_nothing_overtakes_a_barrier_that_was_given_up_keeps_its_place() -> None:
    kept = Channel(credit=0)
    buffer = filled(kept, 1, Barrier(1))
    Router([RouterEdge(lambda batch: ((0, batch),), [buffer], ManualClock(), "to the client")]).withdraw(1)
    assert drained(kept, buffer)[-1] == Barrier(1)


def test_a_router_lets_barriers_overtake_on_some_exchanges_and_keeps_their_place_on_others() -> None:
    free, kept = Channel(credit=0), Channel(credit=0)
    edges = [
        RouterEdge(lambda batch: ((0, batch),), [filled(channel, 1)], ManualClock(), uid, overtakable)
        for channel, uid, overtakable in ((free, "free", True), (kept, "kept", False))
    ]
    router = Router(edges)
    overtaken = router.forward(UNALIGNED)
    assert {uid: numbers_in(rows) for uid, rows in overtaken.items()} == {"free": [1]}
    assert (free.elements, kept.elements) == ([UNALIGNED], [])
    assert drained(kept, edges[1].buffers[0])[-1] == UNALIGNED
