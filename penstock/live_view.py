"""The live view of a running job, in a terminal or a notebook: one row an operator, redrawn while `execute` waits.

Reads the job's metrics about twice a second and computes rates between readings; the job pays for it by a few calls.
Below the operators stand the stages of a batch job that are at work.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from penstock.engine.elements import MAX_TIMESTAMP
from penstock.engine.errors import JobFailedError
from penstock.engine.job.handle import JobHandle, StageProgress
from penstock.engine.job.status import JobStatus
from penstock.engine.metrics import JobMetrics, OperatorReport
from penstock.live_chart import RateChart

_PERIOD_SECONDS: Final = 0.5
_BAR_WIDTH: Final = 30
_NOTEBOOK_WIDTH: Final = 110
"""Characters."""


def wait_showing(job: JobHandle) -> None:
    """Wait for the job as `job.wait()` does, and show it at work where there is a terminal or a notebook to show it in.

    In a terminal it stands on standard error, and printed rows appear above it.

    Raises:
        JobFailedError, JobCancelledError: as for `JobHandle.wait`.
    """
    if (place := _notebook()) is not None:
        shown = place.display(place.HTML(""), display_id=True)
        chart = RateChart()

        def show(view: Group, metrics: JobMetrics, now: float) -> None:
            chart.add(metrics, now)
            shown.update(place.HTML(_html(view) + chart.svg()))

        _wait_drawing(job, show)
    elif sys.stderr.isatty():
        with Live(console=Console(stderr=True), auto_refresh=False) as live:
            _wait_drawing(job, lambda view, metrics, now: live.update(view, refresh=True))
    else:
        job.wait()


def _notebook() -> Any:
    """The displays of the notebook that this process is the kernel of; None: it is none."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return sys.modules.get("IPython.display") if hasattr(shell, "kernel") else None


def _html(view: Group) -> str:
    console = Console(file=io.StringIO(), record=True, width=_NOTEBOOK_WIDTH, force_jupyter=False)
    console.print(view)
    return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")


def _wait_drawing(job: JobHandle, draw: Callable[[Group, JobMetrics, float], object]) -> None:
    rates = Rates()
    more, drawn = True, 0.0
    while more:
        try:
            more = job.pump(_PERIOD_SECONDS)
        except JobFailedError:
            # Its last counts are drawn first.
            more = False
        now = time.monotonic()
        if now - drawn >= _PERIOD_SECONDS or not more:
            metrics = job.metrics()
            table = job_table(job.name, job.status(), metrics, rates, now)
            draw(Group(table, stage_bars(job.progress())), metrics, now)
            drawn = now
    job.raise_if_ended_badly()


def tell(line: str) -> None:
    """Print a line for the user on standard error; it stands above the view."""
    Console(stderr=True).print(line, highlight=False, markup=False, soft_wrap=True)


class Rates:
    """Rows per second between two readings of a counter."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, int, str], tuple[float, int]] = {}

    def update(self, operator: OperatorReport, counter: str, rows: int, now: float) -> float:
        """The rate since the last reading of this counter; 0 at the first."""
        key = (operator.task, operator.number, counter)
        before, count = self._last.get(key, (now, rows))
        self._last[key] = (now, rows)
        return (rows - count) / (now - before) if now > before else 0.0


def job_table(name: str, status: JobStatus, metrics: JobMetrics, rates: Rates, now: float) -> Table:
    """The view: one row an operator, with rows per second while the job runs and rows in all once it has ended.

    Args:
        now: monotonic seconds of this reading, for the rates.
    """
    table = Table(title=Text(f"{name}: {status.value}", "table.title"), title_justify="left", box=SIMPLE_HEAD)
    per = "" if status.ended else "/s"
    table.add_column("operator", overflow="ellipsis")
    for heading in ("x", f"in{per}", f"out{per}", "late", "busy", "backpr.", "watermark"):
        table.add_column(heading, justify="right", no_wrap=True)
    for operator in metrics.operators:
        rows_in = rates.update(operator, "in", operator.rows_in, now)
        rows_out = rates.update(operator, "out", operator.rows_out, now)
        table.add_row(
            # The column may shrink; its text is cut and not wrapped.
            Text(operator.name, no_wrap=True, overflow="ellipsis"),
            str(operator.parallelism),
            number_text(operator.rows_in if status.ended else rows_in),
            number_text(operator.rows_out if status.ended else rows_out),
            number_text(operator.late_rows) if operator.late_rows else "",
            f"{operator.busy:.0%}",
            f"{operator.backpressured:.0%}",
            watermark_text(operator.current_watermark),
        )
    return table


def stage_bars(stages: Sequence[StageProgress]) -> Table:
    """A bar for each stage that is at work, as long as the part of its tasks that has ended."""
    bars = Table.grid(padding=(0, 1))
    for number, stage in enumerate(stages, 1):
        if stage.active:
            bar = ProgressBar(stage.tasks, stage.done, width=_BAR_WIDTH)
            bars.add_row(f" stage {number} of {len(stages)}", bar, f"{stage.done} of {stage.tasks} tasks")
    return bars


def number_text(number: float) -> str:
    """A count or rate in at most six characters: 950, 12.3k, 4.56M, 1.20G."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= limit:
            scaled = number / (1e3 if unit == "k" else limit)
            return f"{scaled:.{2 if scaled < 10 else 1}f}{unit}"
    return f"{number:.0f}"


def watermark_text(watermark: int | None) -> str:
    """Event time for people: ISO 8601, UTC; `end` behind the last row, empty before the first watermark."""
    if watermark is None:
        return ""
    if watermark == MAX_TIMESTAMP:
        return "end"
    try:
        return datetime.fromtimestamp(watermark / 1000, timezone.utc).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, ValueError, OSError):
        return f"{watermark} ms"
