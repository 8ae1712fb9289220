"""The checkpoints of a job as its brain sees them: who waits for which, and which one ends the job.

The brain makes one when it has taken the job over. What the coordinator says becomes instructions to the shell; each
checkpoint that somebody wanted has one outcome, which is told by `settle`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from penstock.engine.checkpointing.coordinator import CheckpointCoordinator
from penstock.engine.checkpointing.handles import CompletedCheckpoint
from penstock.engine.checkpointing.history import KEPT, CheckpointRecord
from penstock.engine.checkpointing.instructions import (
    AbortReason,
    Delete,
    FailJob,
    NotifyAborted,
    NotifyComplete,
    Place,
    Store,
    Trigger,
)
from penstock.engine.checkpointing.instructions import Instruction as Said
from penstock.engine.checkpointing.store import Claim, JobFolder
from penstock.engine.config import JobConfig
from penstock.engine.elements import SnapshotKind
from penstock.engine.errors import CheckpointError
from penstock.engine.job.events import Acknowledged, Committed, Declined, Moment, Stored
from penstock.engine.job.failover import RETRY_SECONDS
from penstock.engine.job.instructions import (
    AbortCheckpoint,
    Commit,
    DeleteFiles,
    Inject,
    Instruction,
    WriteManifest,
)
from penstock.engine.job.layout import Layout
from penstock.engine.job.restarts import RestartLog


@dataclass(frozen=True, slots=True)
class Storage:
    """That a job has a folder for checkpoints.

    Args:
        job_id: names it.
        start: what a job without a checkpoint of its own is restored from: the user's savepoint.
    """

    job_id: str
    start: CompletedCheckpoint | None = None

    @classmethod
    def of(cls, folder: JobFolder | None) -> Storage | None:
        """That of a job that keeps its checkpoints there; None: it takes none."""
        if folder is None:
            return None
        return cls(folder.job_id, None if folder.start is None else folder.start.checkpoint)

    def coordinator(self, name: str, config: JobConfig, claim: Claim) -> CheckpointCoordinator:
        """The coordinator of job `name` for who has claimed the folder."""
        most, checkpoints = config.max_parallelism, config.checkpoints
        return CheckpointCoordinator(checkpoints, self.job_id, name, most, claim.next_checkpoint, claim.retained)


class Purpose(enum.Enum):
    """What somebody wants a checkpoint for."""

    ANSWER = "a user asked for it"
    RESCALE = "the job is to be rescaled behind it"
    PRELOAD = "what is to be taken over behind the next one is taken in before, but for what changes meanwhile"
    SWITCH = "single tasks are to be rescaled behind it, while the others run on"
    STOP = "the job is to end behind it"
    DRAIN = "the job is to end behind it, as its sources were made to end"
    LAST = "the job has come to its end, and sinks hold rows back"

    @property
    def ends_the_job(self) -> bool:
        return self in (Purpose.STOP, Purpose.DRAIN, Purpose.LAST)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A checkpoint that somebody waits for.

    Args:
        kind, folder: which, and where it goes.
        purpose: what for.
        request: number of the request, 0 for none.
        replaced: ids of the tasks that are rescaled behind it.
    """

    kind: SnapshotKind
    purpose: Purpose
    folder: str | None = None
    request: int = 0
    replaced: frozenset[int] = frozenset()


@dataclass(slots=True)
class _Final:
    """The checkpoint that ends the job once it is stored and everything in it is committed.

    Args:
        number: which.
        stored: whether its manifest is there.
        uncommitted: the subtasks that have not said that they have committed.
        again: when those are told again, monotonic seconds: a call may have been lost.
    """

    number: int
    stored: bool = False
    uncommitted: set[Place] | None = None
    again: float = 0.0

    @property
    def is_done(self) -> bool:
        return self.stored and self.uncommitted is not None and not self.uncommitted


class JobCheckpoints:
    """The checkpoints of one job under one manager.

    Args:
        coordinator: decides when they are taken and when they count.
        claim: the manager's.
        restarts: those of the job, which are kept with its checkpoints.
        say: takes instructions for the shell.
        gathered: is told that all parts of a wanted checkpoint are there, whose manifest is about to be written.
        settle: is told what became of a wanted checkpoint: its URL, or why there is none.
        fail: is told that the job has to fail.

    Attributes:
        completed: the newest checkpoint that counts; rows for the client that belong to it are final.
        latest_url: where that is, if this manager has taken it.
        urls: of the newest checkpoints and savepoints that this manager has taken, by number.
    """

    def __init__(
        self,
        coordinator: CheckpointCoordinator,
        claim: Claim,
        restarts: RestartLog,
        say: Callable[[Instruction], None],
        gathered: Callable[[Wanted, CompletedCheckpoint], None],
        settle: Callable[[Wanted, str | CheckpointError], None],
        fail: Callable[[CheckpointError], None],
    ) -> None:
        self.coordinator = coordinator
        self.epoch = claim.epoch
        # Of a job that had ended before, what its manager knew of savepoints may have been removed.
        self._may_have_savepoints = claim.has_savepoints or claim.ended is not None
        self.completed = coordinator.latest.checkpoint if coordinator.latest is not None else 0
        self.latest_url: str | None = None
        self.urls: dict[int, str] = {}
        self._restarts = restarts
        self._say = say
        self._gathered = gathered
        self._settle = settle
        self._fail = fail
        self._layout: Layout | None = None
        self._committing: frozenset[Place] = frozenset()
        self._wanted: dict[int, Wanted] = {}
        self._final: _Final | None = None

    # What there is

    @property
    def latest(self) -> CompletedCheckpoint | None:
        """What the job is restored from after a failure."""
        return self.coordinator.latest

    @property
    def suspended_url(self) -> str | None:
        """Where the savepoint is that has stopped the job, once it is complete: behind it the job never runs again."""
        suspended = self.coordinator.suspended
        return None if suspended is None else self.urls.get(suspended.checkpoint, str(suspended.checkpoint))

    @property
    def final_rows(self) -> int:
        """The number up to which rows for the client are final once the job has ended."""
        suspended = self.coordinator.suspended
        return max(self.completed, suspended.checkpoint if suspended is not None else 0)

    @property
    def may_hold_rows(self) -> bool:
        """Whether a savepoint may hold rows that sinks have prepared and this job never commits."""
        return self._may_have_savepoints or self.coordinator.may_be_resumed_from_savepoints

    @property
    def settled(self) -> bool:
        """Whether no manifest is being written: what is newest then is what the job is restored from."""
        return not self.coordinator.is_storing

    @property
    def ends_the_job(self) -> bool:
        """Whether the checkpoint is under way behind which the job ends."""
        return self._final is not None

    @property
    def is_over(self) -> bool:
        """Whether that is stored, and everything in it committed."""
        return self._final is not None and self._final.is_done

    @property
    def deadline(self) -> float | None:
        """When `tick` has something to do, monotonic seconds; None: not before another event."""
        final = self._final
        again = final.again if final is not None and final.stored and final.uncommitted else None
        return min((time for time in (self.coordinator.deadline, again) if time is not None), default=None)

    def savepoint_of(self, record: CheckpointRecord) -> str | None:
        """Where a savepoint of the history is; None: it is none, is not there, or was taken under a manager before."""
        is_there = record.reason is None and record.kind is not SnapshotKind.CHECKPOINT
        return self.urls.get(record.checkpoint) if is_there else None

    @property
    def savepoint_url(self) -> str | None:
        """Where the newest savepoint is, of those in the history that this manager has taken."""
        urls = [url for record in self.coordinator.history if (url := self.savepoint_of(record)) is not None]
        return urls[-1] if urls else None

    # Events

    def start_attempt(self, attempt: int, layout: Layout, now: Moment) -> None:
        """All subtasks of an attempt run."""
        self._layout = layout
        places, split = layout.places, layout.split_parallelism
        self._committing = frozenset(layout.committing(places))
        self._carry_out(self.coordinator.start_attempt(attempt, places, split, now.monotonic), now)

    def on_scale(self, layout: Layout) -> None:
        """What runs is what is wanted: `layout` has the same subtasks."""
        self._layout = layout

    def end_attempt(self, now: Moment, reason: AbortReason = AbortReason.ATTEMPT_ENDED) -> None:
        """The attempt is over: what is under way is given up, but for a manifest that is being written."""
        self._final = None
        self._carry_out(self.coordinator.end_attempt(now.monotonic, reason), now)

    def drain(self, now: Moment) -> None:
        """The sources are about to end one after another: none but the savepoint behind that may be taken meanwhile.

        Raises:
            CheckpointError: the job is being stopped.
        """
        self._carry_out(self.coordinator.drain(now.monotonic), now)

    def postpone(self, now: Moment) -> None:
        """State is being taken in: a periodic one might become the new base, for which all was taken in for nothing."""
        self.coordinator.postpone(now.monotonic)

    def want(self, wanted: Wanted, now: Moment) -> None:
        """Take a checkpoint or savepoint; `settle` will be told what became of it.

        Raises:
            CheckpointError: none can be taken now.
        """
        number, said = self.coordinator.request(wanted.kind, now.monotonic, now.ms, wanted.folder, wanted.replaced)
        self._wanted[number] = wanted
        if wanted.purpose.ends_the_job:
            self._final = _Final(number)
        self._carry_out(said, now)

    def handle(self, event: Acknowledged | Declined | Stored | Committed, now: Moment) -> None:
        """Something has happened to a checkpoint."""
        number, time = event.checkpoint, now.monotonic
        match event:
            case Acknowledged(_, place, handle):
                self._carry_out(self.coordinator.acknowledge(number, place, handle, time, now.ms)[1], now)
            case Declined(_, place, message, reason):
                self._carry_out(self.coordinator.decline(number, place, message, time, reason)[1], now)
            case Stored(_, url):
                self._on_stored(number, url, now)
            case Committed(_, place, _):
                if self._final is not None and self._final.number == number and self._final.uncommitted is not None:
                    self._final.uncommitted.discard(place)

    def _on_stored(self, number: int, url: str, now: Moment) -> None:
        self.urls[number] = url
        if len(self.urls) > KEPT:
            del self.urls[min(self.urls)]
        if self._final is not None and self._final.number == number:
            self._final.stored = True
            self._final.again = now.monotonic + RETRY_SECONDS
        self._carry_out(self.coordinator.on_stored(number, now.monotonic), now)
        latest = self.coordinator.latest
        if latest is not None and latest.checkpoint == number:
            self.completed, self.latest_url = number, url
        if (wanted := self._wanted.pop(number, None)) is not None:
            self._settle(wanted, url)

    def on_store_failed(self, number: int, message: str, now: Moment) -> None:
        """A manifest could not be written."""
        self._carry_out(self.coordinator.on_store_failed(number, message, now.monotonic), now)

    def on_fenced(self, number: int) -> None:
        """A manifest could not be written, as the job is another manager's now."""
        self.coordinator.on_fenced(number)

    def tick(self, now: Moment) -> None:
        """Time has passed."""
        self._carry_out(self.coordinator.tick(now.monotonic, now.ms), now)
        final = self._final
        if final is not None and final.stored and final.uncommitted and now.monotonic >= final.again:
            final.again = now.monotonic + RETRY_SECONDS
            self._say(Commit(final.number, tuple(sorted(final.uncommitted))))

    # What the coordinator says

    def _carry_out(self, said: Sequence[Said], now: Moment) -> None:
        for one in said:
            match one:
                case Trigger(barrier, places, directory):
                    self._say(Inject(barrier, places, directory))
                case Store(checkpoint):
                    self._say(WriteManifest(self._for_the_next_manager(checkpoint), self.epoch))
                    if (wanted := self._wanted.get(checkpoint.checkpoint)) is not None:
                        self._gathered(wanted, checkpoint)
                case NotifyComplete(number, places):
                    self._commit(number, places)
                case NotifyAborted(number, reason, message, places):
                    if places:
                        self._say(AbortCheckpoint(number, places))
                    self._give_up(number, reason, message, now)
                case Delete(checkpoints, files, savepoint):
                    self._say(DeleteFiles(checkpoints, files, savepoint))
                case FailJob(message):
                    self._fail(CheckpointError(message))

    def _for_the_next_manager(self, checkpoint: CompletedCheckpoint) -> CompletedCheckpoint:
        """What a manager that takes the job over has to know beside the state."""
        if checkpoint.story is None:
            return checkpoint
        assert self._layout is not None
        scale = None if self._layout.scale.most is None else self._layout.scale
        return replace(checkpoint, story=self._restarts.add_to(checkpoint.story), scale=scale)

    def _commit(self, number: int, places: Sequence[Place]) -> None:
        """Have those commit that hold something back: to the others it means nothing, and each call costs time."""
        committing = [place for place in places if place in self._committing]
        if self._final is not None and self._final.number == number:
            self._final.uncommitted = set(committing)
        if committing:
            self._say(Commit(number, tuple(committing)))

    def _give_up(self, number: int, reason: AbortReason, message: str, now: Moment) -> None:
        wanted = self._wanted.pop(number, None)
        if self._final is not None and self._final.number == number:
            self._final = None
        if wanted is None:
            return
        error = CheckpointError(message)
        if reason is AbortReason.OVERTAKEN:
            # Calls may overtake each other, so that a subtask had a later one first: it is triggered again.
            try:
                self.want(wanted, now)
            except CheckpointError as refused:
                error = refused
            else:
                return
        self._settle(wanted, error)
