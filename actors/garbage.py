"""How long a process looks for garbage, while none of its threads runs: a subtask's actor counts it for `why-slow`."""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping
from typing import Any


class GarbageClock:
    """Counts the time of Python's collector from when it is begun.

    Example:
        >>> clock = GarbageClock()
        >>> clock.begin()
        >>> _ = gc.collect()
        >>> clock.seconds > 0
        True
        >>> clock.end()
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._since = 0.0

    def begin(self) -> None:
        """Count from now on."""
        gc.callbacks.append(self._note)

    def end(self) -> None:
        """Count no more."""
        gc.callbacks.remove(self._note)

    def _note(self, phase: str, info: Mapping[str, Any]) -> None:
        if phase == "start":
            self._since = time.perf_counter()
        else:
            self.seconds += time.perf_counter() - self._since
