"""What the client learns from the job manager: how the job ended, and where its rows are while it runs.

The manager makes these values, and the client follows them from attempt to attempt. They travel between processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.engine.checkpointing.instructions import Place
from penstock.engine.errors import PenstockError
from penstock.engine.graph.physical import PhysicalGraph
from penstock.engine.job.status import JobStatus
from penstock.engine.metrics import SubtaskMetrics


@dataclass(frozen=True, slots=True)
class JobReport:
    """How a job ended, and the newest checkpoint that counts: rows for the client that belong to it are final."""

    status: JobStatus
    error: PenstockError | None
    metrics: Sequence[SubtaskMetrics]
    completed: int = 0


@dataclass(frozen=True, slots=True)
class ClientChannel:
    """Where the client fetches rows.

    Args:
        result: the results node.
        place: the subtask.
        output: number of the exchange there.
        actor: whom to ask.
        attempt: of the subtask.
        restored: the checkpoint that the attempt resumes from, 0 for none.
    """

    result: int
    place: Place
    output: int
    actor: Any
    attempt: int
    restored: int


@dataclass(frozen=True, slots=True)
class ClientView:
    """What the client needs to know of an attempt.

    Args:
        attempt: number of the newest attempt.
        restored: the checkpoint that it resumes from, 0 for none.
        completed: the newest checkpoint that counts.
        channels: where rows are; those of parts that were not restarted belong to older attempts.
    """

    attempt: int
    restored: int
    completed: int
    channels: Sequence[ClientChannel]


def client_channels(
    results: Sequence[int], graph: PhysicalGraph, actors: Mapping[Place, Any], deployed: Mapping[Place, tuple[int, int]]
) -> list[ClientChannel]:
    """Where the rows of results nodes are; of subtasks whose process has died, nowhere.

    Args:
        results: the results nodes.
        graph: what runs.
        actors: of each subtask that has a process.
        deployed: of each subtask, the attempt that it belongs to and the checkpoint that this resumed from.
    """
    return [
        ClientChannel(result, (task, subtask), output, actors[task, subtask], *deployed[task, subtask])
        for result in results
        for task, output, subtask in graph.client_channels(result)
        if (task, subtask) in actors
    ]
