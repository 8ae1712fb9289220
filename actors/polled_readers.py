"""Sockets that the thread of a task looks after, between its steps and while it waits.

Messages of rows, the answers to those that it has sent, and questions for its state so come to it without a turn of the
event loop, which would want the interpreter's lock for each, within a step, and wake twice. Where there is no such
thread the loop is told that something has come. Linux alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import threading
import time
import weakref
from collections.abc import Callable
from typing import Protocol


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
        number = fd.fileno()
        if self._callbacks.pop(number, None) is not None:
            # Whoever closes the socket meanwhile has taken it out as well.
            with contextlib.suppress(OSError):
                self._ready.unregister(number)

    def fileno(self) -> int:
        """Of what can be read when `poll` has something to do."""
        return self._ready.fileno()

    def poll(self) -> bool:
        """Call back for what has come; waits for nothing. False: nothing had."""
        if not self._callbacks:
            return False
        with self._lock:
            ready = self._ready.poll(0)
            for number, _ in ready:
                callback = self._callbacks.get(number)
                if callback is not None:
                    callback()
        return bool(ready)

    def rest(self) -> None:
        """From now on `wake` is called when something comes, or has come since the last `poll`."""
        if self._callbacks:
            self._arm()

    def _arm(self) -> None:
        self._alarm.modify(self._ready.fileno(), select.EPOLLIN | select.EPOLLONESHOT)

    def _on_alarm(self) -> None:
        self._alarm.poll(0)
        self._wake()


class Wakeup(Protocol):
    """How the thread of a task is woken, and what it reads itself; `ThreadSockets` says what each of them does."""

    @property
    def answers(self) -> PolledReaders | None:
        """What watches for answers to what the task has sent; None: the event loop."""
        ...

    def set(self) -> None: ...

    def poll_incoming(self) -> None: ...

    def poll(self) -> None: ...

    def wait(self, seconds: float | None, for_answers: bool, for_sparse: bool) -> None: ...

    def rest(self) -> None: ...


class LoopWakeup:
    """Wakes the thread of a task to which all comes by the event loop, so that it reads nothing itself."""

    def __init__(self) -> None:
        self._event = threading.Event()

    @property
    def answers(self) -> None:
        return None

    def set(self) -> None:
        self._event.set()

    def poll_incoming(self) -> None:
        """Nothing."""

    def poll(self) -> None:
        self._event.clear()

    def wait(self, seconds: float | None, for_answers: bool, for_sparse: bool) -> None:
        self._event.wait(seconds)

    def rest(self) -> None:
        """Nothing."""


class ThreadSockets:
    """What wakes the thread of a task, as a `threading.Event` does, and the sockets that it reads itself.

    Args:
        loop: of this process.
        wake: called on it with the readers of which something has come while nobody polls them.

    Attributes:
        incoming: what is for the task.
        sparse: messages for the task that may wait while it rests.
        answers: to what it has sent; nobody has to hear them before the task has more to send.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[PolledReaders], None]) -> None:
        self.incoming = PolledReaders(loop, lambda: wake(self.incoming))
        self.sparse = PolledReaders(loop, lambda: wake(self.sparse))
        self.answers = PolledReaders(loop, lambda: wake(self.answers))
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        weakref.finalize(self, os.close, self._event)
        # Mostly there is nothing to do, which is seen by one look.
        self._any = select.epoll()
        for fd in (self._event, *(readers.fileno() for readers in (self.incoming, self.sparse, self.answers))):
            self._any.register(fd, select.EPOLLIN)
        self._thread: int | None = None
        self._is_set = False

    def set(self) -> None:
        """Have `wait` return; by any thread."""
        if threading.get_ident() == self._thread:
            self._is_set = True
        else:
            # The kernel's count alone says whether another has set it: a flag could say so of a count that was read.
            os.eventfd_write(self._event, 1)

    def poll_incoming(self) -> None:
        """Read what has come for the task; by any thread."""
        self.sparse.poll()
        if self.incoming.poll():
            # Messages of one channel come in order, and those that were sent before these may have come only now.
            self.sparse.poll()

    def poll(self) -> None:
        """Read what has come, and have `wait` wait from now on; like all that follows, by the thread that waits."""
        self._thread = threading.get_ident()
        for number, _ in self._any.poll(0):
            if number == self._event:
                os.eventfd_read(self._event)
            elif number == self.answers.fileno():
                self.answers.poll()
            else:
                self.poll_incoming()
        self._is_set = False

    def wait(self, seconds: float | None, for_answers: bool = True, for_sparse: bool = True) -> None:
        """Return when it is set, or when so much time has passed, and read what comes until then.

        Args:
            seconds: None for without end.
            for_answers, for_sparse: whether these are read, too, and not left to the next `poll`.
        """
        if self._is_set:
            return
        until = None if seconds is None else time.monotonic() + seconds
        others = [readers for readers, wanted in ((self.answers, for_answers), (self.sparse, for_sparse)) if wanted]
        watched = [self._event, *(readers.fileno() for readers in (self.incoming, *others))]
        while True:
            left = None if until is None else max(0.0, until - time.monotonic())
            # Not `epoll`, which rounds up to milliseconds.
            ready, _, _ = select.select(watched, (), (), left)
            if not ready or self._event in ready:
                return
            self.poll_incoming()
            self.answers.poll()
            if self._is_set:
                return

    def rest(self) -> None:
        """No thread reads them from now on: the event loop hears of what comes."""
        self.incoming.rest()
        self.sparse.rest()
        self.answers.rest()
