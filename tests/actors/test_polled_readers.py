"""Sockets are read by who polls them, and the event loop says that something has come while nobody does."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections import deque
from collections.abc import Iterator

import pytest

from penstock.actors.polled_readers import PolledReaders, ThreadSockets

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="epoll is Linux's")


class Watched:
    """A socket that is read by a `PolledReaders`, and the other end."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.woken = 0
        self.came: list[tuple[bytes, threading.Thread]] = []
        self.readers = PolledReaders(self.loop, self._wake)
        self.here, self.there = socket.socketpair()
        self.readers.add_reader(self.here, self._read)

    def _wake(self) -> None:
        self.woken += 1

    def _read(self) -> None:
        self.came.append((self.here.recv(100), threading.current_thread()))

    def turn(self) -> int:
        """How often the loop has been woken in all, once it has seen what is there."""
        for _ in range(2):
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()
        return self.woken

    def poll(self) -> list[bytes]:
        before = len(self.came)
        self.readers.poll()
        return [data for data, _ in self.came[before:]]


@pytest.fixture
def watched() -> Iterator[Watched]:
    one = Watched()
    yield one
    one.here.close()
    one.there.close()
    one.loop.close()


def test_what_has_come_is_read_by_who_polls(watched: Watched) -> None:
    assert watched.poll() == []
    watched.there.send(b"one")
    thread = threading.Thread(target=watched.readers.poll)
    thread.start()
    thread.join()
    assert watched.came == [(b"one", thread)]
    assert watched.poll() == []


def test_the_loop_is_woken_once_and_then_rests_until_nobody_polls_again(watched: Watched) -> None:
    assert watched.turn() == 0
    watched.there.send(b"one")
    assert watched.turn() == 1
    watched.there.send(b"two")
    assert watched.turn() == 1
    assert watched.poll() == [b"onetwo"]
    watched.there.send(b"three")
    assert watched.turn() == 1
    # It came before the rest.
    watched.readers.rest()
    assert watched.turn() == 2
    assert watched.poll() == [b"three"]
    watched.readers.rest()
    assert watched.turn() == 2


def test_a_reader_that_is_removed_wakes_nobody_and_is_called_no_more(watched: Watched) -> None:
    watched.readers.remove_reader(watched.here)
    watched.readers.remove_reader(watched.here)
    watched.there.send(b"one")
    watched.readers.rest()
    assert watched.turn() == 0
    assert watched.poll() == []


def test_one_that_is_added_while_the_thread_rests_wakes_it(watched: Watched) -> None:
    watched.readers.remove_reader(watched.here)
    watched.readers.rest()
    watched.there.send(b"one")
    watched.readers.add_reader(watched.here, watched._read)
    assert watched.turn() == 1
    assert watched.poll() == [b"one"]


class Thread:
    """The sockets of a thread: of messages, of those that may wait, and of answers, by what has come there."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.unread: list[PolledReaders] = []
        self.sockets = ThreadSockets(self.loop, self.unread.append)
        self.messages, self.to_messages = socket.socketpair()
        self.sparse, self.to_sparse = socket.socketpair()
        self.answers, self.to_answers = socket.socketpair()
        self.came: list[bytes] = []
        sockets = self.sockets
        pairs = ((sockets.incoming, self.messages), (sockets.sparse, self.sparse), (sockets.answers, self.answers))
        for readers, end in pairs:
            readers.add_reader(end, lambda end=end: self._read(end))  # type: ignore[misc]

    def _read(self, end: socket.socket) -> None:
        self.came.append(end.recv(100))
        if self.came[-1] == b"last":
            self.sockets.set()

    def close(self) -> None:
        for end in (self.messages, self.sparse, self.answers, self.to_messages, self.to_sparse, self.to_answers):
            end.close()
        self.loop.close()


@pytest.fixture
def thread() -> Iterator[Thread]:
    one = Thread()
    yield one
    one.close()


def test_no_call_that_wakes_is_lost_whoever_else_wakes(thread: Thread) -> None:
    given: deque[int] = deque()
    took: list[int] = []

    def take() -> None:
        while len(took) < 4_000:
            thread.sockets.poll()
            while given:
                took.append(given.popleft())
            if len(took) < 4_000:
                thread.sockets.wait(None)

    def give() -> None:
        for number in range(2_000):
            given.append(number)
            thread.sockets.set()

    threads = [threading.Thread(target=run, daemon=True) for run in (take, give, give)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(30)
    assert len(took) == 4_000


def test_a_thread_that_waits_reads_what_comes_until_it_is_woken(thread: Thread) -> None:
    thread.to_messages.send(b"first")
    thread.to_answers.send(b"last")
    thread.sockets.wait(None)
    assert sorted(thread.came) == [b"first", b"last"]
    thread.sockets.poll()
    waiting = threading.Thread(target=thread.sockets.wait, args=(None,))
    waiting.start()
    thread.to_messages.send(b"last")
    waiting.join(20)
    assert not waiting.is_alive()
    # It stays set until it is cleared.
    thread.sockets.wait(None)


def test_answers_that_nobody_waits_for_are_left_to_the_next_step(thread: Thread) -> None:
    thread.to_answers.send(b"answer")
    thread.sockets.wait(0.0, for_answers=False)
    assert thread.came == []
    thread.sockets.poll()
    assert thread.came == [b"answer"]


def test_what_may_wait_is_left_to_the_end_of_a_rest_or_to_what_may_not(thread: Thread) -> None:
    thread.to_sparse.send(b"few")
    thread.sockets.wait(0.0, for_sparse=False)
    assert thread.came == []
    thread.to_messages.send(b"last")
    thread.sockets.wait(None, for_sparse=False)
    assert thread.came == [b"few", b"last"]
    thread.sockets.poll()
    thread.to_sparse.send(b"last")
    thread.sockets.wait(None)
    assert thread.came[2:] == [b"last"]


def test_who_reads_a_message_reads_what_was_sent_before_it_too(thread: Thread) -> None:
    """Also where that came between the looks at the two sockets."""
    poll = thread.sockets.incoming.poll

    def late() -> bool:
        thread.to_sparse.send(b"few")
        thread.to_messages.send(b"last")
        return poll()

    thread.sockets.incoming.poll = late  # type: ignore[method-assign]
    thread.sockets.poll_incoming()
    assert sorted(thread.came) == [b"few", b"last"]


def test_a_thread_waits_no_longer_than_it_says_and_wakes_for_what_was_set_before(thread: Thread) -> None:
    thread.sockets.wait(0.001)
    thread.sockets.set()
    thread.sockets.set()
    thread.sockets.wait(None)
    thread.sockets.poll()
    thread.sockets.poll()
    thread.sockets.wait(0.0)
    assert thread.came == []


def test_behind_its_end_the_loop_hears_of_what_comes(thread: Thread) -> None:
    thread.sockets.rest()
    for number, (end, readers) in enumerate(
        ((thread.to_answers, thread.sockets.answers), (thread.to_sparse, thread.sockets.sparse))
    ):
        end.send(b"late")
        while len(thread.unread) == number:
            thread.loop.call_soon(thread.loop.stop)
            thread.loop.run_forever()
        assert thread.unread[number:] == [readers]
