"""The OpenAPI document of the server, made of its routes, so that no path is missing in it.

Source: OpenAPI Specification 3.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from starlette.routing import BaseRoute, Mount, Route

_QUERIES: Final = {
    "get": "Names of metrics, with commas between; without it their names are given.",
    "agg": "Which of min, max, avg and sum, with commas between.",
}
_STATE_QUERIES: Final = {
    "key": "A part of the key, one for each key column, in their order; without it rows are given.",
    "isolation": "live, or checkpoint.",
    "limit": "How many rows.",
}
_TAIL_QUERIES: Final = {
    "rows": "How many rows at the most.",
    "seconds": "For how long to look where fewer come.",
    "side": "Tag of a side output; without it, the results.",
}
_ERRORS: Final = {
    "400": "What was asked is no sense.",
    "404": "There is no such thing.",
    "409": "It cannot be done now.",
}
_BODIES: Final = {
    "/jobs/{job}/savepoints": {"target-directory": "string", "cancel-job": "boolean"},
    "/jobs/{job}/stop": {"targetDirectory": "string", "drain": "boolean"},
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
    ends = {"metrics": _QUERIES, "state/{uid}/{name}": _STATE_QUERIES, "tail/{uid}": _TAIL_QUERIES}
    queries = next((found for end, found in ends.items() if plain.endswith(end)), {})
    parameters += [
        {"name": name, "in": "query", "required": False, "schema": {"type": "string"}, "description": meaning}
        for name, meaning in queries.items()
    ]
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
    if (members := _BODIES.get(plain)) is not None and method == "POST":
        properties = {name: {"type": kind} for name, kind in members.items()}
        schema = {"type": "object", "properties": properties}
        operation["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    return operation
