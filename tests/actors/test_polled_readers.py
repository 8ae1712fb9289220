"""Sockets are read by who polls them, and the event loop says that something has come while nobody does."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections.abc import Iterator

import pytest

from penstock.actors.polled_readers import PolledReaders

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
