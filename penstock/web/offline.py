"""The web server without a cluster: savepoints and checkpoints in a folder, and the jobs that a console has seen end.

`penstock console --offline DIR` runs it until Ctrl-C. It reads and changes nothing: buttons are refused, state is that
of the files. Only this machine can reach it.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from penstock.engine.checkpointing.handles import CompletedCheckpoint
from penstock.engine.checkpointing.history import CheckpointPart
from penstock.engine.elements import SnapshotKind
from penstock.engine.errors import ClusterError, PenstockError
from penstock.engine.graph.scale import ParallelismRequest
from penstock.engine.job.info import CheckpointInfo, CheckpointsInfo, JobInfo, OperatorInfo, SubtaskInfo, TaskInfo
from penstock.engine.job.status import JobStatus
from penstock.engine.task.tap import TappedRows
from penstock.savepoints.reader import Savepoint, read
from penstock.savepoints.storage import open_blobs
from penstock.savepoints.store import ended_by, find_manifest
from penstock.web.cluster import Node, Reading
from penstock.web.serve import ENDED_JOBS, EndedJobs

if TYPE_CHECKING:
    from penstock.actors.stacks import SampledStack
    from penstock.actors.task_log import LogLine
    from penstock.savepoints.live_state import LiveState

_DEEPEST: Final = 2
"""Folders of savepoints and of jobs lie in the folder itself, or one below: `checkpoints` and `savepoints`."""


class OfflineCluster:
    """Has no jobs that run. See `Cluster`."""

    def read(self) -> Sequence[Reading]:
        return ()

    def awaited(self) -> Sequence[str]:
        return ()

    def nodes(self) -> Sequence[Node]:
        return ()

    def checkpoint(self, job_id: str) -> str:
        self._refuse()

    def savepoint(self, job_id: str, directory: str | None) -> str:
        self._refuse()

    def stop(self, job_id: str, directory: str | None) -> str:
        self._refuse()

    def drain(self, job_id: str, directory: str | None) -> str:
        self._refuse()

    def cancel(self, job_id: str) -> bool:
        self._refuse()

    def rescale(self, job_id: str, parallelism: ParallelismRequest) -> float:
        self._refuse()

    def stacks(self, job_id: str, task: int, subtask: int, seconds: float) -> Sequence[SampledStack]:
        self._refuse()

    def checkpoint_parts(self, job_id: str, checkpoint: int) -> Sequence[CheckpointPart]:
        return ()

    def logs(self, job_id: str, after: Mapping[tuple[int, int], int], most: int) -> Sequence[LogLine]:
        return ()

    def tail(self, job_id: str, uid: str, side: str, rows: int, seconds: float) -> TappedRows:
        self._refuse()

    def live_state(self, job_id: str, uid: str, name: str) -> LiveState:
        self._refuse()

    def saved(self, url: str) -> Savepoint:
        return read(url)

    def _refuse(self) -> NoReturn:
        raise ClusterError("this console is offline: it shows what is in files, and no job runs for it")


def jobs_in(folder: Path) -> list[JobInfo]:
    """What a folder tells of jobs: the log of a console in it, and each job and savepoint whose files are there.

    Args:
        folder: of checkpoints, of savepoints, of both (`checkpoints`, `savepoints`), or of a console.
    """
    logged = {info.id: info for info in EndedJobs(folder / ENDED_JOBS).read()}
    found = {info.id: info for info in _kept(folder, 0)}
    # What a console has seen of a job is more than its files tell, but for where its newest checkpoint is.
    both = {job_id: replace(logged[job_id], checkpoints=found[job_id].checkpoints) for job_id in logged.keys() & found}
    return list({**found, **logged, **both}.values())


def _kept(folder: Path, depth: int) -> Iterator[JobInfo]:
    for path in sorted(one for one in folder.iterdir() if one.is_dir() and not one.is_symlink()):
        try:
            yield _job_of(path)
        except PenstockError:
            # It is no job's folder, or a damaged one, which `penstock savepoint inspect` explains.
            if depth + 1 < _DEEPEST:
                yield from _kept(path, depth + 1)


def _job_of(path: Path) -> JobInfo:
    """The job whose checkpoints, or savepoint, lie in a folder."""
    found = find_manifest(str(path))
    taken = found.checkpoint
    is_savepoint = taken.kind is not SnapshotKind.CHECKPOINT
    status = JobStatus.FINISHED if is_savepoint else _status(path)
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


def _status(path: Path) -> JobStatus:
    """How the job ended; running where nobody has written that down: its manager may be alive elsewhere, or lost."""
    end = ended_by(open_blobs(str(path)))
    known = {status.value: status for status in JobStatus}
    return JobStatus.RUNNING if end is None else known.get(end.status, JobStatus.FAILED)


def _tasks(taken: CompletedCheckpoint, status: JobStatus) -> Iterator[TaskInfo]:
    first = {handle.task: handle for handle in sorted(taken.subtasks, key=lambda one: one.subtask, reverse=True)}
    for task in sorted(first):
        operators = tuple(OperatorInfo(operator.name, operator.uid) for operator in first[task].operators)
        count = first[task].parallelism
        subtasks = tuple(SubtaskInfo(subtask, taken.attempt, None, status) for subtask in range(count))
        yield TaskInfo(task, " -> ".join(one.name for one in operators), count, operators, (), subtasks)


def serve_offline(folder: Path, listening: socket.socket) -> None:
    """Serve what is in a folder to this machine, until Ctrl-C.

    Args:
        folder: as for `jobs_in`.
        listening: where it is to be reached.
    """
    from penstock.web.app import make_app
    from penstock.web.observed import Observed
    from penstock.web.security import LOOPBACK, Access, Role, Tokens
    from penstock.web.serve import web_server

    access = Access(Tokens(secrets.token_urlsafe(32), secrets.token_urlsafe(32)), Role.OPERATOR, LOOPBACK)
    app = make_app(OfflineCluster(), access, Observed(jobs_in(folder)))
    web_server(app).run(sockets=[listening])
