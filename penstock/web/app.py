"""The application: all routes of the server, behind the guard.

`serve.py` runs it in an actor, tests run it in this process with a cluster of their own. A request that cannot be
answered gets `{"errors": [...]}`, as Flink's clients expect, and never a trace of the server.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount

from penstock.actors.ended_jobs import info_adapter
from penstock.engine.errors import (
    NoAnswerError,
    PenstockError,
    RecordError,
    StateNotReadyError,
    UnknownOperatorError,
    UnknownStateError,
)
from penstock.web.at_once import AtOnce
from penstock.web.cluster import Cluster
from penstock.web.collector import EVERY_SECONDS, Collector
from penstock.web.export.exporter import Exporter
from penstock.web.flink_routes import flink_routes
from penstock.web.observed import Observed
from penstock.web.operations import Operations
from penstock.web.own_routes import own_routes
from penstock.web.pages import page_routes
from penstock.web.security import Access, App, Guard
from penstock.web.state_routes import state_routes

_MOST_LOOKING: Final = 8


def make_app(
    cluster: Cluster,
    access: Access,
    observed: Observed,
    every: float = EVERY_SECONDS,
    exporter: Exporter | None = None,
) -> App:
    """The guarded application.

    Args:
        cluster: whose jobs are shown and steered.
        access: who is let in.
        observed: what is known already.
        every: seconds between readings of the cluster.
        exporter: sends what is read elsewhere; None: it is not sent.
    """
    collector, operations = Collector(cluster, observed, every, exporter), Operations()

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await collector.read()
        # Making it takes a tenth of a second, which the first who looks at a job would wait for.
        info_adapter()
        reading = asyncio.ensure_future(collector.run())
        yield
        reading.cancel()

    looking = AtOnce(_MOST_LOOKING, "what threads do")
    flink = flink_routes(collector, operations, cluster, looking)
    app = Starlette(
        routes=[
            *page_routes(),
            *own_routes(collector, operations, cluster, looking),
            *state_routes(collector, cluster),
            *flink,
            Mount("/v1", routes=flink),
        ],
        exception_handlers={
            HTTPException: _refused,
            StateNotReadyError: _not_ready,
            NoAnswerError: _not_ready,
            UnknownStateError: _not_there,
            UnknownOperatorError: _not_there,
            RecordError: _unfit,
            PenstockError: _impossible,
            Exception: _failed,
        },
        lifespan=lifespan,
    )
    return Guard(app, access)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"errors": [error.detail]}, error.status_code, dict(error.headers or {}))


async def _not_ready(request: Request, error: Exception) -> Response:
    return JSONResponse({"errors": [str(error)]}, 503, {"Retry-After": "1"})


async def _not_there(request: Request, error: Exception) -> Response:
    return JSONResponse({"errors": [str(error)]}, 404)


async def _unfit(request: Request, error: Exception) -> Response:
    return JSONResponse({"errors": [str(error)]}, 400)


async def _impossible(request: Request, error: Exception) -> Response:
    return JSONResponse({"errors": [str(error)]}, 409)


async def _failed(request: Request, error: Exception) -> Response:
    return JSONResponse({"errors": ["the server failed at this request; its log says why"]}, 500)
