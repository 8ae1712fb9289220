"""Looks at one job twice, for commands that want rates without a server."""

from __future__ import annotations

import time
from typing import Final

from penstock.web.observed import JobView, Observed

_BETWEEN_SECONDS: Final = 3.0


def look_twice(job: str, seconds: float = _BETWEEN_SECONDS) -> JobView:
    """The job with its rates over `seconds`.

    Args:
        job: name or id.
        seconds: between the two readings.

    Raises:
        JobError: there is no such job.
    """
    from penstock.actors.registry import find_job

    control, observed = find_job(job), Observed()
    observed.see(control.info(), control.subtask_metrics(), time.monotonic(), time.time_ns() // 1_000_000)
    time.sleep(seconds)
    return observed.see(control.info(), control.subtask_metrics(), time.monotonic(), time.time_ns() // 1_000_000)
