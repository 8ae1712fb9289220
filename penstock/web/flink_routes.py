"""The paths of Flink's REST that Penstock has, at `/` and, as in Flink, below `/v1`.

Reading gives what was observed last; what changes a job is begun at once and polled by its trigger id.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from penstock.engine.checkpointing.history import CheckpointPart
from penstock.engine.errors import PenstockError
from penstock.engine.job.info import CheckpointInfo, TaskInfo
from penstock.web import flink, flink_metrics, rescales
from penstock.web.at_once import AtOnce
from penstock.web.checkpoint_parts import by_task, subtasks_document
from penstock.web.cluster import Cluster, Node
from penstock.web.collector import Collector
from penstock.web.flame import flame_document
from penstock.web.observed import JobView, TaskView
from penstock.web.operations import Operation, Operations, TooManyOperationsError, flink_answer
from penstock.web.requests import (
    body_of,
    check_running,
    flame_kind_in,
    job_in,
    only_members,
    require_operator,
    task_in,
    text_in,
    unknown,
    whole,
)

LARGEST_PARALLELISM = 32_768
_FLAME_SECONDS = 2.0
_MOST_EXCEPTIONS = 16
_TRIGGER = "triggerId"
_OF_SAVEPOINTS = ("formatType", _TRIGGER)
"""Members of bodies that ask for a savepoint; the first, which Flink's clients send, means nothing here."""


def flink_routes(collector: Collector, operations: Operations, cluster: Cluster, looking: AtOnce) -> list[Route]:
    """All of them; arguments as for `own_routes`."""
    return [
        *_cluster_routes(collector),
        *_job_routes(collector, cluster),
        *_vertex_routes(collector, cluster, looking),
        *_operation_routes(collector, operations, cluster),
    ]


def _cluster_routes(collector: Collector) -> list[Route]:
    observed = collector.observed

    async def alive() -> list[Node]:
        # Nodes that have left, which Ray keeps listing, are not in Flink's list.
        return [node for node in await collector.nodes() if node.alive]

    async def slots() -> tuple[tuple[int, int], int]:
        nodes = await alive()
        return (int(sum(node.cpus for node in nodes)), int(sum(node.free_cpus for node in nodes))), len(nodes)

    async def overview(request: Request) -> Response:
        return JSONResponse(flink.overview(observed.jobs(), *await slots()))

    async def config(request: Request) -> Response:
        return JSONResponse(flink.config())

    async def jobs(request: Request) -> Response:
        return JSONResponse({"jobs": [{"id": one.info.id, "status": flink.job_state(one)} for one in observed.jobs()]})

    async def jobs_overview(request: Request) -> Response:
        return JSONResponse(flink.jobs_overview(observed.jobs()))

    async def jobs_metrics(request: Request) -> Response:
        wanted = request.query_params.get("jobs")
        views = [one for one in observed.jobs() if wanted is None or one.info.id in wanted.split(",")]
        return _aggregated(request, [flink_metrics.of_job(view) for view in views])

    async def manager_metrics(request: Request) -> Response:
        values = flink_metrics.of_cluster(observed.jobs(), *await slots())
        return JSONResponse(flink_metrics.answer(values, request.query_params.get("get")))

    async def taskmanagers(request: Request) -> Response:
        nodes = [
            {
                "id": node.id,
                "path": node.address,
                "dataPort": -1,
                "jmxPort": -1,
                "timeSinceLastHeartbeat": 0,
                "slotsNumber": int(node.cpus),
                "freeSlots": int(node.free_cpus),
                "hardware": {
                    "cpuCores": int(node.cpus),
                    "physicalMemory": node.memory,
                    "freeMemory": 0,
                    "managedMemory": 0,
                },
                "blocked": False,
            }
            for node in await alive()
        ]
        return JSONResponse({"taskmanagers": nodes})

    async def taskmanagers_metrics(request: Request) -> Response:
        values = [{"Status.Slots.Total": node.cpus, "Status.Slots.Available": node.free_cpus} for node in await alive()]
        return _aggregated(request, values)

    return [
        Route("/overview", overview),
        Route("/config", config),
        Route("/jobs", jobs),
        Route("/jobs/overview", jobs_overview),
        Route("/jobs/metrics", jobs_metrics),
        Route("/jobmanager/metrics", manager_metrics),
        Route("/taskmanagers", taskmanagers),
        Route("/taskmanagers/metrics", taskmanagers_metrics),
    ]


def _aggregated(request: Request, values: Sequence[flink_metrics.Values]) -> Response:
    query = request.query_params
    return JSONResponse(flink_metrics.aggregated(values, query.get("get"), query.get("agg")))


def _job_routes(collector: Collector, cluster: Cluster) -> list[Route]:
    def of_job(document: Callable[[JobView], Any]) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            return JSONResponse(document(job_in(request, collector)))

        return endpoint

    async def exceptions(request: Request) -> Response:
        most = whole(request.query_params.get("maxExceptions", _MOST_EXCEPTIONS), "maxExceptions", 0, 1000)
        return JSONResponse(flink.exceptions(job_in(request, collector), most))

    async def metrics(request: Request) -> Response:
        view = job_in(request, collector)
        values = flink_metrics.of_job(view) | flink_metrics.latencies_of(view)
        return JSONResponse(flink_metrics.answer(values, request.query_params.get("get")))

    async def parts_in(view: JobView, checkpoint: int) -> Sequence[CheckpointPart]:
        try:
            return await asyncio.to_thread(cluster.checkpoint_parts, view.info.id, checkpoint)
        except PenstockError:
            # The job has ended, or its manager is away: what is known of the whole is told all the same.
            return ()

    async def checkpoint(request: Request) -> Response:
        view = job_in(request, collector)
        found = _checkpoint_in(request, view)
        parts = await parts_in(view, found.checkpoint)
        return JSONResponse({**flink.checkpoint(found), "tasks": by_task(found, parts)})

    async def checkpoint_subtasks(request: Request) -> Response:
        view = job_in(request, collector)
        found, task = _checkpoint_in(request, view), task_in(request, view)
        parts = [one for one in await parts_in(view, found.checkpoint) if one.task == task.info.id]
        if not parts:
            raise HTTPException(404, "what its subtasks did is not known any more; it is of the newest checkpoints")
        return JSONResponse(subtasks_document(found, parts))

    async def rescale(request: Request) -> Response:
        number = request.path_params["rescale"]
        found = rescales.rescale_details(job_in(request, collector).info, number)
        if found is None:
            raise unknown("rescale", number)
        return JSONResponse(found)

    return [
        Route("/jobs/{job}", of_job(flink.job)),
        Route("/jobs/{job}/status", of_job(lambda view: {"status": flink.job_state(view)})),
        Route("/jobs/{job}/plan", of_job(lambda view: {"plan": flink.plan(view.info)})),
        Route("/jobs/{job}/config", of_job(lambda view: flink.job_config(view.info))),
        Route("/jobs/{job}/metrics", metrics),
        Route("/jobs/{job}/exceptions", exceptions),
        Route("/jobs/{job}/checkpoints", of_job(lambda view: flink.checkpoints(view.info))),
        Route("/jobs/{job}/checkpoints/config", of_job(lambda view: flink.checkpoints_config(view.info))),
        Route("/jobs/{job}/checkpoints/details/{number}", checkpoint),
        Route("/jobs/{job}/checkpoints/details/{number}/subtasks/{vertex}", checkpoint_subtasks),
        Route("/jobs/{job}/rescales/overview", of_job(lambda view: rescales.rescales_overview(view.info))),
        Route("/jobs/{job}/rescales/history", of_job(lambda view: rescales.rescales_history(view.info))),
        Route("/jobs/{job}/rescales/summary", of_job(lambda view: rescales.rescales_summary(view.info))),
        Route("/jobs/{job}/rescales/config", of_job(lambda view: rescales.rescales_config(view.info))),
        Route("/jobs/{job}/rescales/details/{rescale}", rescale),
        Route("/jobs/{job}/resource-requirements", of_job(lambda view: flink.resource_requirements(view.info))),
    ]


def _checkpoint_in(request: Request, view: JobView) -> CheckpointInfo:
    number = request.path_params["number"]
    history = view.info.checkpoints.history if view.info.checkpoints is not None else ()
    found = next((one for one in history if str(one.checkpoint) == number), None)
    if found is None:
        raise unknown("checkpoint", number)
    return found


def _vertex_routes(collector: Collector, cluster: Cluster, looking: AtOnce) -> list[Route]:
    def of_task(document: Callable[[JobView, TaskView], Any]) -> Callable[[Request], Any]:
        async def endpoint(request: Request) -> Response:
            view = job_in(request, collector)
            return JSONResponse(document(view, task_in(request, view)))

        return endpoint

    async def metrics(request: Request) -> Response:
        task = task_in(request, job_in(request, collector))
        return JSONResponse(flink_metrics.answer(flink_metrics.of_task(task), request.query_params.get("get")))

    async def subtasks_metrics(request: Request) -> Response:
        task = task_in(request, job_in(request, collector))
        wanted = request.query_params.get("subtasks")
        chosen = [one for one in task.subtasks if wanted is None or str(one.subtask) in wanted.split(",")]
        return _aggregated(request, [flink_metrics.of_subtask(one) for one in chosen])

    async def subtask_metrics(request: Request) -> Response:
        task = task_in(request, job_in(request, collector))
        number = request.path_params["subtask"]
        found = next((one for one in task.subtasks if str(one.subtask) == number), None)
        if found is None:
            raise unknown("subtask", number)
        return JSONResponse(flink_metrics.answer(flink_metrics.of_subtask(found), request.query_params.get("get")))

    async def flamegraph(request: Request) -> Response:
        require_operator(request)
        view = job_in(request, collector)
        task, kind = task_in(request, view), flame_kind_in(request)
        given = request.query_params.get("subtaskindex")
        subtask = None if given is None else whole(given, "subtaskindex", 0, task.info.parallelism - 1)
        stacks = await looking(lambda: cluster.stacks(view.info.id, task.info.id, subtask, _FLAME_SECONDS))
        return JSONResponse({"endTimestamp": time.time_ns() // 1_000_000, "data": flame_document(kind.of(stacks))})

    vertex = "/jobs/{job}/vertices/{vertex}"
    return [
        Route(vertex, of_task(flink.task_details)),
        Route(f"{vertex}/backpressure", of_task(flink.backpressure)),
        Route(f"{vertex}/watermarks", of_task(lambda view, task: flink.watermarks(task))),
        Route(f"{vertex}/subtasktimes", of_task(flink.subtask_times)),
        Route(f"{vertex}/flamegraph", flamegraph),
        Route(f"{vertex}/metrics", metrics),
        Route(f"{vertex}/subtasks/metrics", subtasks_metrics),
        Route(f"{vertex}/subtasks/{{subtask}}/metrics", subtask_metrics),
    ]


def begun(
    operations: Operations, view: JobView, kind: str, call: Callable[[], Any], trigger: str | None = None
) -> Operation:
    """An operation on a job that has not ended, or the one that a client asked for before under the same id.

    Raises:
        HTTPException: it has, that id is of an operation of another kind, or too many are under way.
    """
    known = operations.find(view.info.id, trigger) if trigger else None
    if known is not None:
        if known.kind != kind:
            raise HTTPException(409, f"{_TRIGGER} {trigger} is of a {known.kind}")
        return known
    check_running(view)
    try:
        return operations.begin(view.info.id, kind, call, trigger)
    except TooManyOperationsError as error:
        raise HTTPException(429, str(error)) from None


def _operation_routes(collector: Collector, operations: Operations, cluster: Cluster) -> list[Route]:
    def triggered(operation: Operation) -> Response:
        return JSONResponse({"request-id": operation.id}, 202)

    async def savepoint(request: Request) -> Response:
        view, document = job_in(request, collector), await body_of(request)
        only_members(document, "target-directory", "cancel-job", *_OF_SAVEPOINTS)
        folder, trigger = text_in(document, "target-directory"), _trigger_in(document)
        call, kind = (cluster.stop, "stop") if document.get("cancel-job") is True else (cluster.savepoint, "savepoint")
        return triggered(begun(operations, view, kind, lambda: call(view.info.id, folder), trigger))

    async def checkpoint(request: Request) -> Response:
        view, document = job_in(request, collector), await body_of(request)
        only_members(document, "checkpointType", _TRIGGER)
        trigger = _trigger_in(document)
        return triggered(begun(operations, view, "checkpoint", lambda: cluster.checkpoint(view.info.id), trigger))

    async def stop(request: Request) -> Response:
        view, document = job_in(request, collector), await body_of(request)
        only_members(document, "targetDirectory", "drain", *_OF_SAVEPOINTS)
        folder, trigger = text_in(document, "targetDirectory"), _trigger_in(document)
        call, kind = (cluster.drain, "drain") if document.get("drain") is True else (cluster.stop, "stop")
        return triggered(begun(operations, view, kind, lambda: call(view.info.id, folder), trigger))

    async def cancel(request: Request) -> Response:
        if request.query_params.get("mode", "cancel") != "cancel":
            raise HTTPException(400, "the mode is cancel; a job is stopped by POST .../stop")
        view, document = job_in(request, collector), await body_of(request)
        if document:
            raise HTTPException(400, "to cancel takes no body; a job is stopped by POST .../stop")
        begun(operations, view, "cancel", lambda: cluster.cancel(view.info.id))
        return JSONResponse({}, 202)

    async def rescale(request: Request) -> Response:
        view = job_in(request, collector)
        query = request.query_params
        operators, numbers = query.getlist("operator"), query.getlist("parallelism")
        if len(numbers) != max(1, len(operators)):
            raise HTTPException(400, "give one parallelism, or as many as operators")
        counts = [whole(number, "parallelism", 1, LARGEST_PARALLELISM) for number in numbers]
        wanted = dict(zip(operators, counts, strict=True)) if operators else counts[0]
        return triggered(begun(operations, view, "rescale", lambda: cluster.rescale(view.info.id, wanted)))

    async def require(request: Request) -> Response:
        view, document = job_in(request, collector), await body_of(request)
        if not document:
            raise HTTPException(400, "the body names no vertex with its parallelism")
        bounds = {_vertex(view, vertex): _upper_bound(one) for vertex, one in document.items()}
        wanted = {task.uids[0]: bound for task, bound in bounds.items() if task.parallelism != bound}
        if not wanted:
            return JSONResponse({})
        begun(operations, view, "rescale", lambda: cluster.rescale(view.info.id, wanted))
        return JSONResponse({})

    async def outcome(request: Request) -> Response:
        trigger = request.path_params["trigger"].lower()
        operation = operations.find(job_in(request, collector).info.id, trigger)
        if operation is None:
            raise unknown("operation", trigger)
        return JSONResponse(flink_answer(operation))

    return [
        Route("/jobs/{job}", cancel, methods=["PATCH"]),
        Route("/jobs/{job}/savepoints", savepoint, methods=["POST"]),
        Route("/jobs/{job}/savepoints/{trigger}", outcome),
        Route("/jobs/{job}/checkpoints", checkpoint, methods=["POST"]),
        Route("/jobs/{job}/checkpoints/{trigger}", outcome),
        Route("/jobs/{job}/stop", stop, methods=["POST"]),
        Route("/jobs/{job}/rescaling", rescale, methods=["PATCH"]),
        Route("/jobs/{job}/rescaling/{trigger}", outcome),
        Route("/jobs/{job}/resource-requirements", require, methods=["PUT"]),
    ]


def _trigger_in(document: dict[str, Any]) -> str | None:
    """The id under which a client asks, as it may ask again where no answer came; None: it has chosen none."""
    trigger = text_in(document, _TRIGGER)
    if trigger is not None and not re.fullmatch("[0-9a-fA-F]{32}", trigger):
        raise HTTPException(400, f"{_TRIGGER} must be 32 hexadecimal digits")
    return trigger and trigger.lower()


def _vertex(view: JobView, vertex: str) -> TaskInfo:
    """The task that a document names by its id."""
    found = next((task for task in view.info.tasks if str(task.id) == vertex), None)
    if found is None:
        raise HTTPException(400, f"the job has no vertex {vertex!r}; see GET /jobs/ID/resource-requirements")
    return found


def _upper_bound(one: object) -> int:
    if not isinstance(one, dict) or not isinstance(parallelism := one.get("parallelism"), dict):
        raise HTTPException(400, 'each vertex needs {"parallelism": {"lowerBound": 1, "upperBound": 4}}')
    only_members(one, "parallelism")
    only_members(parallelism, "lowerBound", "upperBound")
    return whole(parallelism.get("upperBound"), "upperBound", 1, LARGEST_PARALLELISM)
