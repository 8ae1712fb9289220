"""Which columns hold the times of rows, and how far behind the event time of the rows they may be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.tables.expressions import InputColumn
from penstock.tables.plan import nodes as p
from penstock.tables.plan.nodes import TimeAttribute
from penstock.tables.plan.within_windows import is_within_windows
from penstock.tables.types import SqlType

_MILLIS: Final = 3
"""Digits of seconds."""


def time_of(node: p.PlanNode, column: int) -> TimeAttribute | None:
    """The time that a column holds, also where rows are in windows and go by the time of these.

    Args:
        node: gives the rows.
        column: a place among its columns.
    """
    time = node.columns[column].time
    if time is not None:
        return time
    match node:
        case p.Filter():
            return time_of(node.input, column)
        case p.Project():
            made = node.expressions[column]
            return time_of(node.input, made.index) if isinstance(made, InputColumn) else None
        case p.WindowTable() if column < len(node.input.columns):
            return node.input.columns[column].time
    return None


def keeps_last(node: p.TopN) -> bool:
    """Whether, of rows with the same value in the order, the last to come is the first.

    So it is where the last row of each key by its time is kept, and where the last rows by the clock are.

    Source: Flink's documentation, "Deduplication", and its `DeduplicateFunctionHelper`.
    """
    if node.function != "ROW_NUMBER" or len(node.order) != 1 or not node.order[0].descending:
        return False
    time = time_of(node.input, node.order[0].column)
    return time is TimeAttribute.PROCTIME or (time is TimeAttribute.ROWTIME and node.last == 1)


def is_finer(kind: SqlType) -> bool:
    """Whether times of a type have fractions of milliseconds, which event time has not.

    Example:
        >>> from penstock.tables.types import timestamp
        >>> is_finer(timestamp(3)), is_finer(timestamp(6))
        (False, True)
    """
    return kind.precision > _MILLIS


def is_event_time(node: p.PlanNode, column: int) -> bool:
    """Whether rows can go by a column: it is of event time, and nothing below gives rows of any time.

    Source: Flink's `RelTimeIndicatorConverter`, by which only some joins keep time attributes.
    """
    return node.columns[column].time is TimeAttribute.ROWTIME and untimed_by(node, column) is None


def untimed_by(node: p.PlanNode, column: int) -> p.Join | p.Sort | None:
    """What is below a column of event time and gives rows of any time, so that none can go by it.

    That are joins without bounds of time, and an order by anything else, whose rows come when all have.
    """
    if isinstance(node, p.Join) and not (node.in_windows or is_within_windows(node)):
        return node
    if isinstance(node, p.Sort) and node.order and not goes_by_time(node) and is_bounded(node.input):
        return node
    found = (untimed_by(*one) for one in _carried_from(node, column))
    return next((one for one in found if one is not None), None)


def time_by(node: p.PlanNode, column: int) -> TimeAttribute | None:
    """By which time rows go by a column."""
    time = node.columns[column].time
    return time if time is TimeAttribute.PROCTIME or is_event_time(node, column) else None


def goes_by_time(node: p.Sort) -> bool:
    """Whether a sort begins with ascending time, so that rows can be given in order as time goes on.

    Rows that lack the time come first, which can only be where there is an end, or a limit.
    """
    if not node.order or node.order[0].descending:
        return False
    column = node.order[0].column
    if may_lack(node.input, column) and (node.limit is not None or node.offset or is_bounded(node.input)):
        return False
    return time_by(node.input, column) is not None


def is_bounded(node: p.PlanNode) -> bool:
    """Whether the rows of a node end."""
    return all(scan.bounded for scan in p.walk_plan(node) if isinstance(scan, p.Scan))


def chosen(node: p.PlanNode, column: int) -> p.PlanNode:
    """The node's rows, for what goes by a column of several of event time; the rule `event_times` looks at it."""
    several = sum(one.time is TimeAttribute.ROWTIME for one in node.columns) > 1
    return p.EventTime(node, column) if several else node


def timed(node: p.PlanNode, column: int, drops_null: bool = False) -> p.PlanNode:
    """The node's rows with the times of a column of event time as theirs, where they go by others.

    Args:
        node: gives the rows.
        column: a place among its columns.
        drops_null: whether rows that have no such time, as of an outer join, are left out.
    """
    if isinstance(node, p.EventTime) or not is_event_time(node, column):
        return node
    delay_ms = behind_ms(node, column)
    is_needed = delay_ms or (drops_null and may_lack(node, column))
    return p.EventTime(node, column, delay_ms, drops_null) if is_needed else node


def may_lack(node: p.PlanNode, column: int) -> bool:
    """Whether rows may have no value in a column of event time, as an outer join below gives rows of one side alone."""
    if isinstance(node, p.EventTime) and node.drops_null and node.column == column:
        return False
    if isinstance(node, p.Join | p.IntervalJoin | p.TemporalJoin):
        alone = p.JoinKind.RIGHT if column < len(node.left.columns) else p.JoinKind.LEFT
        if node.kind in (alone, p.JoinKind.FULL):
            return True
    return any(may_lack(*one) for one in _carried_from(node, column))


def behind_ms(node: p.PlanNode, column: int) -> int:
    """How many milliseconds the times of a column may be behind the event time of the rows, at most; 0: they are it.

    Behind a join within an interval, rows have the later time of both sides as their event time.

    Args:
        node: gives the rows.
        column: a place of event time among its columns.
    """
    if isinstance(node, p.EventTime) and node.column == column:
        return 0
    below = max((behind_ms(*one) for one in _carried_from(node, column)), default=0)
    if isinstance(node, p.IntervalJoin):
        return below + max(node.upper_ms, -node.lower_ms, 0)
    return below


def _carried_from(node: p.PlanNode, column: int) -> Iterator[tuple[p.PlanNode, int]]:
    """The nodes right below that a column comes from as it is, with its place there."""
    match node:
        case p.Project():
            made = node.expressions[column]
            if isinstance(made, InputColumn):
                yield node.input, made.index
        case p.Aggregate():
            if column < len(node.keys):
                yield node.input, node.keys[column]
        case p.Filter() | p.EventTime() | p.Sort() | p.Unnest() | p.OverAggregate() | p.TopN():
            if column < len(node.input.columns):
                yield node.input, column
        case p.Join() | p.IntervalJoin() | p.TemporalJoin():
            width = len(node.left.columns)
            yield (node.left, column) if column < width else (node.right, column - width)
        case p.LookupJoin():
            if column < len(node.left.columns):
                yield node.left, column
        case p.Union() | p.SetOperation():
            yield from ((child, column) for child in p.inputs_of(node))
