"""Which actor runs which subtask, and what it must reserve: pure functions over the physical graph.

A slot is a bundle of a placement group and holds subtask i of every task; operators with resources of their own add
them to the slots that run them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.actors.running_task import Deployment, Restore
from penstock.engine.checkpointing.coordinator import Place
from penstock.engine.graph.physical import PhysicalGraph


def places(graph: PhysicalGraph) -> list[Place]:
    """All subtasks, upstream first."""
    return [(task.id, subtask) for task in graph.tasks for subtask in range(task.parallelism)]


def slot_bundles(graph: PhysicalGraph) -> list[dict[str, float]]:
    """What each slot reserves: as many slots as the widest task has subtasks."""
    bundles = []
    for slot in range(max(task.parallelism for task in graph.tasks)):
        wanted = [task.resources for task in graph.tasks if task.resources is not None and task.parallelism > slot]
        bundle = {"CPU": graph.config.slot_cpus + sum(resources.num_cpus for resources in wanted)}
        if gpus := sum(resources.num_gpus for resources in wanted):
            bundle["GPU"] = gpus
        bundles.append(bundle)
    return bundles


def deployment(
    graph: PhysicalGraph, place: Place, attempt: int, actors: Mapping[Place, Any], restore: Restore | None = None
) -> Deployment:
    """What the actor at `place` needs to know about itself and about those that it sends to."""
    task_id, subtask = place
    task = graph.task(task_id)
    targets = []
    for output, exchange in enumerate(task.outputs):
        channels = []
        if exchange.downstream is not None:
            for target in graph.output_targets(task, output, subtask):
                receiver = (exchange.downstream, target)
                channels.append((actors[receiver], graph.channel_number(receiver, (task_id, subtask), output)))
        targets.append(channels)
    return Deployment(task_id, subtask, attempt, targets, restore)
