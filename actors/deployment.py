"""Which actor runs which subtask, what it is told of it, and what it must reserve: values, and pure functions over the
physical graph.

A slot is a bundle of a placement group and holds subtask i of every task; operators with resources of their own add
them to the slots that run them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.engine.checkpointing.instructions import Place
from penstock.engine.checkpointing.store import JobStore, RestorePlan
from penstock.engine.graph.physical import PhysicalGraph
from penstock.engine.task.rewiring import OutputChannels


@dataclass(frozen=True, slots=True)
class Restore:
    """How a subtask takes part in checkpoints.

    Args:
        store: where they are.
        plan: what it resumes from; None: nothing.
        checkpoint: number of the job's own checkpoint that it resumes from, 0 for none.
    """

    store: JobStore
    plan: RestorePlan | None = None
    checkpoint: int = 0


@dataclass(frozen=True, slots=True)
class Target:
    """The receiving end of a channel.

    Args:
        actor: who receives.
        channel: the channel's number there.
        attempt: what runs there.
    """

    actor: Any
    channel: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Deployment:
    """Which subtask an actor becomes.

    Args:
        task, subtask: id of the task, and index of the subtask.
        attempt: number of the execution; messages of other attempts are dropped.
        targets: for each exchange that leaves the task, the receivers.
        restore: its part in checkpoints; None: the job takes none.
    """

    task: int
    subtask: int
    attempt: int
    targets: Sequence[Sequence[Target]]
    restore: Restore | None = None


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


@dataclass(frozen=True, slots=True)
class Wiring:
    """Where channels lead when a part of a job is deployed.

    Args:
        channels: of the whole job.
        actors: of each subtask.
        attempts: that each subtask runs, those that are being deployed included.
        numbers: by sender, output and receiver, the number of a channel at a receiver that runs on; the others have the
            graph's.
    """

    channels: OutputChannels
    actors: Mapping[Place, Any]
    attempts: Mapping[Place, int]
    numbers: Mapping[tuple[Place, int, Place], int]

    def targets(self, sender: Place, output: int) -> list[Target]:
        """Whom a subtask sends to through one of its exchanges."""
        return [
            Target(self.actors[receiver], self.numbers.get((sender, output, receiver), number), self.attempts[receiver])
            for receiver, number in self.channels[sender][output]
        ]


def deployments(
    wiring: Wiring, chosen: Iterable[Place], restore: Restore | None = None
) -> Iterator[tuple[Place, Deployment]]:
    """What the actor of each chosen subtask needs to know about itself and about those that it sends to."""
    for place in chosen:
        targets = [wiring.targets(place, output) for output in range(len(wiring.channels[place]))]
        yield place, Deployment(*place, wiring.attempts[place], targets, restore)
