"""Finds the operators of a job that Spark can run by itself: pure, so that `explain` can tell them without Spark.

A task's operators run in Spark from its head on, as far as Spark knows them and their columns. That pays where rows are
brought together by key: what begins with a source and has no such operator stays with the engine, whose readers and
kernels are as fast.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from penstock.actors.spark.native.aggregates import are_native
from penstock.actors.spark.native.expressions import computed
from penstock.actors.spark.native.relations import (
    Joined,
    ParquetRead,
    Relation,
    Sorted,
    Timed,
    Totals,
    Windowed,
    is_sorted,
    is_whole,
    spark_type,
)
from penstock.actors.spark.orders import in_any_order
from penstock.engine.aggregates.grouped import GroupedAggregation
from penstock.engine.connectors import ParquetFiles, Source
from penstock.engine.exchange.partial_aggregates import PartialAggregates
from penstock.engine.exchange.partitioners import Global, Hash, Rebalance, Rescale
from penstock.engine.graph.physical import Exchange, OperatorPlan, PhysicalGraph, SourcePlan, TaskPlan
from penstock.engine.operators.relational import EventTime, KeyTotals, Ordered, Steps, WindowPairs, WindowTotals
from penstock.engine.operators.windows.window_aggregate import window_schema
from penstock.engine.schemas import without_dictionaries
from penstock.engine.windows.assigners import AlignedWindows
from penstock.engine.windows.base import WindowAssigner
from penstock.engine.windows.watermarks import ByClock, WatermarkStrategy

_PLAIN_PATH: Final = re.compile(r"/[\w./ +@~-]*")
"""What Spark takes for nothing but a path: no pattern, no escape."""
_READABLE_UNITS: Final = ("ms", "us")


@dataclass(frozen=True, slots=True)
class Prefix:
    """What Spark runs of a task.

    Args:
        relation: the rows behind it.
        operators: how many of the task's operators it has.
        absorbed: tasks that run in Spark as a whole; only prefixes read them, each for itself.
    """

    relation: Relation
    operators: int
    absorbed: frozenset[int] = field(default_factory=frozenset)


def native_prefixes(graph: PhysicalGraph) -> Mapping[int, Prefix]:
    """By task, what Spark runs of those that it runs in part; tasks that it runs as a whole are in `absorbed`.

    Args:
        graph: a job of batch mode, whose running aggregates emit their last updates alone.
    """
    shared: set[int] = set()
    while True:
        found = _found(graph, shared)
        ends = {number: one for number, one in found.items() if graph.task(number).source is None}
        inner = {number for one in ends.values() for number in one.absorbed}
        others = {number for number in inner if not _readers(graph, number) <= {*ends, *inner}}
        if not others:
            return {number: one for number, one in ends.items() if number not in inner}
        shared |= others


def _found(graph: PhysicalGraph, shared: set[int]) -> dict[int, Prefix]:
    """All prefixes, those of tasks that could be absorbed too; nobody may absorb `shared`, which the engine reads."""
    found: dict[int, Prefix] = {}
    for task in graph.tasks:
        prefix = _of_source(task) if task.source is not None else _of_inputs(graph, task, found, shared)
        if prefix is not None:
            found[task.id] = prefix
    return found


def _readers(graph: PhysicalGraph, number: int) -> set[int | None]:
    return {exchange.downstream for exchange in graph.task(number).outputs}


def _of_source(task: TaskPlan) -> Prefix | None:
    """A source's files, and the operators behind it, if Spark can run them all."""
    source = task.source
    assert source is not None
    files = source.source.as_parquet()
    if files is None or not all(map(_is_plain, files.paths)):
        return None
    relation: Relation | None = _read(source.source, files)
    if source.watermarks is not None:
        relation = _timed(relation, source.watermarks)
    if relation is None or not _is_chain(task, len(task.operators)):
        return None
    return _extended(relation, task, 0, frozenset())


def _of_inputs(graph: PhysicalGraph, task: TaskPlan, found: Mapping[int, Prefix], shared: set[int]) -> Prefix | None:
    exchanges = [one for other in graph.tasks for one in other.outputs if one.downstream == task.id]
    inputs = sorted(exchanges, key=lambda one: one.input_index)
    prefixes = [found.get(one.upstream) for one in inputs]
    if len({one.input_index for one in inputs}) != len(inputs) or not task.operators:
        return None
    relations: list[Relation] = []
    absorbed: set[int] = set()
    for exchange, prefix in zip(inputs, prefixes, strict=True):
        upstream = graph.task(exchange.upstream)
        if prefix is None or prefix.operators < len(upstream.operators) or upstream.id in shared:
            return None
        relations.append(prefix.relation)
        absorbed |= prefix.absorbed | {upstream.id}
    head = task.operators[0]
    relation = None if head.sides else _of_head(head, inputs, relations, task.parallelism)
    if relation is None:
        return None
    prefix = _extended(relation, task, 1, frozenset(absorbed))
    if _deals_out(graph, task):
        # Rows come out of Spark in another order each time, so a part that runs again would deal them out otherwise.
        return None
    # Nor do they come in order of time.
    rest = task.operators[prefix.operators :]
    wants_no_time = is_sorted(prefix.relation) or all(map(in_any_order, rest))
    return prefix if wants_no_time else None


def _deals_out(graph: PhysicalGraph, task: TaskPlan) -> bool:
    """Whether it depends on the order of the task's rows where they go."""
    return any(
        isinstance(one.partitioner, Rebalance | Rescale)
        and one.downstream is not None
        and graph.task(one.downstream).parallelism > 1
        for one in task.outputs
    )


def _of_head(
    head: OperatorPlan, inputs: list[Exchange], relations: list[Relation], parallelism: int
) -> Relation | None:
    """What the operator behind exchanges makes of its inputs, if Spark can make it."""
    match head.spec.traits.relational, relations:
        case WindowTotals(AlignedWindows() as windows, aggregation), [one]:
            return _windowed(windows, aggregation, inputs, one, head.name)
        case KeyTotals(aggregation), [one]:
            if not _can_group(inputs, aggregation, one) or not are_native(aggregation, one.schema, False):
                return None
            return Totals(one, aggregation, aggregation.bind(one.schema, head.name), one.timed)
        case Ordered(keys), [one]:
            if not is_whole(one) or not isinstance(inputs[0].partitioner, Global):
                return None
            return Sorted(one, keys, parallelism, one.schema)
        case WindowPairs() as join, [left, right]:
            return _joined(join, left, right, head.name)
        case _:
            return None


def _windowed(
    windows: AlignedWindows,
    aggregation: GroupedAggregation,
    inputs: list[Exchange],
    rows: Relation,
    where: str,
) -> Relation | None:
    if not rows.timed or not _can_group(inputs, aggregation, rows):
        return None
    if not are_native(aggregation, rows.schema, in_slices=not _is_tumbling(windows)):
        return None
    schema = window_schema(aggregation.bind(rows.schema, where), aggregation.keys)
    return Windowed(rows, windows, aggregation, schema)


def _joined(join: WindowPairs, left: Relation, right: Relation, where: str) -> Relation | None:
    if not _is_tumbling(join.windows) or not (is_whole(left) and is_whole(right)):
        return None
    return Joined(left, right, join, join.columns.result(left.schema, right.schema, where))


def _is_tumbling(windows: WindowAssigner) -> bool:
    return isinstance(windows, AlignedWindows) and windows.size_ms == windows.slide_ms


def _can_group(inputs: list[Exchange], aggregation: GroupedAggregation, rows: Relation) -> bool:
    if not isinstance(inputs[0].partitioner, Hash | Global | PartialAggregates):
        return False
    return all(name in rows.schema.names for name in aggregation.keys)


def _extended(relation: Relation, task: TaskPlan, begin: int, absorbed: frozenset[int]) -> Prefix:
    """The prefix with as many of the task's next operators as Spark can run, one behind the other."""
    number = begin
    while number < len(task.operators) and _is_chain(task, number):
        following = _behind(relation, task.operators[number])
        if following is None:
            break
        relation, number = following, number + 1
    return Prefix(relation, number, absorbed)


def _behind(relation: Relation, operator: OperatorPlan) -> Relation | None:
    match operator.spec.traits.relational:
        case EventTime(strategy):
            return _timed(relation, strategy)
        case Steps(steps):
            return computed(relation, steps)
        case _:
            return None


def _is_chain(task: TaskPlan, operators: int) -> bool:
    """Whether the source (if any) and the first operators give their rows to the next operator, and to nobody else."""
    heads: list[SourcePlan | OperatorPlan] = [] if task.source is None else [task.source]
    first = 0 if task.source is not None else 1
    for number, one in enumerate([*heads, *task.operators][:operators], start=first):
        if isinstance(one, OperatorPlan) and one.sides:
            return False
        if one.chained != (number,) or one.outputs:
            return False
    return True


def _read(source: Source, files: ParquetFiles) -> ParquetRead:
    schema = without_dictionaries(source.schema)
    readable = [one for one in schema if _is_readable(one.type) and not one.name.startswith("__")]
    return ParquetRead(files.paths, pa.schema(readable), len(readable) == len(schema))


def _is_readable(kind: pa.DataType) -> bool:
    return kind.unit in _READABLE_UNITS if pa.types.is_timestamp(kind) else spark_type(kind) is not None


def _is_plain(path: str) -> bool:
    hidden = path.rsplit("/", 1)[-1][:1] in "._"
    return bool(_PLAIN_PATH.fullmatch(path)) and not hidden


def _timed(relation: Relation | None, strategy: WatermarkStrategy) -> Relation | None:
    column = strategy.assigner
    if relation is None or not isinstance(column, str) or isinstance(strategy.generation, ByClock):
        return None
    if column not in relation.schema.names:
        return None
    return Timed(relation, column, relation.schema)
