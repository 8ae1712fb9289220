"""Builds the `JobInfo` of a running job: the one place where what a job manager knows becomes what is shown.

`JobManager.info` calls it. Nothing is decided here, and nothing is asked of other processes.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from penstock.actors.checkpoints import Checkpoints
from penstock.engine.checkpointing.coordinator import CheckpointRecord, Place
from penstock.engine.graph.physical import PhysicalGraph, TaskPlan
from penstock.engine.job.info import (
    CheckpointInfo,
    CheckpointsInfo,
    InputInfo,
    JobInfo,
    OperatorInfo,
    RestartInfo,
    SubtaskInfo,
    TaskInfo,
)
from penstock.engine.job.restarts import RestartLog
from penstock.engine.job.status import JobStatus
from penstock.savepoints.storage import redact


def job_info(
    job_id: str,
    name: str,
    status: JobStatus,
    since_ms: int,
    started_ms: int,
    waiting_for: str | None,
    attempt: int,
    graph: PhysicalGraph | None,
    deployed: Mapping[Place, tuple[int, int]],
    finished: Collection[Place],
    processes: Mapping[Place, int],
    standbys: Sequence[int],
    restarts: RestartLog,
    checkpoints: Checkpoints | None,
    error: str | None,
) -> JobInfo:
    """The job.

    Args:
        job_id, name, status: which one, and where it is in its life.
        since_ms, started_ms: when it came to this status, and when its manager started.
        waiting_for: what it or its rescale waits for, such as room on the cluster; None: nothing.
        attempt: number of the newest attempt.
        graph: None before it is planned.
        deployed: of each subtask, the attempt that it belongs to and the checkpoint that this was restored from.
        finished: the subtasks that have emitted everything.
        processes: the id of each subtask's process, on its node.
        standbys: those of the processes that are warm to replace others.
        restarts, checkpoints: what has happened so far; checkpoints: None where there is no storage.
        error: why it failed.
    """
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
        since_ms=since_ms,
        started_ms=started_ms,
        error=error,
        waiting_for=waiting_for,
        attempt=attempt,
        manager_pid=os.getpid(),
        standby_pids=tuple(standbys),
        parallelism=max((task.parallelism for task in tasks), default=0),
        max_parallelism=graph.config.max_parallelism if graph is not None else 0,
        tasks=tasks,
        restarts=restarts.failures,
        restart_history=tuple(map(_restart, restarts.to_dicts())),
        checkpoints=None if checkpoints is None or not checkpoints.claimed else _checkpoints(checkpoints),
        settings=tuple(_settings(graph.config)) if graph is not None else (),
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
    source = () if task.source is None else (OperatorInfo(task.source.name, task.source.uid),)
    return (*source, *(OperatorInfo(operator.name, operator.uid) for operator in task.operators))


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


def _checkpoints(checkpoints: Checkpoints) -> CheckpointsInfo:
    coordinator = checkpoints.coordinator
    statistics = coordinator.statistics
    latest = checkpoints.kept
    return CheckpointsInfo(
        completed=statistics.completed,
        failed=statistics.failed,
        in_progress=statistics.in_progress,
        latest=latest.checkpoint if latest is not None else None,
        latest_url=checkpoints.latest_url if latest is not None else None,
        savepoint_url=checkpoints.savepoint_url,
        restored_url=checkpoints.restored_url,
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
