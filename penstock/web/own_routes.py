"""Penstock's own paths: events, what the pages show, reasons, stacks, charts, Prometheus, the OpenAPI document.

All but `/metrics` are below `/v1`. What the pages show is one document a view, small at any parallelism: the subtasks
of a task are asked for by themselves.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import asdict, replace
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from penstock.engine.errors import PenstockError
from penstock.engine.job.rescale_preview import MOST_PREVIEWS, range_of, requests_of
from penstock.engine.metric_types import read_together
from penstock.engine.metrics import ChannelStatistics
from penstock.web import flink
from penstock.web.at_once import AtOnce
from penstock.web.cluster import Cluster
from penstock.web.collector import MOST_LISTENERS, Collector
from penstock.web.documents import finite, info_document, large_answer
from penstock.web.flame import dump_text, flame_document
from penstock.web.flink_metrics import operator_latencies
from penstock.web.observed import JobView, TaskView, status_of
from penstock.web.openapi import openapi_document
from penstock.web.operations import Operations
from penstock.web.prometheus import CONTENT_TYPE, prometheus_text
from penstock.web.requests import check_running, flame_kind_in, job_in, only, require_operator, task_in, whole
from penstock.web.security import COOKIE, Role, bearer_in
from penstock.web.watermarks import watermarks_document
from penstock.web.why_slow import why_slow

_KEEP_ALIVE_SECONDS: Final = 15.0
_LONGEST_PROFILE: Final = 60
_LOG_LINES: Final = 500
_MOST_LOG_LINES: Final = 5000
_LOGS_ARE_GONE: Final = (
    "the job has ended, and the lines that its processes kept went with them: what they printed is in Ray's files, "
    "ray/session_*/logs/worker-*.out and .err in the temporary folder of each node"
)
_MOST_READING: Final = 8
_MOST_CHARTS: Final = 1000
_SESSION_SECONDS: Final = 12 * 3600


def own_routes(collector: Collector, operations: Operations, cluster: Cluster, looking: AtOnce) -> list[Route]:
    """All of them.

    Args:
        collector, operations, cluster: what they show and do.
        looking: runs the calls that look at the threads of subtasks.
    """
    return [
        *_session_routes(),
        *_cluster_routes(collector),
        *_job_routes(collector, operations),
        *_preview_routes(collector, cluster),
        *_stack_routes(collector, cluster, looking),
    ]


def _session_routes() -> list[Route]:
    async def health(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def whoami(request: Request) -> Response:
        return JSONResponse({"role": _role(request).name.lower()})

    async def begin(request: Request) -> Response:
        """The browser keeps the token that it has shown, out of the reach of scripts."""
        answer = JSONResponse({"role": _role(request).name.lower()})
        if token := bearer_in(request.headers):
            answer.set_cookie(COOKIE, token, max_age=_SESSION_SECONDS, httponly=True, samesite="strict", path="/")
        return answer

    async def end(request: Request) -> Response:
        answer = JSONResponse({})
        answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
        return answer

    return [
        Route("/v1/health", health),
        Route("/v1/session", whoami),
        Route("/v1/session", begin, methods=["POST"]),
        Route("/v1/session", end, methods=["DELETE"]),
    ]


def _role(request: Request) -> Role:
    role: Role = request.scope.get("penstock.role", Role.NOBODY)
    return role


def _cluster_routes(collector: Collector) -> list[Route]:
    observed = collector.observed

    async def metrics(request: Request) -> Response:
        by_subtask = request.query_params.get("subtasks") in ("1", "true")
        # The metrics of a wide job take a second.
        text = await asyncio.to_thread(prometheus_text, observed.jobs(), by_subtask)
        return PlainTextResponse(text, media_type=CONTENT_TYPE)

    async def events(request: Request) -> Response:
        if collector.listeners >= MOST_LISTENERS:
            raise HTTPException(503, f"{MOST_LISTENERS} listen already")
        return StreamingResponse(
            _events(collector), media_type="text/event-stream", headers={"cache-control": "no-store"}
        )

    async def jobs(request: Request) -> Response:
        return JSONResponse(_jobs(collector))

    async def nodes(request: Request) -> Response:
        return JSONResponse({"nodes": [asdict(node) for node in await collector.nodes()]})

    async def openapi(request: Request) -> Response:
        return JSONResponse(openapi_document(request.app.routes))

    return [
        Route("/metrics", metrics),
        Route("/v1/events", events),
        Route("/v1/overview-of-jobs", jobs),
        Route("/v1/nodes", nodes),
        Route("/v1/openapi.json", openapi),
    ]


async def _events(collector: Collector) -> AsyncIterator[str]:
    yield f"event: jobs\ndata: {json.dumps(_jobs(collector))}\n\n"
    async for is_new in collector.news(_KEEP_ALIVE_SECONDS):
        yield f"event: jobs\ndata: {json.dumps(_jobs(collector))}\n\n" if is_new else "event: alive\ndata: {}\n\n"


def _jobs(collector: Collector) -> dict[str, Any]:
    return {
        "problem": collector.problem,
        "jobs": [
            {
                "id": view.info.id,
                "name": view.info.name,
                "status": status_of(view).value,
                "answers": view.answers,
                "began_ms": view.began_ms,
                "since_ms": view.info.since_ms,
                "parallelism": view.info.parallelism,
                "restarts": view.info.restarts,
                "checkpoints": view.info.completed_checkpoints,
                "rows_per_second": sum(task.subtasks.rate("rows_in") for task in view.tasks if not task.info.inputs),
                "busiest": max((task.subtasks.highest("busy") for task in view.tasks), default=0.0),
                "blocked": max((task.subtasks.highest("blocked") for task in view.tasks), default=0.0),
            }
            for view in collector.observed.jobs()
        ],
    }


def _job_routes(collector: Collector, operations: Operations) -> list[Route]:
    async def job(request: Request) -> Response:
        view = job_in(request, collector)
        return large_answer(
            {
                # Its tasks name each subtask, and are below without them.
                "info": info_document(replace(view.info, tasks=())),
                "status": status_of(view).value,
                "answers": view.answers,
                "seen_ms": view.seen_ms,
                "began_ms": view.began_ms,
                "why": asdict(why_slow(view)),
                "tasks": [_task(task, view) for task in view.tasks],
                "exceptions": flink.exceptions(view, 50)["exceptionHistory"]["entries"],
                "operations": [asdict(one) for one in operations.of_job(view.info.id)],
            }
        )

    async def info(request: Request) -> Response:
        view = job_in(request, collector)
        return JSONResponse(info_document(replace(view.info, answers=view.answers)))

    async def why(request: Request) -> Response:
        return JSONResponse(finite(asdict(why_slow(job_in(request, collector)))))

    async def autoscaler(request: Request) -> Response:
        info = job_in(request, collector).info
        if info.autoscaler is None:
            raise HTTPException(404, "the job has no autoscaler; -Djob.autoscaler.enabled=true begins it with one")
        return JSONResponse(finite(info_document(info)["autoscaler"]))

    async def charts(request: Request) -> Response:
        view, query = job_in(request, collector), request.query_params
        only(query, "busiest")
        found = collector.observed.charts(view.info.id)
        if "busiest" in query:
            most = whole(query["busiest"], "busiest", 1, _MOST_CHARTS)
            charted = [task for task in view.tasks if task.info.id in found]
            charted.sort(key=lambda task: task.subtasks.highest("busy"), reverse=True)
            found = {task.info.id: found[task.info.id] for task in charted[:most]}
        names = ("at_ms", "rows_in", "rows_out", "busy", "blocked", "watermark")
        return large_answer(
            {
                str(task): {name: [getattr(point, name) for point in points] for name in names}
                for task, points in found.items()
            }
        )

    async def latency(request: Request) -> Response:
        view = job_in(request, collector)
        return JSONResponse(finite({"operators": list(operator_latencies(view))}))

    async def task(request: Request) -> Response:
        view = job_in(request, collector)
        found = task_in(request, view)
        groups: dict[tuple[int, str], list[Any]] = {}
        for one in found.subtasks.metrics:
            for number, (name, counter) in enumerate(one.operators):
                groups.setdefault((number, name), []).append(counter.group)
        metrics = [
            {"operator": name, **asdict(reading), "kind": reading.kind.value}
            for (_, name), group in groups.items()
            for reading in read_together(group)
        ]
        return large_answer({**_task(found, view), "metrics": metrics, "subtasks": _subtasks(found)})

    async def watermarks(request: Request) -> Response:
        view = job_in(request, collector)
        found = task_in(request, view)
        points = collector.observed.watermarks(view.info.id)
        return JSONResponse(watermarks_document(points, found.info.id))

    async def operation(request: Request) -> Response:
        view = job_in(request, collector)
        found = operations.find(view.info.id, request.path_params["trigger"].lower())
        if found is None:
            raise HTTPException(404, "there is no such operation")
        return JSONResponse(asdict(found))

    return [
        Route("/v1/jobs/{job}/view", job),
        Route("/v1/jobs/{job}/info", info),
        Route("/v1/jobs/{job}/why-slow", why),
        Route("/v1/jobs/{job}/autoscaler", autoscaler),
        Route("/v1/jobs/{job}/charts", charts),
        Route("/v1/jobs/{job}/latency", latency),
        Route("/v1/jobs/{job}/tasks/{vertex}", task),
        Route("/v1/jobs/{job}/tasks/{vertex}/watermarks", watermarks),
        Route("/v1/jobs/{job}/operations/{trigger}", operation),
    ]


def _task(task: TaskView, view: JobView) -> dict[str, Any]:
    return {
        "id": task.info.id,
        "name": task.info.name,
        "parallelism": task.info.parallelism,
        "operators": task.info.operators,
        "inputs": task.info.inputs,
        "rows_in": task.subtasks.total("rows_in"),
        "rows_out": task.subtasks.total("rows_out"),
        "rows_in_per_second": task.subtasks.rate("rows_in"),
        "rows_out_per_second": task.subtasks.rate("rows_out"),
        "bytes_out_per_second": task.subtasks.rate("bytes_out"),
        "busy": task.mean("busy"),
        "busiest": task.subtasks.highest("busy"),
        "blocked": task.mean("blocked"),
        "most_blocked": task.subtasks.highest("blocked"),
        "idle": task.mean("idle"),
        "skew": task.subtasks.skew,
        "late_rows": task.subtasks.total("late_rows"),
        "watermark": _watermark(task.subtasks.watermark),
        "watermark_lag_ms": view.watermark_lag_ms(task),
        "pending_records": task.pending_records,
        "splits_left": task.subtasks.total("splits"),
        "alignment_ms": task.subtasks.most("alignment_ms"),
        "sync_ms": task.subtasks.most("sync_ms"),
    }


def _watermark(watermark: int | None) -> int | str | None:
    return "end" if watermark == MAX_TIMESTAMP else None if watermark == MIN_TIMESTAMP else watermark


def _subtasks(task: TaskView) -> dict[str, list[Any]]:
    """Columns with a value for each subtask: rows of 1,600 would be three times as long, and take as many times."""
    states, subtasks = {one.subtask: one for one in task.info.subtasks}, task.subtasks
    metrics = subtasks.metrics
    known = [states.get(one.subtask) for one in metrics]
    return {
        "subtask": [one.subtask for one in metrics],
        "status": ["" if one is None else one.status.value for one in known],
        "pid": [None if one is None else one.pid for one in known],
        "rows_in": subtasks.each("rows_in"),
        "rows_out": subtasks.each("rows_out"),
        "rows_in_per_second": subtasks.each_rate("rows_in"),
        "rows_out_per_second": subtasks.each_rate("rows_out"),
        "busy": subtasks.each_rate("busy"),
        "blocked": subtasks.each_rate("blocked"),
        "idle": subtasks.each_rate("idle"),
        "watermark": list(map(_watermark, subtasks.each("watermark"))),
        "queued": [one.gate.messages for one in metrics],
        "buffered_bytes": [one.output.bytes for one in metrics],
        "alignment_ms": subtasks.each("alignment_ms"),
        "sync_ms": subtasks.each("sync_ms"),
    }


def _channel(channel: ChannelStatistics) -> dict[str, Any]:
    waits = channel.output
    return {
        "task": channel.task,
        "subtask": channel.subtask,
        "rows": channel.rows,
        "bytes_sent": waits.bytes_sent,
        "messages_sent": waits.messages_sent,
        "buffered_rows": waits.rows,
        "buffered_bytes": waits.bytes,
        "messages_under_way": waits.under_way,
        "credits": channel.credits,
        "full": bool(waits.full),
    }


def _preview_routes(collector: Collector, cluster: Cluster) -> list[Route]:
    looking = AtOnce(_MOST_READING, "previews")

    async def preview(request: Request) -> Response:
        view, query = job_in(request, collector), request.query_params
        only(query, "operator", "parallelism")
        operators, numbers = query.getlist("operator"), query.getlist("parallelism")
        ranges = [found for found in map(range_of, numbers) if found is not None]
        if not ranges or len(ranges) != len(numbers) or (operators and len(operators) != len(ranges)):
            raise HTTPException(400, "give parallelism, N or FIRST..LAST, once for each operator")
        if sum(map(len, ranges)) > MOST_PREVIEWS:
            raise HTTPException(400, f"ask for {MOST_PREVIEWS} at the most")
        wanted = requests_of(operators, ranges)
        told = await looking(lambda: cluster.preview_rescales(view.info.id, wanted))
        return JSONResponse({"previews": [finite(asdict(one)) for one in told]})

    return [Route("/v1/jobs/{job}/preview-rescale", preview)]


def _stack_routes(collector: Collector, cluster: Cluster, looking: AtOnce) -> list[Route]:
    reading = AtOnce(_MOST_READING, "logs")

    async def channels(request: Request) -> Response:
        view, task, subtask = subtask_in(request)
        assert subtask is not None
        found = await looking(lambda: cluster.channels(view.info.id, task.info.id, subtask))
        return JSONResponse({"channels": [_channel(one) for one in found]})

    def place(request: Request) -> tuple[JobView, TaskView, int | None]:
        require_operator(request)
        return subtask_in(request)

    def subtask_in(request: Request) -> tuple[JobView, TaskView, int | None]:
        view = job_in(request, collector)
        check_running(view)
        task = task_in(request, view)
        number = request.path_params.get("subtask")
        return view, task, None if number is None else whole(number, "subtask", 0, task.info.parallelism - 1)

    async def explain(request: Request) -> Response:
        view = job_in(request, collector)
        return PlainTextResponse(await asyncio.to_thread(cluster.explain, view.info.id))

    async def stack(request: Request) -> Response:
        view, task, subtask = place(request)
        stacks = await looking(lambda: cluster.stacks(view.info.id, task.info.id, subtask, 0.0))
        return PlainTextResponse(dump_text(stacks))

    async def flame(request: Request) -> Response:
        view, task, subtask = place(request)
        kind = flame_kind_in(request)
        seconds = whole(request.query_params.get("seconds", 5), "seconds", 1, _LONGEST_PROFILE)
        stacks = await looking(lambda: cluster.stacks(view.info.id, task.info.id, subtask, float(seconds)))
        return JSONResponse(flame_document(kind.of(stacks)))

    async def logs(request: Request) -> Response:
        require_operator(request)
        view = job_in(request, collector)
        most = whole(request.query_params.get("most", _LOG_LINES), "most", 1, _MOST_LOG_LINES)
        has_ended = view.info.status.ended
        try:
            lines = await reading(lambda: cluster.logs(view.info.id, {}, most))
        except PenstockError:
            # The processes of a job that has ended have taken their lines with them.
            if not has_ended:
                raise
            lines = ()
        remark = {"remark": _LOGS_ARE_GONE} if has_ended and not lines else {}
        return JSONResponse({"lines": [asdict(line) for line in lines], **remark})

    return [
        Route("/v1/jobs/{job}/logs", logs),
        Route("/v1/jobs/{job}/tasks/{vertex}/{subtask}/channels", channels),
        Route("/v1/jobs/{job}/tasks/{vertex}/{subtask}/stack", stack),
        Route("/v1/jobs/{job}/tasks/{vertex}/{subtask}/flame", flame),
        Route("/v1/jobs/{job}/tasks/{vertex}/flame", flame),
        Route("/v1/jobs/{job}/explain", explain),
    ]
