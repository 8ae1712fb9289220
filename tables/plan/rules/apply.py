"""Applies the rules to a plan: each to every node, from the leaves up, in the order of `RULES`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from penstock.tables.plan.nodes import PlanNode, inputs_of, with_inputs
from penstock.tables.plan.rules.event_times import event_times, timed_result
from penstock.tables.plan.rules.filtered_upserts import filtered_upserts
from penstock.tables.plan.rules.interval_joins import interval_joins
from penstock.tables.plan.rules.joined_conditions import joined_conditions
from penstock.tables.plan.rules.limits import limits
from penstock.tables.plan.rules.merged_projections import merged_projections
from penstock.tables.plan.rules.top_n import top_n
from penstock.tables.plan.rules.unread_columns import without_unread_columns
from penstock.tables.plan.rules.unread_values import without_unread_values
from penstock.tables.plan.rules.versioned_tables import versioned_tables
from penstock.tables.plan.rules.window_aggregates import window_aggregates
from penstock.tables.plan.rules.windowed_rows import windowed_rows

Rule: TypeAlias = Callable[[PlanNode], PlanNode]
"""Gives the node that stands for another one, or that one itself."""

RULES: Final[tuple[Rule, ...]] = (
    joined_conditions,
    merged_projections,
    top_n,
    interval_joins,
    event_times,
    window_aggregates,
    interval_joins,
    windowed_rows,
    merged_projections,
    versioned_tables,
    limits,
    merged_projections,
)


def rewritten_plan(node: PlanNode) -> PlanNode:
    """The plan after all rules."""
    node = without_unread_values(_everywhere(node, filtered_upserts))
    for rule in RULES:
        node = _everywhere(node, rule)
    return _everywhere(timed_result(without_unread_columns(node)), merged_projections)


def _everywhere(node: PlanNode, rule: Rule) -> PlanNode:
    children = inputs_of(node)
    changed = tuple(_everywhere(child, rule) for child in children)
    if any(one is not other for one, other in zip(children, changed, strict=True)):
        node = with_inputs(node, changed)
    return rule(node)
