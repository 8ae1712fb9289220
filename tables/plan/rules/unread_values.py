"""What gives another value each time is not computed of rows that change where nothing reads it.

A table with a column of PROCTIME() can so be a changelog: a row that is taken back must be what it was when it came.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.tables.expressions import Constant, Expression, columns_in
from penstock.tables.plan import nodes as p
from penstock.tables.plan.changelog import changelog_mode
from penstock.tables.plan.expression_traits import is_repeatable
from penstock.tables.plan.nodes import INSERT_ONLY, PlanNode, inputs_of, with_inputs

Places = frozenset[int]


def without_unread_values(node: PlanNode) -> PlanNode:
    """The plan with nulls for such values; all columns of the plan itself are read."""
    return _rewritten(node, _all(node))


def _rewritten(node: PlanNode, read: Places) -> PlanNode:
    children = inputs_of(node)
    changed = tuple(_rewritten(child, places) for child, places in zip(children, _reads(node, read), strict=True))
    if any(one is not other for one, other in zip(children, changed, strict=True)):
        node = with_inputs(node, changed)
    if not isinstance(node, p.Project):
        return node
    unread = [place not in read and not is_repeatable(value) for place, value in enumerate(node.expressions)]
    if not any(unread) or changelog_mode(node.input) == INSERT_ONLY:
        return node
    values = zip(node.expressions, unread, strict=True)
    return replace(node, expressions=tuple(_null(value) if is_unread else value for value, is_unread in values))


def _null(value: Expression) -> Expression:
    return Constant(value.type.with_nullable(True), None)


def _all(node: PlanNode) -> Places:
    return frozenset(range(len(node.columns)))


def _reads(node: PlanNode, read: Places) -> tuple[Places, ...]:
    """Which columns of each input a node reads, when `read` are those of its own that are read."""
    match node:
        case p.Project():
            return (frozenset().union(*(columns_in(node.expressions[place]) for place in read)),)
        case p.Filter():
            return (read | columns_in(node.condition),)
        case p.Watermarks():
            of_watermark = set() if node.watermark is None else columns_in(node.watermark)
            return (read | {node.column} | of_watermark,)
        case p.EventTime():
            return (read | {node.column},)
        case p.WindowTable():
            return (_own(node.input, read) | {node.time_column, *node.partition},)
        case p.Aggregate() | p.WindowAggregate():
            return (frozenset(node.keys) | _of_calls(node.calls),)
        case p.OverAggregate():
            order = {key.column for key in node.order}
            return (_own(node.input, read) | order | _of_calls(node.calls) | frozenset(node.partition),)
        case p.TopN():
            return (_own(node.input, read) | {key.column for key in node.order} | frozenset(node.partition),)
        case p.Sort():
            return (read | {key.column for key in node.order},)
        case p.Unnest():
            return (_own(node.input, read) | columns_in(node.collection),)
        case p.Union():
            return (read,) * len(node.inputs_)
        case p.Join() | p.TemporalJoin():
            both = read if node.condition is None else read | columns_in(node.condition)
            width = len(node.left.columns)
            return _own(node.left, both), frozenset(place - width for place in both if place >= width)
        case p.LookupJoin():
            return (_own(node.left, read | columns_in(node.condition)),)
    return tuple(map(_all, inputs_of(node)))


def _own(node: PlanNode, read: Places) -> Places:
    """The columns of the first input among those that are read: they stand in front."""
    return frozenset(place for place in read if place < len(node.columns))


def _of_calls(calls: tuple[p.AggregateCall, ...]) -> Places:
    read = [place for call in calls for place in call.arguments]
    return frozenset((*read, *(call.filter for call in calls if call.filter is not None)))
