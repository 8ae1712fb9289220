"""The command `preview-rescale`: what rescales would do, one line for each number of subtasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.console.documents import document
from penstock.console.jobs import find
from penstock.console.options import Address, Job, Json, Traceback, Url, output_of
from penstock.engine.graph.scale import ParallelismRequest
from penstock.engine.job.rescale_preview import MOST_PREVIEWS, RescalePreview, TaskPreview, range_of, requests_of


def preview_rescale_command(
    context: typer.Context,
    job: Job,
    operators: Annotated[
        list[str] | None,
        typer.Argument(metavar="[OPERATOR=N]...", help="Single operators, by name or uid: N, or FIRST..LAST."),
    ] = None,
    parallelism: Annotated[
        str | None, typer.Option("-p", "--parallelism", metavar="N", help="Of the whole job: N, or FIRST..LAST.")
    ] = None,
    address: Address = None,
    url: Url = None,
    as_json: Json = False,
    tracebacks: Traceback = False,
) -> None:
    """Say what rescales would do, and how busy tasks would be then, from a look of three seconds; changes nothing."""
    wanted = _wanted(operators or (), parallelism)
    output = output_of(context)
    control = find(job, address, url, output)
    with output.progress(f"looking at {control.name}"):
        told = control.preview_rescales(wanted)
    output.result([document(one) for one in told], _view(told))


def _wanted(operators: Sequence[str], parallelism: str | None) -> list[ParallelismRequest]:
    if bool(operators) == (parallelism is not None):
        raise typer.BadParameter("say either -p N, or OPERATOR=N for single operators; N may be a range, such as 2..8")
    names, ranges = [], []
    for given in operators or [f"={parallelism}"]:
        name, _, number = given.rpartition("=")
        found = range_of(number)
        if found is None or (operators and not name):
            raise typer.BadParameter(f"{given.lstrip('=')!r} is not a number or a range, such as window=2..8")
        names += [name] if name else []
        ranges.append(found)
    if sum(map(len, ranges)) > MOST_PREVIEWS:
        raise typer.BadParameter(f"ask for {MOST_PREVIEWS} numbers of subtasks at the most")
    return requests_of(names, ranges)


def _view(told: Sequence[RescalePreview]) -> RenderableType:
    table = Table("rescale", "how", "slots", "CPUs", "tasks that change", "busiest then", box=None)
    for one in told:
        changes = ", ".join(f"{task.name} {task.before} -> {task.after}" for task in one.tasks if _changes(task))
        busiest = one.busiest
        table.add_row(
            Text(one.wanted),
            one.outcome,
            str(one.slots) if one.tasks else "",
            f"{one.cpus:g}" if one.tasks else "",
            Text(changes),
            Text("" if busiest is None else f"{busiest.name}: {busiest.busy:.2f}"),
        )
    reasons = dict.fromkeys(f"{one.wanted}: {one.outcome}, as {one.reason}" for one in told if one.reason)
    return Group(table, *(Text(one) for one in reasons))


def _changes(task: TaskPreview) -> bool:
    return task.before != task.after
