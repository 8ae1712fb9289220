"""SIGTERM to a process that waits for its job: an eviction, or a restart of the machine, which the job is to survive.

`JobHandle.attached` installs it. The process then ends with code 143, as one that does nothing about the signal, or as
the program's own handler ends it.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final, TypeAlias

Handler: TypeAlias = Callable[[int, FrameType | None], Any]

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
        own: the program's own handler: decides whether the process ends, and by which code. None: it ends.
    """

    def __init__(self, meanwhile: Callable[[], None], own: Handler | None = None) -> None:
        super().__init__(meanwhile)
        self.received = False
        self.code: object = EXIT_CODE
        self._own = own

    def receive(self, number: int, frame: FrameType | None) -> None:
        """The handler.

        Raises:
            SystemExit: the first time; whoever waits for jobs ends them first, and is not broken off by another one.
        """
        if self.received:
            return
        try:
            if self._own is not None:
                self._own(number, frame)
            else:
                super().receive(number, frame)
        except SystemExit as ended:
            self.received, self.code = True, ended.code
            raise


def ends_process(handler: object) -> bool:
    """Whether a handler of SIGTERM does no more than that."""
    return handler == signal.SIG_DFL or isinstance(getattr(handler, "__self__", None), ProcessEnd)


@contextmanager
def ending() -> Iterator[None]:
    """Within, SIGTERM that nobody handles is a `SystemExit`; for who has something to say when it is told to end.

    What `termination` or Ray installs within takes its place.
    """
    handler = ProcessEnd(lambda: None).receive
    is_set = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if is_set:
        signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        if is_set and signal.getsignal(signal.SIGTERM) == handler:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


@contextmanager
def termination(
    is_free: Callable[[object], bool] = ends_process, meanwhile: Callable[[], None] = lambda: None
) -> Iterator[Termination]:
    """Within, SIGTERM is a `SystemExit`; not in another thread than the main one, and not where it is ignored.

    One that stands within another is that one: all jobs that are waited for hear of the signal.

    Args:
        is_free: whether a handler that is there may be replaced; else it is the program's own, and is called.
        meanwhile: as of `Termination`.
    """
    before = signal.getsignal(signal.SIGTERM)
    if isinstance(outer := getattr(before, "__self__", None), Termination):
        yield outer
        return
    told = Termination(meanwhile, before if callable(before) and not is_free(before) else None)
    if before in (signal.SIG_IGN, None):
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
