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
from penstock.engine.windows.assigners import SessionWindows

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
_BY_KEY_AND_TIME: Final = (CoGroupFactory, IntervalJoinFactory, TemporalJoinFactory, WindowJoinFactory)
"""Operators of two inputs whose results go by what the rows hold; in which order they give them is not promised."""


def mixes_inputs(task: TaskPlan) -> bool:
    """Whether a task is to have the rows of all its inputs in the order of their timestamps.

    If not, those of each input are in theirs, in large batches: enough for joins by windows and times, unless an
    operator behind them depends on the order of its rows. Of sessions, a row's is looked for from the latest one on.
    """
    if not task.operators:
        return False
    head, *behind = (operator.factory for operator in task.operators)
    if not isinstance(head, _BY_KEY_AND_TIME):
        return True
    in_sessions = isinstance(head, CoGroupFactory | WindowJoinFactory) and isinstance(head.windows, SessionWindows)
    return in_sessions or not all(isinstance(one, IN_ANY_ORDER) for one in behind)
