"""Which actor runs which subtask, and what it must reserve: pure functions over the physical graph.

A slot is a bundle of a placement group and holds subtask i of every task; operators with resources of their own add
them to the slots that run them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from penstock.actors.running_task import Deployment, Restore
from penstock.engine.checkpointing.coordinator import Place
from penstock.engine.checkpointing.handles import CompletedCheckpoint
from penstock.engine.graph.physical import JobProgram, PhysicalGraph


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


def deployments(
    graph: PhysicalGraph,
    chosen: Iterable[Place],
    attempt: int,
    actors: Mapping[Place, Any],
    restore: Restore | None = None,
) -> Iterator[tuple[Place, Deployment]]:
    """What the actor of each chosen subtask needs to know about itself and about those that it sends to."""
    channels = graph.output_channels()
    for place in chosen:
        targets = [[(actors[receiver], number) for receiver, number in output] for output in channels[place]]
        yield place, Deployment(*place, attempt, targets, restore)


def as_checkpointed(program: JobProgram, latest: CompletedCheckpoint | None) -> JobProgram:
    """The program at the parallelism that its newest checkpoint was taken at, where it had been rescaled."""
    if latest is None:
        return program
    taken = {subtask.task: subtask.parallelism for subtask in latest.subtasks}
    candidates = [program, *(program.rescaled(parallelism) for parallelism in sorted(set(taken.values())))]
    for candidate in candidates:
        graph = candidate.physical(latest.split_parallelism)
        if {task.id: task.parallelism for task in graph.tasks} == taken:
            return candidate
    return program
