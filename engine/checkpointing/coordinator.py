"""The checkpoint coordinator: a pure state machine. Events in, instructions out; it knows no clock, storage or cluster.

A runtime feeds it what happened and carries out what it answers, in order. Times are monotonic seconds of the runtime's
clock. Every checkpoint has one outcome, and a file is deleted only when no checkpoint can ever refer to it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.engine.checkpoint_config import CheckpointConfig
from penstock.engine.checkpointing.handles import (
    CompletedCheckpoint,
    FileHandle,
    Size,
    SubtaskHandle,
    distinct,
)
from penstock.engine.checkpointing.history import (
    CheckpointHistory,
    CheckpointPart,
    CheckpointRecord,
    CheckpointStatistics,
)
from penstock.engine.checkpointing.instructions import (
    AbortReason,
    Acknowledgement,
    Delete,
    FailJob,
    Instruction,
    NotifyAborted,
    NotifyComplete,
    Place,
    Store,
    Trigger,
)
from penstock.engine.checkpointing.pending import Attempt, Drain, PendingCheckpoint, Phase, Request, barrier_of
from penstock.engine.checkpointing.retained import RetainedCheckpoints
from penstock.engine.elements import CheckpointMode, SnapshotKind
from penstock.engine.errors import CheckpointError

COUNTED: Final = frozenset({AbortReason.TIMEOUT, AbortReason.DECLINED, AbortReason.STORE_FAILED})
"""The failures that fail the job when too many come in a row."""


@dataclass(frozen=True, slots=True)
class _Doubtful:
    """A checkpoint whose manifest could not be written, or could and was not reported: another manager may read it."""

    checkpoint: CompletedCheckpoint
    files: Sequence[FileHandle] = ()


class CheckpointCoordinator:
    """Decides when checkpoints are taken, when they count, and what may be deleted.

    Args:
        config: when and how; see there.
        job_id, job_name, max_parallelism: go into every checkpoint.
        next_checkpoint: the first number to give; numbers ascend over all attempts, savepoints included.
        retained: the completed checkpoints that count already, oldest first.

    Rules, in addition to those of `CheckpointConfig` (Flink's, where it has one):
        Savepoints are aligned, complete in themselves, and not retained here. They subsume nothing, commit nothing
        (`SUSPEND` does, and then no other begins), count neither against `max_concurrent` nor as failures. A periodic
        checkpoint is never triggered while a `SUSPEND` is under way.
        Where barriers may overtake rows, and so other barriers (mode unaligned, or an alignment time-out), one barrier
        is under way at a time: what is asked for meanwhile has its number, and is triggered by a later `tick`.
        What could not be stored may be there all the same, and a manager that has taken the job over may resume from
        it: it is removed once a later checkpoint is complete.
        One behind which subtasks are replaced is aligned, and alone under way, until the attempt is another.
        While a job is drained, no checkpoint is taken before all sources have ended: restored, it would have some of
        them finished and lose what the others had yet to read. `drain` aborts what is under way, and until the attempt
        ends none is periodic. The first that is asked for then is the `SUSPEND` that ends the drain: it is for the
        manager to ask for when all subtasks have finished, and to let no user ask for one before. From then on
        everything that is asked for is taken, such as a last checkpoint where the savepoint has failed.
        Manifests are written one at a time, those of checkpoints in ascending order. One that is being written when its
        attempt ends still counts when it is there, so restore only when no `Store` is unreported.
    """

    def __init__(
        self,
        config: CheckpointConfig,
        job_id: str,
        job_name: str,
        max_parallelism: int,
        next_checkpoint: int = 1,
        retained: Sequence[CompletedCheckpoint] = (),
    ) -> None:
        self._config = config
        self._job_id = job_id
        self._job_name = job_name
        self._max_parallelism = max_parallelism
        self._next = next_checkpoint
        self._retained = RetainedCheckpoints(retained, config.retained)
        self._attempt: Attempt | None = None
        self._pending: dict[int, PendingCheckpoint] = {}
        self._storing: dict[int, CompletedCheckpoint] = {}
        self._queue: deque[Request] = deque()
        self._savepoints: set[int] = set()
        self._aborted_savepoints: set[int] = set()
        self._suspended: CompletedCheckpoint | None = None
        self._stopping = 0
        """The number of the savepoint that the job is being, or was, stopped with; 0: none."""
        self._doubtful: list[_Doubtful] = []
        self._last_end = float("-inf")
        self._failures = 0
        self._history = CheckpointHistory(retained[-1].story if retained else None)

    # What there is

    @property
    def latest(self) -> CompletedCheckpoint | None:
        """The newest completed checkpoint, to be restored after a failure. Never a savepoint: those are the user's."""
        return self._retained.latest

    @property
    def suspended(self) -> CompletedCheckpoint | None:
        """The savepoint that the job was stopped with, once it is complete.

        Its sinks commit, so the job must not be restored from `latest` after it: whatever fails, the job has ended.
        """
        return self._suspended

    @property
    def is_storing(self) -> bool:
        """Whether a manifest is being written: what is newest behind it is what the job is restored from."""
        return bool(self._storing)

    @property
    def retained(self) -> tuple[CompletedCheckpoint, ...]:
        """The completed checkpoints that are kept, oldest first."""
        return self._retained.all

    @property
    def statistics(self) -> CheckpointStatistics:
        """The figures now."""
        return self._history.statistics(len(self._pending) + len(self._queue))

    @property
    def history(self) -> tuple[CheckpointRecord, ...]:
        """The last outcomes, oldest first."""
        return self._history.records

    def parts(self, checkpoint: int) -> tuple[CheckpointPart, ...]:
        """What each subtask has done for a checkpoint that is under way, or one of the newest; else nothing."""
        pending = self._pending.get(checkpoint)
        return self._history.parts(checkpoint) if pending is None else pending.parts

    @property
    def deadline(self) -> float | None:
        """When `tick` has something to do, monotonic seconds; may be past. None: not before another event."""
        times = [pending.deadline for pending in self._pending.values() if pending.phase is Phase.PENDING]
        if self._queue and self._may_follow(self._queue[0]):
            times.append(self._queue[0].requested)
        periodic = self._periodic()
        if periodic is not None:
            times.append(periodic)
        return min(times, default=None)

    # Events

    def start_attempt(
        self, attempt: int, places: Sequence[Place], split_parallelism: Mapping[str, int], now: float
    ) -> list[Instruction]:
        """All subtasks of an attempt run: the first periodic checkpoint is triggered one interval from now.

        Args:
            attempt: its number.
            places: its subtasks.
            split_parallelism: as in `CompletedCheckpoint`.
            now: monotonic seconds.
        """
        answer = self.end_attempt(now) if self._attempt is not None else []
        due = now + self._config.interval_ms / 1000 if self._config.enabled else math.inf
        self._attempt = Attempt(attempt, tuple(places), dict(split_parallelism), due)
        self._last_end = float("-inf")
        return answer

    def end_attempt(self, now: float, reason: AbortReason = AbortReason.ATTEMPT_ENDED) -> list[Instruction]:
        """The attempt fails, is rescaled or ends: what is under way is aborted, but for a manifest being written.

        Args:
            now: monotonic seconds.
            reason: JOB_ENDED where no attempt follows.
        """
        self._attempt = None
        answer: list[Instruction] = []
        for pending in [pending for pending in self._pending.values() if pending.phase is Phase.PENDING]:
            answer += self._abort(pending, reason, pending.progress(), now)
        return answer + self._abort_waiting(reason) + self._deletion(self._retained.rebase())

    def drain(self, now: float) -> list[Instruction]:
        """The sources are about to end, one after another; to be carried out before they are told to. Rules: see above.

        Without effect if the attempt is drained already. It ends with the attempt.

        Raises:
            CheckpointError: no attempt is running, or the job is being stopped.
        """
        attempt = self._check_may_begin("drain can begin")
        if attempt.drain is not Drain.NONE:
            return []
        attempt.drain = Drain.BEGUN
        answer: list[Instruction] = []
        # One that all have acknowledged was taken before, though its manifest may wait for another.
        for pending in [pending for pending in self._pending.values() if pending.is_open]:
            answer += self._abort(pending, AbortReason.DRAINED, pending.progress(), now)
        return answer + self._abort_waiting(AbortReason.DRAINED)

    def tick(self, now: float, now_ms: int) -> list[Instruction]:
        """Time has passed: abort what took too long, and trigger what is due.

        Args:
            now: monotonic seconds.
            now_ms: civil time, for the checkpoints triggered.
        """
        late = [p for p in self._pending.values() if p.phase is Phase.PENDING and p.deadline <= now]
        answer: list[Instruction] = []
        for pending in late:
            answer += self._abort(pending, AbortReason.TIMEOUT, self._lateness(pending), now)
        if self._attempt is not None and self._queue and self._may_follow(self._queue[0]):
            request = self._queue.popleft()
            answer.append(self._trigger(self._attempt, request, now, now_ms))
        periodic = self._periodic()
        if self._attempt is not None and periodic is not None and periodic <= now:
            self._attempt.due = now + self._config.interval_ms / 1000
            request = Request(self._take_number(), SnapshotKind.CHECKPOINT, None, now)
            answer.append(self._trigger(self._attempt, request, now, now_ms))
        return _failure_last(answer)

    def postpone(self, now: float) -> None:
        """Others are asked for: the next periodic checkpoint is triggered one interval from now, if not later."""
        if self._attempt is not None:
            self._attempt.due = max(self._attempt.due, now + self._config.interval_ms / 1000)

    def request(
        self,
        kind: SnapshotKind,
        now: float,
        now_ms: int,
        directory: str | None = None,
        replaced: frozenset[int] = frozenset(),
    ) -> tuple[int, list[Instruction]]:
        """Take a checkpoint or savepoint that is asked for, whatever the interval, the pause and the limit.

        Args:
            kind: which.
            now, now_ms: monotonic seconds, civil time.
            directory: of a savepoint: where the user wants it.
            replaced: of a checkpoint: as in `Barrier`.

        Returns:
            its number: `on_stored` or `NotifyAborted` will tell what became of it.

        Raises:
            CheckpointError: no attempt is running, or the job is being stopped or drained.
        """
        attempt = self._check_may_begin(f"{kind.noun} can be taken")
        if attempt.drain is Drain.BEGUN and kind is not SnapshotKind.SUSPEND:
            raise CheckpointError(
                f"job {self._job_name!r} is being drained: no {kind.noun} can be taken before all of its sources have "
                "ended; the drain ends with a savepoint"
            )
        if attempt.drain is Drain.BEGUN:
            attempt.drain = Drain.ENDED
        wanted = Request(self._take_number(), kind, directory, now, replaced)
        if kind is SnapshotKind.SUSPEND:
            self._stopping = wanted.number
        if self._queue or not self._may_follow(wanted):
            self._queue.append(wanted)
            return wanted.number, []
        return wanted.number, [self._trigger(attempt, wanted, now, now_ms)]

    def acknowledge(
        self, checkpoint: int, place: Place, handle: SubtaskHandle, now: float, now_ms: int
    ) -> tuple[Acknowledgement, list[Instruction]]:
        """A subtask has taken its part and its files are there.

        Args:
            checkpoint, place: which.
            handle: its part.
            now, now_ms: monotonic seconds, civil time.
        """
        pending = self._pending.get(checkpoint)
        if pending is None:
            return self._discard(checkpoint, handle)
        outcome = pending.outcome_of(place)
        if outcome is not Acknowledgement.SUCCESS:
            return outcome, []
        pending.acknowledge(place, handle, self._add_files(pending, handle), now, now_ms)
        return outcome, [] if pending.is_open else self._store_next()

    def decline(
        self,
        checkpoint: int,
        place: Place,
        message: str,
        now: float,
        reason: AbortReason = AbortReason.DECLINED,
    ) -> tuple[Acknowledgement, list[Instruction]]:
        """A subtask cannot take its part, for the reason `message`: the checkpoint is aborted."""
        pending = self._pending.get(checkpoint)
        if pending is None:
            known = 1 <= checkpoint < self._next
            return Acknowledgement.DISCARDED if known else Acknowledgement.UNKNOWN, []
        outcome = pending.outcome_of(place)
        if outcome is not Acknowledgement.SUCCESS:
            return outcome, []
        where = f"task {place[0]} subtask {place[1]}: {message}"
        return outcome, _failure_last(self._abort(pending, reason, where, now))

    def on_stored(self, checkpoint: int, now: float) -> list[Instruction]:
        """The manifest is there: the checkpoint counts. A second report is ignored."""
        completed = self._storing.pop(checkpoint, None)
        if completed is None:
            return []
        pending = self._pending.pop(checkpoint)
        pending.move(Phase.COMPLETED)
        self._history.on_completed(pending.record(now), pending.parts)
        # The subtasks of another attempt have nothing of it to commit.
        commits = pending.attempt is self._attempt and pending.kind is not SnapshotKind.SAVEPOINT
        answer: list[Instruction] = [NotifyComplete(checkpoint, pending.attempt.places)] if commits else []
        if pending.kind is SnapshotKind.CHECKPOINT:
            answer += self._retain(pending, completed, now)
        elif pending.kind is SnapshotKind.SUSPEND:
            self._suspended = completed
        return answer + self._store_next()

    def on_store_failed(self, checkpoint: int, message: str, now: float) -> list[Instruction]:
        """The manifest could not be written, for the reason `message`. Not to be called by a fenced manager."""
        if checkpoint not in self._storing:
            return []
        answer = self._abort(self._pending[checkpoint], AbortReason.STORE_FAILED, message, now)
        return _failure_last(answer + self._store_next())

    def on_fenced(self, checkpoint: int) -> None:
        """The manifest is not written, as another manager has taken the job over: this one completes nothing more."""
        self._storing.pop(checkpoint, None)

    # Triggering

    def _check_may_begin(self, what: str) -> Attempt:
        """The attempt, if it runs and will not stop; otherwise `CheckpointError`."""
        if self._attempt is None:
            raise CheckpointError(
                f"job {self._job_name!r} is not running, so no {what}: it is starting, being restored, or has ended; "
                "try again once it runs"
            )
        if self._stopping:
            raise CheckpointError(
                f"job {self._job_name!r} is being stopped with savepoint {self._stopping}: no {what} any more"
            )
        return self._attempt

    def _take_number(self) -> int:
        number = self._next
        self._next += 1
        return number

    def _periodic(self) -> float | None:
        """When the next periodic checkpoint is triggered, unless something happens before; None: something must."""
        attempt, config = self._attempt, self._config
        if attempt is None or attempt.due == math.inf or attempt.failing or attempt.drain is not Drain.NONE:
            return None
        if self._queue or self._stopping:
            return None
        under_way = sum(1 for p in self._pending.values() if p.kind is SnapshotKind.CHECKPOINT and p.attempt is attempt)
        limit = 1 if config.min_pause_ms else config.max_concurrent
        if under_way >= limit or not self._may_follow():
            return None
        return max(attempt.due, self._last_end + config.min_pause_ms / 1000)

    @property
    def may_be_resumed_from_savepoints(self) -> bool:
        """Whether a savepoint was taken that the job has run on behind: what sinks had prepared by then is its."""
        last = set() if self._suspended is None else {self._suspended.checkpoint}
        return not self._savepoints <= last

    def _may_follow(self, request: Request | None = None) -> bool:
        """Whether the barrier of `request`, or of a periodic checkpoint, may be sent now.

        Two that could overtake each other are never under way together.
        """
        if request is not None and request.replaced:
            return not self._pending
        if any(pending.barrier.replaced for pending in self._pending.values()):
            return False
        if self._config.mode is not CheckpointMode.UNALIGNED and self._config.alignment_timeout_ms is None:
            return True
        return not any(pending.is_open for pending in self._pending.values())

    def _trigger(self, attempt: Attempt, request: Request, now: float, now_ms: int) -> Trigger:
        pins: tuple[int, ...] = ()
        if request.kind is SnapshotKind.CHECKPOINT:
            pins = self._retained.begin(request.number, self._config.incremental)
        else:
            self._savepoints.add(request.number)
        barrier = barrier_of(request, self._config, max(pins, default=0), now_ms)
        deadline = now + self._config.timeout_ms / 1000
        self._pending[request.number] = PendingCheckpoint(barrier, attempt, pins, now, now_ms, deadline)
        return Trigger(barrier, attempt.places, request.directory)

    # Outcomes

    def _store_next(self) -> list[Instruction]:
        ready = (p for p in self._pending.values() if p.phase is Phase.PENDING and not p.is_open)
        pending = None if self._storing else next(ready, None)
        if pending is None:
            return []
        pending.move(Phase.STORING)
        # A savepoint is for another job, which has a story of its own.
        is_own = pending.kind is SnapshotKind.CHECKPOINT
        completed = CompletedCheckpoint(
            job_id=self._job_id,
            job_name=self._job_name,
            checkpoint=pending.number,
            attempt=pending.attempt.number,
            kind=pending.kind,
            mode=pending.barrier.mode,
            max_parallelism=self._max_parallelism,
            triggered_ms=pending.triggered_ms,
            completed_ms=pending.acknowledged_ms,
            subtasks=pending.handles,
            split_parallelism=pending.attempt.split_parallelism,
            story=self._history.story_with(pending.record(pending.acknowledged)) if is_own else None,
        )
        self._storing[pending.number] = completed
        return [Store(completed)]

    def _retain(self, pending: PendingCheckpoint, completed: CompletedCheckpoint, now: float) -> list[Instruction]:
        """A checkpoint counts now: older ones that do not yet never will, and the oldest of those that do may go."""
        self._last_end = now
        self._failures = 0
        surplus, files = self._retained.add(completed, pending.pins, runs=pending.attempt is self._attempt)
        answer: list[Instruction] = []
        for older in [p for p in self._pending.values() if self._is_subsumed(p, completed.checkpoint)]:
            answer += self._abort(older, AbortReason.SUBSUMED, f"checkpoint {completed.checkpoint}", now)
        answer += self._deletion(files, surplus)
        return answer + self._settle_doubtful(completed.checkpoint) if self._doubtful else answer

    @staticmethod
    def _is_subsumed(pending: PendingCheckpoint, completed: int) -> bool:
        return pending.kind is SnapshotKind.CHECKPOINT and pending.number < completed

    def _abort(self, pending: PendingCheckpoint, reason: AbortReason, message: str, now: float) -> list[Instruction]:
        del self._pending[pending.number]
        self._resume_behind(pending.number)
        pending.move(Phase.ABORTED)
        self._history.on_aborted(pending.record(now, reason, message), pending.parts)
        text = f"{pending.kind.noun} {pending.number} was aborted, as {reason.value}: {message}"
        # Subtasks outlive their attempt where only a region of the job failed: they must not wait for it for ever.
        answer: list[Instruction] = [NotifyAborted(pending.number, reason, text, pending.attempt.places)]
        stored = self._storing.pop(pending.number, None)
        if pending.kind is not SnapshotKind.CHECKPOINT:
            files = distinct(file for handle in pending.handles for file in handle.files())
            if stored is not None:
                self._doubtful.append(_Doubtful(stored, files))
                return answer
            return answer + self._drop_savepoint(pending.number, files, ())
        self._last_end = now
        own = [pending.number] if stored is None else []
        if stored is not None:
            self._doubtful.append(_Doubtful(stored))
        return (
            answer
            + self._deletion(self._retained.release(*own, *pending.pins))
            + self._count_failure(pending, reason, text)
        )

    def _abort_waiting(self, reason: AbortReason) -> list[Instruction]:
        """Abort what has been asked for and was not triggered yet."""
        answer: list[Instruction] = []
        while self._queue:
            request = self._queue.popleft()
            self._resume_behind(request.number)
            self._history.on_aborted_before_it_began()
            message = f"{request.kind.noun} {request.number} was aborted before it began, as {reason.value}"
            answer.append(NotifyAborted(request.number, reason, message, ()))
        return answer

    def _resume_behind(self, aborted: int) -> None:
        """If the job was to be stopped with this one, it is not."""
        if self._stopping == aborted:
            self._stopping = 0

    def _drop_savepoint(
        self, number: int, files: Sequence[FileHandle], manifests: Sequence[CompletedCheckpoint]
    ) -> list[Instruction]:
        """Remove a savepoint that never will be; from now on, what is acknowledged of it late is removed, too."""
        self._savepoints.discard(number)
        self._aborted_savepoints.add(number)
        return self._deletion(files, manifests, number)

    def _settle_doubtful(self, completed: int) -> list[Instruction]:
        """Remove what may have been stored before `completed`, which a manager that takes over restores now."""
        due = [one for one in self._doubtful if one.checkpoint.checkpoint < completed]
        self._doubtful = [one for one in self._doubtful if one.checkpoint.checkpoint > completed]
        answer: list[Instruction] = []
        for one in due:
            number = one.checkpoint.checkpoint
            if one.checkpoint.kind is SnapshotKind.CHECKPOINT:
                answer += self._deletion(self._retained.release(number), [one.checkpoint])
            else:
                answer += self._drop_savepoint(number, one.files, [one.checkpoint])
        return answer

    def _count_failure(self, pending: PendingCheckpoint, reason: AbortReason, text: str) -> list[Instruction]:
        attempt, tolerable = self._attempt, self._config.tolerable_failures
        if reason not in COUNTED or attempt is not pending.attempt or pending.attempt.failing:
            return []
        self._failures += 1
        if tolerable is None or self._failures <= tolerable:
            return []
        attempt.failing = True
        failures, self._failures = self._failures, 0
        limit = f"{failures} failed in a row, and tolerable_failures is {tolerable}: see to the cause, or raise it"
        return [FailJob(f"{text}; {limit}")]

    def _discard(self, checkpoint: int, handle: SubtaskHandle) -> tuple[Acknowledgement, list[Instruction]]:
        """The acknowledgement of a checkpoint that has an outcome: nobody will ever refer to what it has written."""
        if not 1 <= checkpoint < self._next:
            return Acknowledgement.UNKNOWN, []
        if checkpoint in self._savepoints:
            return Acknowledgement.DISCARDED, []
        if checkpoint in self._aborted_savepoints:
            return Acknowledgement.DISCARDED, self._deletion(distinct(handle.files()), (), checkpoint)
        return Acknowledgement.DISCARDED, self._deletion(self._retained.unreferenced(handle))

    # Files

    def _add_files(self, pending: PendingCheckpoint, handle: SubtaskHandle) -> Size:
        if pending.kind is SnapshotKind.CHECKPOINT:
            return self._retained.files.add(pending.number, handle.files())
        total = sum(file.length for file in distinct(handle.files()))
        return Size(total, total)

    @staticmethod
    def _deletion(
        files: Sequence[FileHandle], checkpoints: Sequence[CompletedCheckpoint] = (), savepoint: int = 0
    ) -> list[Instruction]:
        return [Delete(checkpoints, files, savepoint)] if files or checkpoints else []

    # Words

    def _lateness(self, pending: PendingCheckpoint) -> str:
        return f"timeout_ms is {self._config.timeout_ms}; {pending.progress()}"


def _failure_last(answer: list[Instruction]) -> list[Instruction]:
    """The same instructions, with the one that ends the attempt behind those that need it."""
    return sorted(answer, key=lambda instruction: isinstance(instruction, FailJob))
