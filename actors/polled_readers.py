"""Sockets that a thread looks after between its steps, and the event loop while that thread rests.

The thread of a task so takes questions for its state without being disturbed within a step: a loop that reads them
wants the interpreter's lock for each, which stops the step, and wakes twice. Linux alone.
"""

from __future__ import annotations

import asyncio
import select
import socket
import threading
from collections.abc import Callable


class PolledReaders:
    """As readers of an event loop, which are called back by `poll`, in the thread that calls it.

    Args:
        loop: the event loop, on which readers are added.
        wake: called on it when something has come while nobody polls, once for each `rest`; may be so too often.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._callbacks: dict[int, Callable[[], object]] = {}
        self._lock = threading.Lock()
        self._ready = select.epoll()
        # Says once that `_ready` has something, and is silent until it is armed again.
        self._alarm = select.epoll()
        self._alarm.register(self._ready.fileno(), 0)
        loop.add_reader(self._alarm.fileno(), self._on_alarm)

    def add_reader(self, fd: socket.socket, callback: Callable[[], object], /) -> None:
        """Have `poll` call back when there is something to read."""
        self._callbacks[fd.fileno()] = callback
        self._ready.register(fd.fileno(), select.EPOLLIN)
        # The thread may rest already.
        self._arm()

    def remove_reader(self, fd: socket.socket, /) -> None:
        """Do so no more; any thread may call it."""
        if self._callbacks.pop(fd.fileno(), None) is not None:
            self._ready.unregister(fd.fileno())

    def poll(self) -> None:
        """Call back for what has come; waits for nothing."""
        if not self._callbacks:
            return
        with self._lock:
            for number, _ in self._ready.poll(0):
                callback = self._callbacks.get(number)
                if callback is not None:
                    callback()

    def rest(self) -> None:
        """From now on `wake` is called when something comes, or has come since the last `poll`."""
        if self._callbacks:
            self._arm()

    def _arm(self) -> None:
        self._alarm.modify(self._ready.fileno(), select.EPOLLIN | select.EPOLLONESHOT)

    def _on_alarm(self) -> None:
        self._alarm.poll(0)
        self._wake()
