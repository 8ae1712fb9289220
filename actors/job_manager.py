"""The job manager: one actor a job. It deploys the subtasks, watches them, and gets the job over failures.

It is off the data path: rows never pass through it. It owns the subtask actors, so they die with it. Where the job
takes checkpoints, Ray restarts it when its process dies, and it goes on from storage, without any client; it begins by
itself when it is created. All methods run on the actor's event loop.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import ray
from ray import cloudpickle
from ray.exceptions import RayActorError

from penstock.actors.checkpoints import Checkpoints
from penstock.actors.client_view import ClientView, JobReport, client_channels
from penstock.actors.deployment import as_checkpointed, places
from penstock.actors.execution import Event, Execution, Failed, Reported
from penstock.actors.info import job_info
from penstock.actors.metrics_log import log_metrics
from penstock.actors.running_task import SubtaskEvent
from penstock.actors.stacks import Stack
from penstock.actors.task_log import LogLine
from penstock.engine.checkpointing.coordinator import Place
from penstock.engine.checkpointing.store import JobFolder
from penstock.engine.connectors import TransactionalSink
from penstock.engine.elements import SnapshotKind
from penstock.engine.errors import (
    CheckpointError,
    ClusterError,
    FencedError,
    JobError,
    PenstockError,
    WorkerLostError,
    located,
    summary,
)
from penstock.engine.graph.physical import JobProgram, PhysicalGraph
from penstock.engine.job.failover import (
    ATTEMPTS,
    RETRY_SECONDS,
    TERMINAL_ERRORS,
    RestartPolicy,
    default_strategy,
    regions,
)
from penstock.engine.job.info import JobInfo
from penstock.engine.job.restarts import Restart, RestartLog
from penstock.engine.job.status import JobStatus, transition
from penstock.engine.metrics import SubtaskMetrics

_LOG = logging.getLogger(__name__)
_LEAVE_SECONDS: Final = 0.5
_LINGER_SECONDS: Final = 300.0
"""How long one that nobody has asked how it ended stays, to be asked."""
COLLECTOR: Final = (50_000, 20, 50)
"""How seldom Python's collector looks for cycles here (`gc.set_threshold`). Acknowledgements of wide jobs are
hundreds of thousands of objects without any; by default, the collector takes longer over them than all else does."""
_TERMINAL: Final = (*TERMINAL_ERRORS, ClusterError)
"""For room on the cluster the job has waited as long as it is to."""


@dataclass(frozen=True, slots=True, eq=False)
class _Rescale:
    """Somebody wants another parallelism, and waits for it."""

    program: JobProgram
    parallelism: int
    done: asyncio.Future[float]


@dataclass(frozen=True, slots=True)
class _Over:
    """The job has done all it had to do."""


_Happening: TypeAlias = Event | _Rescale | _Over


class JobManager:
    """Runs one job.

    Args:
        job_id: whose.
        parts: the pickled (JobProgram, JobFolder | None), cut into pieces that Ray keeps with the actor itself: a
            larger one would be lost with the driver, and the actor could not be restarted.
    """

    def __init__(self, job_id: str, *parts: bytes) -> None:
        gc.set_threshold(*COLLECTOR)
        program, folder = cloudpickle.loads(b"".join(parts))
        self._job_id = job_id
        self._program: JobProgram = program
        self._config = program.config
        self._folder: JobFolder | None = folder
        self._status = JobStatus.CREATED
        self._since = self._started = _now_ms()
        self._happenings: asyncio.Queue[_Happening] = asyncio.Queue()
        self._execution = Execution(job_id, program.config, self._happenings.put_nowait)
        self._restarts = RestartLog()
        self._checkpoints = (
            Checkpoints(folder, program.name, program.config, self._execution, self._restarts, self._fail)
            if folder
            else None
        )
        self._policy = RestartPolicy(default_strategy(program.config), random.Random())
        self._graph: PhysicalGraph | None = None
        self._attempt = 0
        self._sinks_ready = False
        self._deployed: dict[Place, tuple[int, int]] = {}
        self._finished: set[Place] = set()
        self._finishing: asyncio.Task[None] | None = None
        self._draining: tuple[str | None, asyncio.Future[str]] | None = None
        self._changed = asyncio.Event()
        self._cancelled = asyncio.Event()
        self._report: asyncio.Future[JobReport] = asyncio.get_running_loop().create_future()
        self._running = asyncio.ensure_future(self._run())
        if seconds := self._config.metrics_log_interval_ms / 1000:
            self._telling = asyncio.ensure_future(log_metrics(program.name, seconds, self.status, self.metrics))

    # The life of the job

    async def _run(self) -> None:
        error: PenstockError | None = None
        end = JobStatus.FINISHED
        working = asyncio.ensure_future(self._work())
        cancelled = asyncio.ensure_future(self._cancelled.wait())
        await asyncio.wait([working, cancelled], return_when=asyncio.FIRST_COMPLETED)
        cancelled.cancel()
        try:
            if working.done():
                end = working.result()
            else:
                working.cancel()
                end = JobStatus.CANCELLED
        except Exception as raised:
            error, end = self._as_error(raised), JobStatus.FAILED
        if end is JobStatus.FAILED and error is None:
            error = JobError("the job failed; the job manager that knew why has died since")
        await self._take_down(end, error)

    async def _work(self) -> JobStatus:
        """Run the job to its end; how it ended."""
        began = time.monotonic()
        self._move(JobStatus.DEPLOYING)
        await asyncio.to_thread(self._execution.remove_old)
        if (ended := await self._prepare()) is not None:
            return ended
        is_first = self._attempt <= ATTEMPTS
        takeover = None if is_first else self._restarts.on_takeover(self._all_places, began)
        try:
            await self._begin(self._all_places)
        except Exception as error:
            failed = Failed(None, 0, self._as_error(error), time.monotonic())
            if takeover is not None:
                takeover.cause = f"{takeover.cause}; then: {failed.error}"
            await self._recover(failed, takeover)
        else:
            if takeover is not None and self._status is JobStatus.RUNNING:
                self._note(takeover)
        while True:
            match await self._happenings.get():
                case Reported() as reported if self._is_current(reported.place, reported.attempt):
                    self._hear(reported)
                case Failed() as failed if failed.place is None or self._is_current(failed.place, failed.attempt):
                    await self._recover(failed)
                case _Rescale() as rescale:
                    await self._rescale(rescale)
                case _Over():
                    return JobStatus.FINISHED

    async def _prepare(self) -> JobStatus | None:
        """Plan the job; one that another manager has begun goes on at the parallelism of its newest checkpoint.

        Returns:
            how the job has ended under the manager before this one, if it has.
        """
        if self._checkpoints is not None:
            claim = await self._checkpoints.claim()
            if claim.message:
                raise JobError(claim.message)
            if claim.ended is not None:
                return JobStatus(claim.ended)
            self._attempt = claim.epoch * ATTEMPTS
            self._program = as_checkpointed(self._program, self._checkpoints.latest)
        self._graph = self._planned(self._program)
        return None

    def _planned(self, program: JobProgram) -> PhysicalGraph:
        latest = self._checkpoints.latest if self._checkpoints is not None else None
        if latest is None and self._folder is not None and self._folder.start is not None:
            latest = self._folder.start.checkpoint
        return program.physical(latest.split_parallelism if latest is not None else {})

    @property
    def _all_places(self) -> Sequence[Place]:
        assert self._graph is not None
        return places(self._graph)

    async def _begin(self, chosen: Sequence[Place]) -> None:
        """Deploy subtasks as a new attempt, from the newest checkpoint."""
        assert self._graph is not None
        restore = await self._checkpoints.restore(self._graph) if self._checkpoints is not None else None
        restored = restore.checkpoint if restore is not None else 0
        self._attempt += 1
        await self._execution.provide(self._graph)
        if not self._sinks_ready and not restored:
            # Only now, with its name, storage and slots, the job may touch them; one with a checkpoint has begun.
            await asyncio.to_thread(self._graph.prepare_sinks)
        self._sinks_ready = True
        self._finished.difference_update(chosen)
        # From now on, what is heard of earlier attempts of these subtasks means nothing.
        for place in chosen:
            self._deployed[place] = (self._attempt, restored)
        if not await self._execution.deploy(chosen, self._attempt, restore):
            # It never ran; why, is heard in a moment.
            return
        self._move(JobStatus.RUNNING)
        self._policy.on_running(time.monotonic())
        if self._checkpoints is not None:
            self._checkpoints.start_attempt(self._attempt, self._graph)
        if self._config.failover.restart is not None or self._config.checkpoints.enabled:
            self._execution.fill_standbys()
        self._changed.set()
        self._changed = asyncio.Event()

    @property
    def _restored(self) -> int:
        """The checkpoint that the newest attempt goes on from, 0 for none."""
        return max((restored for attempt, restored in self._deployed.values() if attempt == self._attempt), default=0)

    def _is_current(self, place: Place, attempt: int) -> bool:
        return self._deployed.get(place, (0, 0))[0] == attempt

    def _hear(self, reported: Reported) -> None:
        assert self._graph is not None
        if reported.event is SubtaskEvent.FINISHED:
            self._finished.add(reported.place)
            if len(self._finished) == len(self._all_places) and self._finishing is None:
                self._finishing = asyncio.ensure_future(self._finish(self._graph))
        elif all(exchange.downstream is None for exchange in self._graph.task(reported.place[0]).outputs):
            self._restarts.on_rows(reported.attempt, reported.at)

    async def _finish(self, graph: PhysicalGraph) -> None:
        """All subtasks have emitted everything: a last checkpoint commits what sinks hold back, then the job ends."""
        commits = self._config.checkpoints.enabled or any(isinstance(sink, TransactionalSink) for sink in graph.sinks)
        kind = SnapshotKind.SUSPEND if self._draining else SnapshotKind.CHECKPOINT
        directory, drained = self._draining or (None, None)
        url: str | None = None
        while self._checkpoints is not None and (commits or drained) and url is None:
            try:
                url = await self._checkpoints.take_last(kind, directory)
            except CheckpointError as error:
                if drained is not None and self._checkpoints.coordinator.suspended is None:
                    # The user learns why; the job ends as any that has come to the end of its input.
                    _refuse(drained, error)
                    kind, directory, drained = SnapshotKind.CHECKPOINT, None, None
                await asyncio.sleep(RETRY_SECONDS)
        if drained is not None and url is not None:
            drained.set_result(url)
        self._happenings.put_nowait(_Over())

    # Failures

    def _fail(self, error: PenstockError) -> None:
        self._happenings.put_nowait(Failed(None, 0, error, time.monotonic()))

    async def _recover(self, failed: Failed, restart: Restart | None = None) -> None:
        """Restart the part of the job that failed, as often as the restart strategy allows.

        Args:
            failed: what has.
            restart: in the middle of which that was; None: of none.

        Raises:
            PenstockError: the strategy, or the failure, does not.
        """
        chosen = self._region(failed.place)
        if failed.explained is not None:
            failed.explained.add_done_callback(self._log_cause)
        self._interrupt(failed.error)
        while True:
            delay = None if isinstance(failed.error, _TERMINAL) else self._policy.on_failure(time.monotonic())
            if delay is None:
                raise failed.error if failed.explained is None else await failed.explained
            _LOG.warning(
                "job %r failed and is restarted (restart-strategy.type sets how often): %s",
                self._program.name,
                failed.error,
            )
            # A failure that ends the job is no restart.
            if restart is None:
                restart = self._restarts.on_failure(str(failed.error), chosen, failed.at)
                _explain(restart, failed)
            if self._status is not JobStatus.RESTARTING:
                self._move(JobStatus.RESTARTING)
            await self._execution.cancel(chosen)
            await asyncio.sleep(delay)
            if self._checkpoints is not None:
                await self._checkpoints.settled()
            try:
                await self._begin(chosen)
            except Exception as error:
                failed = Failed(None, 0, self._as_error(error), time.monotonic())
                restart.cause = f"{restart.cause}; then: {failed.error}"
            else:
                self._note(restart)
                return

    def _log_cause(self, explained: asyncio.Task[PenstockError]) -> None:
        if not explained.cancelled():
            _LOG.warning("job %r: %s", self._program.name, explained.result())

    def _region(self, place: Place | None) -> Sequence[Place]:
        assert self._graph is not None
        # While the job is drained, a region that goes on would be at its end, and the other in the middle.
        if place is not None and self._config.failover.regions and self._draining is None:
            return sorted(next(region for region in regions(self._graph) if place in region))
        return self._all_places

    def _interrupt(self, error: PenstockError) -> None:
        """The attempt is over: nothing that was under way for it will come to an end.

        Raises:
            JobError: the job had been stopped with a savepoint, which it must not go back behind.
        """
        if self._finishing is not None:
            self._finishing.cancel()
            self._finishing = None
        draining, self._draining = self._draining, None
        if draining is not None:
            _refuse(draining[1], CheckpointError(f"the job failed while it was drained, and goes on: {error}"))
        if self._checkpoints is None:
            return
        self._checkpoints.end_attempt()
        suspended = self._checkpoints.coordinator.suspended
        if suspended is not None:
            where = self._checkpoints.url_of(suspended.checkpoint)
            raise JobError(
                f"savepoint {where} is complete, but the job failed before it had stopped behind it; "
                f"start it again from that savepoint: {error}"
            ) from error

    def _note(self, restart: Restart) -> None:
        restart.attempt = self._attempt
        restart.checkpoint = self._restored
        restart.restored = time.monotonic()

    async def _rescale(self, rescale: _Rescale) -> None:
        """Stop all subtasks, and go on from the newest checkpoint with as many as are wanted now."""
        before = self._program, self._graph
        try:
            graph = self._planned(rescale.program)
            if self._checkpoints is not None:
                # A checkpoint that does not fit must be noticed while the job still runs.
                await self._checkpoints.restore(graph)
            await self._execution.prepare(graph)
        except Exception as error:
            _refuse(rescale.done, self._as_error(error))
            return
        asked = time.monotonic()
        restart = self._restarts.on_rescale(rescale.parallelism, places(graph), asked)
        self._interrupt(JobError("the job is rescaled"))
        self._move(JobStatus.RESTARTING)
        await self._execution.cancel(list(self._execution.actors))
        assert self._checkpoints is not None
        await self._checkpoints.settled()
        self._deployed.clear()
        self._finished.clear()
        try:
            self._program, self._graph = rescale.program, self._planned(rescale.program)
            await self._begin(self._all_places)
        except Exception as error:
            failure = self._as_error(error)
            _refuse(rescale.done, failure)
            if isinstance(failure, ClusterError):
                # There was room for what ran before.
                self._program, self._graph = before
                failure = JobError(f"the job could not be rescaled: {failure}")
            await self._recover(Failed(None, 0, failure, time.monotonic()))
            return
        self._note(restart)
        rescale.done.set_result(time.monotonic() - asked)

    def _as_error(self, error: BaseException) -> PenstockError:
        if isinstance(error, RayActorError):
            return WorkerLostError(f"a process of the job died while it was deployed: {error}")
        return located(error, self._program.name, 0)

    def _move(self, status: JobStatus) -> None:
        if status is not self._status:
            self._status = transition(self._status, status)
            self._since = _now_ms()

    # The end

    async def _take_down(self, end: JobStatus, error: PenstockError | None) -> None:
        if isinstance(error, FencedError):
            # Whatever its subtasks still do, another manager's do as well.
            self._execution.kill()
        if self._finishing is not None:
            self._finishing.cancel()
        if self._checkpoints is not None:
            self._checkpoints.close()
        await self._execution.stop()
        if self._checkpoints is not None:
            await self._checkpoints.finish(end, "" if error is None else summary(error))
        self._status, self._since = end, _now_ms()
        if self._draining is not None:
            _refuse(self._draining[1], CheckpointError(f"the job {end.value} while it was drained"))
        completed = 0
        if self._checkpoints is not None and self._checkpoints.claimed:
            suspended = self._checkpoints.coordinator.suspended
            completed = max(self._checkpoints.completed, suspended.checkpoint if suspended is not None else 0)
        self._report.set_result(JobReport(end, error, self._execution.last_metrics, completed))
        self._changed.set()
        # Nobody may ever ask: a detached job has no client.
        asyncio.get_running_loop().call_later(_LINGER_SECONDS, lambda: asyncio.ensure_future(self.leave()))

    async def leave(self) -> None:
        """The client knows how the job ended: end this process for good."""
        if self._report.done():
            # Others may be about to be told that the job has ended.
            await asyncio.sleep(_LEAVE_SECONDS)
            ray.kill(ray.get_runtime_context().current_actor)

    # What clients ask

    async def wait_for_end(self) -> JobReport:
        """Return when the job has ended and been taken down."""
        return await asyncio.shield(self._report)

    async def cancel(self) -> bool:
        """End the job; returns when it has been taken down. False: it had ended before."""
        had_ended = self._report.done()
        self._cancelled.set()
        await self.wait_for_end()
        return not had_ended

    async def suspend(self) -> bool:
        """As `cancel`, but the newest checkpoint stays, whatever was configured."""
        if self._checkpoints is not None:
            self._checkpoints.keep()
        return await self.cancel()

    async def status(self) -> JobStatus:
        """Where the job is in its life."""
        return self._status

    async def metrics(self) -> Sequence[SubtaskMetrics]:
        """The latest counters of all subtasks that have given any."""
        if self._status is JobStatus.RUNNING:
            return await self._execution.metrics()
        return self._execution.last_metrics

    async def stacks(self, place: Place, seconds: float) -> Sequence[tuple[Stack, int]]:
        """Where a subtask's threads are; see `SubtaskActor.stacks`."""
        return await self._execution.stacks(place, seconds)

    async def logs(self, after: Mapping[Place, int], most: int) -> Sequence[LogLine]:
        """What the subtasks have printed and logged; see `Execution.logs`."""
        return await self._execution.logs(after, most)

    async def info(self) -> JobInfo:
        """The job as it is now."""
        report = self._report.result() if self._report.done() else None
        return job_info(
            self._job_id,
            self._program.name,
            self._status,
            self._since,
            self._started,
            self._execution.waiting_for,
            self._attempt,
            self._graph,
            self._deployed,
            self._finished,
            {place: process.pid for place, process in self._execution.processes.items()},
            self._execution.standby_pids,
            self._restarts,
            self._checkpoints,
            str(report.error) if report is not None and report.error is not None else None,
        )

    async def client_view(self, results: Sequence[int], seen: int) -> ClientView | None:
        """Where the client fetches the rows of the results nodes; waits for an attempt behind `seen`. None: no more."""
        while not self._report.done() and (self._attempt <= seen or self._status is not JobStatus.RUNNING):
            await self._changed.wait()
        if self._report.done() or self._graph is None:
            return None
        channels = client_channels(results, self._graph, self._execution.actors, self._deployed)
        completed = self._checkpoints.completed if self._checkpoints is not None else 0
        return ClientView(self._attempt, self._restored, completed, channels)

    async def rows_lost(self, place: Place, attempt: int, message: str) -> None:
        """Rows of a subtask were lost on their way to the client: its part of the job has failed."""
        error = WorkerLostError(f"rows for the client were lost: {message}")
        self._happenings.put_nowait(Failed(place, attempt, error, time.monotonic()))

    async def checkpoint(self) -> str:
        """Take a checkpoint now; its URL.

        Raises:
            CheckpointError: it could not be taken.
        """
        return await self._with_checkpoints().take(SnapshotKind.CHECKPOINT)

    async def savepoint(self, directory: str | None) -> str:
        """Take a savepoint while the job goes on; its URL. Errors as for `checkpoint`."""
        return await self._with_checkpoints().take(SnapshotKind.SAVEPOINT, directory)

    async def stop(self, directory: str | None) -> str:
        """Take a savepoint and end the job behind it; its URL. Errors as for `checkpoint`: then the job goes on."""
        url = await self._with_checkpoints().take_last(SnapshotKind.SUSPEND, directory)
        self._happenings.put_nowait(_Over())
        await self.wait_for_end()
        return url

    async def drain(self, directory: str | None) -> str:
        """End the sources as if their input had ended, and the job with a savepoint behind everything; its URL."""
        checkpoints = self._with_checkpoints()
        folder = await checkpoints.check_folder(directory)
        # The job may have failed, finished or been drained meanwhile.
        self._with_checkpoints().drain()
        drained: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._draining = (folder, drained)
        await self._execution.drain()
        url = await asyncio.shield(drained)
        await self.wait_for_end()
        return url

    async def rescale(self, parallelism: int) -> float:
        """Go on at another parallelism, behind a checkpoint taken now.

        Returns:
            for how long (seconds) the job stood still; 0: it runs so already, and nothing was done.

        Raises:
            CheckpointError: the checkpoint could not be taken; the job goes on as it was.
            GraphError, ConfigurationError: the program cannot run so.
            ClusterError: there is no room; the job goes on as it was.
        """
        checkpoints = self._with_checkpoints()
        program = self._program.rescaled(parallelism)
        planned = self._planned(program)
        if self._graph is not None and places(planned) == places(self._graph):
            return 0.0
        await checkpoints.take(SnapshotKind.CHECKPOINT)
        done: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._happenings.put_nowait(_Rescale(program, parallelism, done))
        ends: list[asyncio.Future[Any]] = [done, self._report]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if not done.done():
            raise JobError(f"job {self._program.name!r} ended before it was rescaled")
        return done.result()

    def _with_checkpoints(self) -> Checkpoints:
        if self._checkpoints is None:
            raise CheckpointError(
                f"job {self._program.name!r} has no checkpoint storage; run it with checkpoints(storage=...)"
            )
        if self._status.ended:
            raise CheckpointError(f"job {self._program.name!r} has ended: it is {self._status.value}")
        if self._status is not JobStatus.RUNNING:
            raise CheckpointError(f"job {self._program.name!r} is {self._status.value}; try again once it runs")
        if self._draining is not None or self._finishing is not None:
            raise CheckpointError(f"job {self._program.name!r} is coming to its end; its last checkpoint is the next")
        return self._checkpoints


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _explain(restart: Restart, failed: Failed) -> None:
    """Have the record of a restart say all that is known of its cause, once it is."""
    short = str(failed.error)

    def amend(explained: asyncio.Task[PenstockError]) -> None:
        if not explained.cancelled():
            restart.cause = str(explained.result()) + restart.cause.removeprefix(short)

    if failed.explained is not None:
        failed.explained.add_done_callback(amend)


def _refuse(waiting: asyncio.Future[Any], error: PenstockError) -> None:
    """Tell whoever waits; nobody may be left."""
    if not waiting.done():
        waiting.set_exception(error)
        waiting.exception()
