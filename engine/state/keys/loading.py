"""Loads compiled loops in a thread beside the task, so that rows that come often do not wait for numba.

Its import takes half a second, and the first call of each loop some tens of milliseconds: key indexes, chains and JSON
records do without it meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

LOADING_THREAD: Final = "load-compiled"
"""The name of the threads in which something is loaded."""


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
            self._load()
            self.is_done = True
        finally:
            self.is_loading = False

    def wait(self) -> None:
        """Ask for it, and wait until it is there."""
        self.begin()
        assert self._thread is not None
        self._thread.join()
