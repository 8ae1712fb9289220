"""What a job in this process keeps: its checkpoints, as the brain says, with reports of what came of it, and its log.

Belongs to the local manager. Every piece of work for checkpoints is a mail, so that a seed decides when it is done; the
captures of one subtask are written in order. The log is written between steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeAlias

from penstock.engine.checkpointing.instructions import AbortReason, Place
from penstock.engine.checkpointing.preload import Preloaded
from penstock.engine.checkpointing.restored import RestoredTask
from penstock.engine.checkpointing.store import JobFolder, JobStore, RestorePlan, SubtaskWriter
from penstock.engine.checkpointing.task_capture import TaskCapture
from penstock.engine.clock import Clock
from penstock.engine.elements import Barrier
from penstock.engine.errors import CheckpointError, FencedError, PenstockError
from penstock.engine.graph.physical import PhysicalGraph
from penstock.engine.interruption import pass_interruption
from penstock.engine.job import events as ev
from penstock.engine.job import instructions as say
from penstock.engine.job.brain import JobBrain
from penstock.engine.job.log import LogKeeper, StimulusLog
from penstock.engine.local.execution import LocalExecution, Mailbox, MailKind

_PAUSE_SECONDS: Final = 1.0
"""Between two writes."""

Tell: TypeAlias = "Callable[[MailKind, Sequence[Place], Callable[[Place, int], None]], None]"
"""Calls subtasks, by mails of a kind, those that still run the attempt that is meant."""


@dataclass(slots=True)
class _Background:
    """The background work of one subtask in one attempt."""

    writer: SubtaskWriter
    captures: deque[TaskCapture] = field(default_factory=deque)


class LocalCheckpoints:
    """The checkpoints of one job under one manager.

    Args:
        folder: where they are.
        execution: its subtasks.
        mail: where its work waits.
        handle: takes events.
        tell: calls subtasks.
        discard_rows: removes what sinks have prepared and nobody will commit.
    """

    def __init__(
        self,
        folder: JobFolder,
        execution: LocalExecution,
        mail: Mailbox,
        handle: Callable[[ev.Event], None],
        tell: Tell,
        discard_rows: Callable[[], None],
    ) -> None:
        self._folder = folder
        self._store = folder.store
        self._execution = execution
        self._mail = mail
        self._handle = handle
        self._tell = tell
        self._discard_rows = discard_rows
        self._background: dict[Place, _Background] = {}
        self._targets: dict[int, str] = {}
        self._preloaded: dict[Place, Preloaded] = {}
        self._garbage: list[say.DeleteFiles] = []

    def carry_out(self, instruction: say.CheckpointInstruction) -> None:
        """Carry out an instruction of the brain when its mail is delivered."""
        post = self._mail.post
        match instruction:
            case say.TakeOver():
                post(MailKind.CLAIM, self._claim)
            case say.Inject():
                self._inject(instruction)
            case say.Commit(checkpoint, places):
                self._tell(MailKind.COMMIT, places, partial(self._commit, checkpoint))
            case say.AbortCheckpoint(checkpoint, places):
                self._tell(MailKind.ABORT, places, partial(self._abort, checkpoint))
            case say.WriteManifest():
                post(MailKind.STORE, partial(self._write_manifest, instruction))
            case say.DeleteFiles():
                post(MailKind.DELETE, partial(self._delete, instruction))
            case say.CheckFolder(request, directory):
                post(MailKind.CHECK_FOLDER, partial(self._check_folder, request, directory))

    def _report(self, kind: MailKind, event: ev.Event) -> None:
        self._mail.post(kind, partial(self._handle, event))

    # Storage

    def _claim(self) -> None:
        try:
            claimed: ev.Event = ev.Claimed(self._store.claim())
        except PenstockError as error:
            claimed = ev.ClaimFailed(error)
        self._report(MailKind.REPORT, claimed)

    def restore_plan(self, graph: PhysicalGraph, deploy: say.Deploy) -> RestorePlan | None:
        """What an attempt begins with; None: nothing.

        Raises:
            RestoreError, CheckpointError: the checkpoint does not fit, or cannot be read.
            FencedError: another manager has taken the job over.
        """
        self._store.check_claim(deploy.epoch)
        return self._folder.start if deploy.checkpoint is None else self._store.plan(graph, deploy.checkpoint)

    def check(self, graph: PhysicalGraph, prepare: say.Prepare) -> None:
        """See that what a rescale would restore fits; errors as for `restore_plan`."""
        if prepare.checkpoint is not None:
            self._store.plan(graph, prepare.checkpoint)

    def preload(self, graph: PhysicalGraph, preload: say.Preload) -> None:
        """Have state taken in, by one subtask after another; then it is reported."""
        self._preloads(graph, preload, deque(preload.places))

    def _preloads(self, graph: PhysicalGraph, preload: say.Preload, left: deque[Place]) -> None:
        if not left:
            self._report(MailKind.REPORT, ev.Preloaded(preload.request, preload.checkpoint.checkpoint))
            return
        place = left.popleft()

        def take_in() -> None:
            before = self._preloaded.pop(place, None)
            try:
                plan = self._store.plan(graph, preload.checkpoint)
                self._preloaded[place] = self._store.preload(graph, plan, *place, before)
            except PenstockError:
                # A subtask that cannot preload reads all of the state later.
                return
            finally:
                self._preloads(graph, preload, left)

        self._mail.post(MailKind.PRELOAD, take_in)

    def _write_manifest(self, write: say.WriteManifest) -> None:
        number = write.checkpoint.checkpoint
        try:
            url = self._store.complete(write.epoch, write.checkpoint, self._targets.get(number))
        except (CheckpointError, FencedError) as error:
            self._report(MailKind.REPORT, ev.StoreFailed(number, error))
        else:
            self._report(MailKind.REPORT, ev.Stored(number, url))

    def _delete(self, delete: say.DeleteFiles) -> None:
        due, self._garbage = [*self._garbage, delete], []
        try:
            for one in due:
                self._store.delete(one.checkpoints, one.files, self._targets.get(one.savepoint))
        except CheckpointError:
            # Nothing refers to it, so it does no harm; the next deletion takes it along.
            self._garbage = due

    def _check_folder(self, request: int, directory: str | None) -> None:
        try:
            checked: ev.Event = ev.FolderChecked(request, self._store.savepoint_folder(directory))
        except PenstockError as error:
            checked = ev.FolderRefused(request, error)
        self._report(MailKind.REPORT, checked)

    def write_end(self, write: say.WriteEnd) -> None:
        """Write down how the job has ended, and remove what is not kept."""
        problem = ""
        try:
            self._store.finish(write.epoch, write.status.value, write.message, retains=not write.discards)
            # Nothing is removed before the end is written down.
            if write.discards:
                self._store.discard()
            if write.discards_rows:
                self._discard_rows()
        except (CheckpointError, FencedError) as error:
            problem = str(error)
        self._report(MailKind.REPORT, ev.EndWritten(problem))

    # Subtasks

    def open(self, graph: PhysicalGraph, place: Place, attempt: int, plan: RestorePlan | None) -> RestoredTask | None:
        """Have a writer for a subtask that is being started; what it is restored from.

        Raises:
            CheckpointError: that cannot be read.
        """
        self._background[place] = _Background(self._store.writer(graph, *place, attempt, plan))
        preloaded = self._preloaded.pop(place, None)
        return None if plan is None else self._store.load(graph, plan, *place, preloaded)

    def lose(self, place: Place) -> None:
        """The process of a subtask is lost, with what it had not written yet, and what it had taken in."""
        self._preloaded.pop(place, None)
        if (background := self._background.pop(place, None)) is not None:
            background.captures.clear()

    def close(self, places: Iterable[Place]) -> None:
        """Close the writers of subtasks that have ended."""
        for place in places:
            if (background := self._background.pop(place, None)) is not None:
                background.writer.close()

    def collect(self, place: Place) -> None:
        """Put what the task captured behind the captures that its writer has not written yet."""
        background = self._background.get(place)
        if background is None:
            return
        for capture in self._execution.task(place).take_captures():
            background.captures.append(capture)
            self._mail.post(MailKind.WRITE, partial(self._write, place, background))

    def _write(self, place: Place, background: _Background) -> None:
        if not background.captures:
            # The process is lost.
            return
        capture = background.captures.popleft()
        checkpoint = capture.barrier.checkpoint
        try:
            handle = background.writer.write(capture)
        except BaseException as error:
            pass_interruption(error)
            answer: ev.Event = ev.Declined(checkpoint, place, str(error))
        else:
            answer = ev.Acknowledged(checkpoint, place, handle)
        self._report(MailKind.ANSWER, answer)

    def _inject(self, inject: say.Inject) -> None:
        barrier = inject.barrier
        if inject.directory is not None:
            target = self._store.savepoint_target(inject.directory, barrier.checkpoint)
            self._targets[barrier.checkpoint] = target
            barrier = replace(barrier, target=target)
        self._tell(MailKind.TRIGGER, inject.places, partial(self._expect, barrier))

    def _expect(self, barrier: Barrier, place: Place, attempt: int) -> None:
        if not self._execution.task(place).expect(barrier):
            overtaken = ev.Declined(barrier.checkpoint, place, "", AbortReason.OVERTAKEN)
            self._report(MailKind.ANSWER, overtaken)

    def _commit(self, checkpoint: int, place: Place, attempt: int) -> None:
        self._execution.task(place).complete(checkpoint)
        self._report(MailKind.ANSWER, ev.Committed(checkpoint, place, attempt))

    def _abort(self, checkpoint: int, place: Place, attempt: int) -> None:
        self._execution.task(place).abort(checkpoint)


class LocalLogWriter:
    """Writes the stimulus log of one job, between its steps.

    What the storage refuses is tried again later, and told once; the job runs on in any case.

    Args:
        log: which.
        store: where to.
        clock: time.
        warn: takes messages for the log that people read.
    """

    def __init__(self, log: StimulusLog, store: JobStore, clock: Clock, warn: Callable[[str], None]) -> None:
        self._log = log
        self._store = store
        self._clock = clock
        self._warn = warn
        self._keeper = LogKeeper(log)
        self._due = clock.monotonic() + _PAUSE_SECONDS
        self._has_warned = False

    def write_if_due(self, brain: JobBrain) -> None:
        """Write what waits, if that is worth it by now."""
        if self._log.is_urgent and self._clock.monotonic() >= self._due:
            self.write(brain)

    def write(self, brain: JobBrain) -> None:
        """Write what waits. Before the folder is claimed there is no name for it, and it waits on."""
        if brain.checkpoints is None or not self._log.is_open:
            return
        epoch, store = brain.checkpoints.epoch, self._store
        try:
            self._keeper.write(self._log.take(), partial(store.write_log, epoch), partial(store.drop_log, epoch))
        except Exception as error:
            self._on_error(error)
        self._due = self._clock.monotonic() + _PAUSE_SECONDS

    def _on_error(self, error: Exception) -> None:
        if not isinstance(error, CheckpointError) or self._keeper.is_overdue:
            self._log.close()
        if not self._has_warned:
            self._has_warned = True
            self._warn(f"the stimulus log of the job could not be written: {error}")
