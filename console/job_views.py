"""How jobs look in a terminal: the table of `list`, and what `info` says of one.

The commands call it with what `JobManager.info` answers. Nothing is asked or printed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.console.output import bytes_text, time_text
from penstock.engine.autoscaler.report import AutoscalerInfo
from penstock.engine.autoscaler.scaling import rate_text
from penstock.engine.elements import SnapshotKind
from penstock.engine.job.failover import attempt_text
from penstock.engine.job.info import CheckpointsInfo, JobInfo, RestartInfo
from penstock.engine.job.status import JobStatus
from penstock.engine.metrics import JobMetrics, OperatorReport
from penstock.live_view import watermark_text

_SHOWN_RECORDS: Final = 10
_MANY_RESTARTS: Final = 3
"""From so many on, people want to know how to end it."""
NO_ANSWER: Final = "no answer"
"""The status of a job whose manager is stopped, cut off or being restarted: the job may well run."""
RESTARTS_HINT: Final = "restart-strategy.type, such as -Drestart-strategy.type=fixed-delay, says when a job gives up"


def jobs_table(jobs: Sequence[JobInfo]) -> Table:
    """The jobs of a cluster, a row each."""
    columns = ["name", "id", "status", "since (UTC)", "parallelism", "restarts", "checkpoints", "latest"]
    whys = [_why(info) for info in jobs]
    table = Table(*columns, *(["why"] if any(whys) else []), box=None)
    for info, why in zip(jobs, whys, strict=True):
        checkpoints = info.checkpoints
        table.add_row(
            Text(info.name),
            Text(info.id),
            info.status.value if info.answers else NO_ANSWER,
            time_text(info.since_ms) if info.answers else "-",
            str(info.parallelism),
            str(info.restarts),
            "-" if checkpoints is None else str(checkpoints.completed),
            "-" if checkpoints is None else str(checkpoints.latest or "-"),
            *([Text(why, no_wrap=True, overflow="ellipsis")] if any(whys) else []),
        )
    return table


def _why(info: JobInfo) -> str:
    """The error that ended a job, or the last one that it had to get over: what is running may fail again and again."""
    failures = [restart.newest_cause for restart in info.restart_history if _has_failed(restart)]
    if info.error is None and failures and not info.status.ended:
        return f"restarted after: {_first_line(failures[-1])}"
    if stopped := _stopped(info):
        return stopped
    return _first_line(info.error or "")


def _has_failed(restart: RestartInfo) -> bool:
    return restart.kind == "failure" or restart.last_cause is not None


def _stopped(info: JobInfo) -> str | None:
    """What the job left to resume from: as in Flink, one that was stopped or drained has finished."""
    if info.checkpoints is None:
        return None
    if info.status is JobStatus.CANCELLED and info.checkpoints.latest_url is not None:
        return f"left {info.checkpoints.latest_url}; resume with --resume"
    if info.status is not JobStatus.FINISHED:
        return None
    stops = (one.url for one in info.checkpoints.history if one.kind is SnapshotKind.SUSPEND and one.reason is None)
    savepoint = next(stops, None)
    if savepoint is None:
        return None
    return f"drained, savepoint {savepoint}" if info.drained else f"stopped with savepoint {savepoint}"


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def job_view(
    info: JobInfo, whole: Callable[[str], str], now_ms: int = 0, metrics: JobMetrics | None = None
) -> RenderableType:
    """One job.

    Args:
        info: of `JobManager.info`.
        whole: what is shown of the text of an error: all of it, or one line.
        now_ms: civil time, ms UTC.
        metrics: the counters of its operators; None: they are not known.
    """
    head = f"{info.name} ({info.id}): {info.status.value} since {time_text(info.since_ms)} UTC"
    parts: list[RenderableType] = [_line(f"{head}, {attempt_text(info.attempt)}")]
    if stopped := _stopped(info):
        parts.append(_line(stopped))
    if info.waiting_for:
        parts.append(_line(f"waiting for {info.waiting_for}"))
    if info.changing:
        parts.append(_line(f"being changed: {info.changing}"))
    if info.error:
        parts.append(_line(f"error: {whole(info.error)}"))
    parts += [_line(f"warning: {wait.text(now_ms)}") for wait in info.event_time]
    tasks = Table("task", "parallelism", "subtasks", box=None)
    for task in info.tasks:
        states = [subtask.status.value for subtask in task.subtasks]
        counts = [f"{states.count(state)} {state}" for state in dict.fromkeys(states)]
        tasks.add_row(Text(task.name), str(task.parallelism), ", ".join(counts))
    parts.append(tasks)
    if metrics is not None and metrics.operators:
        if info.restart_history:
            parts.append(_line("rows since each operator was started last: a restart sets its counters to zero"))
        parts.append(_operators(metrics))
        parts += [_line(text) for operator in metrics.operators for text in _latencies(operator)]
    parts += _checkpoint_view(info.checkpoints)
    for restart in info.restart_history[-_SHOWN_RECORDS:]:
        when = f"{restart.kind} {time_text(restart.at_ms)} UTC ({_outcome(restart)})"
        parts.append(_line(f"{when}: {whole(restart.cause)}"))
        if restart.last_cause is not None:
            parts.append(_line(f"  {_failures(restart.failures)} by: {whole(restart.last_cause)}"))
    if info.restarts >= _MANY_RESTARTS and not info.status.ended:
        parts.append(_line(f"{info.restarts} restarts so far; {RESTARTS_HINT}"))
    return Group(*parts)


def _operators(metrics: JobMetrics) -> RenderableType:
    table = Table("operator", "rows in", "rows out", "late", "busy", "backpressured", "watermark (UTC)", box=None)
    for operator in metrics.operators:
        table.add_row(
            Text(operator.name),
            str(operator.rows_in),
            str(operator.rows_out),
            str(operator.late_rows or ""),
            f"{operator.busy:.0%}",
            f"{operator.backpressured:.0%}",
            watermark_text(operator.current_watermark) or "-",
        )
    return table


def _latencies(operator: OperatorReport) -> Iterator[str]:
    for reading in operator.latency:
        shares = ", ".join(f"p{share * 100:g} {value:.0f} ms" for share, value in reading.quantiles)
        yield f"latency from {reading.name} to {operator.name}: {shares}, at most {reading.highest:.0f} ms"


def _line(text: str) -> Text:
    """A line that is not broken within a path."""
    return Text(text, no_wrap=True, overflow="ignore")


def _failures(number: int) -> str:
    if number == 1:
        return "failed once,"
    return f"failed {'twice' if number == 2 else f'{number} times'}, the last time"


def _outcome(restart: RestartInfo) -> str:
    if restart.restore_ms is None:
        return "it has not come to a new attempt"
    checkpoint = restart.checkpoint
    return f"{attempt_text(restart.attempt)}, from {f'checkpoint {checkpoint}' if checkpoint else 'the beginning'}"


def _checkpoint_view(checkpoints: CheckpointsInfo | None) -> Sequence[RenderableType]:
    if checkpoints is None:
        return [Text("no checkpoints: the job has no storage for them")]
    counts = f"{checkpoints.completed} completed, {checkpoints.failed} failed, {checkpoints.in_progress} in progress"
    parts: list[RenderableType] = [_line(f"checkpoints: {counts}")]
    for name, url in (
        ("latest", checkpoints.latest_url),
        ("savepoint", checkpoints.savepoint_url),
        ("began with", checkpoints.restored_url),
    ):
        if url:
            parts.append(_line(f"{name}: {url}"))
    table = Table(
        "checkpoint", "kind", "status", "triggered (UTC)", "ms", "bytes", "written", "why, or where", box=None
    )
    for record in checkpoints.history[-_SHOWN_RECORDS:]:
        table.add_row(
            str(record.checkpoint),
            record.kind.value,
            record.status,
            time_text(record.triggered_ms),
            str(record.duration_ms),
            bytes_text(record.bytes),
            bytes_text(record.bytes_written),
            Text(record.message or record.url or ""),
        )
    if checkpoints.history:
        parts.append(table)
    return parts


def autoscaler_view(info: AutoscalerInfo) -> RenderableType:
    """What the autoscaler of a job sees, would change, and has changed."""
    mode = "dry run: " if info.is_dry_run else ""
    parts: list[RenderableType] = [_line(f"{mode}{info.state}")]
    if info.lag_seconds:
        parts.append(_line(f"the sources are {info.lag_seconds:.0f} s behind"))
    tasks = Table("task", "parallelism", "wanted", "busy", "takes", "could take", "is to take", box=None)
    for task in info.tasks:
        tasks.add_row(
            Text(task.name),
            str(task.parallelism),
            str(task.wanted),
            f"{task.busy:.2f}",
            rate_text(task.rate),
            "-" if task.true_rate is None else rate_text(task.true_rate),
            rate_text(task.target_rate),
        )
    if info.tasks:
        parts.append(tasks)
        parts += [_line(task.reason) for task in info.tasks]
    for record in info.history[-_SHOWN_RECORDS:]:
        stood = "" if record.seconds is None else f", stood still for {record.seconds:g} s"
        why = f": {record.message}" if record.message else ""
        parts.append(_line(f"{time_text(record.at_ms)} UTC {record.outcome}{stood}{why}"))
        parts += [_line(f"  {reason}") for reason in record.reasons]
    return Group(*parts)
