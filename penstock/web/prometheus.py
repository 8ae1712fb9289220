"""The jobs of a cluster in Prometheus' text format: one target to scrape for all of them.

Served at `/metrics`. Names are `penstock_*`, in seconds and bytes; labels are job, task and operator, and the subtask
only where it is asked for, as each label multiplies the series.

Source of the format: the Prometheus documentation, "Exposition formats", text format 0.0.4.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.engine.elements import MAX_TIMESTAMP
from penstock.engine.job.status import JobStatus
from penstock.engine.metric_types import MetricKind, MetricReading, read_together
from penstock.web.figures import Subtasks
from penstock.web.observed import JobView, TaskView, status_of

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a family; of a summary, `suffix` says which part it is: a quantile has none, `_sum`, `_count`."""

    labels: Mapping[str, str]
    value: float
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class Family:
    """The samples of one name, of a `kind` of Prometheus: counter, gauge or summary."""

    name: str
    kind: str
    meaning: str
    samples: list[Sample] = field(default_factory=list)


class _Families:
    """Samples by the name of their family, in the order in which the families came."""

    def __init__(self) -> None:
        self._by_name: dict[str, Family] = {}

    def add(self, name: str, kind: str, meaning: str, value: float, suffix: str = "", **labels: str) -> None:
        """One sample of the family `name`."""
        self._by_name.setdefault(name, Family(name, kind, meaning)).samples.append(Sample(labels, value, suffix))

    def all(self) -> Sequence[Family]:
        return tuple(self._by_name.values())


def prometheus_text(views: Sequence[JobView], by_subtask: bool = False) -> str:
    """All metrics of the jobs; arguments as for `families_of`."""
    return "\n".join([*(line for family in families_of(views, by_subtask) for line in _lines(family)), ""])


def _lines(family: Family) -> Iterator[str]:
    yield f"# HELP {family.name} {family.meaning}"
    yield f"# TYPE {family.name} {family.kind}"
    for sample in family.samples:
        shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in sample.labels.items())
        yield f"{family.name}{sample.suffix}{{{shown}}} {_number(sample.value)}"


def families_of(views: Sequence[JobView], by_subtask: bool = False) -> Sequence[Family]:
    """All metrics of the jobs, as Prometheus names them.

    Args:
        views: the jobs; of those that have ended only that they have is told.
        by_subtask: whether the counters of tasks are given for each subtask.
    """
    families = _Families()
    for status in JobStatus:
        count = sum(status_of(view) is status for view in views)
        families.add("penstock_jobs", "gauge", "Jobs by status.", count, status=status.value)
    shown = [view for view in views if not view.info.status.ended]
    names = Counter(view.info.name for view in shown)
    for view in shown:
        # Two series with the same labels would cost Prometheus both: of jobs that are called alike, ids tell which.
        job = view.info.name if names[view.info.name] == 1 else f"{view.info.name} ({view.info.id})"
        _job(families, view, job)
        for task in view.tasks:
            _task_of_job(families, view, job, task, by_subtask)
    return families.all()


def _task_of_job(families: _Families, view: JobView, job: str, task: TaskView, by_subtask: bool) -> None:
    named = {"job": job, "task": f"{task.info.id}: {task.info.name}"}
    groups: list[tuple[dict[str, str], Subtasks]] = [(named, task.subtasks)]
    if by_subtask:
        groups = [
            ({**named, "subtask": str(one.subtask)}, task.subtasks[row : row + 1])
            for row, one in enumerate(task.subtasks.metrics)
        ]
    for labels, subtasks in groups:
        _task(families, subtasks, labels)
        _operators(families, subtasks, labels)
    lag = view.watermark_lag_ms(task)
    if lag is not None:
        meaning = "How far its event time is behind the clock."
        families.add("penstock_task_watermark_lag_seconds", "gauge", meaning, lag / 1000, **named)


def _job(families: _Families, view: JobView, job: str) -> None:
    info = view.info
    families.add("penstock_job_restarts_total", "counter", "Failures that the job got over.", info.restarts, job=job)
    rescales = sum(one.kind == "rescale" for one in info.restart_history)
    families.add("penstock_job_recent_rescales", "gauge", "Rescales among the last restarts.", rescales, job=job)
    families.add("penstock_job_up", "gauge", "Whether the job manager answers.", int(view.answers), job=job)
    since = max(0, view.seen_ms - info.since_ms) / 1000
    families.add(
        "penstock_job_status_seconds", "gauge", "Time in its status.", since, job=job, status=info.status.value
    )
    if (checkpoints := info.checkpoints) is None:
        return
    for outcome, count in (("completed", checkpoints.completed), ("failed", checkpoints.failed)):
        meaning = "Checkpoints and savepoints by outcome."
        families.add("penstock_job_checkpoints_total", "counter", meaning, count, job=job, outcome=outcome)
    families.add(
        "penstock_job_checkpoints_in_progress", "gauge", "Without an outcome yet.", checkpoints.in_progress, job=job
    )
    if checkpoints.last_duration_ms is not None:
        last = checkpoints.last_duration_ms / 1000
        families.add("penstock_job_last_checkpoint_duration_seconds", "gauge", "Of the newest one.", last, job=job)
        meaning = "Of the newest one: its files, and those written for it."
        name = "penstock_job_last_checkpoint_bytes"
        families.add(name, "gauge", meaning, checkpoints.last_bytes, job=job, part="full")
        families.add(name, "gauge", meaning, checkpoints.last_bytes_written, job=job, part="written")


def _task(families: _Families, subtasks: Subtasks, labels: dict[str, str]) -> None:
    if not subtasks:
        return
    for state in ("busy", "blocked", "idle"):
        spent = float(subtasks.total(state))
        families.add(
            "penstock_task_seconds_total", "counter", "Time of its subtasks by state.", spent, state=state, **labels
        )
    sent = subtasks.total("bytes_out")
    families.add("penstock_task_sent_bytes_total", "counter", "Sent to other subtasks.", sent, **labels)
    messages = subtasks.total("messages_out")
    families.add("penstock_task_messages_total", "counter", "Sent to other subtasks.", messages, **labels)
    waiting = sum(one.gate.messages for one in subtasks.metrics)
    families.add("penstock_task_input_queue_messages", "gauge", "Come and not taken.", waiting, **labels)
    buffered = sum(one.output.bytes for one in subtasks.metrics)
    families.add("penstock_task_output_buffer_bytes", "gauge", "Wait to be sent.", buffered, **labels)
    if splits := subtasks.total("splits"):
        families.add("penstock_task_splits_left", "gauge", "Of a source: not at their end.", splits, **labels)
    alignment = subtasks.most("alignment_ms") / 1000
    meaning = "Of the last checkpoint: the longest wait for barriers."
    families.add("penstock_task_checkpoint_alignment_seconds", "gauge", meaning, alignment, **labels)
    sync = subtasks.most("sync_ms") / 1000
    meaning = "Of the last checkpoint: the longest that data waited for the capture."
    families.add("penstock_task_checkpoint_sync_seconds", "gauge", meaning, sync, **labels)


def _operators(families: _Families, subtasks: Subtasks, labels: dict[str, str]) -> None:
    # A subtask that is being started knows of no operators yet.
    known = [operators for one in subtasks.metrics if (operators := one.operators)]
    for number, (name, _) in enumerate(known[0] if known else ()):
        counters = [operators[number][1] for operators in known]
        named = {**labels, "operator": f"{number}: {name}"}
        rows = sum(one.rows_in for one in counters)
        families.add("penstock_operator_rows_in_total", "counter", "Rows taken.", rows, **named)
        rows = sum(one.rows_out for one in counters)
        families.add("penstock_operator_rows_out_total", "counter", "Rows emitted.", rows, **named)
        rows = sum(one.late_rows for one in counters)
        families.add("penstock_operator_late_rows_total", "counter", "Rows that came too late.", rows, **named)
        watermarks = [one.watermark for one in counters]
        if min(watermarks) > 0 and max(watermarks) < MAX_TIMESTAMP:
            meaning = "The lowest that its subtasks have passed on, since 1970."
            families.add("penstock_operator_watermark_seconds", "gauge", meaning, min(watermarks) / 1000, **named)
        for one in read_together(counter.latency for counter in counters):
            meaning = "How long latency markers of a source were under way."
            _summary(families, "penstock_operator_latency_seconds", meaning, one, 1000, {**named, "source": one.name})
        for one in read_together(counter.group for counter in counters):
            meaning = "Counted by the operator's own function."
            match one.kind:
                case MetricKind.COUNTER | MetricKind.GAUGE:
                    # A counter may be counted down, which Prometheus would take for a restart.
                    families.add(f"penstock_user_{one.name}", "gauge", meaning, one.value, **named)
                case MetricKind.METER:
                    families.add(f"penstock_user_{one.name}_total", "counter", meaning, one.value, **named)
                case MetricKind.HISTOGRAM:
                    _summary(families, f"penstock_user_{one.name}", meaning, one, 1, named)


def _summary(
    families: _Families, family: str, meaning: str, one: MetricReading, divisor: int, labels: dict[str, str]
) -> None:
    """A histogram; its values are divided by `divisor`, to be in the unit of the family."""
    for share, value in one.quantiles:
        families.add(family, "summary", meaning, value / divisor, **labels, quantile=str(share))
    families.add(family, "summary", meaning, one.total / divisor, "_sum", **labels)
    families.add(family, "summary", meaning, one.value, "_count", **labels)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(float(value)) if isinstance(value, float) else str(value)
