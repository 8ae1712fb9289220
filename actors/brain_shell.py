"""The shell of the job brain on Ray: does what it says, and tells it what happens.

It lives in the job manager, on its event loop, and decides nothing: events go in, and what is said is done in the
background, by `Execution` with processes and by `Checkpoints` with storage.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import time
from collections.abc import Coroutine, Sequence
from typing import Any

from ray.exceptions import RayActorError

from penstock.actors.checkpoints import Checkpoints
from penstock.actors.client_view import JobReport
from penstock.actors.deaths import remark
from penstock.actors.execution import Execution
from penstock.actors.log_writer import LogWriter
from penstock.engine.checkpointing.instructions import Place
from penstock.engine.checkpointing.store import JobFolder
from penstock.engine.clock import SystemClock
from penstock.engine.errors import NoRoomError, PenstockError, WorkerLostError, located
from penstock.engine.graph.physical import JobProgram, PhysicalGraph
from penstock.engine.job import events as ev
from penstock.engine.job import instructions as say
from penstock.engine.job.brain import JobBrain
from penstock.engine.job.checkpoints import Storage
from penstock.engine.job.layout import GraphPlanner
from penstock.engine.job.log import StimulusLog
from penstock.engine.job.status import JobStatus

_LOG = logging.getLogger(__name__)
_PREPARE_SECONDS = 30.0
"""So long the end of a job waits for sinks that are being made ready."""


def now() -> ev.Moment:
    """The time of this machine."""
    return ev.Moment(time.monotonic(), time.time_ns() // 1_000_000)


class BrainShell:
    """The brain of one job, and what does what it says.

    Args:
        job_id: whose.
        program: the job.
        folder: where its checkpoints are; None: it takes none.

    Attributes:
        name: of the job.
        brain: decides; its attributes say how the job stands.
        execution: the processes.
        checkpoints: None: the job takes none.
        report: how the job ended, once it has.
    """

    def __init__(self, job_id: str, program: JobProgram, folder: JobFolder | None) -> None:
        self.name = program.name
        self._planner = GraphPlanner(program)
        self.execution = Execution(job_id, program.config, self.handle)
        self.checkpoints: Checkpoints | None = None
        if folder is not None:
            self.checkpoints = Checkpoints(folder, program.name, self.execution, self.handle, self._discard_rows)
        storage = Storage.of(folder)
        self._log = StimulusLog(program.name, program.config, self._planner, random.Random(), storage)
        self.brain = JobBrain(program.name, program.config, self._log.planner, self._log.chosen, storage)
        self._log_writer = None if folder is None else LogWriter(self._log, folder.store, program.name)
        if folder is None:
            # There is nowhere to keep it.
            self._log.close()
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._requests = itertools.count(1)
        self._work: set[asyncio.Task[None]] = set()
        self._preparing: asyncio.Future[None] | None = None
        self._is_down = False
        self._timer: asyncio.TimerHandle | None = None
        self._shown = (JobStatus.CREATED, 0, False)
        self._changed = asyncio.Event()
        self.report: asyncio.Future[JobReport] = asyncio.get_running_loop().create_future()

    @property
    def graph(self) -> PhysicalGraph | None:
        """What runs, or is to run; None before it is planned."""
        return None if self.brain.layout is None else self._planner.graph(self.brain.layout)

    def planner(self) -> GraphPlanner:
        """One for layouts that may never run, which `graph` does not keep."""
        return GraphPlanner(self._planner.program)

    async def run(self) -> JobReport:
        """Begin the job; returns when it has ended."""
        try:
            await asyncio.to_thread(self.execution.remove_old)
        except Exception as error:
            # The job begins all the same: slots that are left take room, which a job that waits for room reports.
            _LOG.warning("job %r: what an earlier manager had reserved was not freed: %s", self.name, error)
        self.handle(ev.Began())
        return await asyncio.shield(self.report)

    async def change(self) -> None:
        """Return when the job is somewhere else in its life."""
        await self._changed.wait()

    async def ask(self, command: ev.Command) -> Any:
        """Ask the job for something; the answer.

        Raises:
            PenstockError: it is refused, or has failed.
        """
        request = next(self._requests)
        answer = self._answers[request] = asyncio.get_running_loop().create_future()
        self.handle(ev.Asked(request, command))
        return await asyncio.shield(answer)

    # Events and instructions

    def handle(self, event: ev.Event) -> None:
        """Give the brain an event, and carry out its instructions."""
        moment = now()
        said = self.brain.handle(event, moment)
        self._log.add(event, moment, said)
        for instruction in said:
            if isinstance(instruction, say.CheckpointInstruction):
                assert self.checkpoints is not None, "only a job with a folder is told to use it"
                self.checkpoints.carry_out(instruction)
            else:
                self._carry_out(instruction)
        self._set_timer()
        if self._log_writer is not None:
            self._log_writer.on_event(0 if self.brain.checkpoints is None else self.brain.checkpoints.epoch)
        shown = (self.brain.status, self.brain.attempts.number, self.brain.is_whole)
        if shown != self._shown:
            self._shown = shown
            self._changed.set()
            self._changed = asyncio.Event()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        deadline = self.brain.deadline
        wait = None if deadline is None else max(0.0, deadline - time.monotonic())
        loop = asyncio.get_running_loop()
        self._timer = None if wait is None else loop.call_later(wait, self.handle, ev.Ticked())

    def _carry_out(self, instruction: say.JobInstruction) -> None:
        match instruction:
            case say.Deploy():
                self._spawn(self._deploy(instruction))
            case say.Cancel(number, places):
                self._spawn(self._cancel(number, places))
            case say.Prepare():
                self._spawn(self._prepare(instruction))
            case say.Preload():
                self._spawn(self._preload(instruction))
            case say.AwaitRoom(layout):
                self.execution.await_room(self._planner.graph(layout))
            case say.FillStandbys():
                self.execution.fill_standbys()
            case say.EndInput():
                self._spawn(self.execution.drain())
            case say.TakeDown(at_once):
                self._is_down = True
                for work in self._work:
                    work.cancel()
                self._spawn(self._take_down(at_once))
            case say.Answer(request, outcome):
                self._answer(request, outcome)
            case say.Warn(message):
                _LOG.warning("%s", message)
            case say.WriteEnd():
                self._spawn(self._write_end(instruction))
            case say.End(status, error):
                self.report.set_result(JobReport(status, error, self.execution.last_metrics, self.brain.completed))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _deploy(self, deploy: say.Deploy) -> None:
        graph = self._planner.graph(deploy.layout)
        restore = None
        try:
            if self.checkpoints is not None:
                restore = await self.checkpoints.restore(graph, deploy.checkpoint, deploy.epoch)
            await self.execution.provide(graph, deploy.places)
            if self._is_down:
                # On Python 3.10 and 3.11 `wait_for` forgets that it is cancelled where what it waits for has just come.
                return
            if deploy.prepares_sinks:
                self._preparing = asyncio.ensure_future(asyncio.to_thread(graph.prepare_sinks))
                await asyncio.shield(self._preparing)
            are_open = await self.execution.deploy(deploy.places, deploy.attempt, restore)
        except Exception as error:
            room = error.room if isinstance(error, NoRoomError) else None
            self.handle(ev.DeployFailed(deploy.attempt, self._as_error(error), room))
        else:
            self.handle(ev.Deployed(deploy.attempt, are_open))

    async def _cancel(self, number: int, places: Sequence[Place]) -> None:
        await self.execution.cancel(places)
        self.handle(ev.Cancelled(number))

    async def _prepare(self, prepare: say.Prepare) -> None:
        graph = self._planner.graph(prepare.layout)
        try:
            assert self.checkpoints is not None
            # A checkpoint that does not fit must be noticed while the job still runs.
            if prepare.checkpoint is not None:
                await self.checkpoints.plan(graph, prepare.checkpoint)
            await self.execution.prepare(graph, prepare.moved)
        except Exception as error:
            self.handle(ev.PrepareFailed(prepare.request, self._as_error(error)))
        else:
            self.handle(ev.Prepared(prepare.request))

    async def _preload(self, wanted: say.Preload) -> None:
        assert self.checkpoints is not None, "only a job with a folder is told to use it"
        await self.checkpoints.preload(self._planner.graph(wanted.layout), wanted)

    async def _take_down(self, at_once: bool) -> None:
        if at_once:
            self.execution.kill()
        error = await self.execution.stop(self.brain.closing_seconds)
        if self._preparing is not None:
            # A thread cannot be cancelled, and the sinks may be another job's once this one has ended.
            _, waits = await asyncio.wait([self._preparing], timeout=_PREPARE_SECONDS)
            if waits:
                _LOG.warning("a sink is still being made ready %.0f s behind the end of its job", _PREPARE_SECONDS)
        self.handle(ev.TakenDown(error))

    async def _write_end(self, write: say.WriteEnd) -> None:
        assert self.checkpoints is not None, "only a job with a folder is told to use it"
        if self._log_writer is not None:
            await self._log_writer.finish(write.epoch)
        self.checkpoints.write_end(write)

    def _discard_rows(self) -> Sequence[str]:
        # Also of a job that was taken over and ended before it was deployed again.
        return () if self.graph is None else self.graph.discard_rows(SystemClock())

    def _as_error(self, error: BaseException) -> PenstockError:
        if isinstance(error, RayActorError):
            return WorkerLostError(f"a process of the job died while it was deployed{remark(error)}")
        return located(error, self.name, 0)

    def _answer(self, request: int, outcome: str | float | bool | PenstockError) -> None:
        answer = self._answers.pop(request)
        if isinstance(outcome, PenstockError):
            answer.set_exception(outcome)
            # Nobody may be left to hear it.
            answer.exception()
        else:
            answer.set_result(outcome)
