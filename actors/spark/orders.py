"""Which operators depend on the order of their rows."""

from __future__ import annotations

from typing import Final

from penstock.actors.spark.terminals import PreparingSinkFactory
from penstock.engine.graph.physical import TaskPlan
from penstock.engine.operators.async_function import AsyncFunctionFactory
from penstock.engine.operators.batches import BatchMapFactory
from penstock.engine.operators.expressions import ExpressionFactory
from penstock.engine.operators.joins.co_group import CoGroupFactory
from penstock.engine.operators.joins.interval_join import IntervalJoinFactory
from penstock.engine.operators.joins.lookup_join import LookupJoinFactory
from penstock.engine.operators.joins.temporal_join import TemporalJoinFactory
from penstock.engine.operators.joins.window_join import WindowJoinFactory
from penstock.engine.operators.rows import RowColumnsFactory, RowFilterFactory, RowFlatMapFactory, RowMapFactory
from penstock.engine.operators.sink import SinkFactory
from penstock.engine.operators.timestamps import TimestampFactory

IN_ANY_ORDER: Final = (
    AsyncFunctionFactory,
    BatchMapFactory,
    ExpressionFactory,
    LookupJoinFactory,
    PreparingSinkFactory,
    RowColumnsFactory,
    RowFilterFactory,
    RowFlatMapFactory,
    RowMapFactory,
    SinkFactory,
    TimestampFactory,
)
"""Operators to whom it is all the same in which order their rows come."""
_AT_THE_END: Final = (CoGroupFactory, TemporalJoinFactory, WindowJoinFactory)
"""Operators of two inputs that give nothing before a watermark comes, and then in order of time."""


def mixes_inputs(task: TaskPlan) -> bool:
    """Whether it matters to a task which of its inputs a row comes on before another: not to joins.

    The rows of each input have an order of their own, which is kept.
    """
    if not task.operators:
        return False
    head, *behind = task.operators
    if isinstance(head.factory, _AT_THE_END):
        return False
    # It gives pairs as they meet.
    is_met = isinstance(head.factory, IntervalJoinFactory)
    return not (is_met and all(isinstance(one.factory, IN_ANY_ORDER) for one in behind))
