"""SIGTERM to a process that waits for its job: an eviction, or a restart of the machine, which the job is to survive.

`RayJob.attached` installs it. The process then ends with code 143, as one that does nothing about the signal.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

EXIT_CODE: Final = 128 + signal.SIGTERM


class Termination:
    """Whether the process was told to end."""

    def __init__(self) -> None:
        self.received = False

    def receive(self, number: int, frame: FrameType | None) -> None:
        """The handler of the signal.

        Raises:
            SystemExit: always; whoever waits for the job ends it first.
        """
        self.received = True
        raise SystemExit(EXIT_CODE)


@contextmanager
def termination() -> Iterator[Termination]:
    """Within, SIGTERM is a `SystemExit`; not where the program has a handler of its own, or in another thread."""
    told = Termination()
    before = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or not _is_free(before):
        yield told
        return
    signal.signal(signal.SIGTERM, told.receive)
    try:
        yield told
    finally:
        signal.signal(signal.SIGTERM, before)


def _is_free(handler: object) -> bool:
    """Whether nobody but Ray, which only ends the process, has a handler."""
    return handler is signal.SIG_DFL or str(getattr(handler, "__module__", "")).startswith("ray.")
