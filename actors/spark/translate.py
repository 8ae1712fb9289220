"""The plan of a batch job: one Spark plan for the whole physical graph.

What Spark can run by itself (`native`) is a plan of its own operators. Each other task becomes a stage (`stage.py`) in
`mapInArrow`, and all exchanges that lead to it one shuffle: the senders have divided the rows among the subtasks, and
Spark brings each parcel to the partition that its route names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.storagelevel import StorageLevel

from penstock.actors.spark.edges import edge_numbers, incoming
from penstock.actors.spark.murmur import routes
from penstock.actors.spark.native.border import Border, across
from penstock.actors.spark.native.compiler import compiled
from penstock.actors.spark.native.prefixes import Prefix
from penstock.actors.spark.native.settings import expect_parcels, expect_rows
from penstock.actors.spark.parcels import CALL, EDGE, FIRST_TURN, ORDER, ROUTE, SPARK_SCHEMA, Phase
from penstock.actors.spark.stage import Stage
from penstock.engine.graph.physical import PhysicalGraph, TaskPlan


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The Spark plan of a job.

    Args:
        output: the parcels of all exchanges that lead to the client. Running it runs the whole job.
        kept: what several stages read, upstream first: to be run before `output`, and kept until the job has ended.
    """

    output: DataFrame
    kept: tuple[DataFrame, ...]


def translated(
    spark: SparkSession,
    graph: PhysicalGraph,
    stage_of: Callable[[TaskPlan], Stage],
    prefixes: Mapping[int, Prefix],
    border_of: Callable[[TaskPlan, Prefix], Border],
) -> BatchPlan:
    """The plan of a job that `check_translatable` has nothing against.

    Args:
        spark: where it is to run.
        graph: the job.
        stage_of: makes the stage of each task.
        prefixes: what Spark runs of the tasks.
        border_of: makes the border behind each prefix.
    """
    frames: dict[int, DataFrame] = {}
    kept: list[DataFrame] = []
    absorbed = {number for prefix in prefixes.values() for number in prefix.absorbed}
    is_native = len(prefixes) + len(absorbed) == len(graph.tasks)
    for task in graph.tasks:
        if task.id in absorbed:
            continue
        prefix = prefixes.get(task.id)
        if prefix is None:
            frame = _input(spark, graph, task, frames).mapInArrow(stage_of(task), SPARK_SCHEMA)
        else:
            frame = across(compiled(spark, prefix.relation), prefix, task, border_of(task, prefix))
        # Spark hands over rows in larger numbers than parcels, so both cannot be in one run.
        if _readers(task) > 1 or (prefix is not None and not is_native):
            if prefixes:
                # Spark plans what it is to keep now, with the settings of now.
                (expect_parcels if prefix is None else expect_rows)(spark)
            # Else each reader would run the stage again, with its functions and sinks.
            kept.append(frame := frame.persist(StorageLevel.MEMORY_AND_DISK))
        frames[task.id] = frame
    if prefixes:
        (expect_rows if is_native else expect_parcels)(spark)
    ends = [_selected(frames[task.id], task, graph, None) for task in graph.tasks if _is_end(task)]
    return BatchPlan(reduce(DataFrame.union, ends), tuple(kept))


def _input(spark: SparkSession, graph: PhysicalGraph, task: TaskPlan, frames: dict[int, DataFrame]) -> DataFrame:
    """The parcels for a task, those of each subtask in its own partition and in order."""
    if task.source is not None:
        return _calls(spark, task.parallelism, task.parallelism)
    upstream = dict.fromkeys(exchange.upstream for _, exchange in incoming(graph, task))
    parts = [_selected(frames[number], graph.task(number), graph, task.id) for number in upstream]
    rows = reduce(DataFrame.union, [_calls(spark, task.parallelism, 1), *parts])
    return rows.repartition(task.parallelism, ROUTE).sortWithinPartitions(*ORDER)


def _calls(spark: SparkSession, subtasks: int, partitions: int) -> DataFrame:
    """The parcels that call the subtasks, first of all in their partitions."""
    numbers = ", ".join(map(str, routes(subtasks)))
    return spark.range(0, subtasks, 1, partitions).selectExpr(
        f"{CALL} edge",
        f"element_at(array({numbers}), cast(id as int) + 1) route",
        f"{int(Phase.CALL)} phase",
        f"cast('{FIRST_TURN}' as bigint) turn",
        "cast(id as int) sender",
        "0L sequence",
        "cast('' as binary) rows",
    )


def _selected(frame: DataFrame, task: TaskPlan, graph: PhysicalGraph, reader: int | None) -> DataFrame:
    """Those of the task's parcels that lead to `reader` (None: the client)."""
    numbers = edge_numbers(graph)
    wanted = [numbers[task.id, out] for out, exchange in enumerate(task.outputs) if exchange.downstream == reader]
    if len(wanted) == len(task.outputs):
        return frame
    return frame.where(f"{EDGE} in ({', '.join(map(str, wanted))})")


def _readers(task: TaskPlan) -> int:
    return len({exchange.downstream for exchange in task.outputs})


def _is_end(task: TaskPlan) -> bool:
    return not task.outputs or any(exchange.downstream is None for exchange in task.outputs)
