"""Which order the rows of a task need."""

from __future__ import annotations

from penstock.engine.graph.physical import OperatorPlan, TaskPlan
from penstock.engine.operators.spec import RowOrder


def in_any_order(operator: OperatorPlan) -> bool:
    """Whether it is all the same to the operator in which order its rows come."""
    return operator.spec.traits.order is RowOrder.NONE


def mixes_inputs(task: TaskPlan) -> bool:
    """Whether a task is to have the rows of all its inputs in the order of their timestamps.

    If not, those of each input are in theirs, in large batches: enough for joins by windows and times, unless an
    operator behind them depends on the order of its rows.
    """
    if not task.operators:
        return False
    head, *behind = task.operators
    return head.spec.traits.order is not RowOrder.WITHIN_INPUTS or not all(map(in_any_order, behind))
