"""The manager of a job in this process: attempts, checkpoints, restarts; the counterpart of the job manager on Ray.

Everything that happens beside the steps of the tasks is a letter in its mailbox: triggers, captures to be written,
acknowledgements, manifests, commits. A seeded choice picks what comes next, a ready task or a letter, so that one seed
gives one order of everything, and other seeds give others.
"""

from __future__ import annotations

import contextlib
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from penstock.engine.checkpointing.coordinator import (
    CheckpointCoordinator,
    Delete,
    FailJob,
    Instruction,
    NotifyAborted,
    NotifyComplete,
    Place,
    Store,
    Trigger,
)
from penstock.engine.checkpointing.handles import CompletedCheckpoint, SubtaskHandle
from penstock.engine.checkpointing.instructions import AbortReason
from penstock.engine.checkpointing.restored import RestoredTask
from penstock.engine.checkpointing.store import JobFolder, JobStore, RestorePlan, SubtaskWriter
from penstock.engine.checkpointing.task_capture import TaskCapture
from penstock.engine.clock import Clock
from penstock.engine.elements import Barrier, SnapshotKind
from penstock.engine.errors import (
    CheckpointError,
    FencedError,
    JobError,
    PenstockError,
    located,
    summary,
)
from penstock.engine.graph.physical import JobProgram
from penstock.engine.job.failover import ATTEMPTS, RETRY_SECONDS, TERMINAL_ERRORS, RestartPolicy, default_strategy
from penstock.engine.job.status import JobStatus, transition
from penstock.engine.local.attempt import LocalAttempt
from penstock.engine.local.mail import LetterKind, Mailbox


@dataclass(slots=True)
class _Draining:
    """The sources end, and the last checkpoint is a savepoint in `directory`: number `savepoint`, once it is taken."""

    directory: str | None
    savepoint: int | None = None


@dataclass(slots=True)
class _Background:
    """The background work of one subtask in one attempt: captures are written in order."""

    attempt: int
    writer: SubtaskWriter
    captures: deque[TaskCapture] = field(default_factory=deque)


class LocalManager:
    """Runs one job. Nothing moves but in `step`.

    Args:
        program: the job.
        clock: time.
        chosen: makes every choice.
        folder: where checkpoints are kept; None: the job takes none.
        mail: what waits to happen.

    Attributes:
        completed: the newest checkpoint that counts; rows for the client that belong to it are final.
        restored: the checkpoint that the attempt goes on from, 0 for none of its own.
        outcomes: what became of the checkpoints and savepoints that were asked for: a URL, or why there is none.
        found_ended: whether the job had ended under a manager before; `error` says what was written down of that.
        drained: what became of the savepoint of `drain`, likewise; None as long as that is open.

    Raises:
        CheckpointError: the folder cannot be taken over.
    """

    def __init__(
        self,
        program: JobProgram,
        clock: Clock,
        chosen: random.Random,
        folder: JobFolder | None = None,
        mail: Mailbox | None = None,
    ) -> None:
        self.status = transition(JobStatus.CREATED, JobStatus.DEPLOYING)
        self.error: PenstockError | None = None
        self.mail = Mailbox() if mail is None else mail
        self.outcomes: dict[int, str | CheckpointError] = {}
        self._program = program
        self._clock = clock
        self._random = chosen
        self._folder = folder
        claim = folder.store.claim() if folder is not None else None
        self._epoch = claim.epoch if claim else 0
        self.coordinator = CheckpointCoordinator(
            program.config.checkpoints,
            folder.job_id if folder else "",
            program.name,
            program.config.max_parallelism,
            claim.next_checkpoint if claim else 1,
            claim.retained if claim else (),
        )
        self.completed = self.restored = self._newest
        self._policy = RestartPolicy(default_strategy(program.config), chosen)
        if claim is not None and claim.ended is not None:
            self.status = JobStatus(claim.ended)
            self.error = JobError(claim.message) if claim.message else None
        self.found_ended = claim is not None and claim.ended is not None
        self._restart_at: float | None = None
        self._background: dict[Place, _Background] = {}
        self._targets: dict[int, str] = {}
        self._wanted: set[int] = set()
        self._last: int | None = None
        self._last_due = 0.0
        self._uncommitted: set[Place] = set()
        self._storing: set[int] = set()
        self._garbage: list[Delete] = []
        self._draining: _Draining | None = None
        self.drained: str | CheckpointError | None = None
        self._number = self._epoch * ATTEMPTS
        self.attempt = self._new_attempt()

    @property
    def _newest(self) -> int:
        latest = self.coordinator.latest
        return latest.checkpoint if latest else 0

    # Attempts

    def _new_attempt(self) -> LocalAttempt:
        self._number += 1
        latest = self.coordinator.latest
        if latest is None and self._folder is not None and self._folder.start is not None:
            latest = self._folder.start.checkpoint
        graph = self._program.physical(latest.split_parallelism if latest else {})
        return LocalAttempt(graph, self._number, self._clock, self._random)

    def start(self) -> None:
        """Open all tasks of the attempt, with the state that they go on from, and begin; unless the job has ended."""
        if self.status.ended:
            return
        attempt = self.attempt
        place = attempt.places[0]
        self.restored = self._newest
        try:
            plan = self._restore_plan()
            for place in attempt.places:
                attempt.open(place, self._restored(place, plan))
        except Exception as error:
            self.fail(error, place)
            return
        self.status = transition(self.status, JobStatus.RUNNING)
        now = self._clock.monotonic()
        self._policy.on_running(now)
        if self._folder is not None:
            split = {t.source.uid: t.source.split_parallelism for t in attempt.graph.tasks if t.source is not None}
            self._obey(self.coordinator.start_attempt(attempt.number, attempt.places, split, now))

    def _restore_plan(self) -> RestorePlan | None:
        if self._folder is None:
            return None
        latest = self.coordinator.latest
        return self._folder.start if latest is None else self._folder.store.plan(self.attempt.graph, latest)

    def _restored(self, place: Place, plan: RestorePlan | None) -> RestoredTask | None:
        if self._folder is None:
            return None
        graph, store, number = self.attempt.graph, self._folder.store, self.attempt.number
        self._background[place] = _Background(number, store.writer(graph, *place, number, plan))
        return None if plan is None else store.load(graph, plan, *place)

    def fail(self, error: BaseException, place: Place) -> None:
        """The attempt has failed at `place`: give up, or restart when the strategy says so."""
        if self.status.ended or self._restart_at is not None:
            return
        self.error = self._located(error, place)
        self._end_attempt()
        terminal = isinstance(error, TERMINAL_ERRORS) or self._was_suspended()
        delay = None if terminal else self._policy.on_failure(self._clock.monotonic())
        if delay is None:
            self._end_failed()
        else:
            self._restart_after(delay)

    def _end_failed(self) -> None:
        self.status = transition(self.status, JobStatus.FAILED)
        if self._folder is not None and not isinstance(self.error, FencedError):
            self._end_folder(self._folder.store, ())

    def _was_suspended(self) -> bool:
        """Whether a savepoint stopped the job, which must not go back behind it: its sinks may have committed."""
        suspended = self.coordinator.suspended
        if suspended is None:
            return False
        self.error = JobError(
            f"savepoint {suspended.checkpoint} is complete, but the job failed before it had stopped behind it; start "
            f"it again from that savepoint: {self.error or 'the job was rescaled'}"
        )
        return True

    def _located(self, error: BaseException, place: Place) -> PenstockError:
        task_id, subtask = place
        return located(error, self.attempt.graph.task(task_id).name, subtask)

    def _restart_after(self, seconds: float) -> None:
        if self.status is not JobStatus.RESTARTING:
            self.status = transition(self.status, JobStatus.RESTARTING)
        self._restart_at = self._clock.monotonic() + seconds

    def _end_attempt(self) -> None:
        for place, error in self.attempt.close():
            # The first error is the one to report: closing after it may well fail too.
            self.error = self.error or self._located(error, place)
        for background in self._background.values():
            background.writer.close()
        self._background.clear()
        self._last = None
        if self._draining is not None and self.drained is None:
            how = "had come to its end before" if self.error is None else f"failed while it was drained: {self.error}"
            self.drained = CheckpointError(f"the job {how}")
        self._draining = None
        self._uncommitted.clear()
        if self._folder is not None:
            self._obey(self.coordinator.end_attempt(self._clock.monotonic()))

    def _restart(self) -> None:
        self._restart_at = None
        if self._was_suspended():
            self._end_failed()
            return
        self.error = None
        self.attempt = self._new_attempt()
        self.start()

    def rescale(self, parallelism: int) -> None:
        """Go on at another parallelism, from the newest checkpoint.

        Raises:
            GraphError, ConfigurationError: the program cannot run so; it runs on as it was.
            RestoreError: the newest checkpoint does not fit; it runs on as it was.
        """
        rescaled, latest = self._program.rescaled(parallelism), self.coordinator.latest
        graph = rescaled.physical(latest.split_parallelism if latest is not None else {})
        if self._folder is not None and latest is not None:
            self._folder.store.plan(graph, latest)
        self._program = rescaled
        if self.status is JobStatus.RUNNING:
            self._end_attempt()
            self._restart_after(0.0)

    def end(self, status: JobStatus) -> None:
        """End the job, and keep or remove its checkpoints as configured."""
        self._end(status, self._program.config.checkpoints.retain_on_cancel)

    def suspend(self) -> None:
        """Cancel the job; its newest checkpoint stays, whatever was configured."""
        self._end(JobStatus.CANCELLED, retains=True)

    def _end(self, status: JobStatus, retains: bool) -> None:
        if self.status.ended:
            return
        if self.status is JobStatus.RESTARTING:
            self.error = None
        self._end_attempt()
        self.status = transition(self.status, JobStatus.FAILED if self.error is not None else status)
        kept = self.status is JobStatus.FAILED or (self.status is JobStatus.CANCELLED and retains)
        if self._folder is not None:
            self._end_folder(self._folder.store, () if kept else (self._folder.store.discard,))

    def _end_folder(self, store: JobStore, clean_up: Sequence[Callable[[], None]]) -> None:
        # What cannot be removed now stays, and does no harm; but nothing is removed before the end is written down.
        with contextlib.suppress(CheckpointError, FencedError):
            store.finish(self._epoch, self.status.value, "" if self.error is None else summary(self.error))
            for remove in clean_up:
                remove()

    # Steps

    def step(self, patience: float) -> None:
        """Let one thing happen, or time pass until something can, for `patience` seconds at the most."""
        now = self._clock.monotonic()
        # A manifest under way may make a newer checkpoint count than the one that would be restored.
        if self._restart_at is not None and now >= self._restart_at and not self._storing:
            self._restart()
            return
        running = self.status is JobStatus.RUNNING
        if running:
            self.attempt.wake_due()
            if self._folder is not None:
                self._obey(self.coordinator.tick(now, self._clock.now_ms()))
            if self.attempt.all_finished:
                self._take_last_checkpoint(now)
        ready = len(self.attempt.ready) if self.status is JobStatus.RUNNING else 0
        if self.status.ended:
            return
        if not ready and not self.mail:
            self._wait(now + patience)
            return
        chosen = self._random.randrange(ready + len(self.mail))
        if chosen < ready:
            self._step_task(chosen)
        else:
            self.mail.take(chosen - ready)

    def _wait(self, until: float) -> None:
        waiting = [self._restart_at]
        if self.status is JobStatus.RUNNING:
            waiting += [self.attempt.deadline, self.coordinator.deadline if self._folder else None]
            waiting.append(self._last_due if self.attempt.all_finished else None)
        deadlines = [deadline for deadline in waiting if deadline is not None]
        assert deadlines, "no subtask can go on, and none waits for time: a deadlock of the engine"
        self._clock.wait_until(min(until, *deadlines))

    def _step_task(self, position: int) -> None:
        try:
            place = self.attempt.step(position)
            self._collect(place)
        except (Exception, SystemExit) as error:
            self.fail(error, self.attempt.stepping)
            return
        if self.attempt.all_finished:
            self._take_last_checkpoint(self._clock.monotonic())

    def _take_last_checkpoint(self, now: float) -> None:
        """All subtasks have emitted everything: a last checkpoint commits what sinks hold back, then the job ends."""
        if not (self._folder is not None and (self._draining or self._program.config.checkpoints.enabled)):
            self.end(JobStatus.FINISHED)
        elif self._last is None and now >= self._last_due:
            if self._draining and self.drained is None:
                self._request(SnapshotKind.SUSPEND, self._draining.directory, self._begin_drained)
            else:
                self._request(SnapshotKind.CHECKPOINT, None, self._begin_last)

    # What users ask for

    def request(self, kind: SnapshotKind, directory: str | None = None) -> int:
        """Take a checkpoint or savepoint now; its number. `outcomes` will have what became of it.

        Raises:
            CheckpointError: the job has no storage, or does not run.
        """
        if self._draining is not None:
            raise CheckpointError(f"job {self._program.name!r} is being drained; its last checkpoint is the next")
        return self._request(kind, directory, self._begin_last if kind is SnapshotKind.SUSPEND else _nothing)

    def _request(self, kind: SnapshotKind, directory: str | None, begun: Callable[[int], None]) -> int:
        self._with_store()
        now, now_ms = self._clock.monotonic(), self._clock.now_ms()
        number, instructions = self.coordinator.request(kind, now, now_ms, directory)
        self._wanted.add(number)
        # It may be given up while the instructions are carried out.
        begun(number)
        self._obey(instructions)
        return number

    def _begin_drained(self, number: int) -> None:
        assert self._draining is not None
        self._draining.savepoint = number
        self._begin_last(number)

    def _begin_last(self, number: int) -> None:
        self._last = number

    def drain(self, directory: str | None) -> None:
        """End the sources as if their input had ended; the last checkpoint becomes a savepoint in `directory`.

        `drained` will have what became of it; a job that fails meanwhile goes on as if nobody had asked.

        Raises:
            CheckpointError: the job has no storage or does not run, or the directory cannot be used.
        """
        store = self._with_store()
        if self.status is not JobStatus.RUNNING or self._draining is not None:
            raise CheckpointError(f"job {self._program.name!r} does not run, or is being drained")
        store.savepoint_folder(directory)
        # It gives up what is under way, a last checkpoint too, which is none of the drain's.
        self._obey(self.coordinator.drain(self._clock.monotonic()))
        self._draining, self.drained = _Draining(directory), None
        for place in self.attempt.places:
            self.attempt.task(place).drain()
            self.attempt.wake_place(place)

    def _with_store(self) -> JobStore:
        if self._folder is None:
            raise CheckpointError(f"job {self._program.name!r} has no checkpoint storage; set one (checkpoints=...)")
        return self._folder.store

    # Instructions of the coordinator

    def _obey(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Trigger():
                    self._trigger(instruction)
                case Store(checkpoint):
                    self._storing.add(checkpoint.checkpoint)
                    self.mail.post(LetterKind.STORE, partial(self._store, checkpoint))
                case NotifyComplete(checkpoint, places):
                    self._notify_complete(checkpoint, places)
                case NotifyAborted(checkpoint, _, message, places):
                    self._notify_aborted(checkpoint, message, places)
                case Delete():
                    self.mail.post(LetterKind.DELETE, partial(self._delete, instruction))
                case FailJob(message):
                    self.fail(CheckpointError(message), self.attempt.places[0])

    def _trigger(self, trigger: Trigger) -> None:
        barrier, number = trigger.barrier, self.attempt.number
        if barrier.kind is not SnapshotKind.CHECKPOINT:
            assert self._folder is not None
            try:
                store = self._folder.store
                target = store.savepoint_target(store.savepoint_folder(trigger.directory), barrier.checkpoint)
            except CheckpointError as error:
                place, now = trigger.places[0], self._clock.monotonic()
                self._obey(self.coordinator.decline(number, barrier.checkpoint, place, str(error), now)[1])
                return
            self._targets[barrier.checkpoint] = target
            barrier = replace(barrier, target=target)
        for place in trigger.places:
            self.mail.post(LetterKind.TRIGGER, partial(self._expect, number, place, barrier))

    def _expect(self, attempt: int, place: Place, barrier: Barrier) -> None:
        if not self._runs(attempt):
            return
        try:
            is_in_time = self.attempt.task(place).expect(barrier)
            self._collect(place)
        except (Exception, SystemExit) as error:
            self.fail(error, place)
            return
        self.attempt.wake_place(place)
        if not is_in_time:
            self._decline(attempt, barrier.checkpoint, place, "", AbortReason.OVERTAKEN)

    def _runs(self, attempt: int) -> bool:
        return self.status is JobStatus.RUNNING and self.attempt.number == attempt

    def _collect(self, place: Place) -> None:
        """Put what the task captured behind the captures that its writer has not written yet."""
        if self._folder is None:
            return
        for capture in self.attempt.task(place).take_captures():
            background = self._background[place]
            background.captures.append(capture)
            self.mail.post(LetterKind.WRITE, partial(self._write, place, background))

    def _write(self, place: Place, background: _Background) -> None:
        capture = background.captures.popleft()
        checkpoint = capture.barrier.checkpoint
        try:
            handle = background.writer.write(capture)
        except Exception as error:
            report = partial(self._decline, background.attempt, checkpoint, place, str(error))
        else:
            report = partial(self._acknowledge, background.attempt, checkpoint, place, handle)
        self.mail.post(LetterKind.ACKNOWLEDGE, report)

    def _acknowledge(self, attempt: int, checkpoint: int, place: Place, handle: SubtaskHandle) -> None:
        now, now_ms = self._clock.monotonic(), self._clock.now_ms()
        self._obey(self.coordinator.acknowledge(attempt, checkpoint, place, handle, now, now_ms)[1])

    def _decline(
        self, attempt: int, checkpoint: int, place: Place, message: str, reason: AbortReason = AbortReason.DECLINED
    ) -> None:
        now = self._clock.monotonic()
        self._obey(self.coordinator.decline(attempt, checkpoint, place, message, now, reason)[1])

    def _store(self, checkpoint: CompletedCheckpoint) -> None:
        assert self._folder is not None
        if self.status.ended:
            # It would come after the clean-up, and nobody waits for it.
            return
        number = checkpoint.checkpoint
        try:
            url = self._folder.store.complete(self._epoch, checkpoint, self._targets.get(number))
        except FencedError as error:
            self.fail(error, self.attempt.places[0])
            return
        except CheckpointError as error:
            self.mail.post(LetterKind.STORED, partial(self._on_store_failed, number, str(error)))
            return
        self.mail.post(LetterKind.STORED, partial(self._on_stored, number, url))

    def _on_stored(self, checkpoint: int, url: str) -> None:
        self._storing.discard(checkpoint)
        if checkpoint in self._wanted:
            self.outcomes[checkpoint] = url
        if self._is_of_drain(checkpoint):
            self.drained = url
        self._obey(self.coordinator.on_stored(checkpoint, self._clock.monotonic()))

    def _on_store_failed(self, checkpoint: int, message: str) -> None:
        self._storing.discard(checkpoint)
        self._obey(self.coordinator.on_store_failed(checkpoint, message, self._clock.monotonic()))

    def _is_of_drain(self, checkpoint: int) -> bool:
        """Whether it is the savepoint of a drain, of which nobody has heard yet what became of it."""
        return self._draining is not None and self._draining.savepoint == checkpoint and self.drained is None

    def _notify_complete(self, checkpoint: int, places: Sequence[Place]) -> None:
        self.completed = max(self.completed, checkpoint)
        if checkpoint == self._last:
            self._uncommitted = set(places)
        for place in places:
            number = self.attempt.number
            self.mail.post(LetterKind.COMPLETE, partial(self._complete, number, place, checkpoint))

    def _complete(self, attempt: int, place: Place, checkpoint: int) -> None:
        if not self._runs(attempt):
            return
        try:
            self.attempt.task(place).complete(checkpoint)
        except Exception as error:
            self.fail(error, place)
            return
        if checkpoint == self._last:
            self._uncommitted.discard(place)
            if not self._uncommitted:
                self.end(JobStatus.FINISHED)

    def _notify_aborted(self, checkpoint: int, message: str, places: Sequence[Place]) -> None:
        if checkpoint in self._wanted:
            self.outcomes[checkpoint] = CheckpointError(message)
        if checkpoint == self._last:
            self._last, self._last_due = None, self._clock.monotonic() + RETRY_SECONDS
        if self._is_of_drain(checkpoint):
            # The user learns why; the job ends as any that has come to the end of its input.
            self.drained = CheckpointError(message)
        number = self.attempt.number
        for place in places:
            self.mail.post(LetterKind.ABORT, partial(self._abort, number, place, checkpoint))

    def _abort(self, attempt: int, place: Place, checkpoint: int) -> None:
        if self._runs(attempt):
            self.attempt.task(place).abort(checkpoint)
            self.attempt.wake_place(place)

    def _delete(self, delete: Delete) -> None:
        assert self._folder is not None
        due, self._garbage = [*self._garbage, delete], []
        try:
            for one in due:
                self._folder.store.delete(one.checkpoints, one.files, self._targets.get(one.savepoint))
        except CheckpointError:
            # Nothing refers to it, so it does no harm; the next deletion takes it along.
            self._garbage = due


def _nothing(number: int) -> None:
    """The job goes on behind it."""
