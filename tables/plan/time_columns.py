"""Which columns hold the times of rows: what orders by one of them keeps, of rows of one time, the last to come."""

from __future__ import annotations

from penstock.tables.expressions import InputColumn
from penstock.tables.plan import nodes as p
from penstock.tables.plan.nodes import TimeAttribute


def time_of(node: p.PlanNode, column: int) -> TimeAttribute | None:
    """The time that a column holds, also where rows are in windows and go by the time of these.

    Args:
        node: gives the rows.
        column: a place among its columns.
    """
    time = node.columns[column].time
    if time is not None:
        return time
    match node:
        case p.Filter():
            return time_of(node.input, column)
        case p.Project():
            made = node.expressions[column]
            return time_of(node.input, made.index) if isinstance(made, InputColumn) else None
        case p.WindowTable() if column < len(node.input.columns):
            return node.input.columns[column].time
    return None


def keeps_last(node: p.TopN) -> bool:
    """Whether, of rows with the same value in the order, the last to come is the first.

    So it is where the last row of each key by its time is kept, and where the last rows by the clock are.

    Source: Flink's documentation, "Deduplication", and its `DeduplicateFunctionHelper`.
    """
    if node.function != "ROW_NUMBER" or len(node.order) != 1 or not node.order[0].descending:
        return False
    time = time_of(node.input, node.order[0].column)
    return time is TimeAttribute.PROCTIME or (time is TimeAttribute.ROWTIME and node.last == 1)
