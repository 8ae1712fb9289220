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


class Termination:
    """Whether the process was told to end.

    Args:
        meanwhile: is called as soon as it is.
    """

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        self.received = False
        self._meanwhile = meanwhile

    def receive(self, number: int, frame: FrameType | None) -> None:
        """The handler of the signal.

        Raises:
            SystemExit: the first time; whoever waits for jobs ends them first, and is not broken off by another one.
        """
        if not self.received:
            self.received = True
            self._meanwhile()
            raise SystemExit(EXIT_CODE)


def _is_default(handler: object) -> bool:
    return handler == signal.SIG_DFL


@contextmanager
def termination(
    is_free: Callable[[object], bool] = _is_default, meanwhile: Callable[[], None] = lambda: None
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
