"""Which rows carry windows, and what is computed of the rows of one window alone, so that it comes once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

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
)

BOUNDS: Final = (TimeAttribute.WINDOW_START, TimeAttribute.WINDOW_END)


def is_within_windows(node: PlanNode) -> bool:
    """Whether a group, a join or first rows go by both bounds of windows that the rows carry."""
    match node:
        case Aggregate():
            return _has_bounds(node.input.columns[key] for key in node.keys) and carries_windows(node.input)
        case TopN():
            return _has_bounds(node.columns[key] for key in node.partition) and carries_windows(node.input)
        case Join():
            return _meets_in_windows(node) and carries_windows(node.left) and carries_windows(node.right)
    return False


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
            return node.in_windows or is_within_windows(node)
    return False


def _has_bounds(columns: Iterable[Column]) -> bool:
    return {column.time for column in columns} >= set(BOUNDS)


def _meets_in_windows(node: Join) -> bool:
    """Whether rows meet only where both bounds of their windows are equal."""
    if node.condition is None or node.kind is JoinKind.NULL_AWARE_ANTI:
        return False
    columns = (*node.left.columns, *node.right.columns)
    equal = {_bound(test, columns, len(node.left.columns)) for test in conjuncts(node.condition)}
    return equal >= set(BOUNDS)


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
