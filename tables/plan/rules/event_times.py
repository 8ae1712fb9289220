"""What goes by a column of event time has the times of this column, also where its rows go by those of another.

Rows of a join within an interval go by the later time of both sides.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from penstock.engine.errors import GraphError
from penstock.tables.building import call
from penstock.tables.expressions import InputColumn
from penstock.tables.plan.nodes import (
    EventTime,
    MatchRecognize,
    OverAggregate,
    PlanNode,
    Sort,
    TemporalJoin,
    TimeAttribute,
    TopN,
    WindowTable,
)
from penstock.tables.plan.time_columns import behind_ms, is_event_time, may_lack, timed, untimed_by

_BEHIND_JOIN: Final = (
    "a join of rows of any times: what comes next may be of any time, too; bound the times of both sides in ON "
    "(b.ts BETWEEN a.ts AND a.ts + INTERVAL '5' MINUTE), or take the windows of both sides and join these"
)
_BEHIND_SORT: Final = (
    "an ORDER BY that begins with something else: its rows come when all are there; order by the time, or take the "
    "first rows by ROW_NUMBER() OVER (ORDER BY ...)"
)


def event_times(node: PlanNode) -> PlanNode:
    """The rule. It stands behind that of interval joins, and before those that leave unread columns out."""
    match node:
        case EventTime():
            below = timed(_checked(node.input, node.column), node.column)
            # What is above would take the first column of event time, whose times may be others or always there.
            first = _place(below)
            differs = first != node.column and (behind_ms(below, first) or may_lack(below, node.column))
            return node if below is node.input and differs else below
        case WindowTable() if node.window.time is TimeAttribute.ROWTIME:
            # What has no time is in no window.
            return _over(node, node.time_column, drops_null=True)
        case OverAggregate() | TopN() | Sort() if node.order and is_event_time(node.input, node.order[0].column):
            return _over(node, node.order[0].column)
        case MatchRecognize() if node.time is TimeAttribute.ROWTIME:
            return _over(node, _place(node.input))
        case TemporalJoin():
            place = _place(node.left)
            left = timed(_checked(node.left, place), place)
            condition = node.condition
            if may_lack(left, place):
                # Rows without that time go by another one, by which they would meet a version.
                has_time = call("IS_NOT_NULL", InputColumn(left.columns[place].type, place))
                condition = call("AND", condition, has_time)
            return replace(node, left=left, condition=condition)
    return node


def timed_result(node: PlanNode) -> PlanNode:
    """The plan whose rows go by their column of event time, where they have one and no more."""
    places = [place for place, column in enumerate(node.columns) if column.time is TimeAttribute.ROWTIME]
    return timed(node, places[0]) if len(places) == 1 else node


def _over(
    node: WindowTable | OverAggregate | TopN | Sort | MatchRecognize, column: int, drops_null: bool = False
) -> PlanNode:
    below = timed(_checked(node.input, column), column, drops_null)
    return node if below is node.input else replace(node, input=below)


def _checked(node: PlanNode, column: int) -> PlanNode:
    """The node whose rows are to go by a column.

    Raises:
        GraphError: below is what gives rows of any time.
    """
    below = untimed_by(node, column)
    if below is not None:
        behind = _BEHIND_SORT if isinstance(below, Sort) else _BEHIND_JOIN
        raise GraphError(f"column {node.columns[column].name!r} is no time attribute behind {behind}")
    return node


def _place(node: PlanNode) -> int:
    """Of the column of event time: the only one, or that which the binder has chosen."""
    if isinstance(node, EventTime):
        return node.column
    return next(place for place, one in enumerate(node.columns) if one.time is TimeAttribute.ROWTIME)
