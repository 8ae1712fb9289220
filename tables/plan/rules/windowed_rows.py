"""Groups, joins and first rows by the bounds of windows are computed when the windows are complete.

What is computed changes by nothing that comes later, so rows are only inserted, and go with their windows.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.tables.plan.nodes import (
    Aggregate,
    Filter,
    Join,
    PlanNode,
    Project,
    TopN,
    Union,
    WindowTable,
    inputs_of,
    with_inputs,
)
from penstock.tables.plan.within_windows import is_within_windows


def windowed_rows(node: PlanNode) -> PlanNode:
    """The rule; what goes by other columns than both bounds stays as it is."""
    if not isinstance(node, Aggregate | TopN | Join) or not is_within_windows(node):
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
