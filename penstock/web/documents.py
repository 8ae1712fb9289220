"""Values of jobs as JSON has them, and back: what the pages get, and what is written down of ended jobs."""

from __future__ import annotations

import functools
import math
from typing import Any

from pydantic import TypeAdapter

from penstock.engine.job.info import JobInfo


@functools.cache
def _adapter() -> TypeAdapter[JobInfo]:
    return TypeAdapter(JobInfo)


def info_document(info: JobInfo) -> dict[str, Any]:
    """A job, its subtasks included."""
    document: dict[str, Any] = _adapter().dump_python(info, mode="json")
    return document


def info_text(info: JobInfo) -> str:
    """A job in one line."""
    return _adapter().dump_json(info).decode()


def info_from(text: str | bytes) -> JobInfo:
    """The job that `info_text` gave.

    Raises:
        ValueError: it is none.
    """
    return _adapter().validate_json(text)


def finite(value: Any) -> Any:
    """The value with None for numbers that JSON has not (NaN, infinity), and tuples as lists."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: finite(one) for name, one in value.items()}
    return [finite(one) for one in value] if isinstance(value, list | tuple) else value
