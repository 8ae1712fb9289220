"""Paths that show data: states of a job, single keys and scans, live or as of the newest checkpoint; rows of streams.

JSON for single keys and a few rows, Arrow's stream format for many. Values are data: only operators are told them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from penstock.engine.task.tap import LONGEST_SECONDS, MOST_ROWS, SEEN
from penstock.savepoints.reader import Savepoint
from penstock.savepoints.shown import json_value, python_rows
from penstock.web.at_once import AtOnce
from penstock.web.cluster import Cluster
from penstock.web.collector import Collector
from penstock.web.requests import check_running, job_in, only, require_operator, whole
from penstock.web.state_reads import ISOLATIONS, MOST_LIVE_ROWS, StateRead, StateReads

ARROW: Final = "application/vnd.apache.arrow.stream"
_ROWS: Final = 100
_MOST_ROWS: Final = 10_000
_MOST_ARROW_ROWS: Final = MOST_LIVE_ROWS
_MOST_AT_ONCE: Final = 16
_MOST_LOOKING: Final = 8
_TAIL_ROWS: Final = 20
_TAIL_SECONDS: Final = 5


def state_routes(collector: Collector, cluster: Cluster) -> list[Route]:
    """All of them."""
    in_thread, looking = AtOnce(_MOST_AT_ONCE, "state"), AtOnce(_MOST_LOOKING, "rows of streams")
    reads = StateReads(cluster)

    async def states(request: Request) -> Response:
        view = job_in(request, collector)
        held = {place: count for task in view.tasks for place, count in task.held_keys().items()}
        return JSONResponse(await in_thread(lambda: reads.whole(lambda: _listed(reads.cut(view), held))))

    async def state(request: Request) -> Response:
        require_operator(request)
        view, query = job_in(request, collector), request.query_params
        only(query, "key", "isolation", "limit")
        isolation = query.get("isolation", "live")
        if isolation not in ISOLATIONS:
            raise HTTPException(400, f"isolation is one of {', '.join(ISOLATIONS)}")
        if isolation == "live":
            check_running(view)
        arrow = ARROW in request.headers.get("accept", "")
        limit = whole(query.get("limit", _ROWS), "limit", 1, _MOST_ARROW_ROWS if arrow else _MOST_ROWS)
        wanted = StateRead(request.path_params["uid"], request.path_params["name"], isolation)
        if key := query.getlist("key"):
            value = await in_thread(lambda: reads.value(view, replace(wanted, keys=(tuple(key),))))
            return JSONResponse({"found": value is not None, "value": json_value(value)})
        # One more is read to know whether there are more.
        more = replace(wanted, limit=limit + (not arrow))
        return await in_thread(lambda: _rows(reads.whole(lambda: _table(*reads.rows(view, more))), limit, arrow))

    async def tail(request: Request) -> Response:
        require_operator(request)
        view, query, uid = job_in(request, collector), request.query_params, request.path_params["uid"]
        only(query, "rows", "seconds", "side")
        check_running(view)
        limit = whole(query.get("rows", _TAIL_ROWS), "rows", 1, MOST_ROWS)
        seconds = whole(query.get("seconds", _TAIL_SECONDS), "seconds", 1, int(LONGEST_SECONDS))
        side = query.get("side", "")
        arrow = ARROW in request.headers.get("accept", "")

        def looked() -> Response:
            found = cluster.tail(view.info.id, uid, side, limit, float(seconds))
            if arrow:
                return _arrow(found.rows.replace_schema_metadata({SEEN: str(found.seen)}))
            return JSONResponse({**_document(found.rows), "seen": found.seen})

        return await looking(looked)

    return [
        Route("/v1/jobs/{job}/state", states),
        Route("/v1/jobs/{job}/state/{uid}/{name}", state),
        Route("/v1/jobs/{job}/tail/{uid}", tail),
    ]


def _listed(cut: Savepoint, held: Mapping[tuple[str, str], int]) -> dict[str, Any]:
    """What the manifest tells: no file of state is read for it; and how many keys the job holds now."""
    operators = [
        {
            "uid": operator.uid,
            "name": operator.name,
            "bytes": sum(state.nbytes for state in operator.all_states) + operator.native_nbytes,
            "native": operator.native,
            "states": [
                {
                    "name": state.name,
                    "bytes": state.nbytes,
                    "stored-rows": state.stored_rows,
                    "keys": held.get((operator.uid, state.stored_name)),
                }
                for state in operator.all_states
            ],
        }
        for operator in cut.operators
    ]
    return {"checkpoint": cut.path, "completed-at": cut.completed_at.isoformat(), "operators": operators}


def _table(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches, schema)


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
