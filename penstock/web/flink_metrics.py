"""Metrics under Flink's names, by subtask, task and job, for the paths of its REST that end in `metrics`.

A metric of an operator is called `operator.name`, one of a subtask of a task `0.name`. Values are texts, as in Flink.

Source of names and meanings: Flink's documentation, "Metrics", "System metrics", and "REST API".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from penstock.engine.job.status import JobStatus
from penstock.engine.metric_types import PENDING_RECORDS, MetricKind, MetricReading, read_together
from penstock.web.figures import SubtaskView
from penstock.web.observed import JobView, TaskView

Values = Mapping[str, float]
_AGGREGATES: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    "min": min,
    "max": max,
    "sum": sum,
    "avg": lambda values: sum(values) / len(values),
}


def of_subtask(one: SubtaskView) -> dict[str, float]:
    """The metrics of one subtask."""
    operators = one.metrics.operators
    rates, totals = one.rates, one.totals
    values: dict[str, float] = {
        "numRecordsIn": totals.rows_in,
        "numRecordsOut": totals.rows_out,
        "numRecordsInPerSecond": rates.rows_in,
        "numRecordsOutPerSecond": rates.rows_out,
        "numBytesOut": totals.bytes_out,
        "numBytesOutPerSecond": rates.bytes_out,
        "numBuffersOut": totals.messages_out,
        "busyTimeMsPerSecond": rates.busy * 1000,
        "backPressuredTimeMsPerSecond": rates.blocked * 1000,
        "idleTimeMsPerSecond": rates.idle * 1000,
        "accumulateBusyTimeMs": totals.busy * 1000,
        "accumulateBackPressuredTimeMs": totals.blocked * 1000,
        "accumulateIdleTimeMs": totals.idle * 1000,
        "isBackPressured": float(rates.blocked > 0.5),
        "numLateRecordsDropped": sum(counter.late_rows for _, counter in operators),
        "checkpointAlignmentTime": one.metrics.alignment_ms * 1e6,
        "checkpointStartDelayNanos": one.metrics.start_delay_ms * 1e6,
        "checkpointSyncTimeMs": one.metrics.sync_ms,
        "inputQueueLength": one.metrics.gate.messages,
        "outputQueueLength": one.metrics.output.under_way,
        "outputQueueSize": one.metrics.output.bytes,
    }
    if one.metrics.gate.splits:
        values["numSplitsLeft"] = one.metrics.gate.splits
    if one.input_watermark is not None:
        values["currentInputWatermark"] = one.input_watermark
    if one.watermark is not None:
        values["currentOutputWatermark"] = one.watermark
    for number, (name, counter) in enumerate(operators):
        prefix = f"{operator_scope(name, number, [other for other, _ in operators])}."
        values[f"{prefix}numRecordsIn"] = counter.rows_in
        values[f"{prefix}numRecordsOut"] = counter.rows_out
        values[f"{prefix}numLateRecordsDropped"] = counter.late_rows
        if counter.input_watermark != MIN_TIMESTAMP:
            values[f"{prefix}currentInputWatermark"] = counter.input_watermark
        if counter.watermark != MIN_TIMESTAMP:
            values[f"{prefix}currentOutputWatermark"] = counter.watermark
        for reading in read_together([counter.group]):
            if reading.kind is MetricKind.HISTOGRAM:
                values[f"{prefix}{reading.name}_count"] = reading.value
                values.update({f"{prefix}{reading.name}_p{share * 100:g}": value for share, value in reading.quantiles})
            else:
                values[f"{prefix}{reading.name}"] = reading.value
                if reading.name in PENDING_RECORDS:
                    values["pendingRecords"] = values.get("pendingRecords", 0) + reading.value
    return values


def operator_scope(name: str, number: int, names: Sequence[str]) -> str:
    """What the metrics of an operator begin with: its name in plain characters; a number where two are alike.

    Example:
        >>> operator_scope("map -> sum", 0, ["map -> sum"])
        'map____sum'
    """
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return f"{plain}_{number}" if names.count(name) > 1 else plain


def of_task(task: TaskView) -> dict[str, float]:
    """The metrics of each subtask, as `0.numRecordsIn`."""
    return {f"{one.subtask}.{name}": value for one in task.subtasks for name, value in of_subtask(one).items()}


def of_job(view: JobView) -> dict[str, float]:
    """The metrics of a job as Flink's job manager has them."""
    info, runs = view.info, view.info.status is JobStatus.RUNNING
    since = max(0, view.seen_ms - info.since_ms)
    values: dict[str, float] = {
        "numRestarts": info.restarts,
        "fullRestarts": info.restarts,
        "numRescales": sum(one.kind == "rescale" for one in info.restart_history),
        "uptime": since if runs else 0,
        "runningTime": since if runs else 0,
        "restartingTime": since if info.status is JobStatus.RESTARTING else 0,
        "downtime": -1 if info.status.ended else 0 if runs else since,
    }
    if (checkpoints := info.checkpoints) is not None:
        values |= {
            "totalNumberOfCheckpoints": checkpoints.completed + checkpoints.failed + checkpoints.in_progress,
            "numberOfCompletedCheckpoints": checkpoints.completed,
            "numberOfFailedCheckpoints": checkpoints.failed,
            "numberOfInProgressCheckpoints": checkpoints.in_progress,
            "lastCompletedCheckpointId": -1 if checkpoints.latest is None else checkpoints.latest,
            "lastCheckpointDuration": -1 if checkpoints.last_duration_ms is None else checkpoints.last_duration_ms,
            "lastCheckpointSize": checkpoints.last_bytes_written,
            "lastCheckpointFullSize": checkpoints.last_bytes,
        }
    return values


def latencies_of(view: JobView) -> dict[str, float]:
    """The ages of latency markers, in ms, by source and by subtask of the operators that they have come to.

    They are metrics of the job, as in Flink: `latency.source_id.S.operator_id.O.operator_subtask_index.0.latency_p99`.
    """
    return {
        f"{prefix}.latency_{name}": value
        for task in view.tasks
        for one in task.subtasks
        for prefix, reading in _latencies(one)
        for name, value in _spread(reading).items()
    }


def operator_latencies(view: JobView) -> Iterator[dict[str, Any]]:
    """The same for pages: of each operator, over its subtasks, by source."""
    for task in view.tasks:
        for number, operator in enumerate(task.info.operators):
            counted = [one.metrics.operators[number : number + 1] for one in task.subtasks]
            for reading in read_together([counter.latency for one in counted for _, counter in one]):
                if reading.value:
                    yield {"task": task.info.id, "operator": operator.name, "source": reading.name, **_spread(reading)}


def _latencies(one: SubtaskView) -> Iterator[tuple[str, MetricReading]]:
    names = [name for name, _ in one.metrics.operators]
    for number, (name, counter) in enumerate(one.metrics.operators):
        operator = operator_scope(name, number, names)
        for reading in read_together([counter.latency]):
            if not reading.value:
                # Read while the first marker was being noted.
                continue
            place = f"source_id.{reading.name}.operator_id.{operator}.operator_subtask_index.{one.subtask}"
            yield f"latency.{place}", reading


def _spread(reading: MetricReading) -> dict[str, float]:
    quantiles = {f"p{share * 100:g}": value for share, value in reading.quantiles}
    return {
        "count": reading.value,
        "min": reading.lowest,
        "max": reading.highest,
        "mean": reading.total / reading.value,
        "median": quantiles["p50"],
        **quantiles,
    }


def of_cluster(views: Sequence[JobView], slots: tuple[int, int], nodes: int) -> dict[str, float]:
    """The metrics of Flink's job manager as a process; arguments as for `flink.overview`."""
    return {
        "numRunningJobs": sum(not view.info.status.ended for view in views),
        "numRegisteredTaskManagers": nodes,
        "taskSlotsTotal": slots[0],
        "taskSlotsAvailable": slots[1],
    }


def answer(values: Values, get: str | None) -> list[dict[str, str]]:
    """What a path of metrics gives.

    Args:
        values: those that there are.
        get: the names that are asked for, with commas between; None: only the names are wanted.
    """
    if get is None:
        return [{"id": name} for name in sorted(values)]
    return [{"id": name, "value": text(values[name])} for name in get.split(",") if name in values]


def aggregated(values: Sequence[Values], get: str | None, agg: str | None) -> list[dict[str, Any]]:
    """The same over several subtasks, tasks or jobs.

    Args:
        values: of each.
        get: as in `answer`.
        agg: which of min, max, avg and sum are wanted, with commas between; None: all.
    """
    names = sorted({name for one in values for name in one})
    if get is None:
        return [{"id": name} for name in names]
    wanted = [name for name in _AGGREGATES if agg is None or name in agg.split(",")]
    return list(_aggregated(values, [name for name in get.split(",") if name in names], wanted))


def _aggregated(values: Sequence[Values], names: Sequence[str], wanted: Sequence[str]) -> Iterator[dict[str, Any]]:
    for name in names:
        found = [one[name] for one in values if name in one and not math.isnan(one[name])]
        if found:
            yield {"id": name, **{aggregate: float(_AGGREGATES[aggregate](found)) for aggregate in wanted}}


def text(value: float) -> str:
    """A value as Flink writes it: whole numbers without a point."""
    if isinstance(value, float) and not value.is_integer():
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN"
    number = int(value)
    # Flink's last watermark is Java's largest long, which MAX_TIMESTAMP is.
    return str(number) if number <= MAX_TIMESTAMP else str(value)
