"""Has the processes of a job take in the state that they will own, while others run on it; see `say.Preload`.

The job manager calls it for a live rescale. Whatever fails in it is no failure of the job: who could not take anything
in reads all of it when its subtask is deployed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import ray

from penstock.actors.deployment import Restore
from penstock.actors.execution import Execution
from penstock.actors.import_path import Imported
from penstock.engine.checkpointing.instructions import Place
from penstock.engine.graph.physical import PhysicalGraph

_SECONDS: Final = 60.0
"""Who has not taken in what is there by then is waited for no longer."""


async def preload(execution: Execution, graph: PhysicalGraph, places: Sequence[Place], restore: Restore) -> None:
    """Return when these subtasks of `graph` have taken in what is there, or cannot.

    Args:
        execution: has the processes.
        graph, places: the subtasks that are to be deployed.
        restore: what there is.
    """
    ref = ray.put(Imported(graph))
    found = ((place, execution.process_for(place)) for place in places)
    calls = [asyncio.ensure_future(_preloaded(actor, ref, restore, place)) for place, actor in found if actor]
    if calls:
        await asyncio.wait(calls, timeout=_SECONDS)
    for call in calls:
        call.add_done_callback(_forget)


async def _preloaded(actor: Any, graph: Any, restore: Restore, place: Place) -> None:
    await actor.preload.remote(graph, restore, *place)


def _forget(call: asyncio.Future[None]) -> None:
    """The watch call reports a process that has ended; what cannot be read is found when it is deployed."""
    if not call.cancelled():
        call.exception()
