"""The web server without a cluster: savepoints and checkpoints in a folder, and the jobs that a console has seen end.

`penstock console --offline DIR` runs it until Ctrl-C. It reads and changes nothing: buttons are refused, state is that
of the files. Only this machine can reach it.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from penstock.engine.checkpointing.history import CheckpointPart
from penstock.engine.errors import ClusterError
from penstock.engine.graph.scale import ParallelismRequest
from penstock.engine.job.info import JobInfo
from penstock.engine.job.rescale_preview import RescalePreview
from penstock.engine.metrics import ChannelStatistics
from penstock.engine.task.tap import TappedRows
from penstock.savepoints.reader import Savepoint
from penstock.web.cluster import Node, Reading, checkpoint_of
from penstock.web.serve import ENDED_JOBS, EndedJobs
from penstock.web.stored_jobs import stored_jobs

if TYPE_CHECKING:
    from penstock.actors.stacks import SampledStack
    from penstock.actors.task_log import LogLine
    from penstock.savepoints.live_state import LiveState


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

    def preview_rescales(self, job_id: str, wanted: Sequence[ParallelismRequest]) -> Sequence[RescalePreview]:
        self._refuse()

    def explain(self, job_id: str) -> str:
        self._refuse()

    def stacks(self, job_id: str, task: int, subtask: int | None, seconds: float) -> Sequence[SampledStack]:
        self._refuse()

    def channels(self, job_id: str, task: int, subtask: int) -> Sequence[ChannelStatistics]:
        self._refuse()

    def checkpoint_parts(self, job_id: str, checkpoint: int) -> Sequence[CheckpointPart]:
        return ()

    def logs(self, job_id: str, after: Mapping[tuple[int, int], int], most: int) -> Sequence[LogLine]:
        return ()

    def tail(self, job_id: str, uid: str, side: str, rows: int, seconds: float) -> TappedRows:
        self._refuse()

    def live_state(self, job_id: str, uid: str, name: str) -> LiveState:
        self._refuse()

    def newest_checkpoint(self, info: JobInfo) -> Savepoint:
        return checkpoint_of(info)

    def _refuse(self) -> NoReturn:
        raise ClusterError("this console is offline: it shows what is in files, and no job runs for it")


def jobs_in(folder: Path) -> list[JobInfo]:
    """What a folder tells of jobs: the log of a console in it, and each job and savepoint whose files are there.

    Args:
        folder: of checkpoints, of savepoints, of both (`checkpoints`, `savepoints`), or of a console.
    """
    logged = {info.id: info for info in EndedJobs(folder / ENDED_JOBS).read()}
    found = {info.id: info for info in stored_jobs(folder)}
    # What a console has seen of a job is more than its files tell, but for where its newest checkpoint is.
    both = {job_id: replace(logged[job_id], checkpoints=found[job_id].checkpoints) for job_id in logged.keys() & found}
    return list({**found, **logged, **both}.values())


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
