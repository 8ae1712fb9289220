"""A condition above an inner join becomes part of it: `FROM a, b WHERE a.k = b.k` is a join by `k`.

What it says of one side alone goes below, so that rows which it drops are not kept for the join.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.tables.expressions import Expression, columns_in, conjuncts, on_columns
from penstock.tables.plan.expression_traits import is_fallible, is_repeatable
from penstock.tables.plan.join_conditions import conjunction
from penstock.tables.plan.nodes import Filter, Join, JoinKind, PlanNode, TimeAttribute


def joined_conditions(node: PlanNode) -> PlanNode:
    """The rule; what gives another value each time that it is computed stays above."""
    if not isinstance(node, Filter) or not isinstance(node.input, Join) or node.input.kind is not JoinKind.INNER:
        return node
    join = node.input
    width = len(join.left.columns)
    left, right, above = [], [], []
    both = [] if join.condition is None else conjuncts(join.condition)
    for condition in conjuncts(node.condition):
        read = columns_in(condition)
        if not read or not is_repeatable(condition):
            above.append(condition)
        elif not _may_go_below(condition, join):
            both.append(condition)
        elif max(read) < width:
            left.append(condition)
        elif min(read) >= width:
            right.append(on_columns(condition, lambda place: place - width))
        else:
            both.append(condition)
    # A side may be such a join itself.
    sides = [joined_conditions(_filtered(*side)) for side in ((join.left, left), (join.right, right))]
    return _filtered(replace(join, left=sides[0], right=sides[1], condition=conjunction(both)), above)


def _may_go_below(condition: Expression, join: Join) -> bool:
    """Whether it may be computed for rows that meet nothing, and earlier than the join."""
    columns = join.columns
    by_clock = any(columns[place].time is TimeAttribute.PROCTIME for place in columns_in(condition))
    return not by_clock and not is_fallible(condition)


def _filtered(node: PlanNode, conditions: list[Expression]) -> PlanNode:
    condition = conjunction(conditions)
    return node if condition is None else Filter(node, condition)
