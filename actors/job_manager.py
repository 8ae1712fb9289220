"""The job manager: one actor a job. It reserves slots, deploys the subtasks, watches them, and takes everything down.

It is off the data path: rows never pass through it. It owns the subtask actors, so they die with it, and it dies with
the driver that the job is attached to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import ray
from ray.exceptions import RayActorError, RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from penstock.actors.alignment import align
from penstock.actors.deployment import Place, deployment, places, slot_bundles
from penstock.actors.subtask import SubtaskActor
from penstock.engine.errors import ClusterError, PenstockError, WorkerLostError, located
from penstock.engine.graph.physical import PhysicalGraph
from penstock.engine.job import JobStatus, transition
from penstock.engine.metrics import SubtaskMetrics
from penstock.engine.task.alignment import alignment_groups

_STOP_SECONDS: Final = 5.0
_METRICS_SECONDS: Final = 2.0
_FIRST_ATTEMPT: Final = 1
_OTHER_CALLS: Final = 100


@dataclass(frozen=True, slots=True)
class JobReport:
    """How a job ended."""

    status: JobStatus
    error: PenstockError | None
    metrics: Sequence[SubtaskMetrics]


@dataclass(frozen=True, slots=True)
class ClientChannel:
    """Where the client fetches rows: the actor, and the number of the exchange there."""

    result: int
    actor: Any
    output: int


class JobManager:
    """Runs one job once. All methods run on the actor's event loop."""

    def __init__(self, graph: PhysicalGraph) -> None:
        self._graph = graph
        self._status = JobStatus.CREATED
        self._actors: dict[Place, Any] = {}
        self._metrics: dict[Place, SubtaskMetrics] = {}
        self._group: PlacementGroup | None = None
        self._cancelled = asyncio.Event()
        self._deployed = asyncio.Event()

    async def run(self) -> JobReport:
        """Deploy the job, watch it to its end, and take it down."""
        error: PenstockError | None = None
        end = JobStatus.FINISHED
        running = asyncio.ensure_future(self._run())
        cancelled = asyncio.ensure_future(self._cancelled.wait())
        try:
            await asyncio.wait([running, cancelled], return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
            else:
                running.cancel()
                end = JobStatus.CANCELLED
        except RayActorError as died:
            error = WorkerLostError(f"a process of the job died while it was deployed: {died}")
            end = JobStatus.FAILED
        except Exception as raised:
            error = located(raised, self._graph.name, 0)
            end = JobStatus.FAILED
        cancelled.cancel()
        await self._take_down()
        self._status = transition(self._status, end)
        self._deployed.set()
        return JobReport(end, error, list(self._metrics.values()))

    async def _run(self) -> None:
        self._status = transition(self._status, JobStatus.DEPLOYING)
        group = await self._reserve()
        actor_class = ray.remote(SubtaskActor)
        for place in places(self._graph):
            self._actors[place] = actor_class.options(**self._actor_options(place, group)).remote()
        graph = ray.put(self._graph)
        await asyncio.gather(
            *(
                actor.deploy.remote(graph, deployment(self._graph, place, _FIRST_ATTEMPT, self._actors))
                for place, actor in self._actors.items()
            )
        )
        await asyncio.gather(*(actor.start.remote() for actor in self._actors.values()))
        self._status = transition(self._status, JobStatus.RUNNING)
        self._deployed.set()
        aligning = [
            asyncio.ensure_future(
                align([self._actors[place] for place in group.places], group.update_interval_ms / 1000)
            )
            for group in alignment_groups(self._graph)
        ]
        try:
            await asyncio.gather(*(self._watch(place) for place in self._actors))
        finally:
            for loop in aligning:
                loop.cancel()

    async def _reserve(self) -> PlacementGroup:
        bundles = slot_bundles(self._graph)
        seconds = self._graph.config.slot_timeout_ms / 1000
        group: PlacementGroup = placement_group(bundles, strategy="PACK")
        self._group = group
        try:
            await asyncio.wait_for(group.ready(), seconds)
        except asyncio.TimeoutError:
            raise ClusterError(
                f"no room for {len(bundles)} slots of {bundles[0]} within {seconds:g} s; the cluster has "
                f"{_cluster_resources()}; lower the parallelism or slot_cpus, or add nodes (a cluster "
                "embedded by an earlier job keeps its size until ray.shutdown())"
            ) from None
        return group

    def _actor_options(self, place: Place, group: PlacementGroup) -> dict[str, Any]:
        task_id, subtask = place
        resources = self._graph.task(task_id).resources
        open_pushes = len(self._graph.input_channels(*place)) * self._graph.config.channel_credits
        return {
            "num_cpus": resources.num_cpus if resources else 0,
            "num_gpus": resources.num_gpus if resources else 0,
            "max_restarts": 0,
            "max_task_retries": 0,
            "enable_task_events": False,
            # Pushes wait in the receiver until their message is taken: as many calls are open as there is credit.
            "max_concurrency": open_pushes + _OTHER_CALLS,
            "scheduling_strategy": PlacementGroupSchedulingStrategy(group, subtask),
        }

    async def _watch(self, place: Place) -> None:
        """Return when the subtask has ended well; raise when it failed or its process died."""
        try:
            error = await self._actors[place].watch.remote()
        except RayActorError as died:
            task_id, subtask = place
            raise WorkerLostError(
                f"the process of task {self._graph.task(task_id).name!r}, subtask {subtask}, died: {died}"
            ) from None
        if error is not None:
            raise error

    async def _take_down(self) -> None:
        stopping = [asyncio.ensure_future(self._stop(place)) for place in self._actors]
        if stopping:
            await asyncio.wait(stopping, timeout=_STOP_SECONDS)
        for actor in self._actors.values():
            ray.kill(actor)
        if self._group is not None:
            remove_placement_group(self._group)

    async def _stop(self, place: Place) -> None:
        try:
            self._metrics[place] = await self._actors[place].stop.remote()
        except RayError:
            # It is dead already, which is why the job ends; its last counters stand.
            return

    async def cancel(self) -> None:
        """End the job; `run` returns when it has been taken down."""
        self._cancelled.set()

    async def status(self) -> JobStatus:
        """Where the job is in its life."""
        return self._status

    async def metrics(self) -> Sequence[SubtaskMetrics]:
        """The latest counters of all subtasks that have given any."""
        if self._status is JobStatus.RUNNING:
            asking = [asyncio.ensure_future(self._ask_metrics(place)) for place in self._actors]
            await asyncio.wait(asking, timeout=_METRICS_SECONDS)
        return [self._metrics[place] for place in sorted(self._metrics)]

    async def _ask_metrics(self, place: Place) -> None:
        try:
            self._metrics[place] = await self._actors[place].metrics.remote()
        except RayError:
            return

    async def client_channels(self, results: Sequence[int]) -> list[ClientChannel]:
        """Where the client fetches the rows of the results nodes; returns once the job runs, empty if it never did."""
        await self._deployed.wait()
        if self._status is not JobStatus.RUNNING:
            return []
        return [
            ClientChannel(result, self._actors[task_id, subtask], output)
            for result in results
            for task_id, output, subtask in self._graph.client_channels(result)
        ]


def _cluster_resources() -> dict[str, float]:
    """What the cluster has in all, without Ray's own markers."""
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return {name: amount for name, amount in resources.items() if not name.startswith("node:")}
