"""Describes a running job by what its brain knows: the part of `JobInfo` that is the same in every runtime.

The local job gives it as it is; the job manager on Ray (`actors/info.py`) adds processes and addresses. Nothing is
decided here, and nothing is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.engine.checkpointing.history import CheckpointRecord
from penstock.engine.checkpointing.instructions import Place
from penstock.engine.graph.physical import OperatorPlan, PhysicalGraph, TaskPlan
from penstock.engine.job.brain import JobBrain
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
from penstock.engine.job.status import JobStatus


def describe(
    job_id: str,
    name: str,
    brain: JobBrain,
    graph: PhysicalGraph | None,
    started_ms: int,
    pids: Mapping[Place, int | None],
) -> JobInfo:
    """The job.

    Args:
        job_id, name: which one; no id where nothing of it outlives the process.
        brain: knows how it stands.
        graph: what runs; None before it is planned.
        started_ms: when its manager started, int64 ms UTC.
        pids: of the processes of the subtasks, those that are known.
    """
    deployed, finished, status = brain.attempts.deployed, brain.attempts.finished, brain.status
    tasks = tuple(
        _with_subtasks(
            task,
            [
                SubtaskInfo(
                    subtask,
                    deployed.get((task.id, subtask), (0, 0))[0],
                    pids.get((task.id, subtask)),
                    JobStatus.FINISHED if (task.id, subtask) in finished else status,
                )
                for subtask in range(task.parallelism)
            ],
        )
        for task in _task_infos(graph)
    )
    return JobInfo(
        id=job_id,
        name=name,
        status=status,
        since_ms=brain.since_ms or started_ms,
        started_ms=started_ms,
        error=str(brain.error) if brain.ended and brain.error is not None else None,
        changing=brain.changing,
        drained=brain.was_drained,
        attempt=brain.attempts.number,
        parallelism=max((task.parallelism for task in tasks), default=0),
        max_parallelism=graph.config.max_parallelism if graph is not None else 0,
        tasks=tasks,
        restarts=brain.restarts.failures,
        restart_history=tuple(map(_restart, brain.restarts.to_dicts())),
    )


def describe_checkpoints(brain: JobBrain, start_url: str | None, restored_url: str | None) -> CheckpointsInfo:
    """Its checkpoints.

    Args:
        brain: of a job that has a folder for them.
        start_url: of what the job began with; None: it began without state.
        restored_url: of the newest checkpoint that subtasks were restored from.
    """
    checkpoints = brain.checkpoints
    if checkpoints is None:
        # The manager has not taken the job over, or could not.
        return CheckpointsInfo(restored_url=start_url)
    coordinator = checkpoints.coordinator
    statistics = coordinator.statistics
    latest = brain.kept
    return CheckpointsInfo(
        completed=statistics.completed,
        failed=statistics.failed,
        in_progress=statistics.in_progress,
        latest=latest.checkpoint if latest is not None else None,
        latest_url=(checkpoints.latest_url or restored_url) if latest is not None else None,
        savepoint_url=checkpoints.savepoint_url,
        restored_url=start_url,
        last_duration_ms=None if statistics.last_duration is None else round(statistics.last_duration * 1000, 1),
        last_bytes=statistics.last_size.total,
        last_bytes_written=statistics.last_size.new,
        history=tuple(_record(record, checkpoints.savepoint_of(record)) for record in coordinator.history),
    )


def _task_infos(graph: PhysicalGraph | None) -> Sequence[TaskInfo]:
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
        failures=int(record["failures"] or 0),
        last_cause=record["last_cause"],
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
