"""How a job comes to its end, step by step: explain, take down, write down, tell.

The brain makes an `Ending` when the job has finished, failed or been cancelled, and asks it for the next step after
each event. Nothing leaves it out half-way: what cannot be written down is reported, and the job has ended all the same.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from penstock.engine.checkpointing.instructions import Place
from penstock.engine.errors import FencedError, PenstockError, summary
from penstock.engine.job.checkpoints import JobCheckpoints
from penstock.engine.job.instructions import Instruction, TakeDown, WriteEnd
from penstock.engine.job.status import JobStatus

CLOSING_SECONDS: Final = 5.0
"""How long subtasks may take to be closed whose work is thrown away."""
_FINISHED_CLOSING_SECONDS: Final = 180.0
"""How long those of a job that has finished may: their sinks may write their last rows then."""


class _Step(enum.Enum):
    """What comes next."""

    TAKE_DOWN = enum.auto()
    TAKING_DOWN = enum.auto()
    WRITE = enum.auto()
    WRITING = enum.auto()
    REPORT = enum.auto()
    REPORTED = enum.auto()


@dataclass(slots=True)
class Ending:
    """The end of a job.

    Args:
        status, error: how it ends.
        retains: whether its checkpoints are kept.
        writes: whether the end is written down in the job's folder.
        unexplained: the subtask and attempt whose failure is the error, and is yet to be explained.
    """

    status: JobStatus
    error: PenstockError | None
    retains: bool
    writes: bool
    unexplained: tuple[Place, int] | None = None
    _step: _Step = _Step.TAKE_DOWN

    @property
    def is_reported(self) -> bool:
        """Whether the job has ended."""
        return self._step is _Step.REPORTED

    @property
    def is_to_be_reported(self) -> bool:
        """Whether nothing is left to be done but to report it."""
        return self._step is _Step.REPORT

    @property
    def closing_seconds(self) -> float:
        """How long subtasks may take to be closed before their processes are killed."""
        return _FINISHED_CLOSING_SECONDS if self.status is JobStatus.FINISHED else CLOSING_SECONDS

    def on_explained(self, error: PenstockError) -> None:
        """All is known of the error now."""
        self.error, self.unexplained = error, None

    def on_taken_down(self, error: PenstockError | None) -> None:
        """Nothing of the job runs any more. One that had finished has not, where something could not be closed."""
        if self._step is not _Step.TAKING_DOWN:
            return
        self._step = _Step.WRITE
        if error is not None and self.status is JobStatus.FINISHED:
            self.status, self.error, self.retains = JobStatus.FAILED, error, True

    def on_written(self) -> None:
        """The end is written down, or cannot be."""
        if self._step is _Step.WRITING:
            self._step = _Step.REPORT

    def on_reported(self) -> None:
        """The job has ended."""
        self._step = _Step.REPORTED

    def proceed(self, checkpoints: JobCheckpoints | None) -> Instruction | None:
        """The next thing to do; None: something must happen first, or only the report is left.

        Args:
            checkpoints: None: the folder has not been claimed. Who cancels a job before that ends what the manager
                before this one has left, and waits for it.
        """
        fenced = isinstance(self.error, FencedError)
        if self._step is _Step.TAKE_DOWN and self.unexplained is None:
            self._step = _Step.TAKING_DOWN
            # Whatever its subtasks still do, another manager's do as well.
            return TakeDown(at_once=fenced)
        if self._step is not _Step.WRITE:
            return None
        if fenced or not self.writes:
            self._step = _Step.REPORT
        elif checkpoints is not None and checkpoints.settled:
            self._step = _Step.WRITING
            message = "" if self.error is None else summary(self.error)
            # Behind the savepoint that was to stop a job all is committed only where the job has finished.
            may_hold_rows = checkpoints.may_hold_rows or (
                self.status is not JobStatus.FINISHED and checkpoints.suspended_url is not None
            )
            discards_rows = not self.retains and not may_hold_rows
            return WriteEnd(checkpoints.epoch, self.status, message, not self.retains, discards_rows)
        return None
