"""What clients, the console and the autoscaler see of a job on Ray: counters, and where its rows and its state are.

The job manager answers with it. It reads what the shell of the job's brain has, and changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from penstock.actors.brain_shell import BrainShell, now
from penstock.actors.client_view import ClientView, client_channels
from penstock.actors.live_state import StateRoute, state_route
from penstock.actors.stacks import SampledStack, together
from penstock.actors.tail import StreamRoute, evenly_spread, stream_route
from penstock.engine.autoscaler.readings import JobReading, reading_of
from penstock.engine.checkpointing.history import CheckpointPart
from penstock.engine.errors import JobError, StateNotReadyError
from penstock.engine.graph.explain import explain_physical
from penstock.engine.graph.physical import PhysicalGraph
from penstock.engine.graph.scale import ParallelismRequest
from penstock.engine.job.rescale_preview import RescalePreview, previews
from penstock.engine.metrics import SubtaskMetrics


class JobView:
    """What there is to see of one job.

    Args:
        shell: of its brain.
    """

    def __init__(self, shell: BrainShell) -> None:
        self._shell = shell

    async def metrics(self) -> Sequence[SubtaskMetrics]:
        """The latest counters of all subtasks that have given any."""
        execution = self._shell.execution
        return await execution.metrics() if self._shell.brain.runs else execution.last_metrics

    async def reading(self) -> JobReading | None:
        """What the autoscaler sees of the job; None: it does not run."""
        graph, brain = self._shell.graph, self._shell.brain
        if graph is None or not brain.runs:
            return None
        at, seconds = now(), brain.restarts.rescale_seconds
        metrics = await self._shell.execution.metrics()
        return reading_of(graph, metrics, at.monotonic, at.ms, brain.attempts.number, seconds)

    async def previews(self, wanted: Sequence[ParallelismRequest], seconds: float) -> Sequence[RescalePreview]:
        """What rescales would do, by the rates of the next `seconds`.

        Raises:
            StateNotReadyError: the job does not run now, or was restarted meanwhile.
        """
        first = await self.reading()
        await asyncio.sleep(seconds)
        last = await self.reading()
        planner, running = self._shell.planner(), self._shell.brain.layout
        # To plan a wide job a hundred times takes seconds, in which it is to go on.
        return await asyncio.to_thread(previews, wanted, planner, running, (first, last))

    def checkpoint_parts(self, checkpoint: int) -> Sequence[CheckpointPart]:
        """What each subtask has done for a checkpoint; nothing where that is not known, or not any more."""
        checkpoints = self._shell.brain.checkpoints
        return () if checkpoints is None else checkpoints.coordinator.parts(checkpoint)

    def explain(self) -> str:
        """The tasks that run, with their operators and where their rows go, as `StreamEnvironment.explain` has them.

        Raises:
            JobError: the job has ended.
            StateNotReadyError: it is not planned yet, or does not run as a whole.
        """
        return explain_physical(self._running_graph("its plan went with it"))

    async def stacks(self, task: int, subtask: int | None, seconds: float) -> Sequence[SampledStack]:
        """Where the threads of a subtask are within so many seconds, or once.

        Args:
            task: id.
            subtask: index; None: all of the task's, at the same time and added up. Of many, 32 are looked at.
            seconds: 0: once.

        Raises:
            JobError: there is no such subtask, or it has no process now.
        """
        execution = self._shell.execution
        if subtask is not None:
            return await execution.stacks((task, subtask), seconds)
        places = evenly_spread([place for place in execution.actors if place[0] == task]) or [(task, 0)]
        looks = [execution.stacks(place, seconds) for place in places]
        found = await asyncio.gather(*looks, return_exceptions=True)
        if all(isinstance(look, BaseException) for look in found):
            raise next(look for look in found if isinstance(look, BaseException))
        return together(look for look in found if not isinstance(look, BaseException))

    def state_route(self, uid: str) -> StateRoute:
        """Where the state of an operator is; see `live_state.state_route`.

        Raises:
            JobError: the job has ended.
        """
        graph = self._running_graph("its savepoints and retained checkpoints hold its state")
        execution = self._shell.execution
        return state_route(uid, graph, execution.actors, execution.attempts)

    def stream_route(self, uid: str) -> StreamRoute:
        """Where the stream of an operator comes from; see `tail.stream_route`. Errors as for `state_route`."""
        graph = self._running_graph("no rows pass any more")
        execution = self._shell.execution
        return stream_route(uid, graph, execution.actors, execution.attempts)

    def _running_graph(self, after_the_end: str) -> PhysicalGraph:
        shell = self._shell
        if shell.brain.ended:
            raise JobError(f"job {shell.name!r} has ended; {after_the_end}")
        if shell.graph is None or not shell.brain.is_whole:
            raise StateNotReadyError(f"job {shell.name!r} does not run just now; try again")
        return shell.graph

    async def client_view(self, results: Sequence[int], seen: int) -> ClientView | None:
        """Where the client fetches the rows of the results nodes; waits for an attempt behind `seen`. None: no more."""
        shell, brain = self._shell, self._shell.brain
        while not shell.report.done() and not brain.runs_anew(seen):
            await shell.change()
        graph = shell.graph
        if shell.report.done() or graph is None:
            return None
        attempts = brain.attempts
        channels = client_channels(results, graph, shell.execution.actors, attempts.deployed)
        return ClientView(attempts.number, attempts.restored, brain.completed, channels)
