"""Groups, joins and first rows by the bounds of windows are computed when the windows are complete.

What is computed changes by nothing that comes later, so rows are only inserted, and go with their windows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from penstock.tables.expressions import Expression, FunctionCall, InputColumn, conjuncts
from penstock.tables.plan.nodes import (
    Aggregate,
    Column,
    Columns,
    Filter,
    Join,
    JoinKind,
    PlanNode,
    Project,
    TimeAttribute,
    TopN,
    Union,
    WindowAggregate,
    WindowTable,
    inputs_of,
    with_inputs,
)

_BOUNDS = (TimeAttribute.WINDOW_START, TimeAttribute.WINDOW_END)


def windowed_rows(node: PlanNode) -> PlanNode:
    """The rule; what goes by other columns than both bounds stays as it is."""
    match node:
        case Aggregate():
            found = _has_bounds(node.input.columns[key] for key in node.keys) and carries_windows(node.input)
        case TopN():
            found = _has_bounds(node.columns[key] for key in node.partition) and carries_windows(node.input)
        case Join():
            found = _meets_in_windows(node) and carries_windows(node.left) and carries_windows(node.right)
        case _:
            return node
    if not found:
        return node
    return with_inputs(replace(node, in_windows=True), tuple(map(_without_late, inputs_of(node))))


def _without_late(node: PlanNode) -> PlanNode:
    """Rows that carry windows, without those that are late by the watermark of their own stream.

    What waits for windows drops rows by its own, which is behind where it has several inputs, and how far depends on
    which of them it has read: Flink reads them in turn.
    """
    match node:
        case WindowTable():
            return replace(node, drops_late=True)
        case Project() | Filter() | Union():
            return with_inputs(node, tuple(map(_without_late, inputs_of(node))))
    return node


def carries_windows(node: PlanNode) -> bool:
    """Whether each row is in a window whose last millisecond is its timestamp."""
    match node:
        case WindowTable():
            return True
        case WindowAggregate():
            return node.window.time is TimeAttribute.ROWTIME
        case Project() | Filter():
            return carries_windows(node.input)
        case Union():
            return all(map(carries_windows, node.inputs_))
        case Aggregate() | TopN() | Join():
            return node.in_windows
    return False


def _has_bounds(columns: Iterable[Column]) -> bool:
    return {column.time for column in columns} >= set(_BOUNDS)


def _meets_in_windows(node: Join) -> bool:
    """Whether rows meet only where both bounds of their windows are equal."""
    if node.condition is None or node.kind is JoinKind.NULL_AWARE_ANTI:
        return False
    columns = (*node.left.columns, *node.right.columns)
    equal = {_bound(test, columns, len(node.left.columns)) for test in conjuncts(node.condition)}
    return equal >= set(_BOUNDS)


def _bound(test: Expression, columns: Columns, width: int) -> TimeAttribute | None:
    """The bound that a condition compares on both sides."""
    if not isinstance(test, FunctionCall) or test.name != "=":
        return None
    one, other = test.arguments
    if not isinstance(one, InputColumn) or not isinstance(other, InputColumn):
        return None
    if (one.index < width) is (other.index < width):
        return None
    times = {columns[one.index].time, columns[other.index].time}
    return times.pop() if len(times) == 1 else None
