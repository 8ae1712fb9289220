"""SIGTERM to a process that waits for its job: an eviction, or a restart of the machine, which the job is to survive.

`JobHandle.attached` installs it. The process then ends with code 143, as one that does nothing about the signal.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

EXIT_CODE: Final = 128 + signal.SIGTERM


class ProcessEnd:
    """A handler of SIGTERM that does nothing but end the process.

    Args:
        meanwhile: is called before.
    """

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        self._meanwhile = meanwhile

    def receive(self, number: int, frame: FrameType | None) -> None:
        """The handler.

        Raises:
            SystemExit: always.
        """
        self._meanwhile()
        raise SystemExit(EXIT_CODE)


class Termination(ProcessEnd):
    """Ends the process, too, and says to who waits for jobs that it was told to.

    Args:
        meanwhile: as there.
    """

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        super().__init__(meanwhile)
        self.received = False

    def receive(self, number: int, frame: FrameType | None) -> None:
        """The handler.

        Raises:
            SystemExit: the first time; whoever waits for jobs ends them first, and is not broken off by another one.
        """
        if not self.received:
            self.received = True
            super().receive(number, frame)


def ends_process(handler: object) -> bool:
    """Whether a handler of SIGTERM does no more than that."""
    return handler == signal.SIG_DFL or isinstance(getattr(handler, "__self__", None), ProcessEnd)


@contextmanager
def termination(
    is_free: Callable[[object], bool] = ends_process, meanwhile: Callable[[], None] = lambda: None
) -> Iterator[Termination]:
    """Within, SIGTERM is a `SystemExit`; not in another thread than the main one.

    One that stands within another is that one: all jobs that are waited for hear of the signal.

    Args:
        is_free: whether a handler that is there may be replaced; the program's own stays.
        meanwhile: as of `Termination`.
    """
    told = Termination(meanwhile)
    before = signal.getsignal(signal.SIGTERM)
    if isinstance(outer := getattr(before, "__self__", None), Termination):
        yield outer
        return
    if not is_free(before):
        yield told
        return
    try:
        # In another thread than the main one it cannot be set, and so it is not put back either.
        with suppress(ValueError):
            signal.signal(signal.SIGTERM, told.receive)
        yield told
    finally:
        with suppress(ValueError):
            signal.signal(signal.SIGTERM, before)
