"""How a job finishes: by the end of its input or by a drain, with a last checkpoint that commits what sinks hold back.

The brain asks it after each event. It takes the checkpoint, and again after a while where that fails; the job ends once
it is stored and committed.
"""

from __future__ import annotations

from penstock.engine.elements import SnapshotKind
from penstock.engine.errors import CheckpointError
from penstock.engine.job.checkpoints import Purpose, Wanted
from penstock.engine.job.failover import RETRY_SECONDS
from penstock.engine.job.life import Life
from penstock.engine.job.status import JobStatus


class Finish:
    """The end of the input of one job.

    Args:
        life: of the job.
    """

    def __init__(self, life: Life) -> None:
        self._life = life
        self._due = 0.0

    @property
    def is_near(self) -> bool:
        """Whether all subtasks have emitted everything, and the checkpoint that ends the job has yet to be taken."""
        life, attempts = self._life, self._life.attempts
        runs = life.status is JobStatus.RUNNING and attempts.pending is None and attempts.deployment is None
        is_over = runs and len(attempts.finished) == len(attempts.deployed)
        return is_over and not (life.checkpoints is not None and life.checkpoints.ends_the_job)

    @property
    def deadline(self) -> float | None:
        """When `proceed` has something to do, monotonic seconds; None: not before another event."""
        return self._due if self.is_near else None

    def proceed(self) -> None:
        """End the job, or take its last checkpoint, where it has come so far."""
        life = self._life
        if life.checkpoints is not None and life.checkpoints.is_over:
            life.end(JobStatus.FINISHED)
        elif self.is_near and life.now.monotonic >= self._due:
            self._take_last()

    def on_last_failed(self) -> None:
        """The last checkpoint could not be taken: try it again after a while."""
        self._due = self._life.now.monotonic + RETRY_SECONDS

    def _take_last(self) -> None:
        """A last checkpoint commits what sinks hold back, then the job ends."""
        life = self._life
        assert life.layout is not None
        commits = life.config.checkpoints.enabled or life.layout.commits_last
        if life.checkpoints is None or not (commits or life.drain is not None):
            life.end(JobStatus.FINISHED)
            return
        wanted = Wanted(SnapshotKind.CHECKPOINT, Purpose.LAST)
        if life.drain is not None:
            wanted = Wanted(SnapshotKind.SUSPEND, Purpose.DRAIN, life.drain.folder, life.drain.request)
        try:
            life.checkpoints.want(wanted, life.now)
        except CheckpointError:
            self.on_last_failed()
