"""A batch job without Spark: its stages one after another in this process, their parcels handed on as Spark does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from penstock.actors.spark.edges import edge_numbers, incoming
from penstock.actors.spark.endings import Ending
from penstock.actors.spark.final_updates import with_final_updates
from penstock.actors.spark.hand_over import HandOver, Suspension
from penstock.actors.spark.murmur import routes
from penstock.actors.spark.parcels import Arrival, Parcel, unpack
from penstock.actors.spark.stage import StageReports, stage_of
from penstock.actors.spark.terminals import terminals
from penstock.engine.elements import Batch
from penstock.engine.graph.physical import PhysicalGraph
from penstock.engine.job.handle import CollectedRows


class Gathered:
    """An accumulator of Spark, as far as a stage sees it."""

    def __init__(self) -> None:
        self.value: dict[tuple[int, int], Any] = {}

    def add(self, added: dict[tuple[int, int], Any]) -> None:
        self.value.update(added)


def gathered() -> StageReports:
    """What stages tell, here."""
    return StageReports(cast(Any, Gathered()), cast(Any, Gathered()))


def opened(parcels: Sequence[Parcel]) -> list[Arrival]:
    """The parcels as a partition has them."""
    ordered = sorted(parcels, key=lambda one: (one.phase, one.turn, one.edge, one.sender, one.sequence))
    return [Arrival(one.edge, one.phase, one.turn, one.sender, one.sequence, unpack(one.rows)) for one in ordered]


def run_job(graph: PhysicalGraph, ending: Ending) -> dict[int, list[Batch]]:
    """Run all stages; what comes to the driver, by result."""
    graph = terminals(with_final_updates(graph)).graph
    sent: list[Parcel] = []
    for task in graph.tasks:
        stage = stage_of(graph, task, gathered(), "5ec2e7", ending)
        edges = {edge for edge, _ in incoming(graph, task)}
        for subtask, route in enumerate(routes(task.parallelism)):
            own = [one for one in sent if one.edge in edges and one.route == route]
            sent = [*sent, *stage.run(subtask, opened(own))]
    results: dict[int, list[Batch]] = {}
    for (task_id, output), edge in edge_numbers(graph).items():
        result = graph.task(task_id).outputs[output].result
        if result is not None:
            results.setdefault(result, []).extend(unpack(one.rows) for one in sent if one.edge == edge)
    return results


def run_to_savepoint(graph: PhysicalGraph, url: str) -> dict[int, list[dict[str, Any]]]:
    """Run a job that hands over; the rows of each result."""
    handles, over = Gathered(), HandOver.begun(url, "simulated", graph)
    results = run_job(graph, Suspension(url, "simulated", cast(Any, handles)))
    over.check(graph, handles.value)
    over.complete(graph, handles.value)
    return {result: _rows(batches) for result, batches in results.items()}


def _rows(batches: Sequence[Batch]) -> list[dict[str, Any]]:
    collected = CollectedRows(None)
    for batch in batches:
        collected.accept(batch)
    return list(collected.take_rows())
