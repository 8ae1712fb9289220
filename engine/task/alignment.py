"""Alignment: source subtasks of one group that wait for each other's event time.

Each runtime gives every such subtask an `AlignmentMember`, collects how far the members are, and tells them how far the
group is: the local runtime at each step, the job manager every update interval. The source's head reads and writes it.

Source: Flink's documentation, "Watermark alignment".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from penstock.engine.graph.physical import PhysicalGraph, TaskPlan


@dataclass(slots=True, eq=False)
class AlignmentMember:
    """One subtask's part in its group. Head and runtime may be two threads: each attribute has one writer.

    Args:
        max_drift_ms: how far a split may be ahead of the group.
        position: the smallest watermark of the splits that take part, or None if none does; written by the head.
        minimum: the smallest position of the group as last heard; written by the runtime.
    """

    max_drift_ms: int
    position: int | None = None
    minimum: int = MIN_TIMESTAMP


@dataclass(frozen=True, slots=True)
class AlignmentGroup:
    """The (task id, subtask) of all members of a group, and how often (ms) those elsewhere are told."""

    places: tuple[tuple[int, int], ...]
    update_interval_ms: int


def group_minimum(positions: Iterable[int | None]) -> int:
    """How far a group is whose members are at `positions`; `MAX_TIMESTAMP` if none takes part."""
    return min((position for position in positions if position is not None), default=MAX_TIMESTAMP)


def alignment_member(task: TaskPlan) -> AlignmentMember | None:
    """The part of one subtask of `task`, if it is of a group."""
    strategy = task.source.watermarks if task.source is not None else None
    if strategy is None or strategy.alignment is None:
        return None
    return AlignmentMember(strategy.alignment.max_drift_ms)


def alignment_groups(graph: PhysicalGraph) -> list[AlignmentGroup]:
    """All groups of the job."""
    places: dict[str, list[tuple[int, int]]] = {}
    intervals: dict[str, int] = {}
    for task in graph.tasks:
        strategy = task.source.watermarks if task.source is not None else None
        if strategy is None or strategy.alignment is None:
            continue
        name, interval = strategy.alignment.group, strategy.alignment.update_interval_ms
        places.setdefault(name, []).extend((task.id, subtask) for subtask in range(task.parallelism))
        intervals[name] = min(interval, intervals.get(name, interval))
    return [AlignmentGroup(tuple(members), intervals[name]) for name, members in places.items()]
