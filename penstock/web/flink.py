"""The documents of Flink's REST, made of what was observed: jobs, tasks, checkpoints, exceptions.

Its clients (web UI, Kubernetes operator, dashboards) read them. Ids of jobs and tasks are Penstock's own texts. What
Penstock has no figure for is there with the value that Flink gives where it has none.

Source of paths and members: Flink's documentation, "REST API".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from penstock.engine.elements import SnapshotKind
from penstock.engine.job.info import CheckpointInfo, CheckpointsInfo, JobInfo, RestartInfo, SubtaskInfo
from penstock.engine.job.status import JobStatus
from penstock.savepoints.paths import number_of
from penstock.web.figures import NO_SUBTASKS, Subtasks
from penstock.web.flink_metrics import text
from penstock.web.observed import JobView, TaskView, status_of

VERSION: Final = "2.3"
"""Of Flink whose paths these are, for clients that ask."""
_TASK_STATES: Final = (
    "CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING", "FINISHED", "CANCELING", "CANCELED", "FAILED",
    "RECONCILING",
)  # fmt: skip
_JOB_STATES: Final[Mapping[JobStatus, str]] = {
    JobStatus.CREATED: "CREATED",
    JobStatus.DEPLOYING: "INITIALIZING",
    JobStatus.RUNNING: "RUNNING",
    JobStatus.RESTARTING: "RESTARTING",
    JobStatus.FINISHED: "FINISHED",
    JobStatus.CANCELLED: "CANCELED",
    JobStatus.FAILED: "FAILED",
}
_SUBTASK_STATES: Final[Mapping[JobStatus, str]] = {
    **_JOB_STATES,
    JobStatus.DEPLOYING: "DEPLOYING",
    JobStatus.RESTARTING: "DEPLOYING",
}
_SHARES: Final = (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999))


def job_state(view: JobView) -> str:
    """The status by Flink's name."""
    return _JOB_STATES.get(status_of(view), "RUNNING")


def overview(views: Sequence[JobView], slots: tuple[int, int], nodes: int) -> dict[str, Any]:
    """`/overview`; `slots`: how many there are, and how many are free."""
    states = Counter(job_state(view) for view in views)
    ended = sum(states[state] for state in ("FINISHED", "CANCELED", "FAILED"))
    return {
        "taskmanagers": nodes,
        "slots-total": slots[0],
        "slots-available": slots[1],
        "jobs-running": sum(states.values()) - ended,
        "jobs-finished": states["FINISHED"],
        "jobs-cancelled": states["CANCELED"],
        "jobs-failed": states["FAILED"],
        "flink-version": VERSION,
        "flink-commit": "penstock",
    }


def config() -> dict[str, Any]:
    """`/config`."""
    return {
        "refresh-interval": 2000,
        "timezone-name": "UTC",
        "timezone-offset": 0,
        "flink-version": VERSION,
        "flink-revision": "penstock",
        "features": {"web-submit": False, "web-cancel": True, "web-rescale": True, "web-history": False},
    }


def jobs_overview(views: Sequence[JobView]) -> dict[str, Any]:
    """`/jobs/overview`."""
    return {"jobs": [_overview(view) for view in views]}


def _times(view: JobView) -> dict[str, int]:
    end = view.info.since_ms if view.info.status.ended else -1
    return {
        "start-time": view.began_ms,
        "end-time": end,
        "duration": max(0, (view.seen_ms, end)[end > 0] - view.began_ms),
    }


def _overview(view: JobView) -> dict[str, Any]:
    states = _states([subtask for task in view.info.tasks for subtask in task.subtasks])
    return {
        "jid": view.info.id,
        "name": view.info.name,
        "state": job_state(view),
        **_times(view),
        "last-modification": view.info.since_ms,
        "tasks": {"total": sum(states.values()), **{name.lower(): count for name, count in states.items()}},
        "pending-operators": 0,
    }


def _states(subtasks: Sequence[SubtaskInfo]) -> dict[str, int]:
    counted = Counter(_SUBTASK_STATES.get(one.status, "RUNNING") for one in subtasks)
    return {state: counted[state] for state in _TASK_STATES}


def job(view: JobView) -> dict[str, Any]:
    """`/jobs/:jobid`."""
    info = view.info
    timestamps = dict.fromkeys(
        (*_TASK_STATES[:1], "INITIALIZING", "RUNNING", "RESTARTING", "FINISHED", "CANCELED", "FAILED", "SUSPENDED"), 0
    )
    timestamps["CREATED"] = view.began_ms
    timestamps[job_state(view)] = info.since_ms
    return {
        "jid": info.id,
        "name": info.name,
        "isStoppable": info.checkpoints is not None,
        "state": job_state(view),
        "job-type": "STREAMING",
        **_times(view),
        "maxParallelism": info.max_parallelism or -1,
        "now": view.seen_ms,
        "timestamps": timestamps,
        "vertices": [vertex(view, task) for task in view.tasks],
        "status-counts": _states([subtask for task in info.tasks for subtask in task.subtasks]),
        "plan": plan(info),
        "pending-operators": 0,
    }


def plan(info: JobInfo) -> dict[str, Any]:
    """The graph as Flink draws it."""
    return {
        "jid": info.id,
        "name": info.name,
        "type": "STREAMING",
        "nodes": [
            {
                "id": str(task.id),
                "parallelism": task.parallelism,
                "operator": "",
                "operator_strategy": "",
                "description": task.name,
                "inputs": [
                    {
                        "num": number,
                        "id": str(one.task),
                        "ship_strategy": one.partitioner.partition(" ")[0].upper(),
                        "exchange": "pipelined_bounded",
                    }
                    for number, one in enumerate(task.inputs)
                ],
                "optimizer_properties": {},
            }
            for task in info.tasks
        ],
    }


def vertex(view: JobView, task: TaskView) -> dict[str, Any]:
    """A task as `/jobs/:jobid` has it."""
    states = _states(task.info.subtasks)
    return {
        "id": str(task.info.id),
        "slotSharingGroupId": "default",
        "name": task.info.name,
        "maxParallelism": view.info.max_parallelism or -1,
        "parallelism": task.info.parallelism,
        "status": _task_state(states),
        **_times(view),
        "tasks": states,
        "metrics": _io(task.subtasks),
    }


def _task_state(states: Mapping[str, int]) -> str:
    """Of a task whose subtasks differ: what those that are furthest behind are."""
    order = ("FAILED", "CANCELED", "CREATED", "SCHEDULED", "DEPLOYING", "INITIALIZING", "RUNNING", "FINISHED")
    return next((state for state in order if states[state]), "CREATED")


def _io(subtasks: Subtasks) -> dict[str, Any]:
    return {
        "read-bytes": 0,
        "read-bytes-complete": False,
        "write-bytes": subtasks.total("bytes_out"),
        "write-bytes-complete": True,
        "read-records": subtasks.total("rows_in"),
        "read-records-complete": True,
        "write-records": subtasks.total("rows_out"),
        "write-records-complete": True,
        "accumulated-backpressured-time": int(subtasks.total("blocked") * 1000),
        "accumulated-idle-time": int(subtasks.total("idle") * 1000),
        "accumulated-busy-time": float(subtasks.total("busy") * 1000),
    }


def task_details(view: JobView, task: TaskView) -> dict[str, Any]:
    """`/jobs/:jobid/vertices/:vertexid`."""
    figures = {one.subtask: task.subtasks[row : row + 1] for row, one in enumerate(task.subtasks.metrics)}
    return {
        "id": str(task.info.id),
        "name": task.info.name,
        "parallelism": task.info.parallelism,
        "maxParallelism": view.info.max_parallelism or -1,
        "now": view.seen_ms,
        "subtasks": [
            {
                "subtask": one.subtask,
                "status": _SUBTASK_STATES.get(one.status, "RUNNING"),
                "attempt": one.attempt,
                "endpoint": "" if one.pid is None else f"pid {one.pid}",
                **_times(view),
                "metrics": _io(figures.get(one.subtask, NO_SUBTASKS)),
                "taskmanager-id": "" if one.pid is None else str(one.pid),
                "status-duration": {},
                "other-concurrent-attempts": None,
            }
            for one in task.info.subtasks
        ],
    }


def subtask_times(view: JobView, task: TaskView) -> dict[str, Any]:
    """`/jobs/:jobid/vertices/:vertexid/subtasktimes`."""
    return {
        "id": str(task.info.id),
        "name": task.info.name,
        "now": view.seen_ms,
        "subtasks": [
            {"subtask": one.subtask, "endpoint": "", **_times(view), "timestamps": {}} for one in task.info.subtasks
        ],
    }


def _level(share: float) -> str:
    return "high" if share > 0.5 else "low" if share > 0.1 else "ok"


def backpressure(view: JobView, task: TaskView) -> dict[str, Any]:
    """`/jobs/:jobid/vertices/:vertexid/backpressure`; levels by Flink's limits."""
    highest = _level(task.subtasks.highest("blocked"))
    attempts = {one.subtask: one.attempt for one in task.info.subtasks}
    return {
        "status": "ok" if task.subtasks else "deprecated",
        "backpressureLevel": highest,
        "backpressure-level": highest,
        "end-timestamp": view.seen_ms,
        "subtasks": [
            {
                "subtask": one.subtask,
                "attempt-number": attempts.get(one.subtask, 0),
                "backpressureLevel": _level(one.rates.blocked),
                "backpressure-level": _level(one.rates.blocked),
                "ratio": one.rates.blocked,
                "idleRatio": one.rates.idle,
                "busyRatio": one.rates.busy,
            }
            for one in task.subtasks
        ],
    }


def watermarks(task: TaskView) -> list[dict[str, str]]:
    """`/jobs/:jobid/vertices/:vertexid/watermarks`."""
    return [
        {"id": f"{one.subtask}.currentInputWatermark", "value": text(one.input_watermark)}
        for one in task.subtasks
        if one.input_watermark is not None
    ]


def checkpoints(info: JobInfo) -> dict[str, Any]:
    """`/jobs/:jobid/checkpoints`."""
    found = info.checkpoints or CheckpointsInfo()
    history = [checkpoint(one) for one in reversed(found.history)]
    completed = [one for one in found.history if one.status == "completed"]
    newest: dict[str, Any] = dict.fromkeys(("completed", "savepoint", "failed"))
    restores = _restores(info)
    for one in found.history:
        if one.status != "completed":
            newest["failed"] = checkpoint(one)
        elif one.kind is SnapshotKind.CHECKPOINT:
            newest["completed"] = checkpoint(one)
        else:
            newest["savepoint"] = checkpoint(one)
    return {
        "counts": {
            "restored": len(restores),
            "total": found.completed + found.failed + found.in_progress,
            "in_progress": found.in_progress,
            "completed": found.completed,
            "failed": found.failed,
        },
        "summary": {
            "checkpointed_size": summary_of([one.bytes_written for one in completed]),
            "state_size": summary_of([one.bytes for one in completed]),
            "end_to_end_duration": summary_of([one.duration_ms for one in completed]),
            "alignment_buffered": summary_of([]),
            "processed_data": summary_of([]),
            "persisted_data": summary_of([]),
        },
        "latest": {**newest, "restored": restores[-1] if restores else None},
        "history": history,
    }


def _restores(info: JobInfo) -> list[dict[str, Any]]:
    """What the job began with, and what it has gone back to since, as far as it keeps that; the newest last."""
    found = info.checkpoints or CheckpointsInfo()
    paths = {one.checkpoint: one.url for one in found.history if one.kind is SnapshotKind.CHECKPOINT}
    restores = []
    if (url := found.restored_url) is not None:
        restores.append(_restore(number_of(url) or 0, info.started_ms, "/savepoint-" in url, url))
    behind = [one for one in info.restart_history if one.checkpoint and one.restore_ms is not None]
    return restores + [_restore(one.checkpoint, one.at_ms, False, paths.get(one.checkpoint) or "") for one in behind]


def _restore(number: int, at_ms: int, is_savepoint: bool, path: str) -> dict[str, Any]:
    return {"id": number, "restore_timestamp": at_ms, "is_savepoint": is_savepoint, "external_path": path}


def checkpoint(one: CheckpointInfo) -> dict[str, Any]:
    """One of the history, also `/jobs/:jobid/checkpoints/details/:checkpointid`."""
    kind = one.kind is not SnapshotKind.CHECKPOINT
    document: dict[str, Any] = {
        "className": "completed" if one.status == "completed" else "failed",
        "id": one.checkpoint,
        "status": "COMPLETED" if one.status == "completed" else "FAILED",
        "is_savepoint": kind,
        "savepointFormat": "CANONICAL" if kind else None,
        "trigger_timestamp": one.triggered_ms,
        "latest_ack_timestamp": one.triggered_ms + int(one.duration_ms),
        "checkpointed_size": one.bytes_written,
        "state_size": one.bytes,
        "end_to_end_duration": int(one.duration_ms),
        "alignment_buffered": 0,
        "processed_data": 0,
        "persisted_data": 0,
        "num_subtasks": one.subtasks,
        "num_acknowledged_subtasks": one.acknowledged,
        "checkpoint_type": "SAVEPOINT" if kind else "CHECKPOINT",
        "tasks": {},
    }
    if one.status == "completed":
        return {**document, "external_path": one.url or "<checkpoint-not-externally-addressable>", "discarded": False}
    return {
        **document,
        "failure_timestamp": one.triggered_ms + int(one.duration_ms),
        "failure_message": one.message or (one.reason.value if one.reason is not None else ""),
    }


def summary_of(values: Sequence[float]) -> dict[str, float | str]:
    """How figures are spread, as Flink tells it; quantiles of none are no numbers."""
    if not values:
        return {"min": 0, "max": 0, "avg": 0, **{name: "NaN" for name, _ in _SHARES}}
    ordered = sorted(values)
    shares = {name: float(ordered[min(len(ordered) - 1, int(share * len(ordered)))]) for name, share in _SHARES}
    return {"min": int(ordered[0]), "max": int(ordered[-1]), "avg": int(sum(ordered) / len(ordered)), **shares}


def checkpoints_config(info: JobInfo) -> dict[str, Any]:
    """`/jobs/:jobid/checkpoints/config`."""
    settings = dict(info.settings)

    def get(name: str, otherwise: str = "0") -> str:
        return settings.get(f"checkpoints.{name}", otherwise)

    return {
        "mode": "at_least_once" if get("mode", "") == "at-least-once" else "exactly_once",
        "interval": int(get("interval_ms")),
        "timeout": int(get("timeout_ms")),
        "min_pause": int(get("min_pause_ms")),
        "max_concurrent": int(get("max_concurrent", "1")),
        "externalization": {
            "enabled": get("retain_on_cancel") == "True",
            "delete_on_cancellation": get("retain_on_cancel") != "True",
        },
        "state_backend": settings.get("state_backend", ""),
        "checkpoint_storage": get("storage", ""),
        "unaligned_checkpoints": get("mode", "") == "unaligned",
        "tolerable_failed_checkpoints": int(get("tolerable_failures")) if get("tolerable_failures").isdigit() else -1,
        "aligned_checkpoint_timeout": int(get("alignment_timeout_ms")) if get("alignment_timeout_ms").isdigit() else 0,
        "checkpoints_after_tasks_finish": True,
        "state_changelog_enabled": False,
    }


def _errors(restart: RestartInfo) -> Iterator[str]:
    """The newest first; of what was asked for, those that kept it from its end."""
    if restart.last_cause is not None:
        yield restart.last_cause
    if restart.kind in ("failure", "takeover"):
        yield restart.cause


def exceptions(view: JobView, most: int) -> dict[str, Any]:
    """`/jobs/:jobid/exceptions`: the failures that the job got over, the newest first, and the one that ended it."""
    info = view.info
    entries = [(cause, one.at_ms) for one in reversed(info.restart_history) for cause in _errors(one)]
    if info.error is not None:
        entries.insert(0, (info.error, info.since_ms))
    return {
        "root-exception": entries[0][0] if entries else None,
        "timestamp": entries[0][1] if entries else None,
        "all-exceptions": [],
        "truncated": len(entries) > most,
        "exceptionHistory": {
            "entries": [
                {
                    "exceptionName": cause.partition("\n")[0],
                    "stacktrace": cause,
                    "timestamp": at_ms,
                    "failureLabels": {},
                    "taskName": None,
                    "endpoint": None,
                    "taskManagerId": None,
                    "concurrentExceptions": [],
                }
                for cause, at_ms in entries[:most]
            ],
            "truncated": len(entries) > most,
        },
    }


def job_config(info: JobInfo) -> dict[str, Any]:
    """`/jobs/:jobid/config`."""
    settings = dict(info.settings)
    return {
        "jid": info.id,
        "name": info.name,
        "execution-config": {
            "execution-mode": "PIPELINED",
            "restart-strategy": _restart_strategy(info.settings),
            "job-parallelism": info.parallelism,
            "object-reuse-mode": False,
            "user-config": settings,
        },
    }


def _restart_strategy(settings: Sequence[tuple[str, str]]) -> str:
    """What a job does behind failures, with the settings of that."""
    strategy, *its = [(name, value) for name, value in settings if name.startswith("failover.restart")] or [("", "")]
    told = ", ".join(f"{name.rpartition('.')[2]} {value}" for name, value in its)
    return f"{strategy[1]} ({told})" if told else strategy[1]


def resource_requirements(info: JobInfo) -> dict[str, Any]:
    """`/jobs/:jobid/resource-requirements`."""
    return {str(task.id): {"parallelism": {"lowerBound": 1, "upperBound": task.parallelism}} for task in info.tasks}
