"""What the server asks of a cluster: the one seam between the web and Ray, so that all else is tested without.

`RayCluster` answers by the job managers. All calls block and are made in threads; they raise the typed errors of jobs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from penstock.engine.checkpointing.pending import CheckpointPart
from penstock.engine.errors import WorkerLostError
from penstock.engine.graph.scale import ParallelismRequest
from penstock.engine.job.info import JobInfo
from penstock.engine.metrics import SubtaskMetrics
from penstock.engine.task.tap import TappedRows

if TYPE_CHECKING:
    from penstock.actors.registry import JobControl
    from penstock.actors.task_log import LogLine
    from penstock.savepoints.live_state import LiveState
    from penstock.savepoints.reader import Savepoint

_STATES_KEPT: Final = 256
_STATE_PATIENCE_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Node:
    """A machine of the cluster.

    Args:
        id, address: which.
        cpus, free_cpus: slots of one CPU, as far as the cluster counts them.
        memory: bytes.
        alive: whether it answers.
        head: whether the cluster's own services run there.
    """

    id: str
    address: str
    cpus: float = 0.0
    free_cpus: float = 0.0
    memory: int = 0
    alive: bool = True
    head: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read of a job."""

    info: JobInfo
    metrics: Sequence[SubtaskMetrics]


class Cluster(Protocol):
    """The jobs and nodes of a cluster."""

    def read(self) -> Sequence[Reading]:
        """All jobs that answer."""
        ...

    def nodes(self) -> Sequence[Node]:
        """All machines."""
        ...

    def checkpoint(self, job_id: str) -> str:
        """Take a checkpoint; its URL. These raise a `PenstockError` where it cannot be done."""
        ...

    def savepoint(self, job_id: str, directory: str | None) -> str:
        """Take a savepoint; its URL."""
        ...

    def stop(self, job_id: str, directory: str | None) -> str:
        """Take a savepoint and end the job behind it; its URL."""
        ...

    def drain(self, job_id: str, directory: str | None) -> str:
        """End the sources, and the job with a savepoint behind everything; its URL."""
        ...

    def cancel(self, job_id: str) -> bool:
        """End the job now; False: it had ended."""
        ...

    def rescale(self, job_id: str, parallelism: ParallelismRequest) -> float:
        """Change the parallelism, as `JobHandle.rescale` does; the seconds that the job stood still."""
        ...

    def stacks(self, job_id: str, task: int, subtask: int, seconds: float) -> Sequence[tuple[tuple[str, ...], int]]:
        """Where the threads of a subtask are: each stack, outermost call first, with how often it was seen.

        Args:
            job_id, task, subtask: which.
            seconds: for how long to look; 0: once.
        """
        ...

    def checkpoint_parts(self, job_id: str, checkpoint: int) -> Sequence[CheckpointPart]:
        """What each subtask has done for a checkpoint; nothing where that is not known any more."""
        ...

    def logs(self, job_id: str, after: Mapping[tuple[int, int], int], most: int) -> Sequence[LogLine]:
        """What the functions of a job have printed and logged: the newest lines, by time.

        Args:
            job_id: which.
            after: by (task id, subtask), the number of the last line that is known.
            most: how many lines.
        """
        ...

    def tail(self, job_id: str, uid: str, side: str, rows: int, seconds: float) -> TappedRows:
        """The last rows that an operator emits; arguments as for `JobControl.tail`."""
        ...

    def live_state(self, job_id: str, uid: str, name: str) -> LiveState:
        """One state of an operator of a job, asked for as it is now."""
        ...

    def saved(self, url: str) -> Savepoint:
        """What a checkpoint holds."""
        ...


class RayCluster:
    """The cluster that this process is connected to.

    With each job it keeps a call that comes back when the job ends: managers whose clients know how leave at once.
    """

    def __init__(self) -> None:
        self._running: dict[str, tuple[JobInfo, Any]] = {}
        self._states: dict[tuple[str, str, str], LiveState] = {}

    def read(self) -> Sequence[Reading]:
        from penstock.actors.registry import named_jobs

        readings = []
        for job in named_jobs().values():
            try:
                reading = Reading(job.info(), job.subtask_metrics())
            except WorkerLostError:
                # Its manager is being restarted, or has left since.
                continue
            readings.append(reading)
            if reading.info.status.ended:
                self._running.pop(reading.info.id, None)
            else:
                _, end = self._running.get(reading.info.id, (None, None))
                self._running[reading.info.id] = reading.info, end if end is not None else job.end()
        there = {reading.info.id for reading in readings}
        return [*readings, *(ended for ended in self._ended() if ended.info.id not in there)]

    def _ended(self) -> Iterator[Reading]:
        """The jobs that have ended since they were read last."""
        import ray
        from ray.exceptions import RayError

        for job_id, (info, end) in list(self._running.items()):
            if not ray.wait([end], timeout=0)[0]:
                continue
            del self._running[job_id]
            try:
                report = ray.get(end)
            except RayError:
                # The manager died; where Ray restarts it, it is read again.
                continue
            error = None if report.error is None else str(report.error)
            now_ms = time.time_ns() // 1_000_000
            yield Reading(replace(info, status=report.status, error=error, since_ms=now_ms), report.metrics)

    def nodes(self) -> Sequence[Node]:
        import ray

        free = ray._private.state.available_resources_per_node()  # type: ignore[no-untyped-call]
        return [
            Node(
                str(one["NodeID"]),
                str(one["NodeManagerAddress"]),
                float(one["Resources"].get("CPU", 0.0)),
                float(free.get(one["NodeID"], {}).get("CPU", 0.0)),
                int(one["Resources"].get("memory", 0)),
                bool(one["Alive"]),
                "node:__internal_head__" in one["Resources"],
            )
            for one in ray.nodes()  # type: ignore[no-untyped-call]
        ]

    def checkpoint(self, job_id: str) -> str:
        return self._job(job_id).checkpoint()

    def savepoint(self, job_id: str, directory: str | None) -> str:
        return self._job(job_id).savepoint(directory)

    def stop(self, job_id: str, directory: str | None) -> str:
        return self._job(job_id).stop(directory)

    def drain(self, job_id: str, directory: str | None) -> str:
        return self._job(job_id).drain(directory)

    def cancel(self, job_id: str) -> bool:
        return self._job(job_id).cancel()

    def rescale(self, job_id: str, parallelism: ParallelismRequest) -> float:
        return self._job(job_id).rescale(parallelism)

    def stacks(self, job_id: str, task: int, subtask: int, seconds: float) -> Sequence[tuple[tuple[str, ...], int]]:
        return self._job(job_id).stacks(task, subtask, seconds)

    def checkpoint_parts(self, job_id: str, checkpoint: int) -> Sequence[CheckpointPart]:
        return self._job(job_id).checkpoint_parts(checkpoint)

    def logs(self, job_id: str, after: Mapping[tuple[int, int], int], most: int) -> Sequence[LogLine]:
        return self._job(job_id).logs(after, most)

    def tail(self, job_id: str, uid: str, side: str, rows: int, seconds: float) -> TappedRows:
        return self._job(job_id).tail(uid, rows, seconds, side)

    def live_state(self, job_id: str, uid: str, name: str) -> LiveState:
        place = (job_id, uid, name)
        # Each knows where its subtasks are, which the job manager need not be asked again.
        if place not in self._states:
            if len(self._states) >= _STATES_KEPT:
                self._states.clear()
            self._states[place] = self._job(job_id).state(uid, name, _STATE_PATIENCE_SECONDS)
        return self._states[place]

    def saved(self, url: str) -> Savepoint:
        from penstock.savepoints.reader import read

        return read(url)

    def _job(self, job_id: str) -> JobControl:
        from penstock.actors.registry import find_job

        return find_job(job_id)
