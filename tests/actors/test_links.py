"""Connections between the processes of a machine: frames, their end, and who may connect."""

from __future__ import annotations

import asyncio
import functools
import gc
import itertools
import os
import socket
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from ray.exceptions import ActorDiedError

from penstock.actors import channels
from penstock.actors.channels import Pusher, SendingEnd, sparse_id, take_frame, unpacked
from penstock.actors.links import Link, LinkServer, Reply, connected
from penstock.actors.shared_segments import SegmentBudget, SenderSegments
from penstock.engine.elements import Barrier, Batch, Watermark
from penstock.engine.errors import PenstockError, WorkerLostError
from penstock.engine.exchange.outputs import Message

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/net/unix"), reason="the abstract namespace is Linux's")

_IDS = itertools.count()


class Receiver:
    """An actor of this process: what comes through its links and its calls; the test says when it takes messages."""

    def __init__(self, ends: ExitStack, dies: bool = False) -> None:
        self.by_link: list[Message] = []
        self.by_call: list[Message] = []
        self.answers: list[Callable[[float | None], object]] = []
        self.push, self.ping = _Method(self._on_push), _Method(self._on_ping)
        self.dies = dies
        self._actor_id = f"test-{os.getpid()}-{next(_IDS)}".encode()
        self.server = LinkServer(self._actor_id.hex(), self._on_frame)
        ends.callback(self.server.close)

    def _on_frame(self, frame: bytes, reply: Reply) -> None:
        def take(pushed: channels.Pushed, answer: Callable[[float | None], object]) -> None:
            self.by_link.append(pushed[-1])
            self.answers.append(answer)

        take_frame(frame, reply, take)

    def _on_push(self, *arguments: Any) -> float:
        self.by_call.append(unpacked(arguments)[-1])
        return 7.0

    def _on_ping(self) -> None:
        if self.dies:
            raise ActorDiedError()


class _Method:
    def __init__(self, answer: Callable[..., Any]) -> None:
        self._answer = answer
        self._future: Future[Any] = Future()

    def remote(self, *arguments: Any) -> _Method:
        call = _Method(self._answer)
        try:
            call._future.set_result(self._answer(*arguments))
        except Exception as error:
            call._future.set_exception(error)
        return call

    def future(self) -> Future[Any]:
        return self._future


class Sender:
    """The sending end of a channel to a receiver."""

    def __init__(self, ends: ExitStack, receiver: Receiver) -> None:
        self.failures: list[PenstockError] = []
        self.pusher = Pusher(receiver, 1, 0, asyncio.get_running_loop())
        ends.callback(self.pusher.close)
        self.end = SendingEnd(self.pusher, 4, lambda: None, self.failures.append)


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on an event loop of its own."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        async def whole() -> None:
            with fixtures["ends"]:
                await test(**fixtures)

        asyncio.run(whole())

    return run


@pytest.fixture
def ends() -> ExitStack:
    """Closes, on the loop, what a test has opened."""
    return ExitStack()


def unheard(wanted: float | None, error: BaseException | None) -> None:
    """Of an answer that the test does not look at."""


async def until(holds: Callable[[], object]) -> None:
    async def look() -> None:
        while not holds():
            await asyncio.sleep(0)

    await asyncio.wait_for(look(), 10)


def linked(ends: ExitStack) -> tuple[Link, Link, list[bytes], list[str]]:
    """Two ends, what the second has received, and who has been told of the end."""
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    loop, frames, lost = asyncio.get_running_loop(), list[bytes](), list[str]()
    first = Link(one, loop, lambda frame: None, lambda: lost.append("first"))
    second = Link(other, loop, frames.append, lambda: lost.append("second"))
    ends.callback(first.close)
    ends.callback(second.close)
    return first, second, frames, lost


@on_a_loop
async def test_frames_arrive_whole_and_in_order_also_where_they_do_not_fit_into_the_socket(ends: ExitStack) -> None:
    first, _, frames, _ = linked(ends)
    sent = [b"", b"a", bytes(3_000_000), b"b" * 70_000, b"", b"the end"]
    for frame in sent:
        assert first.send(frame)
    await until(lambda: len(frames) == len(sent))
    assert frames == sent
    first.close()


@on_a_loop
async def test_an_end_hears_once_that_the_other_has_gone_behind_all_that_it_had_sent(ends: ExitStack) -> None:
    first, second, frames, lost = linked(ends)
    first.send(b"last words")
    first.close()
    await until(lambda: lost)
    assert (frames, lost) == ([b"last words"], ["second"])
    assert not first.send(b"")
    assert not second.send(b"")


@on_a_loop
async def test_messages_go_through_a_link_and_their_answers_are_credit(ends: ExitStack) -> None:
    receiver = Receiver(ends)
    sender = Sender(ends, receiver)
    rows = Batch(pa.record_batch({"n": [1, 2]}))
    sender.end.send((rows, Watermark(5)))
    sender.end.send((Watermark(6),))
    await until(lambda: len(receiver.by_link) == 2)
    assert receiver.by_link == [(rows, Watermark(5)), (Watermark(6),)]
    assert sender.end.under_way == 2
    receiver.answers[0](100.0)
    await until(lambda: sender.end.credits == 3)
    assert sender.end.wanted_rows == 100.0
    assert (receiver.by_call, sender.failures) == ([], [])
    sender.pusher.close()


@on_a_loop
async def test_few_rows_have_a_link_of_their_own_unless_something_is_under_way(ends: ExitStack) -> None:
    receiver = Receiver(ends)
    sparse: list[Message] = []

    def take(frame: bytes, reply: Reply) -> None:
        sparse.append(unpacked([frame])[-1])
        take_frame(frame, reply, lambda _, answer: answer(1.0))

    ends.callback(LinkServer(sparse_id(receiver._actor_id.hex()), take).close)
    sender = Sender(ends, receiver)

    def came(message: Message) -> bool:
        return message in (*sparse, *receiver.by_link)

    few, many = Batch(pa.record_batch({"n": [1]})), Batch(pa.record_batch({"n": list(range(64))}))
    long = Batch(pa.record_batch({"text": ["long" * 20_000]}))
    for message in ((few, Watermark(1)), (many,), (Barrier(1),), (long,), (Watermark(2),)):
        sender.end.send(message)
        await until(functools.partial(came, message))
        while receiver.answers:
            receiver.answers.pop()(1.0)
        await until(lambda: sender.end.credits == 4)
    assert sparse == [(few, Watermark(1)), (Watermark(2),)]
    assert receiver.by_link == [(many,), (Barrier(1),), (long,)]
    sender.end.send((many,))
    sender.end.send((few,))
    await until(lambda: receiver.by_link[3:] == [(many,), (few,)])


def _rows(number: int, count: int = 20_000) -> Batch:
    """Many rows of all sorts of columns, other ones for each number."""
    numbers = pa.array(range(number, number + count))
    texts = pa.array([None, f"text {number}"] * (count // 2))
    data = pa.record_batch({"n": numbers, "text": texts, "coded": texts.dictionary_encode()})
    return Batch(data, numbers, pa.array([0, 1] * (count // 2), pa.int8()))


@on_a_loop
async def test_a_large_message_lies_in_memory_that_both_processes_see(ends: ExitStack) -> None:
    receiver = Receiver(ends)
    sender = Sender(ends, receiver)
    nested = Batch(pa.record_batch({"list": [[1.5, None], [], None] * 10_000}))
    sent = [(_rows(1), Watermark(7)), (nested,), (_rows(2).slice(10, 15_000), Barrier(1)), (Watermark(8),)]
    for message in sent:
        sender.end.send(message)
    await until(lambda: len(receiver.by_link) == 4)
    assert receiver.by_link == sent
    assert receiver.by_call == []
    # What was copied for nobody counts in no process.
    before = pa.total_allocated_bytes()
    receiver.by_link.clear()
    assert pa.total_allocated_bytes() == before


@on_a_loop
async def test_memory_is_written_again_only_when_the_receiver_has_let_go_of_all_that_lay_there(ends: ExitStack) -> None:
    receiver = Receiver(ends)
    sender = Sender(ends, receiver)
    sent = [(_rows(number),) for number in range(12)]
    for message in sent:
        sender.pusher(0, message, unheard)
    # As soon as the receiver holds on to too much, messages go by calls.
    await until(lambda: len(receiver.by_link) + len(receiver.by_call) == 12)
    assert [*receiver.by_link, *receiver.by_call] == sent
    assert len(receiver.by_call) == 4
    held = receiver.by_link[3][0].data.column("n").slice(5, 1)
    receiver.by_link.clear()
    for message in sent:
        sender.pusher(0, message, unheard)
        await until(lambda: receiver.by_link)
        assert receiver.by_link.pop() == message
    assert len(receiver.by_call) == 4
    assert held.to_pylist() == [8]


@on_a_loop
async def test_all_channels_of_a_sender_have_so_much_memory_together(ends: ExitStack) -> None:
    receiver = Receiver(ends)
    budget, loop = SegmentBudget(5 * 2**20), asyncio.get_running_loop()
    one, other = (Pusher(receiver, 1, 0, loop, budget=budget) for _ in range(2))
    message = (Batch(pa.record_batch({"n": list(range(400_000))})),)
    one(0, message, unheard)
    await until(lambda: receiver.by_link)
    other(0, message, unheard)
    assert receiver.by_call == [message]
    one.close()
    other(0, message, unheard)
    await until(lambda: len(receiver.by_link) == 2)
    other.close()


@on_a_loop
async def test_memory_ends_with_its_link_or_with_the_last_rows_that_lie_there(ends: ExitStack) -> None:
    receiver = Receiver(ends)
    sender = Sender(ends, receiver)
    gc.collect()
    before = _memory_files()
    for number in range(3):
        sender.end.send((_rows(number),))
    await until(lambda: len(receiver.by_link) == 3)
    assert _memory_files() > before
    sender.pusher.close()
    await until(lambda: not receiver.server._links)
    del sender
    gc.collect()
    assert receiver.by_link == [(_rows(number),) for number in range(3)]
    receiver.by_link.clear()
    receiver.answers.clear()
    gc.collect()
    assert _memory_files() == before


def test_a_sender_has_so_many_segments_however_many_links_it_has() -> None:
    budget = SegmentBudget()
    links = [SenderSegments(budget) for _ in range(40)]
    placed = [link.place([memoryview(b"rows")]) for link in links]
    assert [one is not None for one in placed] == [True] * 32 + [False] * 8
    links[0].close()
    placed.append(links[39].place([memoryview(b"rows")]))
    assert placed[-1] is not None
    for one in placed:
        if one is not None and one.file is not None:
            os.close(one.file)
    for link in links:
        link.close()


def _memory_files() -> int:
    """How many there are in this process."""
    return Path("/proc/self/maps").read_text().count("/memfd:penstock")


@on_a_loop
async def test_a_link_ends_where_memory_is_spoken_of_that_never_came(ends: ExitStack) -> None:
    first, _, frames, lost = linked(ends)
    segments = SenderSegments(SegmentBudget())
    known, again = segments.place([memoryview(bytes(100))]), segments.place([memoryview(b"other")])
    assert known is not None
    first.send(b"a frame", known)
    await until(lambda: frames)
    assert again is not None
    assert again.file is not None
    os.close(again.file)
    first.send(b"another", replace(again, file=None))
    await until(lambda: lost)
    assert (frames, lost[0]) == ([b"a frame"], "second")


class Cents(pa.ExtensionType):
    """Stands for a type of the user's program."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "penstock.test.link_cents")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""


@on_a_loop
async def test_large_messages_are_calls_that_pickle_cannot_send_or_that_go_to_an_actor_that_nobody_finds_here(
    monkeypatch: pytest.MonkeyPatch, ends: ExitStack
) -> None:
    receiver = Receiver(ends)
    sender = Sender(ends, receiver)
    cents = pa.ExtensionArray.from_storage(Cents(), pa.array(range(100_000)))
    priced = (Batch(pa.record_batch([cents], ["price"])),)
    sender.end.send(priced)
    assert receiver.by_call == [priced]
    sender.end.send((Watermark(1),))
    await until(lambda: receiver.by_link)
    receiver.server.close()
    monkeypatch.setattr(os, "getuid", lambda: -1)
    foreign = Receiver(ends)
    large = (_rows(1),)
    Sender(ends, foreign).end.send(large)
    assert (foreign.by_link, foreign.by_call) == ([], [large])
    foreign.server.close()
    monkeypatch.undo()
    Sender(ends, foreign).end.send((Watermark(3),))
    assert foreign.by_call[1:] == [(Watermark(3),)]


@on_a_loop
async def test_before_frames_of_a_connection_are_received_the_loop_prepares_for_them(ends: ExitStack) -> None:
    events: list[object] = []
    name = f"test-{os.getpid()}-{next(_IDS)}"
    server = LinkServer(
        name, lambda frame, reply: events.append(frame), prepare=lambda: events.append(threading.current_thread())
    )
    ends.callback(server.close)
    assert events == []
    connection = connected(name)
    assert connection is not None
    link = Link(connection, asyncio.get_running_loop(), lambda frame: None, lambda: None)
    ends.callback(link.close)
    link.send(b"a question")
    await until(lambda: len(events) == 2)
    assert events == [threading.current_thread(), b"a question"]


@on_a_loop
async def test_a_process_of_another_user_is_not_heard(monkeypatch: pytest.MonkeyPatch, ends: ExitStack) -> None:
    receiver = Receiver(ends)
    connection = connected(receiver._actor_id.hex())
    assert connection is not None
    monkeypatch.setattr(os, "getuid", lambda: -1)
    lost: list[bool] = []
    link = Link(connection, asyncio.get_running_loop(), lambda frame: None, lambda: lost.append(True))
    ends.callback(link.close)
    link.send(b"not for you")
    await until(lambda: lost)
    assert receiver.by_link == []


@pytest.mark.parametrize("dies", [True, False])
@on_a_loop
async def test_what_a_link_has_lost_fails_the_subtask_unless_the_receiver_is_dead(dies: bool, ends: ExitStack) -> None:
    receiver = Receiver(ends, dies)
    sender = Sender(ends, receiver)
    sender.end.send((Watermark(1),))
    await until(lambda: receiver.by_link)
    receiver.server.close()
    await until(lambda: sender.pusher._pressing._link is None)
    assert [type(failure) for failure in sender.failures] == ([] if dies else [WorkerLostError])
    assert sender.end.credits == 3
    sender.end.send((Watermark(2),))
    assert receiver.by_call == [(Watermark(2),)]


@on_a_loop
async def test_what_the_receiver_cannot_take_fails_the_sender_with_its_reason(ends: ExitStack) -> None:
    receiver = Receiver(ends)
    sender = Sender(ends, receiver)

    def refuse(pushed: channels.Pushed, answer: object) -> None:
        raise IndexError("there is no such channel")

    receiver.server._receive = lambda frame, reply: take_frame(frame, reply, refuse)
    sender.end.send((Watermark(1),))
    await until(lambda: sender.failures)
    assert "there is no such channel" in str(sender.failures[0])
