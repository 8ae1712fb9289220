"""Paths that show data: states of a job, single keys and scans, live or as of the newest checkpoint; rows of streams.

JSON for single keys and a few rows, Arrow's stream format for many. Values are data: only operators are told them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import pyarrow as pa
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from penstock.engine.errors import CheckpointError, RecordError
from penstock.engine.task.tap import LONGEST_SECONDS, MOST_ROWS, SEEN
from penstock.savepoints.reader import Savepoint
from penstock.savepoints.saved_state import SavedState
from penstock.savepoints.shown import json_value, python_rows
from penstock.web.cluster import Cluster
from penstock.web.collector import Collector
from penstock.web.observed import JobView
from penstock.web.requests import job_in, require_operator, whole

_T = TypeVar("_T")
ARROW: Final = "application/vnd.apache.arrow.stream"
_ROWS: Final = 100
_MOST_ROWS: Final = 10_000
_MOST_ARROW_ROWS: Final = 1_000_000
_MOST_AT_ONCE: Final = 16
_MOST_LOOKING: Final = 8
_TAIL_ROWS: Final = 20
_TAIL_SECONDS: Final = 5
_ISOLATIONS: Final = ("live", "checkpoint")


class _AtOnce:
    """Runs calls that block in threads, so many at once and no more.

    Args:
        most: how many.
        what: they ask for, for messages.
    """

    def __init__(self, most: int, what: str) -> None:
        self._most, self._what = most, what
        self._running = asyncio.Semaphore(most)

    async def __call__(self, call: Callable[[], _T]) -> _T:
        """What the call gives.

        Raises:
            HTTPException: too many run already.
        """
        if self._running.locked():
            raise HTTPException(503, f"{self._most} ask for {self._what} already; try again", {"Retry-After": "1"})
        async with self._running:
            return await asyncio.to_thread(call)


def state_routes(collector: Collector, cluster: Cluster) -> list[Route]:
    """All of them."""
    in_thread, looking = _AtOnce(_MOST_AT_ONCE, "state"), _AtOnce(_MOST_LOOKING, "rows of streams")

    async def states(request: Request) -> Response:
        view = job_in(request, collector)
        return JSONResponse(await in_thread(lambda: _listed(_cut(cluster, view))))

    async def state(request: Request) -> Response:
        require_operator(request)
        view, query = job_in(request, collector), request.query_params
        uid, name = request.path_params["uid"], request.path_params["name"]
        isolation = query.get("isolation", "live")
        if isolation not in _ISOLATIONS:
            raise HTTPException(400, f"isolation is one of {', '.join(_ISOLATIONS)}")
        arrow = ARROW in request.headers.get("accept", "")
        limit = whole(query.get("limit", _ROWS), "limit", 1, _MOST_ARROW_ROWS if arrow else _MOST_ROWS)
        key = query.getlist("key")
        if isolation == "live":
            live = cluster.live_state(view.info.id, uid, name)
            if key:
                return _value(await in_thread(lambda: live.get(*_typed(key, live.key_columns()))))
            # One more tells that there are more.
            return _rows(await in_thread(lambda: live.scan(limit=limit + 1)), limit, arrow)
        saved = await in_thread(lambda: _saved(_cut(cluster, view), uid, name))
        if key:
            return _value(await in_thread(lambda: saved.get(*_typed(key, _keys_of(saved)))))
        return _rows(await in_thread(lambda: saved.to_arrow().slice(0, limit + 1)), limit, arrow)

    async def tail(request: Request) -> Response:
        require_operator(request)
        view, query, uid = job_in(request, collector), request.query_params, request.path_params["uid"]
        limit = whole(query.get("rows", _TAIL_ROWS), "rows", 1, MOST_ROWS)
        seconds = whole(query.get("seconds", _TAIL_SECONDS), "seconds", 1, int(LONGEST_SECONDS))
        side = query.get("side", "")
        found = await looking(lambda: cluster.tail(view.info.id, uid, side, limit, float(seconds)))
        if ARROW in request.headers.get("accept", ""):
            return _arrow(found.rows.replace_schema_metadata({SEEN: str(found.seen)}))
        return JSONResponse({**_document(found.rows), "seen": found.seen})

    return [
        Route("/v1/jobs/{job}/state", states),
        Route("/v1/jobs/{job}/state/{uid}/{name}", state),
        Route("/v1/jobs/{job}/tail/{uid}", tail),
    ]


def _cut(cluster: Cluster, view: JobView) -> Savepoint:
    checkpoints = view.info.checkpoints
    if checkpoints is None or checkpoints.latest_url is None:
        raise CheckpointError(f"job {view.info.name!r} has completed no checkpoint so far")
    return cluster.saved(checkpoints.latest_url)


def _saved(cut: Savepoint, uid: str, name: str) -> SavedState:
    return cut.operator(uid).state(name)


def _keys_of(state: SavedState) -> pa.Schema:
    return pa.schema([state.schema.field(name) for name in state.key_columns])


def _listed(cut: Savepoint) -> dict[str, Any]:
    """What the manifest tells: no file of state is read for it."""
    operators = [
        {
            "uid": operator.uid,
            "name": operator.name,
            "bytes": sum(state.nbytes for state in operator.all_states) + operator.native_nbytes,
            "native": operator.native,
            "states": [
                {"name": state.name, "bytes": state.nbytes, "stored-rows": state.stored_rows}
                for state in operator.all_states
            ],
        }
        for operator in cut.operators
    ]
    return {"checkpoint": cut.path, "completed-at": cut.completed_at.isoformat(), "operators": operators}


def _typed(texts: Sequence[str], keys: pa.Schema | None) -> list[Any]:
    """The parts of a key, which queries have as texts, in the types of its columns; as they are where none are known.

    Raises:
        RecordError: one does not fit.
    """
    if keys is None or len(keys) != len(texts):
        return list(texts)
    try:
        return [pa.array([text]).cast(field.type)[0].as_py() for text, field in zip(texts, keys, strict=True)]
    except pa.ArrowException as error:
        raise RecordError(f"key={', '.join(texts)[:200]} does not fit ({keys.to_string()}): {error}") from error


def _value(value: Any) -> Response:
    return JSONResponse({"found": value is not None, "value": json_value(value)})


def _rows(table: pa.Table, limit: int, arrow: bool) -> Response:
    given = table.slice(0, limit)
    return _arrow(given) if arrow else JSONResponse({**_document(given), "more": table.num_rows > limit})


def _arrow(table: pa.Table) -> Response:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return Response(sink.getvalue().to_pybytes(), media_type=ARROW)


def _document(table: pa.Table) -> dict[str, Any]:
    return {
        "columns": [{"name": field.name, "type": str(field.type)} for field in table.schema],
        "rows": [json_value(row) for row in python_rows(table)],
    }
