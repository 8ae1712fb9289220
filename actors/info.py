"""A job as plain values, for the command line and the chaos report: what `JobManager.info` answers.

Everything in it is what JSON has: texts, numbers, lists, dicts. Names that end
with `_ms` are times: civil time in ms UTC, or durations.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from penstock.actors.checkpoints import Checkpoints
from penstock.engine.checkpointing.coordinator import CheckpointRecord, Place
from penstock.engine.graph.physical import PhysicalGraph
from penstock.engine.job.restarts import RestartLog
from penstock.engine.job.status import JobStatus


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
) -> dict[str, Any]:
    """The job.

    Args:
        job_id, name, status: which one, and where it is in its life.
        since_ms, started_ms: when it came to this status, and when its manager started.
        waiting_for: what it or its rescale waits for, such as room on the cluster; None: nothing.
        attempt: number of the newest attempt.
        graph: None before it is planned.
        deployed: of each subtask, the attempt that it belongs to and the checkpoint that this went on from.
        finished: the subtasks that have emitted everything.
        processes: the id of each subtask's process, on its node.
        standbys: those of the processes that are warm to replace others.
        restarts, checkpoints: what has happened so far; checkpoints: None where there is no storage.
        error: why it failed.
    """
    tasks = graph.tasks if graph is not None else ()
    return {
        "id": job_id,
        "name": name,
        "status": status.value,
        "since_ms": since_ms,
        "started_ms": started_ms,
        "error": error,
        "waiting_for": waiting_for,
        "attempt": attempt,
        "manager_pid": os.getpid(),
        "standby_pids": list(standbys),
        "parallelism": max((task.parallelism for task in tasks), default=0),
        "tasks": [
            {
                "id": task.id,
                "name": task.name,
                "uids": task.uids,
                "parallelism": task.parallelism,
                "subtasks": [
                    {
                        "subtask": subtask,
                        "attempt": deployed.get((task.id, subtask), (0, 0))[0],
                        "pid": processes.get((task.id, subtask)),
                        "status": "finished" if (task.id, subtask) in finished else status.value,
                    }
                    for subtask in range(task.parallelism)
                ],
            }
            for task in tasks
        ],
        "restarts": restarts.failures,
        "restart_history": list(restarts.to_dicts()),
        "checkpoints": None if checkpoints is None or not checkpoints.claimed else _checkpoints(checkpoints),
    }


def _checkpoints(checkpoints: Checkpoints) -> dict[str, Any]:
    coordinator = checkpoints.coordinator
    statistics = coordinator.statistics
    latest = checkpoints.kept
    return {
        "completed": statistics.completed,
        "failed": statistics.failed,
        "in_progress": statistics.in_progress,
        "latest": latest.checkpoint if latest is not None else None,
        "latest_url": checkpoints.latest_url if latest is not None else None,
        "savepoint_url": checkpoints.savepoint_url,
        "restored_url": checkpoints.restored_url,
        "last_duration_ms": None if statistics.last_duration is None else round(statistics.last_duration * 1000, 1),
        "last_bytes": statistics.last_size.total,
        "last_bytes_written": statistics.last_size.new,
        "history": [_record(record, checkpoints.savepoint_of(record)) for record in coordinator.history],
    }


def _record(record: CheckpointRecord, url: str | None) -> dict[str, Any]:
    return {
        "checkpoint": record.checkpoint,
        "kind": record.kind.value,
        "status": "completed" if record.reason is None else "aborted",
        "reason": None if record.reason is None else record.reason.value,
        "message": record.message,
        "attempt": record.attempt,
        "triggered_ms": record.triggered_ms,
        "duration_ms": round(record.duration * 1000, 1),
        "acknowledged": record.acknowledged,
        "subtasks": record.subtasks,
        "bytes": record.size.total,
        "bytes_written": record.size.new,
        "url": url,
    }
