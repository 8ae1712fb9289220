"""Clocks: the engine asks one for the time and never the operating system.

`SystemClock` serves running jobs. `ManualClock` serves tests and the local runtime: time stands still until someone
advances it.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two readings: civil time for timestamps, monotonic time for waiting."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back; only differences mean anything."""
        ...

    def wait_until(self, deadline: float) -> None:
        """Return when `monotonic()` has reached `deadline`."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def wait_until(self, deadline: float) -> None:
        time.sleep(max(0.0, deadline - time.monotonic()))


class ManualClock:
    """A clock that moves only when told to: waiting on it takes no time.

    Args:
        start_ms: the first reading of `now_ms`, milliseconds since the epoch.
    """

    def __init__(self, start_ms: int = 0) -> None:
        self._start_ms = start_ms
        self._elapsed = 0.0

    def now_ms(self) -> int:
        # Rounded to the microsecond first: 1.001 s is 1001 ms, although its product with 1000 is a little less.
        return self._start_ms + int(round(self._elapsed * 1_000_000) // 1000)

    def monotonic(self) -> float:
        return self._elapsed

    def wait_until(self, deadline: float) -> None:
        self._elapsed = max(self._elapsed, deadline)

    def advance(self, seconds: float) -> None:
        """Move both readings forward by `seconds`."""
        self._elapsed += seconds
