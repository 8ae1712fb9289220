"""The shell of a job in this process: does what the job brain says, and tells it what happens.

It decides nothing but the order: everything that happens beside the steps of the tasks is a mail in its mailbox, and
a seeded choice picks what comes next, a ready task or a mail. One seed gives one order of everything.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeAlias

from penstock.engine.checkpointing.coordinator import Place
from penstock.engine.checkpointing.instructions import AbortReason
from penstock.engine.checkpointing.store import JobFolder, JobStore, RestorePlan, SubtaskWriter
from penstock.engine.checkpointing.task_capture import TaskCapture
from penstock.engine.clock import Clock
from penstock.engine.elements import Barrier
from penstock.engine.errors import CheckpointError, FencedError, PenstockError, located
from penstock.engine.graph.physical import JobProgram, PhysicalGraph
from penstock.engine.job import events as ev
from penstock.engine.job import instructions as say
from penstock.engine.job.brain import JobBrain
from penstock.engine.job.checkpoints import Storage
from penstock.engine.job.layout import GraphPlanner
from penstock.engine.job.log import StimulusLog
from penstock.engine.local.execution import LocalExecution
from penstock.engine.local.log_writer import LocalLogWriter
from penstock.engine.local.mail import Mailbox, MailKind

_REMEMBERED: Final = 100
"""Nobody answers for a checkpoint any more that is older than the newest by this much."""

Outcome: TypeAlias = "str | float | bool | PenstockError"
"""What came of a request."""


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
        warn: takes messages for the log.
        log_store: where the stimulus log is written; None: it stays in memory.

    Attributes:
        brain: decides; its attributes say how the job stands.
        execution: the subtasks.
        answers: what came of requests, by number, until somebody takes it.
        log: what the brain has heard.
    """

    def __init__(
        self,
        program: JobProgram,
        clock: Clock,
        chosen: random.Random,
        folder: JobFolder | None = None,
        mail: Mailbox | None = None,
        warn: Callable[[str], None] = lambda message: None,
        log_store: JobStore | None = None,
    ) -> None:
        self.mail = Mailbox() if mail is None else mail
        self.execution = LocalExecution(clock, chosen)
        self.answers: dict[int, Outcome] = {}
        self._planner = GraphPlanner(program)
        self._clock = clock
        self._random = chosen
        self._folder = folder
        self._warn = warn
        self._asked = 0
        self._background: dict[Place, _Background] = {}
        self._targets: dict[int, str] = {}
        self._injected: dict[int, int] = {}
        self._garbage: list[say.DeleteFiles] = []
        start = folder.start.checkpoint if folder is not None and folder.start is not None else None
        storage = None if folder is None else Storage(folder.job_id, start)
        self.log = StimulusLog(program.name, program.config, self._planner, chosen, storage)
        self.brain = JobBrain(program.name, program.config, self.log.planner, self.log.chosen, storage)
        self._log_writer = None if log_store is None else LocalLogWriter(self.log, log_store, clock, warn)
        if storage is None:
            # There is nowhere to keep it.
            self.log.close()
        self._hear(ev.Began())

    def begin(self) -> None:
        """Let the job come so far that it runs, or will never; no task is stepped before."""
        while self.brain.is_beginning:
            self.mail.take(self._random.randrange(len(self.mail)))

    def ask(self, command: ev.Command) -> int:
        """Ask for something; the number under which `answers` will have what came of it."""
        self._asked += 1
        self._hear(ev.Asked(self._asked, command))
        return self._asked

    def lose(self, place: Place, error: PenstockError) -> None:
        """The process of a subtask is lost."""
        attempt = self.execution.running(place)
        if attempt:
            self.execution.lose(place)
            if (background := self._background.pop(place, None)) is not None:
                background.captures.clear()
            self._post(MailKind.TELL, ev.TaskFailed(place, attempt, error))

    def leave(self, places: Sequence[Place]) -> None:
        """The processes of these subtasks are about to be lost."""
        self._hear(ev.Leaving(tuple(places)))

    # Steps

    def step(self, patience: float) -> None:
        """Let one thing happen, or time pass until something can, for `patience` seconds at the most."""
        now = self._clock.monotonic()
        self.execution.wake_due()
        deadline = self.brain.deadline
        if deadline is not None and deadline <= now:
            self._hear(ev.Ticked())
        if self._log_writer is not None:
            self._log_writer.write_if_due(self.brain)
        if self.brain.ended:
            return
        ready = len(self.execution.ready)
        if not ready and not self.mail:
            self._wait(now + patience)
            return
        chosen = self._random.randrange(ready + len(self.mail))
        if chosen < ready:
            self._step_subtask(chosen)
        else:
            self.mail.take(chosen - ready)

    def _wait(self, until: float) -> None:
        deadlines = [one for one in (self.execution.deadline, self.brain.deadline) if one is not None]
        assert deadlines or self.mail.is_expecting, (
            "no subtask has anything to do, and none waits for time: a deadlock of the engine"
        )
        self._clock.wait_until(min([until, *deadlines]))

    def _step_subtask(self, position: int) -> None:
        execution = self.execution
        try:
            is_over = execution.step(position)
            self._collect(execution.stepping)
        except (Exception, SystemExit) as error:
            self._on_error(execution.stepping, error)
            return
        if is_over:
            place = execution.stepping
            self._post(MailKind.TELL, ev.TaskFinished(place, execution.running(place)))

    def _on_error(self, place: Place, error: BaseException) -> None:
        """A task has raised: it does nothing any more, and the brain hears of it."""
        attempt = self.execution.running(place)
        self.execution.lose(place)
        assert self.brain.layout is not None
        name = self.brain.layout.task(place[0]).name
        self._post(MailKind.TELL, ev.TaskFailed(place, attempt, located(error, name, place[1])))

    # Instructions

    def _hear(self, event: ev.Event) -> None:
        moment = ev.Moment(self._clock.monotonic(), self._clock.now_ms())
        said = self.brain.handle(event, moment)
        self.log.add(event, moment, said)
        for instruction in said:
            self._carry_out(instruction)

    def _post(self, kind: MailKind, event: ev.Event) -> None:
        self.mail.post(kind, partial(self._hear, event))

    def _carry_out(self, instruction: say.Instruction) -> None:
        post = self.mail.post
        match instruction:
            case say.TakeOver():
                post(MailKind.CLAIM, self._claim)
            case say.Deploy():
                post(MailKind.DEPLOY, partial(self._deploy, instruction))
            case say.Cancel(number, places):
                post(MailKind.CANCEL, partial(self._cancel, number, places))
            case say.Prepare():
                post(MailKind.PREPARE, partial(self._prepare, instruction))
            case say.Inject():
                self._inject(instruction)
            case say.Commit(checkpoint, places):
                self._to_subtasks(MailKind.COMMIT, places, partial(self._commit, checkpoint))
            case say.AbortCheckpoint(checkpoint, places):
                self._to_subtasks(MailKind.ABORT, places, partial(self._abort, checkpoint))
            case say.EndInput():
                self._to_subtasks(MailKind.END_INPUT, self.execution.places, self._end_input)
            case say.WriteManifest():
                post(MailKind.STORE, partial(self._store, instruction))
            case say.DeleteFiles():
                post(MailKind.DELETE, partial(self._delete, instruction))
            case say.CheckFolder(request, directory):
                post(MailKind.CHECK_FOLDER, partial(self._check_folder, request, directory))
            case say.Answer(request, outcome):
                self.answers[request] = outcome
            case say.Warn(message):
                self._warn(message)
            case say.TakeDown():
                # Nothing more is to come out of the job, so this waits for no turn.
                self._take_down()
            case say.WriteEnd():
                post(MailKind.WRITE_END, partial(self._write_end, instruction))
            case say.End():
                if self._log_writer is not None:
                    self._log_writer.write(self.brain)
            case say.FillStandbys() | say.AwaitRoom():
                # There is room, and nothing to keep warm, in a process of one's own.
                pass

    @property
    def _store_of_job(self) -> JobStore:
        assert self._folder is not None, "only a job with a folder is told to use it"
        return self._folder.store

    def _claim(self) -> None:
        try:
            claimed: ev.Event = ev.Claimed(self._store_of_job.claim())
        except PenstockError as error:
            claimed = ev.ClaimFailed(error)
        self._post(MailKind.REPORT, claimed)

    def _deploy(self, deploy: say.Deploy) -> None:
        graph = self._planner.graph(deploy.layout)
        try:
            plan = self._restore_plan(graph, deploy)
            if deploy.prepares_sinks:
                graph.prepare_sinks()
        except PenstockError as error:
            self._post(MailKind.REPORT, ev.DeployFailed(deploy.attempt, error))
            return
        restored = 0 if deploy.checkpoint is None else deploy.checkpoint.checkpoint
        self.execution.deploy(graph, deploy.places, deploy.attempt, restored)
        are_open = True
        for place in deploy.places:
            try:
                self._open(graph, place, deploy.attempt, plan)
            except (Exception, SystemExit) as error:
                self._on_error(place, error)
                are_open = False
                break
        self._post(MailKind.REPORT, ev.Deployed(deploy.attempt, are_open))

    def _restore_plan(self, graph: PhysicalGraph, deploy: say.Deploy) -> RestorePlan | None:
        if self._folder is None:
            return None
        store = self._folder.store
        store.check_claim(deploy.epoch)
        return self._folder.start if deploy.checkpoint is None else store.plan(graph, deploy.checkpoint)

    def _open(self, graph: PhysicalGraph, place: Place, attempt: int, plan: RestorePlan | None) -> None:
        restored = None
        if self._folder is not None:
            store = self._folder.store
            self._background[place] = _Background(attempt, store.writer(graph, *place, attempt, plan))
            restored = None if plan is None else store.load(graph, plan, *place)
        self.execution.open(place, restored)

    def _cancel(self, number: int, places: Sequence[Place]) -> None:
        self._close(places)
        self._post(MailKind.REPORT, ev.Cancelled(number))

    def _close(self, places: Sequence[Place]) -> PenstockError | None:
        """End what subtasks run; the first error of those that could not be closed."""
        first: PenstockError | None = None
        for place, error in self.execution.close(places):
            assert self.brain.layout is not None
            first = first or located(error, self.brain.layout.task(place[0]).name, place[1])
        for place in places:
            background = self._background.pop(place, None)
            if background is not None:
                background.writer.close()
        return first

    def _prepare(self, prepare: say.Prepare) -> None:
        try:
            if prepare.checkpoint is not None:
                self._store_of_job.plan(self._planner.graph(prepare.layout), prepare.checkpoint)
        except PenstockError as error:
            self._post(MailKind.REPORT, ev.PrepareFailed(prepare.request, error))
        else:
            self._post(MailKind.REPORT, ev.Prepared(prepare.request))

    def _check_folder(self, request: int, directory: str | None) -> None:
        try:
            checked: ev.Event = ev.FolderChecked(request, self._store_of_job.savepoint_folder(directory))
        except PenstockError as error:
            checked = ev.FolderRefused(request, error)
        self._post(MailKind.REPORT, checked)

    def _store(self, write: say.WriteManifest) -> None:
        number = write.checkpoint.checkpoint
        try:
            url = self._store_of_job.complete(write.epoch, write.checkpoint, self._targets.get(number))
        except (CheckpointError, FencedError) as error:
            self._post(MailKind.REPORT, ev.StoreFailed(number, error))
        else:
            self._post(MailKind.REPORT, ev.Stored(number, url))

    def _delete(self, delete: say.DeleteFiles) -> None:
        due, self._garbage = [*self._garbage, delete], []
        try:
            for one in due:
                self._store_of_job.delete(one.checkpoints, one.files, self._targets.get(one.savepoint))
        except CheckpointError:
            # Nothing refers to it, so it does no harm; the next deletion takes it along.
            self._garbage = due

    def _take_down(self) -> None:
        error = self._close(self.execution.places)
        self._post(MailKind.REPORT, ev.TakenDown(error))

    def _write_end(self, write: say.WriteEnd) -> None:
        store, problem = self._store_of_job, ""
        try:
            store.finish(write.epoch, write.status.value, write.message, retains=not write.discards)
            # Nothing is removed before the end is written down.
            if write.discards:
                store.discard()
            if write.discards_rows:
                self._discard_rows()
        except (CheckpointError, FencedError) as error:
            problem = str(error)
        self._post(MailKind.REPORT, ev.EndWritten(problem))

    def _discard_rows(self) -> None:
        if self.brain.layout is not None:
            for problem in self._planner.graph(self.brain.layout).discard_rows(self._clock):
                self._warn(f"what was not committed is left behind: {problem}")

    # Subtasks

    def _to_subtasks(self, kind: MailKind, places: Sequence[Place], tell: Callable[[Place, int], None]) -> None:
        for place in places:
            if attempt := self.execution.running(place):
                self.mail.post(kind, partial(self._tell, place, attempt, tell))

    def _tell(self, place: Place, attempt: int, tell: Callable[[Place, int], None]) -> None:
        """Tell a subtask something, if it still runs the attempt that is meant."""
        if not self.execution.runs(place, attempt):
            return
        try:
            tell(place, attempt)
            self._collect(place)
        except (Exception, SystemExit) as error:
            self._on_error(place, error)
        else:
            self.execution.wake(place)

    def _inject(self, inject: say.Inject) -> None:
        barrier = inject.barrier
        oldest = barrier.checkpoint - _REMEMBERED
        self._injected = {number: attempt for number, attempt in self._injected.items() if number > oldest}
        self._injected[barrier.checkpoint] = inject.attempt
        if inject.directory is not None:
            target = self._store_of_job.savepoint_target(inject.directory, barrier.checkpoint)
            self._targets[barrier.checkpoint] = target
            barrier = replace(barrier, target=target)
        self._to_subtasks(MailKind.TRIGGER, inject.places, partial(self._expect, inject.attempt, barrier))

    def _expect(self, asked: int, barrier: Barrier, place: Place, attempt: int) -> None:
        if not self.execution.task(place).expect(barrier):
            overtaken = ev.Declined(asked, barrier.checkpoint, place, "", AbortReason.OVERTAKEN)
            self._post(MailKind.ANSWER, overtaken)

    def _commit(self, checkpoint: int, place: Place, attempt: int) -> None:
        self.execution.task(place).complete(checkpoint)
        self._post(MailKind.ANSWER, ev.Committed(checkpoint, place, attempt))

    def _abort(self, checkpoint: int, place: Place, attempt: int) -> None:
        self.execution.task(place).abort(checkpoint)

    def _end_input(self, place: Place, attempt: int) -> None:
        self.execution.task(place).drain()

    def _collect(self, place: Place) -> None:
        """Put what the task captured behind the captures that its writer has not written yet."""
        background = self._background.get(place)
        if background is None:
            return
        for capture in self.execution.task(place).take_captures():
            background.captures.append(capture)
            self.mail.post(MailKind.WRITE, partial(self._write, place, background))

    def _write(self, place: Place, background: _Background) -> None:
        if not background.captures:
            # The process is lost.
            return
        capture = background.captures.popleft()
        checkpoint = capture.barrier.checkpoint
        asked = self._injected.get(checkpoint, 0)
        try:
            handle = background.writer.write(capture)
        except Exception as error:
            answer: ev.Event = ev.Declined(asked, checkpoint, place, str(error))
        else:
            answer = ev.Acknowledged(asked, checkpoint, place, handle)
        self._post(MailKind.ANSWER, answer)
