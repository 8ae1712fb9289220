"""Values of jobs as JSON has them: what the pages get."""

from __future__ import annotations

import math
from typing import Any

from pydantic_core import to_json
from starlette.responses import Response

from penstock.actors.ended_jobs import info_adapter
from penstock.engine.job.info import JobInfo


def info_document(info: JobInfo) -> dict[str, Any]:
    """A job, its subtasks included."""
    document: dict[str, Any] = info_adapter().dump_python(info, mode="json")
    return document


def large_answer(document: Any) -> Response:
    """What `JSONResponse` makes of a `finite` document, in a fifth of the time."""
    return Response(to_json(document, inf_nan_mode="null"), media_type="application/json")


def finite(value: Any) -> Any:
    """The value with None for numbers that JSON has not (NaN, infinity), and tuples as lists."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: finite(one) for name, one in value.items()}
    return [finite(one) for one in value] if isinstance(value, list | tuple) else value
