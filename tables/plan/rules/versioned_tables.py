"""The right side of a temporal join as the stream of its versions, each of which counts from its time on.

A deduplication that keeps the last row of each key is the stream that it is over, and a table that is updated by key is
read as it comes: what is said once a batch of a key would leave versions out.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.tables import types as t
from penstock.tables.expressions import Constant, Expression, InputColumn
from penstock.tables.plan.expression_traits import is_repeatable
from penstock.tables.plan.keys import unique_keys
from penstock.tables.plan.nodes import (
    Filter,
    PlanNode,
    Project,
    Scan,
    TemporalJoin,
    TimeAttribute,
    TopN,
    Watermarks,
    with_inputs,
)
from penstock.tables.plan.rules.filtered_upserts import kept_or_deleted


def versioned_tables(node: PlanNode) -> PlanNode:
    """The rule."""
    if not isinstance(node, TemporalJoin):
        return node
    key = min((sorted(key) for key in unique_keys(node.right)), key=len, default=[])
    return replace(node, right=_versions(node.right), key=tuple(key))


def _versions(node: PlanNode) -> PlanNode:
    match node:
        case Scan():
            return replace(node, normalized=False)
        case Project() | Watermarks():
            return with_inputs(node, (_versions(node.input),))
        case Filter() if is_repeatable(node.condition):
            # A version that the condition is not true of ends the one before it.
            return kept_or_deleted(_versions(node.input), node)
        case TopN() if _keeps_last(node):
            own: list[Expression] = [InputColumn(c.type, place) for place, c in enumerate(node.input.columns)]
            number = Constant(t.BIGINT.with_nullable(False), 1)
            return Project(node.input, (*own, number), node.columns)
    return node


def _keeps_last(node: TopN) -> bool:
    if node.last != 1 or node.function != "ROW_NUMBER" or len(node.order) != 1:
        return False
    key = node.order[0]
    return key.descending and node.input.columns[key.column].time is TimeAttribute.ROWTIME
