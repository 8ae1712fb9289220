"""The shell of a job in this process: does what the job brain says, and tells it what happens.

It decides nothing but the order: everything that happens beside the steps of the tasks is a mail in its mailbox, and
a seeded choice picks what comes next, a ready task or a mail. One seed gives one order of everything.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from penstock.engine.checkpointing.instructions import Place
from penstock.engine.checkpointing.store import JobFolder, JobStore
from penstock.engine.clock import Clock
from penstock.engine.errors import PenstockError, located
from penstock.engine.graph.physical import JobProgram
from penstock.engine.interruption import pass_interruption
from penstock.engine.job import events as ev
from penstock.engine.job import instructions as say
from penstock.engine.job.brain import JobBrain
from penstock.engine.job.checkpoints import Storage
from penstock.engine.job.layout import GraphPlanner
from penstock.engine.job.log import StimulusLog
from penstock.engine.local.deployment import LocalDeployment
from penstock.engine.local.execution import LocalExecution, Mailbox, MailKind
from penstock.engine.local.room import EndlessRoom, Room

if TYPE_CHECKING:
    from penstock.engine.local.checkpoints import LocalCheckpoints, LocalLogWriter

Outcome: TypeAlias = "str | float | bool | PenstockError"
"""What came of a request."""


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
        room: where subtasks run; None: there is room for all.

    Attributes:
        brain: decides; its attributes say how the job stands.
        execution: the subtasks.
        answers: what came of requests, by number, until somebody takes it.
        log: what the brain has heard.
        heard: how many events that were; only they change what the brain says of the job.
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
        room: Room | None = None,
    ) -> None:
        self.mail = Mailbox() if mail is None else mail
        self.execution = LocalExecution(clock, chosen)
        self.answers: dict[int, Outcome] = {}
        self.heard = 0
        self._planner = GraphPlanner(program)
        self._clock = clock
        self._random = chosen
        self._warn = warn
        self._asked = 0
        self._checkpoints: LocalCheckpoints | None = None
        if folder is not None:
            # A job that keeps nothing starts without.
            from penstock.engine.local.checkpoints import LocalCheckpoints

            self._checkpoints = LocalCheckpoints(
                folder, self.execution, self.mail, self._handle, self._to_subtasks, self._discard_rows
            )
        self._room: Room = EndlessRoom() if room is None else room
        self._deployment = LocalDeployment(
            self._planner,
            self.execution,
            self._checkpoints,
            self._room,
            partial(self._post, MailKind.REPORT),
            self._on_error,
        )
        storage = Storage.of(folder)
        self.log = StimulusLog(program.name, program.config, self._planner, chosen, storage)
        self.brain = JobBrain(program.name, program.config, self.log.planner, self.log.chosen, storage)
        self._log_writer: LocalLogWriter | None = None
        if log_store is not None:
            from penstock.engine.local.checkpoints import LocalLogWriter

            self._log_writer = LocalLogWriter(self.log, log_store, clock, warn)
        if storage is None:
            # There is nowhere to keep it.
            self.log.close()
        self._handle(ev.Began())

    def begin(self) -> None:
        """Let the job come so far that it runs, or will never; no task is stepped before."""
        while self.brain.is_beginning:
            self.mail.take(self._random.randrange(len(self.mail)))

    def ask(self, command: ev.Command) -> int:
        """Ask for something; the number under which `answers` will have what came of it."""
        self._asked += 1
        self._handle(ev.Asked(self._asked, command))
        return self._asked

    def lose(self, place: Place, error: PenstockError) -> None:
        """The process of a subtask is lost."""
        attempt = self.execution.running(place)
        if attempt:
            self.execution.lose(place)
            if self._checkpoints is not None:
                self._checkpoints.lose(place)
            self._post(MailKind.TELL, ev.TaskFailed(place, attempt, error))

    def leave(self, places: Sequence[Place]) -> None:
        """The processes of these subtasks are about to be lost."""
        self._handle(ev.Leaving(tuple(places)))

    # Steps

    def step(self, patience: float) -> None:
        """Let one thing happen, or time pass until something can, for `patience` seconds at the most."""
        now = self._clock.monotonic()
        self.execution.wake_due()
        deadline = self.brain.deadline
        if deadline is not None and deadline <= now:
            self._handle(ev.Ticked())
        if self._log_writer is not None:
            self._log_writer.write_if_due(self.brain)
        if self.brain.ended:
            return
        ready, mails = len(self.execution.ready), len(self.mail)
        if not ready and not mails:
            self._wait(now + patience)
            return
        chosen = self._random.randrange(ready + mails)
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
        except BaseException as error:
            self._on_error(execution.stepping, error)
            return
        if is_over:
            place = execution.stepping
            self._post(MailKind.TELL, ev.TaskFinished(place, execution.running(place)))

    def _on_error(self, place: Place, error: BaseException) -> None:
        """A task has raised: it is stepped no more, and the brain gets the event.

        Raises:
            BaseException: `error` itself, where it is an interruption.
        """
        pass_interruption(error)
        attempt = self.execution.running(place)
        self.execution.lose(place)
        failure = located(error, self.execution.name(place), place[1])
        self._post(MailKind.TELL, ev.TaskFailed(place, attempt, failure))

    # Instructions

    def _handle(self, event: ev.Event) -> None:
        self.heard += 1
        moment = ev.Moment(self._clock.monotonic(), self._clock.now_ms())
        said = self.brain.handle(event, moment)
        self.log.add(event, moment, said)
        for instruction in said:
            if isinstance(instruction, say.CheckpointInstruction):
                assert self._checkpoints is not None, "only a job with a folder is told to use it"
                self._checkpoints.carry_out(instruction)
            else:
                self._carry_out(instruction)

    def _post(self, kind: MailKind, event: ev.Event) -> None:
        self.mail.post(kind, partial(self._handle, event))

    def _carry_out(self, instruction: say.JobInstruction) -> None:
        post = self.mail.post
        match instruction:
            case say.Deploy():
                post(MailKind.DEPLOY, partial(self._deployment.deploy, instruction))
            case say.Cancel(number, places):
                post(MailKind.CANCEL, partial(self._deployment.cancel, number, places))
            case say.Prepare():
                post(MailKind.PREPARE, partial(self._deployment.prepare, instruction))
            case say.Preload():
                assert self._checkpoints is not None, "only a job with a folder is told to use it"
                self._checkpoints.preload(self._planner.graph(instruction.layout), instruction)
            case say.AwaitRoom(layout):
                self._room.await_room(layout, partial(self._post, MailKind.REPORT, ev.RoomFound()))
            case say.FillStandbys():
                self._room.fill_standbys()
            case say.EndInput():
                self._to_subtasks(MailKind.END_INPUT, self.execution.places, self._end_input)
            case say.TakeDown():
                # Nothing more is to come out of the job, so this waits for no turn.
                self._deployment.take_down()
            case say.Answer(request, outcome):
                self.answers[request] = outcome
            case say.Warn(message):
                self._warn(message)
            case say.WriteEnd():
                assert self._checkpoints is not None, "only a job with a folder is told to use it"
                post(MailKind.WRITE_END, partial(self._checkpoints.write_end, instruction))
            case say.End():
                if self._log_writer is not None:
                    self._log_writer.write(self.brain)

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
        except BaseException as error:
            self._on_error(place, error)
        else:
            self.execution.wake(place)

    def _end_input(self, place: Place, attempt: int) -> None:
        self.execution.task(place).drain()

    def _collect(self, place: Place) -> None:
        if self._checkpoints is not None:
            self._checkpoints.collect(place)
