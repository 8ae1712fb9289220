"""Builds the `JobInfo` of a running job: the one place where what a job manager knows becomes what is shown.

`JobManager.info` calls it. Nothing is decided here, and nothing is asked of other processes.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from penstock.actors.checkpoints import Checkpoints
from penstock.actors.execution import Execution
from penstock.engine.autoscaler.report import AutoscalerInfo
from penstock.engine.checkpointing.coordinator import CheckpointRecord
from penstock.engine.graph.physical import OperatorPlan, PhysicalGraph, TaskPlan
from penstock.engine.job.brain import JobBrain
from penstock.engine.job.info import (
    CheckpointInfo,
    CheckpointsInfo,
    EventTimeWait,
    InputInfo,
    JobInfo,
    OperatorInfo,
    RestartInfo,
    SubtaskInfo,
    TaskInfo,
)
from penstock.engine.job.status import JobStatus
from penstock.savepoints.storage import redact


def job_info(
    job_id: str,
    name: str,
    started_ms: int,
    brain: JobBrain,
    graph: PhysicalGraph | None,
    execution: Execution,
    storage: Checkpoints | None,
    autoscaler: AutoscalerInfo | None,
    event_time: tuple[EventTimeWait, ...] = (),
) -> JobInfo:
    """The job.

    Args:
        job_id, name: which one.
        started_ms: when its manager started.
        brain: knows how it stands.
        graph: what runs; None before it is planned.
        execution: its processes.
        storage: where its checkpoints are; None: it takes none.
        autoscaler: what that has seen and done; None: it is off.
        event_time: where it cannot advance.
    """
    deployed, finished, status = brain.attempts.deployed, brain.attempts.finished, brain.status
    processes = {place: process.pid for place, process in execution.processes.items()}
    tasks = tuple(
        _with_subtasks(
            task,
            [
                SubtaskInfo(
                    subtask,
                    deployed.get((task.id, subtask), (0, 0))[0],
                    processes.get((task.id, subtask)),
                    JobStatus.FINISHED if (task.id, subtask) in finished else status,
                )
                for subtask in range(task.parallelism)
            ],
        )
        for task in task_infos(graph)
    )
    return JobInfo(
        id=job_id,
        name=name,
        status=status,
        since_ms=brain.since_ms or started_ms,
        started_ms=started_ms,
        error=str(brain.error) if brain.ended and brain.error is not None else None,
        waiting_for=execution.waiting_for,
        attempt=brain.attempts.number,
        manager_pid=os.getpid(),
        standby_pids=tuple(execution.standby_pids),
        parallelism=max((task.parallelism for task in tasks), default=0),
        max_parallelism=graph.config.max_parallelism if graph is not None else 0,
        tasks=tasks,
        restarts=brain.restarts.failures,
        restart_history=tuple(map(_restart, brain.restarts.to_dicts())),
        checkpoints=None if storage is None else _checkpoints(brain, storage),
        autoscaler=autoscaler,
        settings=tuple(_settings(graph.config)) if graph is not None else (),
        event_time=event_time,
    )


def _settings(config: object, prefix: str = "") -> Iterator[tuple[str, str]]:
    """The settings of a configuration and of those within it, by name; texts without what may be a secret."""
    for member in fields(config):  # type: ignore[arg-type]
        value = getattr(config, member.name)
        if is_dataclass(value) and not isinstance(value, type):
            yield from _settings(value, f"{prefix}{member.name}.")
        else:
            text = value.value if isinstance(value, enum.Enum) else value
            yield f"{prefix}{member.name}", redact(str(text))


def task_infos(graph: PhysicalGraph | None) -> Sequence[TaskInfo]:
    """The tasks of a graph, without subtasks; none before it is planned."""
    tasks = graph.tasks if graph is not None else ()
    inputs: dict[int, list[InputInfo]] = {}
    for task in tasks:
        for exchange in task.outputs:
            if exchange.downstream is not None:
                inputs.setdefault(exchange.downstream, []).append(InputInfo(task.id, exchange.partitioner.describe()))
    return [
        TaskInfo(task.id, task.name, task.parallelism, _operators(task), tuple(inputs.get(task.id, ())))
        for task in tasks
    ]


def _operators(task: TaskPlan) -> tuple[OperatorInfo, ...]:
    head = task.source
    source = () if head is None else (OperatorInfo(head.name, head.uid, tuple(head.source.datasets)),)
    return (*source, *map(_operator, task.operators))


def _operator(operator: OperatorPlan) -> OperatorInfo:
    sink = operator.spec.traits.sink
    return OperatorInfo(operator.name, operator.uid, writes=() if sink is None else tuple(sink.datasets))


def _with_subtasks(task: TaskInfo, subtasks: Sequence[SubtaskInfo]) -> TaskInfo:
    return TaskInfo(task.id, task.name, task.parallelism, task.operators, task.inputs, tuple(subtasks))


def _restart(record: Mapping[str, Any]) -> RestartInfo:
    """One of the log, of which what other managers have told may lack some."""
    return RestartInfo(
        kind=str(record["kind"]),
        cause=str(record["cause"]),
        at_ms=int(record["at_ms"] or 0),
        detected_monotonic=record["detected_monotonic"],
        subtasks=int(record["subtasks"] or 0),
        attempt=int(record["attempt"] or 0),
        checkpoint=int(record["checkpoint"] or 0),
        restore_ms=record["restore_ms"],
        first_output_ms=record["first_output_ms"],
    )


def _checkpoints(brain: JobBrain, storage: Checkpoints) -> CheckpointsInfo:
    checkpoints = brain.checkpoints
    if checkpoints is None:
        # The manager has not taken the job over, or could not.
        return CheckpointsInfo(restored_url=storage.start_url)
    coordinator = checkpoints.coordinator
    statistics = coordinator.statistics
    latest = brain.kept
    return CheckpointsInfo(
        completed=statistics.completed,
        failed=statistics.failed,
        in_progress=statistics.in_progress,
        latest=latest.checkpoint if latest is not None else None,
        latest_url=(checkpoints.latest_url or storage.restored_url) if latest is not None else None,
        savepoint_url=checkpoints.savepoint_url,
        restored_url=storage.start_url,
        last_duration_ms=None if statistics.last_duration is None else round(statistics.last_duration * 1000, 1),
        last_bytes=statistics.last_size.total,
        last_bytes_written=statistics.last_size.new,
        history=tuple(_record(record, checkpoints.savepoint_of(record)) for record in coordinator.history),
    )


def _record(record: CheckpointRecord, url: str | None) -> CheckpointInfo:
    return CheckpointInfo(
        checkpoint=record.checkpoint,
        kind=record.kind,
        status="completed" if record.reason is None else "aborted",
        reason=record.reason,
        message=record.message,
        attempt=record.attempt,
        triggered_ms=record.triggered_ms,
        duration_ms=round(record.duration * 1000, 1),
        acknowledged=record.acknowledged,
        subtasks=record.subtasks,
        bytes=record.size.total,
        bytes_written=record.size.new,
        url=url,
    )
