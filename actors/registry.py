"""The jobs of a cluster by name: how they are listed, and how one is found.

Each job manager is a named actor, which `manager_start` makes. The command line lists and finds jobs, and drives them
through the `JobControl` that it gets. Everything blocks, and raises the typed errors of the job.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import ray
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    GetTimeoutError,
    RayActorError,
    RayError,
    RayTaskError,
)

from penstock.actors.client_view import JobReport
from penstock.actors.cluster_notes import ClusterNotes, Notes
from penstock.actors.deaths import remark
from penstock.actors.ended_jobs import end_of, ended_jobs
from penstock.actors.live_state import PATIENCE_SECONDS, live_state
from penstock.actors.recorded_commands import Ending, forget, new_command, record
from penstock.actors.stacks import SampledStack
from penstock.actors.tail import tail
from penstock.actors.task_log import LogLine
from penstock.engine.checkpointing.history import CheckpointPart
from penstock.engine.errors import (
    JobCancelledError,
    JobError,
    JobFailedError,
    NoAnswerError,
    PenstockError,
    WorkerLostError,
    nearest,
)
from penstock.engine.graph.scale import ParallelismRequest
from penstock.engine.job.info import JobInfo
from penstock.engine.job.rescale_preview import RescalePreview
from penstock.engine.job.status import JobStatus
from penstock.engine.metrics import ChannelStatistics, JobMetrics, SubtaskMetrics, report
from penstock.engine.task.tap import TappedRows
from penstock.savepoints.live_state import LiveState

NAMESPACE: Final = "penstock"
PREFIX: Final = "penstock:"
"""Before the name of a job, that of its manager's actor."""
_ASK_SECONDS: Final = 10.0
_PREVIEW_SECONDS: Final = 3.0
"""For so long rates are looked at."""
_LOOK_SECONDS: Final = 1.0
_AT_ONCE: Final = 16


class JobControl:
    """A job of the cluster, by its manager: what `penstock.attach` gives. The job does not end with it.

    Args:
        name: of the job.
        manager: handle of its job manager.
    """

    def __init__(self, name: str, manager: Any) -> None:
        self.name = name
        self._manager = manager

    def info(self) -> JobInfo:
        """The job: status, tasks, restarts, checkpoints; also of a detached one whose processes have gone.

        Raises:
            NoAnswerError: its manager does not answer now.
            WorkerLostError: its manager has gone, and nobody knows how the job ended.
        """
        try:
            info: JobInfo = self._ask("info", _ASK_SECONDS)
        except NoAnswerError:
            raise
        except WorkerLostError:
            if (ended := self._ended()) is None:
                raise
            return ended
        return info

    def _ended(self) -> JobInfo | None:
        return end_of(ClusterNotes(), self.manager_id)

    @property
    def manager_id(self) -> str:
        """The id of its manager's actor, which stays when Ray restarts that."""
        return str(self._manager._actor_id.hex())

    def __repr__(self) -> str:
        return f"<job {self.name!r} on Ray>"

    def status(self) -> JobStatus:
        """Where the job is in its life.

        Raises:
            WorkerLostError: its manager has gone, or is just being restarted.
        """
        return JobStatus(self.info().status)

    def wait(self, timeout: float | None = None) -> None:
        """Return when the job has finished.

        Args:
            timeout: seconds to wait at the most; None waits for as long as it takes.

        Raises:
            JobFailedError: the job failed.
            JobCancelledError: the job was cancelled.
            TimeoutError: the job still runs.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        ended: JobReport | None = None
        while ended is None:
            call = self.end()
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not ray.wait([call], timeout=left)[0]:
                raise TimeoutError(f"job {self.name!r} still runs after {timeout:g} s")
            try:
                ended = ray.get(call)
            except ActorUnavailableError:
                # Ray is restarting its manager: that takes a second or two.
                time.sleep(_LOOK_SECONDS)
            except RayActorError as error:
                noted = self._ended()
                if noted is None:
                    raise WorkerLostError(f"the manager of job {self.name!r} has gone{remark(error)}") from error
                ended = JobReport(noted.status, None if noted.error is None else JobError(noted.error), [])
        _raise_if_ended_badly(self.name, ended)

    def metrics(self) -> JobMetrics:
        """Counters of all operators, as of now or of the job's end; errors as for `status`."""
        return report(self.subtask_metrics())

    def subtask_metrics(self) -> Sequence[SubtaskMetrics]:
        """The latest counters of all subtasks that have given any."""
        metrics: Sequence[SubtaskMetrics] = self._ask("metrics", _ASK_SECONDS)
        return metrics

    def logs(self, after: Mapping[tuple[int, int], int], most: int = 1000) -> Sequence[LogLine]:
        """What the functions of the job have printed and logged, by time.

        Args:
            after: by (task id, subtask), the number of the last line that is known.
            most: lines, the newest.
        """
        lines: Sequence[LogLine] = self._ask("logs", _ASK_SECONDS, dict(after), most)
        return lines

    def state(self, uid: str, name: str, patience: float = PATIENCE_SECONDS) -> LiveState:
        """One state of an operator, answered by the job itself while it runs; see `penstock.state`.

        Args:
            uid: of the operator, as `.uid(...)` set it.
            name: of the state, as its descriptor has it.
            patience: for how long (seconds) to wait where the job just recovers or is rescaled.
        """
        return live_state(self._manager, self.name, uid, name, patience)

    def tail(self, operator: str, rows: int = 20, seconds: float = 5.0, side: str = "") -> TappedRows:
        """The last rows that an operator or source emits from now on; nothing is kept, or costs, while nobody asks.

        Args:
            operator: its uid or name.
            rows: how many, 1,000 at most.
            seconds: how long to look where fewer come, 60 at most.
            side: tag of a side output of it, instead of its results.

        Raises:
            JobError: the job has ended.
            StateError: there is no such stream, or the job's processes hide values (`PENSTOCK_ERROR_VALUES`).
            StateNotReadyError: the job does not run just now.
        """
        return tail(self._ask("stream_route", _ASK_SECONDS, operator), side, rows, seconds)

    def end(self) -> Any:
        """A call that comes back with the job's `JobReport` when it has ended."""
        return self._manager.wait_for_end.remote()

    def reading(self) -> Any:
        """A call that comes back with what `info` and `subtask_metrics` give, a pair; `answer_of` takes it."""
        return self._manager.reading.remote()

    def explain(self) -> str:
        """The tasks that run, with their operators and where their rows go. Errors as for `state`."""
        return str(self._ask("explain", _ASK_SECONDS))

    def stacks(self, task: int, subtask: int | None, seconds: float) -> Sequence[SampledStack]:
        """Where the threads of a subtask, or of all of a task, are: each stack with how often it was seen within
        `seconds`; 0: once.

        Raises:
            JobError: there is no such subtask, or it has no process now.
        """
        stacks: Sequence[SampledStack] = self._ask("stacks", seconds + _ASK_SECONDS, task, subtask, seconds)
        return stacks

    def channels(self, task: int, subtask: int) -> Sequence[ChannelStatistics]:
        """The channels behind a subtask, as of now. Errors as for `stacks`."""
        channels: Sequence[ChannelStatistics] = self._ask("channels", _ASK_SECONDS, task, subtask)
        return channels

    def checkpoint_parts(self, checkpoint: int) -> Sequence[CheckpointPart]:
        """What each subtask has done for a checkpoint: of one under way and of the newest three; else nothing.

        Raises:
            JobError: the job has ended.
        """
        parts: Sequence[CheckpointPart] = self._ask("checkpoint_parts", _ASK_SECONDS, checkpoint)
        return parts

    def checkpoint(self) -> str:
        """Take a checkpoint now; its URL.

        Raises:
            CheckpointError: it could not be taken.
        """
        return str(self._ask("checkpoint", None))

    def savepoint(self, directory: str | None = None) -> str:
        """Take a savepoint while the job keeps running; its URL.

        Args:
            directory: URL of the folder for it; None: the configured one.

        Raises:
            CheckpointError: it could not be taken.
        """
        return str(self._ask("savepoint", None, directory))

    def stop(self, directory: str | None = None) -> str:
        """Take a savepoint and end the job behind it; arguments and errors as for `savepoint` and `cancel`."""
        return str(self._command("stop", directory))

    def drain(self, directory: str | None = None) -> str:
        """End the sources as if their input had ended, and the job with a savepoint behind everything."""
        return str(self._command("drain", directory))

    def cancel(self) -> bool:
        """End the job now, and return when it has ended; False: it had ended before.

        Raises:
            NoAnswerError: its manager does not answer; the command is recorded, and carried out as soon as it does, or
                when another takes over.
        """
        return bool(self._command("cancel"))

    def suspend(self) -> bool:
        """As `cancel`, but the newest checkpoint stays: `submit(name, resume="latest")` resumes from it."""
        return bool(self._command("suspend"))

    def _command(self, method: Ending, directory: str | None = None) -> Any:
        """Have the manager do what ends the job, now or when it answers again."""
        notes, manager, command = ClusterNotes(), self.manager_id, new_command(method, directory)
        record(notes, manager, command)
        try:
            return self._ask("obey", None, command)
        except NoAnswerError as error:
            raise NoAnswerError(
                f"{error}; the command {method!r} is recorded, and carried out as soon as it answers or another one "
                "takes over (`penstock list` shows when)"
            ) from error
        except WorkerLostError:
            forget(notes, manager, command)
            # It may have left while this was asked, some time behind the end of the job.
            if method not in ("cancel", "suspend") or self._ended() is None:
                raise
            return False

    def rescale(self, parallelism: ParallelismRequest, tell: Callable[[str], None] | None = None) -> float:
        """Resume at another parallelism, behind a checkpoint taken now; the seconds that the job stood still.

        They are 0 where the job runs so already: then nothing is done.

        Args:
            parallelism: of the operators; see `JobHandle.rescale`.
            tell: told what it waits for, where there is no room yet; None: nobody wants to know.

        Raises:
            CheckpointError: it could not be taken; the job continues as it was.
            GraphError, ConfigurationError: the program cannot run so.
            ClusterError: there is no room; the job continues as it was.
        """
        call = self._manager.rescale.remote(parallelism)
        told = None
        while tell is not None and not ray.wait([call], timeout=_LOOK_SECONDS)[0]:
            # The status is shown and no more: the call itself has the outcome.
            with contextlib.suppress(PenstockError):
                waiting_for = self.info().waiting_for
                if waiting_for not in (None, told):
                    tell(f"waiting for {waiting_for}")
                    told = waiting_for
        return float(answer_of(call, self.name))

    def preview_rescales(self, wanted: Sequence[ParallelismRequest]) -> Sequence[RescalePreview]:
        """What each of these rescales would do, by the rates of the next three seconds; nothing is changed.

        Args:
            wanted: each as for `rescale`.

        Raises:
            StateNotReadyError: the job does not run now.
            JobError: the job has ended.

        Example:
            >>> job.preview_rescales([{"window": 3}, {"window": 4}])[0].outcome  # doctest: +SKIP
            'live'
        """
        told: Sequence[RescalePreview] = self._ask(
            "preview_rescales", _PREVIEW_SECONDS + _ASK_SECONDS, wanted, _PREVIEW_SECONDS
        )
        return told

    def leave(self) -> None:
        """Forget the job, if it has ended: its name is free again."""
        self._manager.leave.remote()

    def make_way(self) -> None:
        """As `leave`, at once."""
        self._manager.make_way.remote()

    def _ask(self, method: str, seconds: float | None, *arguments: Any) -> Any:
        return answer_of(getattr(self._manager, method).remote(*arguments), self.name, seconds)


def answer_of(call: Any, name: str, seconds: float | None = None) -> Any:
    """What the manager of job `name` answers to a call, within `seconds`.

    Raises:
        PenstockError: the error that it answers with.
        WorkerLostError: its process died or does not answer.
    """
    try:
        return ray.get(call, timeout=seconds)
    except RayTaskError as error:
        cause = error.cause
        if isinstance(cause, PenstockError):
            raise cause from None
        raise JobError(f"job {name!r}: {error}") from error
    except GetTimeoutError:
        raise NoAnswerError(f"the manager of job {name!r} does not answer within {seconds:g} s") from None
    except ActorDiedError as error:
        raise WorkerLostError(f"the manager of job {name!r} has ended before it answered{remark(error)}") from error
    except RayActorError as error:
        raise NoAnswerError(
            f"the manager of job {name!r} does not answer: it is stopped, cut off, or being restarted, which takes a "
            f"few seconds where the job takes checkpoints{remark(error)}"
        ) from error


def named_jobs() -> dict[str, JobControl]:
    """All jobs of the cluster that have a manager, by name; also those that have ended a short time ago."""
    jobs = {}
    for actor in ray.util.list_named_actors(all_namespaces=True):
        if actor["namespace"] == NAMESPACE and str(actor["name"]).startswith(PREFIX):
            name = str(actor["name"]).removeprefix(PREFIX)
            try:
                jobs[name] = JobControl(name, ray.get_actor(actor["name"], NAMESPACE))
            except (ValueError, RayError):
                # The job has ended since.
                continue
    return jobs


def list_jobs(notes: Notes | None = None) -> Sequence[JobInfo]:
    """What `info` says of each job of the cluster: by name those that have not ended, then the others, the last first.

    So their order is the same the next time, unless one has ended. Of one whose manager does not answer, only the name
    is known.

    Args:
        notes: the cluster's table of ended jobs; None: that of the cluster which this process is connected to.
    """
    infos = list(_infos(named_jobs()).values())
    known = {info.id for info in infos}
    infos += [info for info in ended_jobs(notes or ClusterNotes()) if info.id not in known]
    return sorted(infos, key=place_in_list)


def place_in_list(info: JobInfo) -> tuple[bool, int, str]:
    """By what `list_jobs` sorts."""
    ended = info.status.ended
    return ended, -info.since_ms if ended else 0, info.name


def _infos(jobs: Mapping[str, JobControl]) -> dict[str, JobInfo]:
    """The `info` of each job, by name; a job that has just ended is left out."""
    with ThreadPoolExecutor(_AT_ONCE) as asking:
        answers = asking.map(_info_of, jobs.values())
        return {name: info for name, info in zip(jobs, answers, strict=True) if info is not None}


def _info_of(job: JobControl) -> JobInfo | None:
    try:
        return job.info()
    except NoAnswerError:
        return JobInfo("", job.name, JobStatus.RESTARTING, waiting_for="an answer of its manager", answers=False)
    except WorkerLostError:
        return None
    except PenstockError as error:
        # The others are listed all the same.
        return JobInfo("", job.name, JobStatus.RESTARTING, waiting_for=f"its manager: {error}", answers=False)


def find_job(name_or_id: str, notes: Notes | None = None) -> JobControl:
    """The job with that name, or that id; the newest of that name where all have ended.

    Args:
        name_or_id: as `list_jobs` has them.
        notes: as of `list_jobs`.

    Raises:
        JobError: there is none, or several could be meant; says which are running.
    """
    jobs = named_jobs()
    if name_or_id in jobs:
        return jobs[name_or_id]
    infos = _infos(jobs)
    found = {name: info.id for name, info in infos.items() if name_or_id in (info.id, info.name)}
    if len(found) == 1:
        return jobs[next(iter(found))]
    if found:
        raise JobError(f"several jobs are called {name_or_id!r}; name one by its id: {', '.join(found.values())}")
    for info in ended_jobs(notes or ClusterNotes()):
        if name_or_id in (info.id, info.name):
            return EndedJob(info)
    # One that does not answer may be being restarted.
    running = sorted(name for name in jobs if name not in infos or not infos[name].status.ended)
    there = f"running: {', '.join(running)}" if running else "no job is running on this cluster"
    raise JobError(f"no job {name_or_id!r}{nearest(name_or_id, running)}; {there}")


class EndedJob(JobControl):
    """A detached job whose processes have gone: what was written down of it answers.

    Args:
        info: of the job.
    """

    def __init__(self, info: JobInfo) -> None:
        super().__init__(info.name, None)
        self._info = info

    def info(self) -> JobInfo:
        return self._info

    def wait(self, timeout: float | None = None) -> None:
        error = None if self._info.error is None else JobError(self._info.error)
        _raise_if_ended_badly(self.name, JobReport(self._info.status, error, []))

    def state(self, uid: str, name: str, patience: float = PATIENCE_SECONDS) -> LiveState:
        state: LiveState = self._ask("read", None)
        return state

    def subtask_metrics(self) -> Sequence[SubtaskMetrics]:
        return []

    def logs(self, after: Mapping[tuple[int, int], int], most: int = 1000) -> Sequence[LogLine]:
        return []

    def leave(self) -> None:
        """It has left."""

    def _command(self, method: Ending, directory: str | None = None) -> Any:
        if method in ("cancel", "suspend"):
            return False
        return self._ask(method, None)

    def rescale(self, parallelism: ParallelismRequest, tell: Callable[[str], None] | None = None) -> float:
        return float(self._ask("rescale", None))

    def _ask(self, method: str, seconds: float | None, *arguments: Any) -> Any:
        raise JobError(f"job {self.name!r} has ended ({self._info.status.value}): there is nothing to {method}")


def _raise_if_ended_badly(name: str, ended: JobReport) -> None:
    """Raise what waiting for a job raises.

    Raises:
        JobFailedError: it failed.
        JobCancelledError: it was cancelled.
    """
    match ended.status:
        case JobStatus.FAILED:
            raise JobFailedError(f"job {name!r} failed: {ended.error}") from ended.error
        case JobStatus.CANCELLED:
            raise JobCancelledError(f"job {name!r} was cancelled")
        case _:
            return
