"""Numbers for the exchanges of a job, by which parcels tell where they go."""

from __future__ import annotations

from penstock.engine.graph.physical import Exchange, PhysicalGraph, TaskPlan


def edge_numbers(graph: PhysicalGraph) -> dict[tuple[int, int], int]:
    """The numbers of all exchanges of the job, by the task that they leave and their number there."""
    leaving = [(task.id, output) for task in graph.tasks for output in range(len(task.outputs))]
    return {place: number for number, place in enumerate(leaving)}


def incoming(graph: PhysicalGraph, task: TaskPlan) -> list[tuple[int, Exchange]]:
    """Number and plan of each exchange that leads to the task."""
    return [
        (number, exchange)
        for (upstream, output), number in edge_numbers(graph).items()
        if (exchange := graph.task(upstream).outputs[output]).downstream == task.id
    ]
