"""The job manager: one actor a job. The shell of the job brain on Ray: does what it says, tells it what happens.

It is off the data path: rows never pass through it. It owns the subtask actors, so they die with it. Where the job
takes checkpoints, Ray restarts it when its process dies, and its brain takes the job over from storage, without any
client; it begins by itself when it is created. All methods run on the actor's event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import logging
import random
import time
from collections.abc import Collection, Coroutine, Mapping, Sequence
from typing import Any, Final

import ray
from ray import cloudpickle
from ray.exceptions import RayActorError

from penstock.actors.autoscaling import Autoscaling
from penstock.actors.checkpoints import Checkpoints
from penstock.actors.client_view import ClientView, JobReport, client_channels
from penstock.actors.cluster_notes import ClusterNotes
from penstock.actors.ended_jobs import note_end
from penstock.actors.execution import Execution
from penstock.actors.info import job_info
from penstock.actors.live_state import StateRoute, state_route
from penstock.actors.log_writer import LogWriter
from penstock.actors.metrics_log import log_metrics
from penstock.actors.nodes import leaving_nodes
from penstock.actors.pandas_later import load_pandas_later
from penstock.actors.recorded_commands import RecordedCommand, forget, recorded
from penstock.actors.stacks import Stack
from penstock.actors.tail import StreamRoute, stream_route
from penstock.actors.task_log import LogLine
from penstock.engine.autoscaler.readings import JobReading, reading_of
from penstock.engine.checkpointing.coordinator import Place
from penstock.engine.checkpointing.pending import CheckpointPart
from penstock.engine.checkpointing.store import JobFolder
from penstock.engine.errors import JobError, NoRoomError, PenstockError, StateNotReadyError, WorkerLostError, located
from penstock.engine.graph.physical import JobProgram, PhysicalGraph
from penstock.engine.graph.scale import ParallelismRequest
from penstock.engine.job import events as ev
from penstock.engine.job import instructions as say
from penstock.engine.job.brain import JobBrain
from penstock.engine.job.checkpoints import Storage
from penstock.engine.job.event_time import EventTimeWatch, has_event_time
from penstock.engine.job.info import EventTimeWait, JobInfo
from penstock.engine.job.layout import GraphPlanner
from penstock.engine.job.log import StimulusLog
from penstock.engine.job.status import JobStatus
from penstock.engine.metrics import SubtaskMetrics

_LOG = logging.getLogger(__name__)
_LEAVE_SECONDS: Final = 0.5
_LINGER_SECONDS: Final = 30.0
"""How long one that nobody has asked how it ended stays, to be asked; the end itself is written down."""
_WATCH_SECONDS: Final = 10.0
"""How often event time is looked at."""
_NODES_SECONDS: Final = 1.0
"""How often it is asked which nodes are about to leave; a cloud gives a notice of half a minute or more."""
_LOOK_SECONDS: Final = 5.0
"""How often it looks for commands whose call has not come to it."""
COLLECTOR: Final = (50_000, 20, 50)
"""How seldom Python's collector looks for cycles here (`gc.set_threshold`). Acknowledgements of wide jobs are
hundreds of thousands of objects without any; by default, the collector takes longer over them than all else does."""


class JobManager:
    """Runs one job.

    Args:
        job_id: whose.
        detached: whether the job outlives its client, so that nobody else says how it ended.
        parts: the pickled (JobProgram, JobFolder | None), cut into pieces that Ray keeps with the actor itself: a
            larger one would be lost with the driver, and the actor could not be restarted.
    """

    def __init__(self, job_id: str, detached: bool, *parts: bytes) -> None:
        gc.set_threshold(*COLLECTOR)
        load_pandas_later()
        program, folder = cloudpickle.loads(b"".join(parts))
        self._job_id = job_id
        self._detached = detached
        self._id = str(ray.get_runtime_context().get_actor_id())
        self._notes = ClusterNotes()
        self._program: JobProgram = program
        self._started_ms = _now().ms
        self._planner = GraphPlanner(program)
        self._execution = Execution(job_id, program.config, self._hear)
        self._checkpoints = None if folder is None else Checkpoints(folder, program.name, self._execution, self._hear)
        storage = _storage(folder)
        self._log = StimulusLog(program.name, program.config, self._planner, random.Random(), storage)
        self._brain = JobBrain(program.name, program.config, self._log.planner, self._log.chosen, storage)
        self._log_writer = None if folder is None else LogWriter(self._log, folder.store, program.name)
        if folder is None:
            # There is nowhere to keep it.
            self._log.close()
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._requests = itertools.count(1)
        self._work: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._shown = (JobStatus.CREATED, 0, False)
        self._changed = asyncio.Event()
        self._report: asyncio.Future[JobReport] = asyncio.get_running_loop().create_future()
        self._obeyed: dict[str, asyncio.Task[Any]] = {}
        self._noting: asyncio.Task[None] | None = None
        self._waits: tuple[EventTimeWait, ...] = ()
        self._beginning = asyncio.ensure_future(self._begin())
        self._looking = asyncio.ensure_future(self._look_for_commands())
        self._watching = asyncio.ensure_future(self._watch_event_time())
        self._minding = asyncio.ensure_future(self._mind_nodes())
        self._autoscaling = Autoscaling(program.config.autoscaler, self._read, self.rescale)
        if program.config.autoscaler.enabled:
            self._scaling = asyncio.ensure_future(self._autoscaling.run())
        if seconds := program.config.metrics_log_interval_ms / 1000:
            self._telling = asyncio.ensure_future(log_metrics(program.name, seconds, self.status, self.metrics))

    async def _begin(self) -> None:
        try:
            await asyncio.to_thread(self._execution.remove_old)
        except Exception as error:
            # Slots that are left take room, and a job that waits for room says so; one that never begins says nothing.
            _LOG.warning("job %r: what an earlier manager had reserved was not freed: %s", self._program.name, error)
        self._hear(ev.Began())

    # Events and instructions

    def _hear(self, event: ev.Event) -> None:
        """Tell the brain what has happened, and do what it says."""
        now = _now()
        said = self._brain.handle(event, now)
        self._log.add(event, now, said)
        for instruction in said:
            self._carry_out(instruction)
        self._set_timer()
        if self._log_writer is not None:
            self._log_writer.on_event(0 if self._brain.checkpoints is None else self._brain.checkpoints.epoch)
        shown = (self._brain.status, self._brain.attempts.number, self._brain.is_whole)
        if shown != self._shown:
            self._shown = shown
            self._changed.set()
            self._changed = asyncio.Event()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        deadline = self._brain.deadline
        wait = None if deadline is None else max(0.0, deadline - time.monotonic())
        loop = asyncio.get_running_loop()
        self._timer = None if wait is None else loop.call_later(wait, self._hear, ev.Ticked())

    def _carry_out(self, instruction: say.Instruction) -> None:
        match instruction:
            case say.Deploy():
                self._spawn(self._deploy(instruction))
            case say.Cancel(number, places):
                self._spawn(self._cancel(number, places))
            case say.Prepare():
                self._spawn(self._prepare(instruction))
            case say.AwaitRoom(layout):
                self._execution.await_room(self._planner.graph(layout))
            case say.FillStandbys():
                self._execution.fill_standbys()
            case say.EndInput():
                self._spawn(self._execution.drain())
            case say.TakeDown(at_once):
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
                self._end(status, error)
            case _:
                assert self._checkpoints is not None, "only a job with a folder is told to use it"
                self._checkpoints.carry_out(instruction)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _deploy(self, deploy: say.Deploy) -> None:
        graph = self._planner.graph(deploy.layout)
        restore = None
        try:
            if self._checkpoints is not None:
                restore = await self._checkpoints.restore(graph, deploy.checkpoint, deploy.epoch)
            await self._execution.provide(graph, deploy.places)
            if deploy.prepares_sinks:
                await asyncio.to_thread(graph.prepare_sinks)
            are_open = await self._execution.deploy(deploy.places, deploy.attempt, restore)
        except Exception as error:
            room = error.room if isinstance(error, NoRoomError) else None
            self._hear(ev.DeployFailed(deploy.attempt, self._as_error(error), room))
        else:
            self._hear(ev.Deployed(deploy.attempt, are_open))

    async def _cancel(self, number: int, places: Sequence[Place]) -> None:
        await self._execution.cancel(places)
        self._hear(ev.Cancelled(number))

    async def _prepare(self, prepare: say.Prepare) -> None:
        graph = self._planner.graph(prepare.layout)
        try:
            assert self._checkpoints is not None
            # A checkpoint that does not fit must be noticed while the job still runs.
            if prepare.checkpoint is not None:
                await self._checkpoints.plan(graph, prepare.checkpoint)
            await self._execution.prepare(graph, prepare.moved)
        except Exception as error:
            self._hear(ev.PrepareFailed(prepare.request, self._as_error(error)))
        else:
            self._hear(ev.Prepared(prepare.request))

    async def _take_down(self, at_once: bool) -> None:
        if at_once:
            self._execution.kill()
        await self._execution.stop()
        self._hear(ev.TakenDown())

    async def _write_end(self, write: say.WriteEnd) -> None:
        assert self._checkpoints is not None, "only a job with a folder is told to use it"
        if self._log_writer is not None:
            await self._log_writer.finish(write.epoch)
        self._checkpoints.carry_out(write)

    def _as_error(self, error: BaseException) -> PenstockError:
        if isinstance(error, RayActorError):
            return WorkerLostError(f"a process of the job died while it was deployed: {error}")
        return located(error, self._program.name, 0)

    def _end(self, status: JobStatus, error: PenstockError | None) -> None:
        self._report.set_result(JobReport(status, error, self._execution.last_metrics, self._brain.completed))
        if self._detached:
            if error is not None:
                _LOG.error("job %r failed: %s", self._program.name, error)
            self._noting = asyncio.ensure_future(self._note_end())
        # Nobody may ever ask: a detached job has no client.
        asyncio.get_running_loop().call_later(_LINGER_SECONDS, lambda: asyncio.ensure_future(self.leave()))

    async def _note_end(self) -> None:
        await asyncio.to_thread(note_end, self._notes, self._id, await self.info())

    async def leave(self) -> None:
        """The client knows how the job ended: end this process for good."""
        if self._report.done():
            if self._noting is not None:
                await self._noting
            # Others may be about to be told that the job has ended.
            await asyncio.sleep(_LEAVE_SECONDS)
            ray.kill(ray.get_runtime_context().current_actor)

    # What clients ask

    async def _ask(self, command: ev.Command) -> Any:
        request = next(self._requests)
        answer = self._answers[request] = asyncio.get_running_loop().create_future()
        self._hear(ev.Asked(request, command))
        return await asyncio.shield(answer)

    def _answer(self, request: int, outcome: str | float | bool | PenstockError) -> None:
        answer = self._answers.pop(request)
        if isinstance(outcome, PenstockError):
            answer.set_exception(outcome)
            # Nobody may be left to hear it.
            answer.exception()
        else:
            answer.set_result(outcome)

    async def obey(self, command: RecordedCommand) -> Any:
        """Do what a recorded command says, once, however often it comes; then it is forgotten."""
        if command.token not in self._obeyed:
            self._obeyed[command.token] = asyncio.ensure_future(self._obey(command))
        return await asyncio.shield(self._obeyed[command.token])

    async def _obey(self, command: RecordedCommand) -> Any:
        try:
            match command.method:
                case "cancel":
                    return await self.cancel()
                case "suspend":
                    return await self.suspend()
                case "stop":
                    return await self.stop(command.directory)
                case "drain":
                    return await self.drain(command.directory)
        finally:
            await asyncio.to_thread(forget, self._notes, self._id, command)

    async def _look_for_commands(self) -> None:
        """Do what calls have asked for that have not come here, or came to the manager before."""
        while not self._report.done():
            await asyncio.sleep(_LOOK_SECONDS)
            for command in await asyncio.to_thread(lambda: list(recorded(self._notes, self._id))):
                self._spawn(self._obey_late(command))

    async def _obey_late(self, command: RecordedCommand) -> None:
        # One that has just taken over would refuse a savepoint.
        while command.takes_savepoint and not (self._brain.runs or self._report.done()):
            await self._changed.wait()
        try:
            await self.obey(command)
        except PenstockError as error:
            _LOG.warning("job %r: the recorded command %r was refused: %s", self._program.name, command.method, error)

    async def _watch_event_time(self) -> None:
        """Tell where windows wait for an event time that does not advance."""
        watch = EventTimeWatch(self._started_ms)
        while not self._report.done():
            await asyncio.sleep(_WATCH_SECONDS)
            graph = self._graph
            if graph is None or not self._brain.runs or not has_event_time(graph):
                continue
            now_ms = _now().ms
            self._waits = watch.look(graph, await self.metrics(), now_ms)
            for wait in watch.news(self._waits):
                _LOG.warning("job %r: %s", self._program.name, wait.text(now_ms))

    async def _mind_nodes(self) -> None:
        """Tell which subtasks are on nodes that are about to leave."""
        while not self._report.done():
            await asyncio.sleep(_NODES_SECONDS)
            leaving: Collection[str] = ()
            # The head of the cluster may be away for a while: what Ray raises then is written nowhere.
            with contextlib.suppress(Exception):
                leaving = await asyncio.to_thread(leaving_nodes)
            if self._brain.runs and (places := self._execution.leave(leaving)):
                self._hear(ev.Leaving(tuple(places)))

    async def wait_for_end(self) -> JobReport:
        """Return when the job has ended and been taken down."""
        return await asyncio.shield(self._report)

    async def cancel(self) -> bool:
        """End the job; returns when it has been taken down. False: it had ended before."""
        return bool(await self._ask(ev.CancelJob()))

    async def suspend(self) -> bool:
        """As `cancel`, but the newest checkpoint stays, whatever was configured."""
        return bool(await self._ask(ev.CancelJob(retain=True)))

    async def status(self) -> JobStatus:
        """Where the job is in its life."""
        return self._brain.status

    async def metrics(self) -> Sequence[SubtaskMetrics]:
        """The latest counters of all subtasks that have given any."""
        return await self._execution.metrics() if self._brain.runs else self._execution.last_metrics

    async def stacks(self, place: Place, seconds: float) -> Sequence[tuple[Stack, int]]:
        """Where a subtask's threads are; see `SubtaskActor.stacks`."""
        return await self._execution.stacks(place, seconds)

    async def checkpoint_parts(self, checkpoint: int) -> Sequence[CheckpointPart]:
        """What each subtask has done for a checkpoint; nothing where that is not known, or not any more."""
        checkpoints = self._brain.checkpoints
        return () if checkpoints is None else checkpoints.coordinator.parts(checkpoint)

    async def logs(self, after: Mapping[Place, int], most: int) -> Sequence[LogLine]:
        """What the subtasks have printed and logged; see `Execution.logs`."""
        return await self._execution.logs(after, most)

    async def state_route(self, uid: str) -> StateRoute:
        """Where the state of an operator is; see `live_state.state_route`.

        Raises:
            JobError: the job has ended.
        """
        if self._brain.ended:
            raise JobError(
                f"job {self._program.name!r} has ended; its savepoints and retained checkpoints hold its state"
            )
        return state_route(uid, self._running_graph(), self._execution.actors, self._execution.attempts)

    async def stream_route(self, uid: str) -> StreamRoute:
        """Where the stream of an operator comes from; see `tail.stream_route`.

        Raises:
            JobError: the job has ended.
        """
        if self._brain.ended:
            raise JobError(f"job {self._program.name!r} has ended: no rows pass any more")
        return stream_route(uid, self._running_graph(), self._execution.actors, self._execution.attempts)

    def _running_graph(self) -> PhysicalGraph:
        if self._graph is None or not self._brain.is_whole:
            raise StateNotReadyError(f"job {self._program.name!r} does not run just now; try again")
        return self._graph

    async def info(self) -> JobInfo:
        """The job as it is now."""
        scaling = self._autoscaling.report() if self._program.config.autoscaler.enabled else None
        return job_info(
            self._job_id,
            self._program.name,
            self._started_ms,
            self._brain,
            self._graph,
            self._execution,
            self._checkpoints,
            scaling,
            self._waits,
        )

    async def _read(self) -> JobReading | None:
        """What the autoscaler sees of the job; None: it does not run."""
        graph, brain = self._graph, self._brain
        if graph is None or not brain.runs:
            return None
        now, seconds = _now(), brain.restarts.rescale_seconds
        return reading_of(graph, await self._execution.metrics(), now.monotonic, now.ms, brain.attempts.number, seconds)

    @property
    def _graph(self) -> PhysicalGraph | None:
        return None if self._brain.layout is None else self._planner.graph(self._brain.layout)

    async def client_view(self, results: Sequence[int], seen: int) -> ClientView | None:
        """Where the client fetches the rows of the results nodes; waits for an attempt behind `seen`. None: no more."""
        brain = self._brain
        while not self._report.done() and not brain.runs_anew(seen):
            await self._changed.wait()
        graph = self._graph
        if self._report.done() or graph is None:
            return None
        attempts = brain.attempts
        channels = client_channels(results, graph, self._execution.actors, attempts.deployed)
        return ClientView(attempts.number, attempts.restored, brain.completed, channels)

    async def rows_lost(self, place: Place, attempt: int, message: str) -> None:
        """Rows of a subtask were lost on their way to the client: its part of the job has failed."""
        self._hear(ev.TaskFailed(place, attempt, WorkerLostError(f"rows for the client were lost: {message}")))

    async def checkpoint(self) -> str:
        """Take a checkpoint now; its URL.

        Raises:
            CheckpointError: it could not be taken.
        """
        return str(await self._ask(ev.TakeCheckpoint()))

    async def savepoint(self, directory: str | None) -> str:
        """Take a savepoint while the job runs on; its URL. Errors as for `checkpoint`."""
        return str(await self._ask(ev.TakeSavepoint(directory)))

    async def stop(self, directory: str | None) -> str:
        """Take a savepoint and end the job behind it; its URL. Errors as for `checkpoint`: then the job runs on."""
        return str(await self._ask(ev.StopJob(directory)))

    async def drain(self, directory: str | None) -> str:
        """End the sources as if their input had ended, and the job with a savepoint behind everything; its URL."""
        return str(await self._ask(ev.DrainJob(directory)))

    async def rescale(self, parallelism: ParallelismRequest) -> float:
        """Run at another parallelism, restored from a checkpoint taken now; see `JobHandle.rescale`.

        Returns:
            for how long (seconds) the job stood still; 0: it runs so already, and nothing was done.

        Raises:
            CheckpointError: the checkpoint could not be taken; the job runs on as it was.
            GraphError, ConfigurationError: the program cannot run so.
            ClusterError: there is no room; the job runs on as it was.
        """
        return float(await self._ask(ev.RescaleJob(parallelism)))


def _storage(folder: JobFolder | None) -> Storage | None:
    if folder is None:
        return None
    return Storage(folder.job_id, None if folder.start is None else folder.start.checkpoint)


def _now() -> ev.Moment:
    return ev.Moment(time.monotonic(), time.time_ns() // 1_000_000)
