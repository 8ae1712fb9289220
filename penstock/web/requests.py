"""What routes take out of requests: JSON bodies, numbers, jobs and tasks; refusals say what was wrong.

Used by the routes alone. Whatever a client sends, it gets an answer below 500.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from penstock.engine.errors import nearest
from penstock.web.collector import Collector
from penstock.web.flame import FlameKind
from penstock.web.observed import JobView, TaskView
from penstock.web.security import LONGEST_BODY, Role

_LONGEST_NUMBER: Final = 20


def unknown(what: str, name: object) -> HTTPException:
    """What is raised where something asked for is not there."""
    return HTTPException(404, f"there is no {what} {str(name)[:200]!r}")


async def body_of(request: Request) -> dict[str, Any]:
    """The JSON object of a request; empty where it has no body.

    Raises:
        HTTPException: it is none, or too long.
    """
    try:
        content = await request.body()
    except ClientDisconnect:
        # The guard ends so a body that says no length and never ends; who has really gone hears of nothing.
        raise HTTPException(413, f"the body is longer than {LONGEST_BODY} bytes") from None
    if not content:
        return {}
    try:
        document = await request.json()
    except (ValueError, RecursionError):
        raise HTTPException(400, "the body is no JSON") from None
    if not isinstance(document, dict):
        raise HTTPException(400, "the body is no JSON object")
    return document


def text_in(document: dict[str, Any], name: str) -> str | None:
    """A text of a body; None where it is not there.

    Raises:
        HTTPException: it is no text, or one that has no bytes, as half of a surrogate pair has none.
    """
    value = document.get(name)
    if value is None:
        return None
    if isinstance(value, str) and len(value) <= 4096 and value == value.encode(errors="ignore").decode():
        return value or None
    raise HTTPException(400, f"{name} must be a text of 4,096 characters at most, in Unicode")


def whole(value: object, name: str, low: int, high: int) -> int:
    """A whole number of a body, a path or a query.

    Raises:
        HTTPException: it is none, or out of its limits.
    """
    text = str(value)
    is_number = not isinstance(value, bool) and text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER
    if not is_number or not low <= int(text) <= high:
        raise HTTPException(400, f"{name} must be a whole number from {low} to {high}")
    return int(text)


def only(query: Iterable[str], *names: str) -> None:
    """Refuse what a route does not know: a slip of the pen in `key` would give all rows.

    Raises:
        HTTPException: `query` has another name than `names`.
    """
    _refuse_others(query, names, "parameter")


def only_members(document: Iterable[str], *names: str) -> None:
    """The same of the members of a body, or of an object in it, as Flink does: a folder may be meant.

    Raises:
        HTTPException: `document` has another member than `names`.
    """
    _refuse_others(document, names, "member")


def _refuse_others(given: Iterable[str], names: Sequence[str], kind: str) -> None:
    for name in given:
        if name not in names:
            hint = nearest(name[:200], names)
            raise HTTPException(400, f"there is no {kind} {name[:200]!r}{hint}: {', '.join(names)}")


def flame_kind_in(request: Request) -> FlameKind:
    """Which samples a flame graph is asked for, by `type`; all without it.

    Raises:
        HTTPException: it is no kind.
    """
    given = request.query_params.get("type", FlameKind.FULL.value)
    if given not in (kinds := [kind.value for kind in FlameKind]):
        raise HTTPException(400, f"type is one of {', '.join(kinds)}, not {given!r:.50}")
    return FlameKind(given)


def job_in(request: Request, collector: Collector) -> JobView:
    """The job that the path names.

    Raises:
        HTTPException: there is none.
    """
    name = request.path_params["job"]
    view = collector.observed.job(name)
    if view is None:
        raise unknown("job", name)
    return view


def check_running(view: JobView) -> None:
    """Refuse what only the processes of a job could tell or do, once they are gone.

    Raises:
        HTTPException: the job has ended.
    """
    if view.info.status.ended:
        raise HTTPException(409, f"the job has ended: it is {view.info.status.value}")


def require_operator(request: Request) -> None:
    """Refuse whoever may only read: what is asked for shows code, and may show data.

    Raises:
        HTTPException: it is no operator who asks.
    """
    if request.scope.get("penstock.role") is not Role.OPERATOR:
        raise HTTPException(403, "this shows code, and may show data; it needs the operator's token")


def task_in(request: Request, view: JobView) -> TaskView:
    """The task of the job that the path names."""
    name = request.path_params["vertex"]
    task = view.task(int(name)) if name.isascii() and name.isdigit() and len(name) < 10 else None
    if task is None:
        raise unknown("vertex", name)
    return task
