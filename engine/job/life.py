"""Where one job is in its life: what the parts of its brain share, and how it comes to an end.

`JobBrain` makes one; `Recovery`, `Finish` and `Commands` read it and move it on. What any of them says to the shell
stands in `said`, in order.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.engine.checkpointing.instructions import AbortReason, Place
from penstock.engine.config import JobConfig
from penstock.engine.errors import JobError, PenstockError
from penstock.engine.graph.scale import Scale
from penstock.engine.job import instructions as say
from penstock.engine.job.attempts import Attempts
from penstock.engine.job.checkpoints import JobCheckpoints, Storage
from penstock.engine.job.ending import Ending
from penstock.engine.job.events import Moment
from penstock.engine.job.layout import Layout, Planner
from penstock.engine.job.requests import Requests
from penstock.engine.job.restarts import RestartLog
from penstock.engine.job.status import JobStatus, transition


@dataclass(frozen=True, slots=True)
class Drain:
    """The sources were made to end; the job ends with a savepoint in `folder`, or nothing has happened."""

    request: int
    folder: str


class Life:
    """The life of one job under one manager.

    Args:
        name: of the job.
        config: its settings.
        planner: plans it at a scale.
        storage: None: the job takes no checkpoints, and cannot.

    Attributes:
        status, since_ms: where the job is, and since when (civil ms).
        error: why it fails, is being restarted or has failed; None: nothing is wrong.
        layout: what runs, or is to run; None before it is planned.
        attempts: which subtask runs what.
        restarts: those of the job so far.
        checkpoints: None before the job's folder has been taken over.
        drain: the one under way, or the one that the job has ended with.
        ending: how it ends, once that is decided.
        said: what the shell is to do.
        requests: what users have asked for; their answers go to `said`.
        now: when the event came that is being handled.
    """

    def __init__(self, name: str, config: JobConfig, planner: Planner, storage: Storage | None) -> None:
        self.name = name
        self.config = config
        self.storage = storage
        self.status = JobStatus.CREATED
        self.since_ms = 0
        self.error: PenstockError | None = None
        self.layout: Layout | None = None
        self.attempts = Attempts()
        self.restarts = RestartLog()
        self.checkpoints: JobCheckpoints | None = None
        self.drain: Drain | None = None
        self.ending: Ending | None = None
        self.said: list[say.Instruction] = []
        self.requests = Requests(self.said)
        self.now = Moment(0.0, 0)
        self._planner = planner

    @property
    def ended(self) -> bool:
        """Whether the job has ended, and nothing is left to be done for it."""
        return self.ending is not None and self.ending.is_reported

    @property
    def is_about_to_end(self) -> bool:
        """Whether it is being drained, or the checkpoint is under way behind which it ends."""
        return self.drain is not None or (self.checkpoints is not None and self.checkpoints.ends_the_job)

    def plan(self, scale: Scale) -> Layout:
        """The layout at a scale, with the splits that the job has been read by since it first started.

        Raises:
            GraphError, ConfigurationError: the program cannot run so.
        """
        latest = None if self.checkpoints is None else self.checkpoints.latest
        if latest is None and self.storage is not None:
            latest = self.storage.start
        if latest is not None:
            return self._planner.plan(scale, latest.split_parallelism)
        # The first checkpoint may come between this and the deployment, with positions in the splits that are read now.
        return self._planner.plan(scale, {} if self.layout is None else self.layout.split_parallelism)

    def move(self, status: JobStatus) -> None:
        """The job is somewhere else in its life."""
        if status is not self.status:
            self.status = transition(self.status, status)
            self.since_ms = self.now.ms

    # The end

    def end(
        self,
        status: JobStatus,
        error: PenstockError | None = None,
        unexplained: tuple[Place, int] | None = None,
        *,
        retains: bool = False,
        writes: bool = True,
    ) -> None:
        """The job ends; who says so first decides how.

        Args:
            status, error: how.
            unexplained: the subtask and attempt whose failure is the error, and is yet to be explained.
            retains: keep its checkpoints, whatever is configured.
            writes: write the end down, where the job has a folder.
        """
        if self.ending is not None:
            self.ending.writes &= writes
            return
        self.error = error
        retains |= status is JobStatus.FAILED
        retains |= status is JobStatus.CANCELLED and self.config.checkpoints.retain_on_cancel
        self.ending = Ending(status, error, retains, writes and self.storage is not None, unexplained)
        self.attempts.pending = None
        if self.checkpoints is not None:
            self.checkpoints.end_attempt(self.now, AbortReason.JOB_ENDED)

    def ends_as_suspended(self, error: PenstockError | None) -> bool:
        """End a job that a complete savepoint had stopped: sinks may have committed more than its checkpoints have."""
        url = None if self.checkpoints is None else self.checkpoints.suspended_url
        if url is None:
            return False
        why = f": {error}" if error is not None else ""
        message = (
            f"savepoint {url} is complete, but the job failed before it had stopped behind it; start it again from "
        )
        failure = JobError(f"{message}that savepoint{why}")
        failure.__cause__ = error
        self.end(JobStatus.FAILED, failure)
        return True

    def proceed_to_end(self) -> None:
        """Do what can be done now for the end of the job."""
        ending = self.ending
        if ending is None:
            return
        if (step := ending.proceed(self.checkpoints)) is not None:
            self.said.append(step)
        if ending.is_to_be_reported:
            self._report_end(ending)

    def on_end_written(self, problem: str) -> None:
        """The end is written down, or could not be."""
        if self.ending is not None:
            self.ending.on_written()
        if problem:
            # The job has ended as it has; what is left costs storage, and is begun again only if this manager dies.
            self.said.append(say.Warn(f"the end of job {self.name!r} could not be written down: {problem}"))

    def _report_end(self, ending: Ending) -> None:
        ending.on_reported()
        self.error = ending.error
        self.status, self.since_ms = ending.status, self.now.ms
        self.requests.answer_all(self.name, ending.status, ending.error)
        self.said.append(say.End(ending.status, ending.error))
