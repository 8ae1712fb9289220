"""The command `penstock job replay`: feeds a job's stimulus log to a new brain, and says where the two differ.

It needs no cluster and none of the user's code, so the log of an incident can be replayed anywhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from typing import Annotated

import typer

from penstock.console.options import Json, Traceback, output_of
from penstock.console.output import FAILED
from penstock.engine.job.replay import Step, replay
from penstock.savepoints.stimulus_logs import FoundLog, find_log


def replay_command(
    context: typer.Context,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="A stimulus log: folder of a job's checkpoints, file of its folder 'log'; path or URL."
        ),
    ],
    manager: Annotated[
        int | None,
        typer.Option("--manager", metavar="N", min=1, help="Of this job manager; without it, of the newest."),
    ] = None,
    as_json: Json = False,
    tracebacks: Traceback = False,
) -> None:
    """Replay a job's stimulus log: what its manager decided then, and decides now; exit code 1 if they differ."""
    output = output_of(context)
    with output.progress("replaying"):
        log = find_log(file, manager)
        steps = list(replay(log.lines()))
    difference = next((step.difference for step in steps if step.difference), None)
    compared = sum(step.now is not None for step in steps)
    document = {
        "log": log.url,
        "manager": log.manager,
        "managers": log.managers,
        "events": len(steps),
        "compared": compared,
        "difference": difference,
        "steps": [dataclasses.asdict(step) for step in steps],
    }
    output.result(document, "\n".join([*_shown(steps), _summary(log, len(steps), compared, difference)]))
    if difference is not None:
        raise typer.Exit(FAILED)


def _shown(steps: Sequence[Step]) -> Iterator[str]:
    for step in steps:
        at = datetime.fromtimestamp(step.ms / 1000, tz=timezone.utc)
        yield f"{step.number:6} {at:%Y-%m-%d %H:%M:%S}.{step.ms % 1000:03} +{step.at_s:.3f} s  {step.event}"
        differs = step.difference is not None
        yield from (f"       {'-' if differs else ' '}      {text}" for text in step.recorded)
        if differs and step.now is not None:
            yield from (f"       +      {text}" for text in step.now)


def _summary(log: FoundLog, events: int, compared: int, difference: str | None) -> str:
    which = "" if log.manager is None else f" of job manager {log.manager} (there are logs of {log.managers})"
    head = f"{events} events{which}, {compared} compared"
    if compared < events and difference is None:
        head += ": behind those, a part of the log is missing"
    return f"{head}; the first difference is at {difference}" if difference else f"{head}: no difference"
