"""The command `drain`: has a node of the cluster leave, and waits until no job has anything there."""

from __future__ import annotations

import time
from typing import Annotated, Final

import typer

from penstock.console.jobs import connect_to
from penstock.console.options import Address, Json, Traceback, output_of
from penstock.engine.durations import parse_duration

_LOOK_SECONDS: Final = 0.5
_FAILED: Final = 1
OURS: Final = frozenset({"SubtaskActor", "JobManager"})
"""The classes of the actors that jobs consist of."""


def drain_command(
    context: typer.Context,
    node: Annotated[
        str | None, typer.Option("--node", metavar="ID", help="Id of the node, or its beginning; see `ray list nodes`.")
    ] = None,
    this_node: Annotated[bool, typer.Option("--this-node", help="The node that this command runs on.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Return when no job has a process there any more.")] = False,
    timeout: Annotated[
        str, typer.Option("--timeout", metavar="TIME", help="When the node will be gone; so long is waited.")
    ] = "110s",
    address: Address = None,
    as_json: Json = False,
    tracebacks: Traceback = False,
) -> None:
    """Have a node leave: nothing new starts there, and jobs move their subtasks to others at a checkpoint."""
    output = output_of(context)
    seconds = parse_duration(timeout, "--timeout") / 1000
    if (node is None) is not this_node:
        raise typer.BadParameter("name one node: --node ID, or --this-node")
    connect_to(address, output)
    from penstock.actors.nodes import actors_on, begin_to_drain, find_node

    found = find_node(node)
    began = time.monotonic()
    begin_to_drain(found, seconds)
    left = actors_on(found, OURS)
    with output.progress(f"draining node {found}"):
        while wait and left and time.monotonic() < began + seconds:
            time.sleep(_LOOK_SECONDS)
            left = actors_on(found, OURS)
    took = time.monotonic() - began
    there = f"still there: {', '.join(left)}" if left else "no process of a job is there"
    document = {"node": found, "seconds": round(took, 3), "left": list(left)}
    output.result(document, f"node {found} is being drained; after {took:.1f} s, {there}")
    if wait and left:
        raise typer.Exit(_FAILED)
