"""A line about a running job from time to time, in the log of its manager: for those who watch by logs alone.

The job manager runs it where `penstock.metrics.log-interval` asks for it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Sequence

from penstock.engine.job.status import JobStatus
from penstock.engine.metrics import JobMetrics, SubtaskMetrics, report

_LOG = logging.getLogger(__name__)


async def log_metrics(
    name: str,
    seconds: float,
    status: Callable[[], Awaitable[JobStatus]],
    read: Callable[[], Awaitable[Sequence[SubtaskMetrics]]],
) -> None:
    """Log a line each time that `seconds` have gone by, until the job has ended.

    Args:
        name: of the job.
        seconds: between lines.
        status, read: give the job's status, and the counters of its subtasks.
    """
    if not _LOG.hasHandlers():
        # Without any, Python shows warnings alone.
        _LOG.addHandler(logging.StreamHandler(sys.stderr))
    _LOG.setLevel(logging.INFO)
    before, then = report(await read()), time.monotonic()
    while not (now := await status()).ended:
        await asyncio.sleep(seconds)
        metrics, at = report(await read()), time.monotonic()
        _LOG.info("%s", metrics_line(name, now, before, metrics, at - then))
        before, then = metrics, at


def metrics_line(name: str, status: JobStatus, before: JobMetrics, now: JobMetrics, seconds: float) -> str:
    """The line: rows a second of each operator since the reading before, and where its time goes.

    Example: `job orders running: events out 5000/s busy 9% backpressured 80%; count in 5000/s out 12/s busy ...`.
    """
    known = {(operator.task, operator.number): operator for operator in before.operators}
    parts = []
    for operator in now.operators:
        last = known.get((operator.task, operator.number), operator)
        # A new attempt counts from 0 again.
        came = f" in {max(0, operator.rows_in - last.rows_in) / seconds:.0f}/s" if operator.rows_in else ""
        gone = f" out {max(0, operator.rows_out - last.rows_out) / seconds:.0f}/s"
        late = f" late {operator.late_rows}" if operator.late_rows else ""
        parts.append(f"{operator.name}{came}{gone}{late}")
        if operator.number == 0:
            parts[-1] += f" busy {operator.busy:.0%} backpressured {operator.backpressured:.0%}"
    return f"job {name} {status.value}: {'; '.join(parts) or 'no operators yet'}"
