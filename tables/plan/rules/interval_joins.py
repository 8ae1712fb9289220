"""A join by equal keys whose condition bounds the distance of both sides' event times is an interval join.

Its state is bounded: rows go when the watermark has passed all that could meet them. Event time is in milliseconds; of
finer times the bounds say which rows may meet, and the condition then says which do.
"""

from __future__ import annotations

from penstock.tables.building import call
from penstock.tables.expressions import (
    Constant,
    Conversion,
    Expression,
    FunctionCall,
    InputColumn,
    columns_in,
    conjuncts,
)
from penstock.tables.plan.join_conditions import conjunction, equal_columns
from penstock.tables.plan.nodes import Columns, Filter, IntervalJoin, Join, JoinKind, PlanNode, TimeAttribute
from penstock.tables.plan.time_columns import is_event_time, is_finer, may_lack, timed
from penstock.tables.types import TIMESTAMPS, Kind, SqlType, may_be_key

_Bound = tuple[int | None, int | None]


def interval_joins(node: PlanNode) -> PlanNode:
    """The rule: also for a condition that stands in WHERE above an inner join."""
    if isinstance(node, Filter) and isinstance(node.input, Join) and node.input.kind is JoinKind.INNER:
        found = _interval(node.input, [*_conditions(node.input), *conjuncts(node.condition)])
        return node if found is None else found
    if isinstance(node, Join) and node.kind in (JoinKind.INNER, JoinKind.LEFT, JoinKind.RIGHT, JoinKind.FULL):
        found = _interval(node, _conditions(node))
        return node if found is None else found
    return node


def _conditions(join: Join) -> list[Expression]:
    return [] if join.condition is None else conjuncts(join.condition)


def _interval(join: Join, conditions: list[Expression]) -> PlanNode | None:
    width = len(join.left.columns)
    columns = (*join.left.columns, *join.right.columns)
    compared = [test for test in conditions if all(may_be_key(columns[place].type) for place in columns_in(test))]
    keys, rest = equal_columns(compared, width)
    rest += [test for test in conditions if test not in compared]
    lower: int | None = None
    upper: int | None = None
    others, finer = [], []
    for condition in rest:
        bound = _bound(condition, columns, width)
        if bound is None:
            others.append(condition)
            continue
        if not _is_in_millis(condition, columns):
            finer.append(condition)
        low, high = bound
        lower = low if lower is None or (low is not None and low > lower) else lower
        upper = high if upper is None or (high is not None and high < upper) else upper
    if lower is None or upper is None or not keys:
        return None
    read = {place for condition in rest if condition not in others for place in columns_in(condition)}
    times = {columns[place].time for place in read}
    if len(times) != 1 or len(read) != 2:
        return None
    time = times.pop() or TimeAttribute.ROWTIME
    sides = (join.left, min(read)), (join.right, max(read) - width)
    if time is TimeAttribute.ROWTIME:
        if not all(is_event_time(*side) for side in sides):
            return None
        # Rows without that time go by another one, by which they would meet some.
        lacking = [place for place, side in zip(sorted(read), sides, strict=True) if may_lack(*side)]
        others += [call("IS_NOT_NULL", InputColumn(columns[place].type, place)) for place in lacking]
    left, right = (timed(*side) for side in sides)
    if join.kind is not JoinKind.INNER:
        others, finer = [*others, *finer], []
    near = IntervalJoin(join.kind, left, right, keys, lower, upper, conjunction(others), join.columns, time)
    still = conjunction(finer)
    return near if still is None else Filter(near, still)


def _is_in_millis(condition: Expression, columns: Columns) -> bool:
    """Whether the times that a condition compares have no fractions of milliseconds."""
    return not any(is_finer(columns[place].type) for place in columns_in(condition))


def _bound(condition: Expression, columns: Columns, width: int) -> _Bound | None:
    """What a condition says of `right - left`, in milliseconds: at least, at most; None where it says nothing."""
    if not isinstance(condition, FunctionCall) or condition.name not in ("<", "<=", ">", ">=", "="):
        return None
    sides = [_shifted_time(argument, columns) for argument in condition.arguments]
    one, other = sides
    if one is None or other is None or (one[0] < width) is (other[0] < width):
        return None
    name = condition.name
    if one[0] < width:
        # left + a <op> right + b, so right - left <mirrored op> a - b
        name = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(name, name)
        distance = one[1] - other[1]
    else:
        distance = other[1] - one[1]
    # Two times that differ by less than a millisecond may be in the same one.
    least = 1 if _is_in_millis(condition, columns) else 0
    match name:
        case "=":
            return distance, distance
        case "<":
            return None, distance - least
        case "<=":
            return None, distance
        case ">":
            return distance + least, None
    return distance, None


def _shifted_time(expression: Expression, columns: Columns) -> tuple[int, int] | None:
    """A column of time, and the milliseconds that are added to it."""
    if isinstance(expression, InputColumn):
        is_time = columns[expression.index].time in (TimeAttribute.ROWTIME, TimeAttribute.PROCTIME)
        return (expression.index, 0) if is_time else None
    if isinstance(expression, Conversion) and _has_all_of(expression.type, expression.operand.type):
        return _shifted_time(expression.operand, columns)
    if not isinstance(expression, FunctionCall) or expression.name not in ("PLUS_INTERVAL", "MINUS_INTERVAL"):
        return None
    time, amount = expression.arguments
    below = _shifted_time(time, columns)
    # Months have no length of their own.
    if below is None or amount.type.kind is not Kind.INTERVAL_MILLIS:
        return None
    if not isinstance(amount, Constant) or not isinstance(amount.value, int):
        return None
    return below[0], below[1] + (amount.value if expression.name == "PLUS_INTERVAL" else -amount.value)


def _has_all_of(one: SqlType, other: SqlType) -> bool:
    """Whether a type has all times of another."""
    return one.kind is other.kind and one.kind in TIMESTAMPS and one.precision >= other.precision
