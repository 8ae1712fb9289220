"""A stage without Spark: the engine's task over the parcels of a partition, the same each time it runs."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from penstock import StreamEnvironment
from penstock.actors.spark.edges import edge_numbers, incoming
from penstock.actors.spark.endings import EndOfTime
from penstock.actors.spark.failures import StageError, job_error
from penstock.actors.spark.murmur import routes, spark_hash
from penstock.actors.spark.parcels import CALL, Arrival, Parcel, Phase, unpack
from penstock.actors.spark.reports import AllOfEach, check_dealt
from penstock.actors.spark.stage import stage_of
from penstock.actors.spark.terminals import terminals
from penstock.engine.errors import JobFailedError, UserCodeError
from penstock.engine.graph.physical import PhysicalGraph
from penstock.error_report import report
from tests.actors.spark.simulated import gathered, opened


def run(graph: PhysicalGraph, task: int, subtask: int, arrived: Sequence[Arrival] = ()) -> tuple[list[Parcel], Any]:
    told = gathered()
    stage = stage_of(graph, graph.task(task), told, "5ec2e7", EndOfTime())
    return list(stage.run(subtask, arrived)), told.counters.value[task, subtask]


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


def test_a_source_leaves_nothing_of_its_partition_unread_as_spark_would_end_its_process(graph: PhysicalGraph) -> None:
    call = {"edge": [CALL], "phase": [Phase.CALL], "turn": [0], "sender": [0], "sequence": [0], "rows": [b""]}
    ended: list[bool] = []

    def partition() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch(call)
        ended.append(True)

    stage = stage_of(graph, graph.task(1), gathered(), "5ec2e7", EndOfTime())
    assert list(stage(partition()))
    assert ended


class Stop(BaseException):
    """A program's own."""


def _called_stage(function: Callable[[Any], Any]) -> Any:
    env = StreamEnvironment(parallelism=1)
    env.from_collection([{"n": 1}]).map(function).collect()
    graph = env.program().physical()
    call = {"edge": [CALL], "phase": [Phase.CALL], "turn": [0], "sender": [0], "sequence": [0], "rows": [b""]}
    return stage_of(graph, graph.task(1), gathered(), "5ec2e7", EndOfTime())([pa.record_batch(call)])


@pytest.mark.parametrize(
    "kind", [ValueError, SystemExit, Stop, GeneratorExit, asyncio.CancelledError, KeyboardInterrupt]
)
def test_whatever_a_function_raises_comes_to_the_driver_with_its_lines_and_what_to_do(
    kind: type[BaseException],
) -> None:
    def fails(row: Any) -> Any:
        raise kind("gone")

    with pytest.raises(StageError) as caught:
        list(_called_stage(fails))
    error = job_error(RuntimeError(f"PythonException: {caught.value}"), "5ec2e7")
    assert isinstance(error, UserCodeError)
    assert (error.given, error.error) == ("{'n': 1}", f"{kind.__name__}: gone")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    shown = report(error)
    assert '    raise kind("gone")' in shown
    assert "what to do: " in shown


def test_a_stage_that_spark_breaks_off_has_not_failed() -> None:
    parcels = _called_stage(lambda row: row)
    next(parcels)
    parcels.close()


def test_a_stage_carries_nothing_that_only_others_need(graph: PhysicalGraph) -> None:
    stage = stage_of(graph, graph.task(2), gathered(), "5ec2e7", EndOfTime())
    assert stage.graph.task(1).source is None
    assert stage.graph.task(3).operators == ()
    assert [len(task.outputs) for task in stage.graph.tasks] == [len(task.outputs) for task in graph.tasks]


def test_columns_that_were_nowhere_declared_come_through(graph: PhysicalGraph) -> None:
    env = StreamEnvironment(parallelism=1)
    env.from_collection([{"n": 1}]).map(lambda row: {"list": [row["n"], None]}).collect()
    (parcel,) = run(env.program().physical(), task=1, subtask=0)[0]
    assert unpack(parcel.rows).data.schema == pa.schema({"list": pa.list_(pa.int64())})


def dealt(rows_at_once: int, partition: Callable[[ps.DataStream], Any]) -> Any:
    """What a subtask tells of its deal that reads a hundred rows, so many at a time."""
    env = StreamEnvironment(parallelism=2, max_batch_rows=rows_at_once)
    rows = env.from_collection([{"n": n} for n in range(100)])
    partition(rows).collect()
    graph, told = env.program().physical(), gathered()
    list(stage_of(graph, graph.task(1), told, "5ec2e7", EndOfTime()).run(0, ()))
    return told.dealt.value


def test_a_subtask_that_deals_its_rows_out_otherwise_when_it_runs_again_fails_the_job(graph: PhysicalGraph) -> None:
    once, again, otherwise = (
        dealt(rows, lambda stream: stream.rebalance().filter(ps.col("n") > 1)) for rows in (10, 10, 7)
    )
    check_dealt(graph, AllOfEach().addInPlace(once, again))
    with pytest.raises(JobFailedError, match=r"ran parts of 'collection.*again.*nothing was committed"):
        check_dealt(graph, AllOfEach().addInPlace(once, otherwise))


def test_rows_that_go_by_what_they_hold_may_come_in_any_batches(graph: PhysicalGraph) -> None:
    once, otherwise = (dealt(rows, lambda stream: stream.key_by("n").aggregate(m=ps.count())) for rows in (10, 7))
    check_dealt(graph, AllOfEach().addInPlace(once, otherwise))
