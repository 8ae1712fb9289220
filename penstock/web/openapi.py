"""The OpenAPI document of the server, made of its routes, so that no path is missing in it.

Source: OpenAPI Specification 3.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from starlette.routing import BaseRoute, Mount, Route

_METRICS: Final = {
    "get": "Names of metrics, with commas between; without it their names are given.",
    "agg": "Which of min, max, avg and sum, with commas between.",
}
_FLAME: Final = {"type": "FULL, ON_CPU or OFF_CPU: which samples; without it, all."}
_QUERIES: Final[Mapping[str, Mapping[str, str]]] = {
    "/metrics": {"subtasks": "1: those of tasks for each subtask."},
    "/jobs/metrics": {**_METRICS, "jobs": "Ids, with commas between; without it, all."},
    "/jobs/{job}/vertices/{vertex}/subtasks/metrics": {**_METRICS, "subtasks": "Numbers, with commas between."},
    "/jobs/{job}/vertices/{vertex}/flamegraph": {"subtaskindex": "Which subtask; without it, all.", **_FLAME},
    "/jobs/{job}/exceptions": {"maxExceptions": "How many at the most."},
    "/jobs/{job}/tasks/{vertex}/flame": {"seconds": "For how long to look.", **_FLAME},
    "/jobs/{job}/tasks/{vertex}/{subtask}/flame": {"seconds": "For how long to look.", **_FLAME},
    "/jobs/{job}/preview-rescale": {
        "operator": "Its uid or name; without it, the whole job.",
        "parallelism": "N, or FIRST..LAST.",
    },
    "/jobs/{job}/charts": {"busiest": "Of so many tasks, those with the busiest subtasks; without it, of all."},
    "/jobs/{job}/logs": {"most": "How many lines at the most."},
    "/jobs/{job}/state/{uid}/{name}": {
        "key": "A part of the key, one for each key column, in their order; without it rows are given.",
        "isolation": "live, or checkpoint.",
        "limit": "How many rows.",
    },
    "/jobs/{job}/tail/{uid}": {
        "rows": "How many rows at the most.",
        "seconds": "For how long to look where fewer come.",
        "side": "Tag of a side output; without it, the results.",
    },
}
"""By path, without `/v1`; all other metrics take `get`."""
_ERRORS: Final = {
    "400": "What was asked is no sense.",
    "404": "There is no such thing.",
    "409": "It cannot be done now.",
}
_TEXT: Final = {"type": "string"}
_FLAG: Final = {"type": "boolean"}
_BOUND: Final = {"type": "integer", "minimum": 1}
_CLOSED: Final = {"type": "object", "additionalProperties": False}
_VERTEX: Final = {
    **_CLOSED,
    "properties": {"parallelism": {**_CLOSED, "properties": {"lowerBound": _BOUND, "upperBound": _BOUND}}},
}
_TRIGGER: Final = {"triggerId": {"type": ["string", "null"], "pattern": "^[0-9a-fA-F]{32}$"}}
_OF_SAVEPOINTS: Final = {"formatType": {"type": ["string", "null"]}, **_TRIGGER}
_BODIES: Final[Mapping[tuple[str, str], Mapping[str, Any]]] = {
    ("POST", "/jobs/{job}/savepoints"): {
        **_CLOSED,
        "properties": {"target-directory": _TEXT, "cancel-job": _FLAG, **_OF_SAVEPOINTS},
    },
    ("POST", "/jobs/{job}/checkpoints"): {
        **_CLOSED,
        "properties": {"checkpointType": _TEXT, **_TRIGGER},
    },
    ("POST", "/jobs/{job}/stop"): {
        **_CLOSED,
        "properties": {"targetDirectory": _TEXT, "drain": _FLAG, **_OF_SAVEPOINTS},
    },
    ("PUT", "/jobs/{job}/resource-requirements"): {"additionalProperties": _VERTEX},
}


def openapi_document(routes: Sequence[BaseRoute]) -> dict[str, Any]:
    """The document of all routes but those of pages."""
    paths: dict[str, Any] = {}
    for prefix, route in _routes(routes):
        for method in sorted((route.methods or set()) - {"HEAD"}):
            path = prefix + route.path
            paths.setdefault(path, {})[method.lower()] = _operation(path.removeprefix("/v1"), method, path)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": "1",
            "description": "Jobs of a cluster, as Flink's REST API has them; Penstock's own paths are below /v1.",
        },
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
        "paths": paths,
    }


def _routes(routes: Sequence[BaseRoute], prefix: str = "") -> Iterator[tuple[str, Route]]:
    for route in routes:
        if isinstance(route, Mount) and route.path != "/pages":
            yield from _routes(route.routes, prefix + route.path)
        elif isinstance(route, Route) and route.path != "/":
            yield prefix, route


def _operation(plain: str, method: str, path: str) -> dict[str, Any]:
    names = re.findall(r"{(\w+)}", path)
    parameters = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
    queries = _QUERIES.get(plain, {"get": _METRICS["get"]} if plain.endswith("/metrics") else {})
    parameters += [
        {"name": name, "in": "query", "required": False, "schema": {"type": "string"}, "description": meaning}
        for name, meaning in queries.items()
    ]
    if method == "PATCH" and plain == "/jobs/{job}":
        mode = {"type": "string", "enum": ["cancel"]}
        parameters.append({"name": "mode", "in": "query", "required": False, "schema": mode})
    if plain.endswith("/rescaling"):
        number: dict[str, Any] = {"type": "integer", "minimum": 1}
        parameters.append({"name": "parallelism", "in": "query", "required": True, "schema": number})
        parameters.append({"name": "operator", "in": "query", "required": False, "schema": {"type": "string"}})
    operation: dict[str, Any] = {
        "operationId": f"{method.lower()}{re.sub(r'[^A-Za-z0-9]+', '_', path)}",
        "parameters": parameters,
        "responses": {
            "202" if method in ("POST", "PATCH") and "session" not in path else "200": {"description": "The answer."},
            **{status: {"description": meaning} for status, meaning in _ERRORS.items()},
        },
    }
    if (body := _BODIES.get((method, plain))) is not None:
        operation["requestBody"] = {"content": {"application/json": {"schema": {"type": "object", **body}}}}
    return operation
