"""The job manager: one actor a job, which clients call. What it is asked it hands to the part that knows.

It is off the data path: rows never pass through it. It owns the subtask actors, so they die with it. Where the job
takes checkpoints, Ray restarts it when its process dies, and its brain takes the job over from storage, without any
client; it begins by itself when it is created. All methods run on the actor's event loop.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

import ray

from penstock.actors.autoscaling import Autoscaling
from penstock.actors.brain_shell import BrainShell, now
from penstock.actors.client_view import ClientView, JobReport
from penstock.actors.cluster_notes import ClusterNotes
from penstock.actors.command_watch import CommandWatch
from penstock.actors.deaths import loaded_program
from penstock.actors.ended_jobs import note_end
from penstock.actors.info import job_info
from penstock.actors.job_view import JobView
from penstock.actors.job_watch import JobWatch
from penstock.actors.live_state import StateRoute
from penstock.actors.main_thread import calm_main_thread, end_without_a_word
from penstock.actors.metrics_log import log_metrics
from penstock.actors.pandas_later import load_pandas_later
from penstock.actors.process_end import Process
from penstock.actors.recorded_commands import RecordedCommand
from penstock.actors.stacks import SampledStack
from penstock.actors.tail import StreamRoute
from penstock.actors.task_log import LogLine
from penstock.engine.checkpointing.history import CheckpointPart
from penstock.engine.checkpointing.instructions import Place
from penstock.engine.errors import WorkerLostError, encodable, in_full
from penstock.engine.graph.scale import ParallelismRequest
from penstock.engine.job import events as ev
from penstock.engine.job.info import JobInfo
from penstock.engine.job.rescale_preview import RescalePreview
from penstock.engine.job.status import JobStatus
from penstock.engine.metrics import ChannelStatistics, SubtaskMetrics

_LOG = logging.getLogger(__name__)
_LEAVE_SECONDS: Final = 0.5
_FILL_SECONDS: Final = 20.0
"""How long one that could leave sees to it that the next job finds warm processes."""
_LINGER_SECONDS: Final = 30.0
"""How long one that nobody has asked how it ended stays, to be asked; the end itself is written down."""
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
        end_without_a_word()
        calm_main_thread(asyncio.get_running_loop())
        program, folder = loaded_program(parts)
        self._job_id = job_id
        self._detached = detached
        self._id = str(ray.get_runtime_context().get_actor_id())
        self._notes = ClusterNotes()
        self._started_ms = now().ms
        self._shell = BrainShell(job_id, program, folder)
        self._shell.execution.warm.made(Process.own().node)
        self._is_in_the_way = asyncio.Event()
        self._view = JobView(self._shell)
        self._watch = JobWatch(self._shell, self._view, self._started_ms)
        self._commands = CommandWatch(self._shell, self._notes, self._id)
        self._autoscaling: Autoscaling | None = None
        work = [self._watch.run(), self._commands.run()]
        if program.config.autoscaler.enabled:
            self._autoscaling = Autoscaling(program.config.autoscaler, self._view.reading, self.rescale)
            work.append(self._autoscaling.run())
        if seconds := program.config.metrics_log_interval_ms / 1000:
            work.append(log_metrics(program.name, seconds, self.status, self.metrics))
        self._warming: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._running = asyncio.ensure_future(self._run())
        self._work = [asyncio.ensure_future(one) for one in work]

    async def _run(self) -> None:
        report = await self._shell.run()
        self._warming = asyncio.ensure_future(self._shell.execution.warm.leave_as_many())
        # A detached job has no client that would ask the manager to leave.
        asyncio.get_running_loop().call_later(_LINGER_SECONDS, lambda: asyncio.ensure_future(self.leave()))
        if self._detached:
            if report.error is not None:
                _LOG.error("job %r failed: %s", self._shell.name, encodable(in_full(report.error)))
            try:
                await asyncio.to_thread(note_end, self._notes, self._id, await self.info())
            except Exception:
                # A manager that stayed for it would keep the name of its job.
                _LOG.exception("how job %r has ended could not be written down", self._shell.name)

    async def leave(self) -> None:
        """The client knows how the job ended: end this process for good, once the next job finds warm ones."""
        if self._shell.report.done():
            await self._running
            work: list[asyncio.Future[Any]] = [self._warming, asyncio.ensure_future(self._is_in_the_way.wait())]
            await asyncio.wait(work, timeout=_FILL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            # Others may be about to be told that the job has ended.
            await asyncio.sleep(_LEAVE_SECONDS)
            ray.kill(ray.get_runtime_context().current_actor)

    async def make_way(self) -> None:
        """Another job is to have this one's name: as `leave`, without anything for those behind it."""
        self._is_in_the_way.set()
        await self.leave()

    # What clients ask

    async def obey(self, command: RecordedCommand) -> Any:
        """Carry out a recorded command once, however often it comes; then it is forgotten."""
        return await self._commands.obey(command)

    async def wait_for_end(self) -> JobReport:
        """Return when the job has ended and been taken down."""
        return await asyncio.shield(self._shell.report)

    async def cancel(self) -> bool:
        """End the job; returns when it has been taken down. False: it had ended before."""
        return bool(await self._shell.ask(ev.CancelJob()))

    async def suspend(self) -> bool:
        """As `cancel`, but the newest checkpoint stays, whatever was configured."""
        return bool(await self._shell.ask(ev.CancelJob(retain=True)))

    async def status(self) -> JobStatus:
        """Where the job is in its life."""
        return self._shell.brain.status

    async def metrics(self) -> Sequence[SubtaskMetrics]:
        """The latest counters of all subtasks that have given any."""
        return await self._view.metrics()

    async def explain(self) -> str:
        """The plan that runs; see `JobView.explain`."""
        return self._view.explain()

    async def stacks(self, task: int, subtask: int | None, seconds: float) -> Sequence[SampledStack]:
        """Where the threads of a task's subtasks are; see `JobView.stacks`."""
        return await self._view.stacks(task, subtask, seconds)

    async def channels(self, task: int, subtask: int) -> Sequence[ChannelStatistics]:
        """The channels behind a subtask; see `Execution.channels`."""
        return await self._shell.execution.channels((task, subtask))

    async def checkpoint_parts(self, checkpoint: int) -> Sequence[CheckpointPart]:
        """What each subtask has done for a checkpoint; see `JobView.checkpoint_parts`."""
        return self._view.checkpoint_parts(checkpoint)

    async def logs(self, after: Mapping[Place, int], most: int) -> Sequence[LogLine]:
        """What the subtasks have printed and logged; see `Execution.logs`."""
        return await self._shell.execution.logs(after, most)

    async def preview_rescales(self, wanted: Sequence[ParallelismRequest], seconds: float) -> Sequence[RescalePreview]:
        """What rescales would do; see `JobView.previews`."""
        return await self._view.previews(wanted, seconds)

    async def state_route(self, uid: str) -> StateRoute:
        """Where the state of an operator is; see `JobView.state_route`."""
        return self._view.state_route(uid)

    async def stream_route(self, uid: str) -> StreamRoute:
        """Where the stream of an operator comes from; see `JobView.stream_route`."""
        return self._view.stream_route(uid)

    async def info(self) -> JobInfo:
        """The job as it is now."""
        scaling = None if self._autoscaling is None else self._autoscaling.report()
        return job_info(self._job_id, self._started_ms, self._shell, scaling, self._watch.waits)

    async def reading(self) -> tuple[JobInfo, Sequence[SubtaskMetrics]]:
        """What `info` and `metrics` give: who watches the job asks for both, again and again."""
        return await self.info(), await self.metrics()

    async def client_view(self, results: Sequence[int], seen: int) -> ClientView | None:
        """Where the client fetches the rows of the results nodes; see `JobView.client_view`."""
        return await self._view.client_view(results, seen)

    async def rows_lost(self, place: Place, attempt: int, message: str) -> None:
        """Rows of a subtask were lost on their way to the client: its part of the job has failed."""
        error = WorkerLostError(f"rows for the client were lost: {message}")
        self._shell.handle(ev.TaskFailed(place, attempt, error))

    async def checkpoint(self) -> str:
        """Take a checkpoint now; its URL.

        Raises:
            CheckpointError: it could not be taken.
        """
        return str(await self._shell.ask(ev.TakeCheckpoint()))

    async def savepoint(self, directory: str | None) -> str:
        """Take a savepoint while the job runs on; its URL. Errors as for `checkpoint`."""
        return str(await self._shell.ask(ev.TakeSavepoint(directory)))

    async def stop(self, directory: str | None) -> str:
        """Take a savepoint and end the job behind it; its URL. Errors as for `checkpoint`: then the job runs on."""
        return str(await self._shell.ask(ev.StopJob(directory)))

    async def drain(self, directory: str | None) -> str:
        """End the sources as if their input had ended, and the job with a savepoint behind everything; its URL."""
        return str(await self._shell.ask(ev.DrainJob(directory)))

    async def rescale(self, parallelism: ParallelismRequest) -> float:
        """Run at another parallelism, restored from a checkpoint taken now; see `JobHandle.rescale`.

        Returns:
            for how long (seconds) the job stood still; 0: it runs so already, and nothing was done.

        Raises:
            CheckpointError: the checkpoint could not be taken; the job runs on as it was.
            GraphError, ConfigurationError: the program cannot run so.
            ClusterError: there is no room; the job runs on as it was.
        """
        return float(await self._shell.ask(ev.RescaleJob(parallelism)))
