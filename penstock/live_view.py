"""The live view of a running job in a terminal: one row an operator, redrawn while `execute` waits.

Reads the job's metrics about twice a second and computes rates between readings; the job pays for it by a few calls.
"""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.table import Table

from penstock.engine.elements import MAX_TIMESTAMP
from penstock.engine.job import JobHandle, JobStatus
from penstock.engine.metrics import JobMetrics, OperatorReport

_PERIOD_SECONDS: Final = 0.5
_NAME_WIDTH: Final = 60


def wait_with_view(job: JobHandle) -> None:
    """Wait for the job as `job.wait()` does, showing it on standard error; its printed rows appear above the view.

    Raises:
        JobFailedError, JobCancelledError: as for `JobHandle.wait`.
    """
    rates = Rates()
    console = Console(stderr=True)
    with Live(console=console, auto_refresh=False) as live:
        more, drawn = True, 0.0
        while more:
            more = job.pump(_PERIOD_SECONDS)
            now = time.monotonic()
            if now - drawn >= _PERIOD_SECONDS or not more:
                live.update(job_table(job.name, job.status(), job.metrics(), rates, now), refresh=True)
                drawn = now
    job.raise_if_ended_badly()


class Rates:
    """Rows per second between two readings of a counter."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, str, str], tuple[float, int]] = {}

    def update(self, operator: OperatorReport, counter: str, rows: int, now: float) -> float:
        """The rate since the last reading of this counter; 0 at the first."""
        key = (operator.task, operator.name, counter)
        before, count = self._last.get(key, (now, rows))
        self._last[key] = (now, rows)
        return (rows - count) / (now - before) if now > before else 0.0


def job_table(name: str, status: JobStatus, metrics: JobMetrics, rates: Rates, now: float) -> Table:
    """The view: one row an operator.

    Args:
        now: monotonic seconds of this reading, for the rates.
    """
    table = Table(title=f"{name}: {status.value}", title_justify="left", expand=False)
    table.add_column("operator", max_width=_NAME_WIDTH, no_wrap=True)
    for heading in ("subtasks", "rows in", "in/s", "rows out", "out/s", "late", "busy", "backpressured", "watermark"):
        table.add_column(heading, justify="right", no_wrap=True)
    for operator in metrics.operators:
        table.add_row(
            operator.name,
            str(operator.parallelism),
            f"{operator.rows_in:,}",
            f"{rates.update(operator, 'in', operator.rows_in, now):,.0f}",
            f"{operator.rows_out:,}",
            f"{rates.update(operator, 'out', operator.rows_out, now):,.0f}",
            f"{operator.late_rows:,}" if operator.late_rows else "",
            f"{operator.busy:.0%}",
            f"{operator.backpressured:.0%}",
            watermark_text(operator.current_watermark),
        )
    return table


def watermark_text(watermark: int | None) -> str:
    """Event time for people: ISO 8601, UTC; `end` behind the last row, empty before the first watermark."""
    if watermark is None:
        return ""
    if watermark == MAX_TIMESTAMP:
        return "end"
    try:
        return datetime.fromtimestamp(watermark / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{watermark} ms"
