"""Where rows leave Spark's own operators: the rest of the task takes them, as a stage does.

In each partition runs one subtask with the operators behind the prefix. It reads rows in any order, as Spark has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.actors.spark.endings import EndOfTime
from penstock.actors.spark.failures import stage_error
from penstock.actors.spark.native.prefixes import Prefix
from penstock.actors.spark.native.relations import is_sorted
from penstock.actors.spark.native.sql import TIME, columns_of
from penstock.actors.spark.parcels import SPARK_SCHEMA, to_arrow
from penstock.actors.spark.stage import Counters, Stage, StageReports, Taker, stage_of
from penstock.engine.elements import Batch
from penstock.engine.graph.physical import OperatorPlan, PhysicalGraph, TaskPlan
from penstock.engine.interruption import closes_generator
from penstock.engine.metrics import OperatorMetrics
from penstock.engine.operators.expressions import ExpressionSpec

BORDER_ROWS: Final = 16_384
"""Rows of a batch that comes over."""


@dataclass(frozen=True)
class Border:
    """The operators behind a prefix, ready to be sent to the executors.

    Args:
        stage: runs them.
        schema: the columns that come over.
        timed: whether a column of event timestamps comes behind these.
    """

    stage: Stage
    schema: pa.Schema
    timed: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the subtask of the partition that Spark calls this for. One without rows has nothing to do."""
        waiting = iter(batches)
        first = next((batch for batch in waiting if batch.num_rows), None)
        if first is None:
            return
        subtask: int = first.column(first.num_columns - 1)[0].as_py()
        try:
            rows = (self._opened(batch) for batch in chain([first], waiting) if batch.num_rows)
            yield from to_arrow(self.stage.run_on(subtask, ((0, batch) for batch in rows)))
        except BaseException as error:
            if closes_generator(error):
                raise
            name = self.stage.graph.task(self.stage.task).name
            raise stage_error(error, name, subtask, self.stage.secret) from None

    def _opened(self, batch: pa.RecordBatch) -> Batch:
        columns = [batch.column(number).cast(field.type) for number, field in enumerate(self.schema)]
        times = batch.column(len(columns)) if self.timed else None
        return Batch(pa.RecordBatch.from_arrays(columns, schema=self.schema), times)


def across(frame: DataFrame, prefix: Prefix, task: TaskPlan, border: Border) -> DataFrame:
    """The parcels of a task whose first operators are `frame`, the rows of its prefix."""
    columns = [*columns_of(prefix.relation.schema), *([TIME] if prefix.relation.timed else [])]
    # Partitions of a sorted frame are as many already, and could come together in any order.
    parts = frame if is_sorted(prefix.relation) else frame.coalesce(task.parallelism)
    # A task's own number would not tell: in a union of several frames Spark counts on.
    numbered = parts.selectExpr(*columns, "spark_partition_id() subtask")
    return numbered.mapInArrow(border, SPARK_SCHEMA)


def border_of(prefix: Prefix, graph: PhysicalGraph, task: TaskPlan, reports: StageReports, secret: str) -> Border:
    """The operators of a task behind its prefix.

    Args:
        prefix: what runs in Spark.
        graph, task: the job, and which task of it.
        reports, secret: as for `Stage`.
    """
    rest = _rest(task, prefix.operators)
    tasks = tuple(rest if other is task else other for other in graph.tasks)
    names = tuple(operator.name for operator in task.operators[: prefix.operators - 1])
    also = replace(reports, counters=_AlsoOfSpark(reports.counters, names))
    stage = stage_of(replace(graph, tasks=tasks), rest, also, secret, EndOfTime())
    taking = replace(stage, inputs={0: 0}, input_indexes=[0])
    return Border(taking, prefix.relation.schema, prefix.relation.timed)


@dataclass(frozen=True)
class _AlsoOfSpark:
    """Takes the counters of a stage, and puts those of `names` before them, which Spark has run and not counted."""

    counters: Taker[Counters]
    names: tuple[str, ...]

    def add(self, counted: Counters, /) -> None:
        for metrics in counted.values():
            metrics.operators[:0] = [(name, OperatorMetrics()) for name in self.names]
        self.counters.add(counted)


def _rest(task: TaskPlan, operators: int) -> TaskPlan:
    """The task without its first operators; one that only passes rows on stands for their end."""
    last = task.operators[operators - 1]
    end = OperatorPlan(last.name, ExpressionSpec(()), _moved(last.chained, operators), last.outputs)
    rest = [
        replace(
            one,
            chained=_moved(one.chained, operators),
            sides=tuple(replace(side, chained=_moved(side.chained, operators)) for side in one.sides),
        )
        for one in task.operators[operators:]
    ]
    return replace(task, source=None, operators=(end, *rest))


def _moved(chained: tuple[int, ...], operators: int) -> tuple[int, ...]:
    return tuple(number - operators + 1 for number in chained)
