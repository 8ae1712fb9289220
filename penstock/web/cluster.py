"""What the server asks of a cluster: the one seam between the web and Ray, so that all else is tested without.

`RayCluster` answers by the job managers. All calls block and are made in threads; they raise the typed errors of jobs.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from penstock.engine.checkpointing.history import CheckpointPart
from penstock.engine.errors import CheckpointError, PenstockError, WorkerLostError
from penstock.engine.graph.scale import ParallelismRequest
from penstock.engine.job.info import JobInfo
from penstock.engine.job.rescale_preview import RescalePreview
from penstock.engine.job.status import JobStatus
from penstock.engine.metrics import ChannelStatistics, SubtaskMetrics
from penstock.engine.task.tap import TappedRows
from penstock.queryable_state import newest_checkpoint

if TYPE_CHECKING:
    from ray.exceptions import RayError

    from penstock.actors.registry import JobControl
    from penstock.actors.stacks import SampledStack
    from penstock.actors.task_log import LogLine
    from penstock.savepoints.live_state import LiveState
    from penstock.savepoints.reader import Savepoint

_LOG = logging.getLogger(__name__)
_STATES_KEPT: Final = 256
_STATE_PATIENCE_SECONDS: Final = 2.0
_PATIENCE_SECONDS: Final = 2.0
_SILENT_SECONDS: Final = 10.0
"""A manager that takes longer to answer does not answer."""


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

    def awaited(self) -> Sequence[str]:
        """The ids of jobs that have not answered yet at the last reading, and may: what is known of them stays."""
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

    def preview_rescales(self, job_id: str, wanted: Sequence[ParallelismRequest]) -> Sequence[RescalePreview]:
        """What rescales would do, as `JobControl.preview_rescales` says; it looks at the job for three seconds."""
        ...

    def explain(self, job_id: str) -> str:
        """The plan of a job that runs, as text."""
        ...

    def stacks(self, job_id: str, task: int, subtask: int | None, seconds: float) -> Sequence[SampledStack]:
        """Where the threads of a subtask are: each stack, outermost call first, with how often it was seen.

        Args:
            job_id, task, subtask: which; no subtask: all of the task, added up.
            seconds: for how long to look; 0: once.
        """
        ...

    def channels(self, job_id: str, task: int, subtask: int) -> Sequence[ChannelStatistics]:
        """The channels behind a subtask, as of now."""
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

    def newest_checkpoint(self, info: JobInfo) -> Savepoint:
        """What the newest checkpoint of a job holds: of one that runs, what is so now, as later ones remove its files.

        Raises:
            CheckpointError: it has completed none, or that is gone.
        """
        ...


def checkpoint_of(info: JobInfo) -> Savepoint:
    """The newest checkpoint of a job, as it is known here. Errors as for `Cluster.newest_checkpoint`."""
    from penstock.savepoints.reader import read

    if info.checkpoints is None or info.checkpoints.latest_url is None:
        raise CheckpointError(f"job {info.name!r} has no checkpoint: it has completed none, or removed it at its end")
    return read(info.checkpoints.latest_url)


@dataclass(slots=True, eq=False)
class _Watched:
    """A job whose manager is asked again and again.

    Args:
        control: of the job.
        end: a call that comes back when the job ends: managers whose clients know how leave at once.
        info: what its manager said last; None: nothing so far.
        asked: a call for its state and its counters that is not answered yet. One that is stopped or cut off is asked
            no more meanwhile, and nobody waits for it.
        asked_at: when, monotonic seconds.
    """

    control: JobControl
    end: Any
    info: JobInfo | None = None
    asked: Any = None
    asked_at: float = 0.0

    @property
    def has_ended(self) -> bool:
        """Whether it is known how the job has ended."""
        return self.info is not None and self.info.status.ended

    def ask(self) -> Sequence[Any]:
        """Ask, if no question is open; the new call."""
        if self.asked is not None:
            return ()
        try:
            self.asked, self.asked_at = self.control.reading(), time.monotonic()
        except AttributeError:
            # It is of an older version; the others are shown all the same.
            return ()
        return (self.asked,)

    def answer(self) -> Reading | None:
        """What it has answered; None: not yet, or it is being restarted, or has left since."""
        import ray

        from penstock.actors.registry import answer_of

        if self.asked is None or not ray.wait([self.asked], timeout=0)[0]:
            return None
        call, self.asked = self.asked, None
        try:
            self.info, metrics = answer_of(call, self.control.name)
        except WorkerLostError:
            return None
        except PenstockError:
            # The others are shown all the same.
            _LOG.exception("the manager of job %r cannot say how it is", self.control.name)
            return None
        return Reading(self.info, metrics)

    def ended(self) -> Reading | None:
        """How the job has ended, where its manager has told that or is gone for good; None: neither."""
        import ray
        from ray.exceptions import ActorDiedError, RayError

        if not ray.wait([self.end], timeout=0)[0]:
            return None
        try:
            report = ray.get(self.end)
        except ActorDiedError as error:
            return self._lost(error)
        except RayError:
            # Ray restarts it.
            self.end = self.control.end()
            return None
        return self._end(report.status, None if report.error is None else str(report.error), report.metrics)

    def _lost(self, error: RayError) -> Reading | None:
        from penstock.actors.deaths import remark

        try:
            # The end of a detached job may be written down.
            self.info = self.control.info()
            return Reading(self.info, ())
        except PenstockError:
            why = f"the job manager's process died, and the job with it{remark(error)}"
            return self._end(JobStatus.FAILED, why, ())

    def _end(self, status: JobStatus, error: str | None, metrics: Sequence[SubtaskMetrics]) -> Reading | None:
        if self.info is None:
            return None
        self.info = replace(self.info, status=status, error=error, since_ms=time.time_ns() // 1_000_000)
        return Reading(self.info, metrics)


class RayCluster:
    """The cluster that this process is connected to."""

    def __init__(self) -> None:
        self._watched: dict[str, _Watched] = {}
        self._states: dict[tuple[str, str, str], LiveState] = {}

    def read(self) -> Sequence[Reading]:
        import ray

        from penstock.actors.registry import named_jobs

        there = {job.manager_id: job for job in named_jobs().values()}
        for manager, job in there.items():
            if manager not in self._watched:
                self._watched[manager] = _Watched(job, job.end())
        if calls := [call for manager in there for call in self._watched[manager].ask()]:
            ray.wait(calls, num_returns=len(calls), timeout=_PATIENCE_SECONDS)
        readings = [one for manager in there if (one := self._watched[manager].answer()) is not None]
        answered = {reading.info.id for reading in readings}
        for manager, watched in list(self._watched.items()):
            if not watched.has_ended and (watched.info is None or watched.info.id not in answered):
                readings += [ended] if (ended := watched.ended()) is not None else []
            if manager not in there and (watched.has_ended or watched.info is None):
                del self._watched[manager]
        return readings

    def awaited(self) -> Sequence[str]:
        now = time.monotonic()
        return [
            one.info.id
            for one in tuple(self._watched.values())
            if one.info is not None and one.asked is not None and now - one.asked_at < _SILENT_SECONDS
        ]

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

    def preview_rescales(self, job_id: str, wanted: Sequence[ParallelismRequest]) -> Sequence[RescalePreview]:
        return self._job(job_id).preview_rescales(wanted)

    def explain(self, job_id: str) -> str:
        return self._job(job_id).explain()

    def stacks(self, job_id: str, task: int, subtask: int | None, seconds: float) -> Sequence[SampledStack]:
        return self._job(job_id).stacks(task, subtask, seconds)

    def channels(self, job_id: str, task: int, subtask: int) -> Sequence[ChannelStatistics]:
        return self._job(job_id).channels(task, subtask)

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

    def newest_checkpoint(self, info: JobInfo) -> Savepoint:
        return checkpoint_of(info) if info.status.ended else newest_checkpoint(self._job(info.id))

    def _job(self, job_id: str) -> JobControl:
        from penstock.actors.registry import find_job

        for one in tuple(self._watched.values()):
            # To find it by its id, all managers would be asked for theirs.
            if one.info is not None and one.info.id == job_id and not one.has_ended:
                return one.control
        return find_job(job_id)
