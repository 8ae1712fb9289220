"""The main thread of a worker, which Ray has look for signals a hundred times a second: here it does so once.

It waits in an epoll of Boost's, for calls of the actor and for a timer of 10 ms at which it asks Python whether signals
have come: some 35 us of CPU each time, in each process of a job, whatever that does (docs/adr/0101). Here the epoll
says of a counter what it said of the timer, and an event loop adds to it. Linux alone; where a process does not look as
expected, Ray goes on as it does by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import platform
import re
import select
import signal
import threading
from pathlib import Path
from typing import Final

_BEAT_SECONDS: Final = 1.0
"""How often signals and timers of that thread have their turn: Ray's other one gives up a missing call after 30 s."""
_LOOK_SECONDS: Final = 0.5
"""How often it is looked whether the thread waits: it is at work while the actor is made."""
_LOOKS: Final = 20
_ADD, _REMOVE = 1, 2
_WATCHED: Final = re.compile(r"^tfd:\s*(\d+) events:\s*[0-9a-f]+ data:\s*([0-9a-f]+)", re.MULTILINE)


class _Event(ctypes.Structure):
    """The kernel's `epoll_event`, which is packed on x86-64 alone."""

    _pack_ = 1 if platform.machine() == "x86_64" else 8
    _fields_ = (("events", ctypes.c_uint32), ("data", ctypes.c_uint64))


def end_without_a_word() -> None:
    """Have a signal that comes while this worker ends by itself end it at once.

    Ray's handler raises an exit, which Python shows as a traceback there, and the driver in the job's output.
    """
    with contextlib.suppress(RuntimeError):  # It ends already.
        threading._register_atexit(signal.signal, signal.SIGTERM, signal.SIG_DFL)  # type: ignore[attr-defined]


def calm_main_thread(loop: asyncio.AbstractEventLoop) -> None:
    """Have the main thread of this worker look for signals once a second from soon on; called by a thread of Ray's."""

    def look(looks: int) -> None:
        counter = replace_timer()
        if counter is not None:
            beat(counter)
        elif looks:
            loop.call_later(_LOOK_SECONDS, look, looks - 1)

    def beat(counter: int) -> None:
        os.eventfd_write(counter, 1)
        loop.call_later(_BEAT_SECONDS, beat, counter)

    loop.call_later(_LOOK_SECONDS, look, _LOOKS)


def replace_timer() -> int | None:
    """Have what is written to a counter (`os.eventfd`) be to the main thread as if its timer was due, and nothing else.

    Returns:
        The counter; None where the thread does not wait for calls and one timer now, or the system does not tell.
    """
    with contextlib.suppress(OSError):
        epoll = _waits_in()
        timers = [] if epoll is None else [one for one in _watched_by(epoll) if _kind(one[0]) == "timerfd"]
        if epoll is not None and len(timers) == 1:
            timer, data = timers[0]
            counter = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            try:
                # What is written is told each time, though nobody reads the counter.
                _control(epoll, _ADD, counter, _Event(select.EPOLLIN | select.EPOLLET, data))
            except OSError:
                os.close(counter)
                raise
            # Boost sets it as before, which tells nobody.
            _control(epoll, _REMOVE, timer)
            return counter
    return None


def _waits_in() -> int | None:
    """The epoll that the main thread waits in, if it waits in one."""
    call = Path(f"/proc/self/task/{os.getpid()}/syscall").read_text().split()
    # The first argument of the call that it is in: of one that waits in an epoll, that.
    number = int(call[1], 16) if len(call) > 1 else -1
    return number if _kind(number) == "eventpoll" else None


def _kind(number: int) -> str:
    """What the system says of an open file that has no name."""
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/self/fd/{number}").removeprefix("anon_inode:").strip("[]")
    return ""


def _watched_by(epoll: int) -> list[tuple[int, int]]:
    """What an epoll watches, and what it says when something has come there."""
    told = Path(f"/proc/self/fdinfo/{epoll}").read_text()
    return [(int(number), int(data, 16)) for number, data in _WATCHED.findall(told)]


def _control(epoll: int, operation: int, number: int, event: _Event | None = None) -> None:
    system = ctypes.CDLL(None, use_errno=True)
    if system.epoll_ctl(epoll, operation, number, None if event is None else ctypes.byref(event)):
        raise OSError(ctypes.get_errno(), "epoll_ctl")
