"""A stage without Spark: the engine's task over the parcels of a partition, the same each time it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pyarrow as pa
import pytest

import penstock as ps
from penstock import StreamEnvironment
from penstock.actors.spark.edges import edge_numbers, incoming
from penstock.actors.spark.endings import EndOfTime
from penstock.actors.spark.murmur import routes, spark_hash
from penstock.actors.spark.parcels import Arrival, Parcel, unpack
from penstock.actors.spark.stage import stage_of
from penstock.actors.spark.terminals import terminals
from penstock.engine.graph.physical import PhysicalGraph
from penstock.engine.metrics import SubtaskMetrics


class Counted:
    """An accumulator of Spark, as far as a stage sees it."""

    def __init__(self) -> None:
        self.value: dict[tuple[int, int], SubtaskMetrics] = {}

    def add(self, counted: dict[tuple[int, int], SubtaskMetrics]) -> None:
        self.value.update(counted)


def run(graph: PhysicalGraph, task: int, subtask: int, arrived: Sequence[Arrival] = ()) -> tuple[list[Parcel], Any]:
    counted = Counted()
    stage = stage_of(graph, graph.task(task), cast(Any, counted), "5ec2e7", EndOfTime())
    return list(stage.run(subtask, arrived)), counted.value[task, subtask]


def opened(parcels: Sequence[Parcel]) -> list[Arrival]:
    ordered = sorted(parcels, key=lambda one: (one.phase, one.turn, one.edge, one.sender, one.sequence))
    return [Arrival(one.edge, one.phase, one.turn, one.sender, one.sequence, unpack(one.rows)) for one in ordered]


@pytest.fixture
def graph() -> PhysicalGraph:
    """A source of three keys, running totals by key at parallelism 3, and the rows themselves at parallelism 2."""
    env = StreamEnvironment(parallelism=3)
    rows = env.from_collection([{"k": "abc"[n % 3], "n": n} for n in range(100)])
    rows.key_by("k").aggregate(total=ps.sum("n")).collect()
    rows.rebalance().map(lambda row: row, returns={"k": "string", "n": "int64"}).set_parallelism(2).collect()
    return terminals(env.program().physical()).graph


def test_each_row_has_a_route_to_the_subtask_of_its_key(graph: PhysicalGraph) -> None:
    sent, metrics = run(graph, task=1, subtask=0)
    assert metrics.operators[0][1].rows_out == 100
    keyed, dealt = (edge_numbers(graph)[1, output] for output in range(2))
    keys = {one.route: set(unpack(one.rows).data["k"].to_pylist()) for one in sent if one.edge == keyed}
    assert sorted(key for found in keys.values() for key in found) == ["a", "b", "c"]
    assert set(keys) <= set(routes(3))
    assert sum(unpack(one.rows).num_rows for one in sent if one.edge == dealt) == 100
    assert {spark_hash(one.route) % 2 for one in sent if one.edge == dealt} == {0, 1}


def test_a_subtask_that_runs_again_gives_the_same_parcels(graph: PhysicalGraph) -> None:
    sent, _ = run(graph, task=1, subtask=0)
    assert run(graph, task=1, subtask=0)[0] == sent
    edge = incoming(graph, graph.task(2))[0][0]
    arrived = opened([one for one in sent if one.edge == edge and one.route == routes(3)[0]])
    assert run(graph, task=2, subtask=0, arrived=arrived)[0] == run(graph, task=2, subtask=0, arrived=arrived)[0]


def test_a_stage_carries_nothing_that_only_others_need(graph: PhysicalGraph) -> None:
    stage = stage_of(graph, graph.task(2), cast(Any, Counted()), "5ec2e7", EndOfTime())
    assert stage.graph.task(1).source is None
    assert stage.graph.task(3).operators == ()
    assert [len(task.outputs) for task in stage.graph.tasks] == [len(task.outputs) for task in graph.tasks]


def test_columns_that_were_nowhere_declared_come_through(graph: PhysicalGraph) -> None:
    env = StreamEnvironment(parallelism=1)
    env.from_collection([{"n": 1}]).map(lambda row: {"list": [row["n"], None]}).collect()
    (parcel,) = run(env.program().physical(), task=1, subtask=0)[0]
    assert unpack(parcel.rows).data.schema == pa.schema({"list": pa.list_(pa.int64())})
