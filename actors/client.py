"""The client's side of a job on Ray: submits it, fetches its rows, and is the handle that users hold."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import ray
from ray import ObjectRef, cloudpickle
from ray.exceptions import ActorDiedError, RayError

from penstock.actors.job_manager import ClientChannel, JobManager, JobReport
from penstock.engine.elements import Batch
from penstock.engine.errors import PenstockError, SerializationError, WorkerLostError
from penstock.engine.graph.physical import PhysicalGraph
from penstock.engine.job import JobHandle, JobStatus, ResultConsumer
from penstock.engine.metrics import JobMetrics, report

_FETCH_SECONDS = 1.0
_CANCEL_SECONDS = 10.0


def check_serializable(graph: PhysicalGraph) -> None:
    """Check that every part of the job can travel to the cluster.

    Raises:
        SerializationError: names the operator, and what in it cannot be sent.
    """
    for task in graph.tasks:
        parts: list[tuple[str, object]] = [(operator.name, operator.factory) for operator in task.operators]
        if task.source is not None:
            parts.insert(0, (task.source.name, (task.source.source, task.source.splits)))
        for name, part in parts:
            try:
                cloudpickle.dumps(part)  # type: ignore[no-untyped-call]
            except Exception as error:
                raise SerializationError(
                    f"operator {name!r} cannot be sent to the cluster: {error}; create such objects in the worker, "
                    "in the open() of a class given to map_batches, or inside the function"
                ) from error


class RayJob(JobHandle):
    """A job on Ray, attached to this process: it ends when the process does.

    Args:
        graph: the job.
        consumers: takes the rows of each results node, by node id.
    """

    def __init__(self, graph: PhysicalGraph, consumers: Mapping[int, ResultConsumer]) -> None:
        super().__init__(graph.name, consumers)
        manager_class: Any = ray.remote(JobManager)
        self._manager = manager_class.options(num_cpus=0, max_concurrency=1000).remote(graph)
        self._running: ObjectRef[Any] | None = self._manager.run.remote()
        self._channels: ObjectRef[Any] | None = self._manager.client_channels.remote(list(consumers))
        self._fetches: dict[ObjectRef[Any], ClientChannel] = {}
        self._report: JobReport | None = None
        self._last_metrics = report([])

    def _poll(self, seconds: float) -> list[tuple[int, Batch]]:
        waiting = [ref for ref in (self._running, self._channels, *self._fetches) if ref is not None]
        if not waiting:
            return []
        ready, _ = ray.wait(waiting, num_returns=1, timeout=seconds, fetch_local=False)
        arrived: list[tuple[int, Batch]] = []
        for ref in ready:
            if ref in self._fetches:
                arrived.extend(self._take_rows(ref))
            elif ref == self._channels:
                self._channels = None
                for channel in self._get(ref, []):
                    self._fetch(channel)
            else:
                self._running = None
                self._end(self._get(ref, self._lost_manager()))
        return arrived

    def _fetch(self, channel: ClientChannel) -> None:
        self._fetches[channel.actor.fetch.remote(channel.output, _FETCH_SECONDS)] = channel

    def _take_rows(self, ref: ObjectRef[Any]) -> list[tuple[int, Batch]]:
        channel = self._fetches.pop(ref)
        try:
            batches, more = ray.get(ref)
        except ActorDiedError:
            # Before the job's end the job manager says why; after it, all rows had been fetched.
            return []
        except RayError as error:
            self._fail(WorkerLostError(f"rows for the client were lost: {type(error).__name__}: {error}"))
            return []
        if more:
            self._fetch(channel)
        return [(channel.result, batch) for batch in batches]

    def _get(self, ref: ObjectRef[Any], otherwise: Any) -> Any:
        try:
            return ray.get(ref)
        except RayError:
            return otherwise

    def _fail(self, error: PenstockError) -> None:
        """End the job for what went wrong on the client's side of it."""
        self.cancel()
        self._report = JobReport(JobStatus.FAILED, error, [])

    def _lost_manager(self) -> JobReport:
        error = WorkerLostError("the job manager's process died, and the job with it; submit the job again")
        return JobReport(JobStatus.FAILED, error, [])

    def _end(self, ended: JobReport) -> None:
        self._report = ended
        if ended.metrics:
            self._last_metrics = report(ended.metrics)
        with contextlib.suppress(RayError):
            ray.kill(self._manager)

    @property
    def _drained(self) -> bool:
        return self._report is not None and not self._fetches and self._channels is None

    @property
    def _error(self) -> PenstockError | None:
        return self._report.error if self._report else None

    def status(self) -> JobStatus:
        if self._report is None and self._running is not None:
            ready, _ = ray.wait([self._running], timeout=0)
            if not ready:
                try:
                    return JobStatus(ray.get(self._manager.status.remote()))
                except RayError:
                    pass
            ref, self._running = self._running, None
            self._end(self._get(ref, self._lost_manager()))
        assert self._report is not None
        return self._report.status

    def metrics(self) -> JobMetrics:
        if self._report is None:
            try:
                subtasks = ray.get(self._manager.metrics.remote(), timeout=_CANCEL_SECONDS)
                self._last_metrics = report(subtasks)
            except RayError:
                # The last counters are better than none.
                return self._last_metrics
        return self._last_metrics

    def cancel(self) -> None:
        if self._running is None:
            return
        with contextlib.suppress(RayError):
            self._manager.cancel.remote()
        running, self._running = self._running, None
        cancelled = JobReport(JobStatus.CANCELLED, None, [])
        try:
            ended = ray.get(running, timeout=_CANCEL_SECONDS)
        except RayError:
            ended = cancelled
        self._fetches.clear()
        self._channels = None
        self._end(ended)
