"""A projection of a projection is one projection; one that changes nothing goes."""

from __future__ import annotations

from penstock.tables.expressions import InputColumn, over_values
from penstock.tables.plan.expression_traits import is_repeatable
from penstock.tables.plan.nodes import PlanNode, Project


def merged_projections(node: PlanNode) -> PlanNode:
    """The rule. Values that differ each time they are computed, such as RAND(), are not computed twice."""
    if not isinstance(node, Project):
        return node
    inner = node.input
    if isinstance(inner, Project) and all(map(is_repeatable, inner.expressions)):
        expressions = tuple(over_values(expression, inner.expressions) for expression in node.expressions)
        return merged_projections(Project(inner.input, expressions, node.columns))
    if _changes_nothing(node):
        return node.input
    return node


def _changes_nothing(node: Project) -> bool:
    same = all(isinstance(e, InputColumn) and e.index == place for place, e in enumerate(node.expressions))
    return same and node.columns == node.input.columns
