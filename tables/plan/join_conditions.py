"""What a join's condition is made of: equalities of both sides' columns, and the rest."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.tables.building import chain
from penstock.tables.expressions import Expression, FunctionCall, InputColumn, columns_in, on_columns


def equal_columns(conditions: Sequence[Expression], width: int) -> tuple[tuple[tuple[int, int], ...], list[Expression]]:
    """The pairs of columns that must be equal, left and right, and the other conditions.

    Args:
        conditions: all of them must hold; over the columns of both sides.
        width: how many columns the left side has.
    """
    keys: list[tuple[int, int]] = []
    rest = []
    for condition in conditions:
        pair = _equal(condition, width)
        if pair is None:
            rest.append(condition)
        elif pair not in keys:
            keys.append(pair)
    return tuple(keys), rest


def _equal(condition: Expression, width: int) -> tuple[int, int] | None:
    if not isinstance(condition, FunctionCall) or condition.name != "=":
        return None
    one, other = condition.arguments
    if not isinstance(one, InputColumn) or not isinstance(other, InputColumn) or not one.type.same_as(other.type):
        return None
    left, right = sorted((one.index, other.index))
    return (left, right - width) if left < width <= right else None


def equal_expressions(
    conditions: Sequence[Expression], width: int
) -> tuple[list[tuple[Expression, Expression]], list[Expression]]:
    """As `equal_columns`, for equalities of what each side can compute alone: pairs over each side's columns."""
    keys: list[tuple[Expression, Expression]] = []
    rest = []
    for condition in conditions:
        pair = _equal_sides(condition, width)
        if pair is None:
            rest.append(condition)
        elif pair not in keys:
            keys.append(pair)
    return keys, rest


def _equal_sides(condition: Expression, width: int) -> tuple[Expression, Expression] | None:
    if not isinstance(condition, FunctionCall) or condition.name != "=":
        return None
    one, other = condition.arguments
    if not one.type.same_as(other.type):
        return None
    sides = [{place < width for place in columns_in(side)} for side in (one, other)]
    if sides == [{False}, {True}]:
        one, other = other, one
    elif sides != [{True}, {False}]:
        return None
    return one, on_columns(other, lambda place: place - width)


def conjunction(conditions: Sequence[Expression]) -> Expression | None:
    """The condition that all hold; None for none."""
    return chain("AND", conditions) if conditions else None
