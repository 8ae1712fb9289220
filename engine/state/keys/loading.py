"""Loads compiled loops in a thread beside the task, so that rows that come often do not wait for numba.

Its import takes half a second, and the first call of each loop some tens of milliseconds: key indexes, chains and JSON
records do without it meanwhile.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Final

LOADING_THREAD: Final = "load-compiled"
"""The name of the threads in which something is loaded."""
_TURN_SECONDS: Final = 0.0005
"""While something is loaded, a thread that waits for the interpreter gets it after so long, not after Python's 5 ms:
the task gives it up, and needs it again, several times a batch."""


class BesideLoader:
    """What is loaded once in a process, by a thread that the first who asks for it starts.

    Args:
        load: loads it, and uses it once.

    Attributes:
        is_loading: whether the thread is at work.
        is_done: whether it is there.

    Example:
        >>> loader = BesideLoader(lambda: None)
        >>> loader.begin()
        >>> loader.wait()
        >>> loader.is_done
        True
    """

    def __init__(self, load: Callable[[], None]) -> None:
        self._load = load
        self._thread: threading.Thread | None = None
        self.is_done = self.is_loading = False

    def begin(self) -> None:
        """Ask for it; nothing happens where somebody has."""
        if self._thread is None:
            self.is_loading = True
            # No daemon: a process that ends waits for it, and is not left within an import.
            self._thread = threading.Thread(target=self._run, name=LOADING_THREAD)
            self._thread.start()

    def _run(self) -> None:
        try:
            with _TURNS.short():
                self._load()
            self.is_done = True
        finally:
            self.is_loading = False

    def wait(self) -> None:
        """Ask for it, and wait until it is there."""
        self.begin()
        assert self._thread is not None
        self._thread.join()


class _Turns:
    """The turns that threads take with the interpreter; several loaders may be at work at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._short = 0
        self._usual = 0.0

    @contextlib.contextmanager
    def short(self) -> Iterator[None]:
        with self._lock:
            if not self._short:
                self._usual = sys.getswitchinterval()
                sys.setswitchinterval(min(_TURN_SECONDS, self._usual))
            self._short += 1
        try:
            yield
        finally:
            with self._lock:
                self._short -= 1
                if not self._short:
                    sys.setswitchinterval(self._usual)


_TURNS: Final = _Turns()
