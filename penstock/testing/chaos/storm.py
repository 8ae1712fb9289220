"""Rescales of a job that is being shaken: asked for again where they are refused, and watched, so that faults hit them.

The harness asks by `ask_in_turn` in a thread of its own, shows `RescaleWatch` every `info`, and asks it for moments.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.engine.errors import ConfigurationError, GraphError, PenstockError
from penstock.engine.job.info import JobInfo

STORM_SECONDS: Final = 40.0
"""From its beginning on, so long is a rescale that was refused asked for again: what the harness waits for is more."""
_PAUSE_SECONDS: Final = 0.05


@dataclass(slots=True)
class Request:
    """A rescale that is asked for.

    Args:
        uid, parallelism: of what, to what.
        asked: how often so far.
        seconds: for how long the job stood still; None: it has not been rescaled.
        error: the last answer, where that was none.
    """

    uid: str
    parallelism: int
    asked: int = 0
    seconds: float | None = None
    error: str = "not asked, as the job had ended or the storm had lasted too long"

    def __str__(self) -> str:
        outcome = self.error if self.seconds is None else f"{self.seconds:.2f} s"
        again = f" (asked {self.asked} times)" if self.asked > 1 else ""
        return f"{self.uid} to {self.parallelism}: {outcome}{again}"


def ask_in_turn(
    requests: Sequence[Request],
    rescale: Callable[[Mapping[str, int]], float],
    is_running: Callable[[], bool],
    is_over: Callable[[], bool],
    wait: Callable[[float], object],
    seconds: float = STORM_SECONDS,
) -> str:
    """Ask for one rescale after the other, each again as long as the job refuses because it restarts.

    Args:
        requests: which; what became of them stands in them, too.
        rescale: asks the job.
        is_running: whether it runs, as far as is known; while it does not, it would refuse.
        is_over: whether nothing is to be asked any more, as where the job has ended.
        wait: lets so many seconds go by, or less.
        seconds: for how long a job that restarts is asked.

    Returns:
        what became of them, in words.
    """
    deadline = time.monotonic() + seconds
    for request in requests:
        while not is_over() and time.monotonic() < deadline:
            if is_running() and _is_answered(request, rescale):
                break
            wait(_PAUSE_SECONDS)
    done = sum(1 for request in requests if request.seconds is not None)
    return f"{done} of {len(requests)} rescales done; {'; '.join(map(str, requests))}"


def _is_answered(request: Request, rescale: Callable[[Mapping[str, int]], float]) -> bool:
    """Whether asking again would be to no avail."""
    request.asked += 1
    try:
        request.seconds = rescale({request.uid: request.parallelism})
    except PenstockError as error:
        request.error = str(error)
        return isinstance(error, (GraphError, ConfigurationError))
    return True


@dataclass(slots=True)
class RescaleWatch:
    """Which rescale a job says is under way, and since when.

    Example:
        >>> watch = RescaleWatch()
        >>> watch.see(JobInfo("orders-1", "orders", JobStatus.RUNNING, changing="rescale window to 3"), 10.0)
        >>> watch.is_due(0.5, 10.4), watch.is_due(0.5, 10.6)
        (False, True)
    """

    under_way: str | None = None
    _began: float = 0.0
    _counts_from: float = 0.0
    _too_short: int = 0

    def see(self, info: JobInfo, now: float) -> None:
        """Learn from an `info`, which came at `now`, monotonic seconds."""
        if info.changing == self.under_way:
            return
        if self.under_way is not None:
            self._too_short += 1
        self.under_way, self._began, self._counts_from = info.changing, now, now

    def lose(self) -> None:
        """The job does not answer: the rescale ended with its manager, if there was one."""
        self.under_way = None

    def is_due(self, seconds: float, now: float) -> bool:
        """Whether a rescale is under way, and so many seconds have gone by since it began or the last fault hit it.

        With each that was over before, half as many count: a fault is not to miss them all.
        """
        return self.under_way is not None and now >= self._counts_from + seconds / 2**self._too_short

    def on_fault(self, now: float) -> str:
        """A fault fires: the rescale that it hits, in words; empty: none."""
        if self.under_way is None:
            return ""
        self._counts_from, self._too_short = now, 0
        return f"{self.under_way}, {now - self._began:.2f} s after it began"
