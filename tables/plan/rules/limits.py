"""The first rows of an order, where rows change or do not end, are a Top-N: they change as better ones come."""

from __future__ import annotations

from penstock.tables import types as t
from penstock.tables.expressions import Constant, InputColumn
from penstock.tables.plan.changelog import changelog_mode
from penstock.tables.plan.nodes import INSERT_ONLY, Column, Filter, PlanNode, Project, Sort, TopN, unique_names
from penstock.tables.plan.time_columns import goes_by_time, is_bounded


def limits(node: PlanNode) -> PlanNode:
    """The rule; what comes in order, or is not ordered at all, stays a sort."""
    if not isinstance(node, Sort) or node.limit is None:
        return node
    only_comes = changelog_mode(node.input) == INSERT_ONLY
    if only_comes and (not node.order or goes_by_time(node) or is_bounded(node.input)):
        return node
    if node.limit == 0:
        return Filter(node.input, Constant(t.BOOLEAN.with_nullable(False), False))
    own = node.input.columns
    number = unique_names([*(column.name for column in own), "rank"])[-1]
    columns = (*own, Column(number, t.BIGINT.with_nullable(False)))
    first = node.offset + 1
    top = TopN(node.input, "ROW_NUMBER", (), node.order, first, node.offset + node.limit, columns)
    return Project(top, tuple(InputColumn(column.type, place) for place, column in enumerate(own)), own)
