"""Jobs of which files alone tell: their checkpoints, savepoints, and what their managers wrote down.

The offline server lists them, and a console that starts lists those that had ended before. It reads local folders.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from penstock.engine.checkpointing.handles import CompletedCheckpoint
from penstock.engine.elements import SnapshotKind
from penstock.engine.errors import PenstockError
from penstock.engine.job.info import CheckpointInfo, CheckpointsInfo, JobInfo, OperatorInfo, SubtaskInfo, TaskInfo
from penstock.engine.job.status import JobStatus
from penstock.savepoints.paths import CLAIMS
from penstock.savepoints.reader import read
from penstock.savepoints.storage import open_blobs
from penstock.savepoints.store import End, ended_by, find_manifest, newest_claim

_DEEPEST: Final = 2
"""Folders of savepoints and of jobs lie in the folder itself, or one below: `checkpoints` and `savepoints`."""


def stored_jobs(folder: Path) -> Iterator[JobInfo]:
    """What files tell of jobs: those with checkpoints, savepoints, and jobs of which only claims and log are left.

    Args:
        folder: of checkpoints, of savepoints, or of both (`checkpoints`, `savepoints`).
    """
    yield from _stored(folder, 0)


def ended_in(folder: Path) -> list[JobInfo]:
    """The jobs that have ended, of which the folder of all jobs' checkpoints tells; none where it is not there."""
    found = _stored(folder, _DEEPEST) if folder.is_dir() else ()
    return [info for info in found if info.status.ended and (folder / info.id / CLAIMS).is_dir()]


def _stored(folder: Path, depth: int) -> Iterator[JobInfo]:
    for path in sorted(one for one in folder.iterdir() if one.is_dir() and not one.is_symlink()):
        try:
            yield _job_of(path)
        except PenstockError:
            # It is no job's folder, or a damaged one, which `penstock savepoint inspect` explains.
            if (left := _job_without_state(path)) is not None:
                yield left
            elif depth + 1 < _DEEPEST:
                yield from _stored(path, depth + 1)


def _job_without_state(path: Path) -> JobInfo | None:
    """The job whose checkpoints are gone, by what its newest manager wrote down; None: it is no job's folder."""
    blobs = open_blobs(str(path))
    try:
        claim, end = newest_claim(blobs), ended_by(blobs)
    except PenstockError:
        return None
    name, began = claim.get("job"), claim.get("claimed_ms")
    if not isinstance(name, str):
        return None
    last = max(int(file.stat().st_mtime * 1000) for file in (path / CLAIMS).iterdir())
    error = None if end is None or not end.message else end.message
    return JobInfo(path.name, name, _status_of(end), last, began if isinstance(began, int) else last, error)


def _job_of(path: Path) -> JobInfo:
    """The job whose checkpoints, or savepoint, lie in a folder."""
    found = find_manifest(str(path))
    taken = found.checkpoint
    is_savepoint = taken.kind is not SnapshotKind.CHECKPOINT
    status = JobStatus.FINISHED if is_savepoint else _status_of(ended_by(open_blobs(str(path))))
    size = sum({file.path: file.length for file in taken.files()}.values())
    url = read(str(path)).path
    one = CheckpointInfo(
        taken.checkpoint,
        taken.kind,
        "completed",
        taken.attempt,
        taken.triggered_ms,
        float(taken.completed_ms - taken.triggered_ms),
        len(taken.subtasks),
        len(taken.subtasks),
        size,
        size,
        url=url,
    )
    tasks = tuple(_tasks(taken, status))
    return JobInfo(
        path.name if is_savepoint else taken.job_id,
        f"{taken.job_name} ({path.name})" if is_savepoint else taken.job_name,
        status,
        since_ms=taken.completed_ms,
        started_ms=taken.triggered_ms,
        attempt=taken.attempt,
        parallelism=max((task.parallelism for task in tasks), default=0),
        max_parallelism=taken.max_parallelism,
        tasks=tasks,
        checkpoints=CheckpointsInfo(1, latest=taken.checkpoint, latest_url=url, last_bytes=size, history=(one,)),
    )


def _status_of(end: End | None) -> JobStatus:
    """How the job ended; running where nobody has written that down: its manager may be alive elsewhere, or lost."""
    known = {status.value: status for status in JobStatus}
    return JobStatus.RUNNING if end is None else known.get(end.status, JobStatus.FAILED)


def _tasks(taken: CompletedCheckpoint, status: JobStatus) -> Iterator[TaskInfo]:
    first = {handle.task: handle for handle in sorted(taken.subtasks, key=lambda one: one.subtask, reverse=True)}
    for task in sorted(first):
        operators = tuple(OperatorInfo(operator.name, operator.uid) for operator in first[task].operators)
        count = first[task].parallelism
        subtasks = tuple(SubtaskInfo(subtask, taken.attempt, None, status) for subtask in range(count))
        yield TaskInfo(task, " -> ".join(one.name for one in operators), count, operators, (), subtasks)
