"""A condition on ROW_NUMBER, RANK or DENSE_RANK that bounds it is a Top-N; `= 1` makes a deduplication of it.

Only the rows within the bounds are kept, instead of all rows with their numbers.
"""

from __future__ import annotations

from typing import Final

from penstock.tables.expressions import Constant, Conversion, Expression, FunctionCall, InputColumn, conjuncts
from penstock.tables.functions.aggregates import RANKS
from penstock.tables.plan.join_conditions import conjunction
from penstock.tables.plan.nodes import Filter, OverAggregate, PlanNode, Project, TopN

_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


def top_n(node: PlanNode) -> PlanNode:
    """The rule; a number without an upper bound stays as it is."""
    if not isinstance(node, Filter):
        return node
    project = node.input if isinstance(node.input, Project) else None
    over = node.input if project is None else project.input
    if not isinstance(over, OverAggregate) or len(over.calls) != 1 or over.calls[0].name not in RANKS:
        return node
    column = len(over.columns) - 1
    if project is not None:
        places = [i for i, e in enumerate(project.expressions) if isinstance(e, InputColumn) and e.index == column]
        if not places:
            return node
        column = places[0]
    first, last, rest = _bounds(conjuncts(node.condition), column)
    if last is None or first > last:
        return node
    ranked: PlanNode = TopN(over.input, over.calls[0].name, over.partition, over.order, first, last, over.columns)
    if project is not None:
        ranked = Project(ranked, project.expressions, project.columns)
    condition = conjunction(rest)
    return ranked if condition is None else Filter(ranked, condition)


def _bounds(conditions: list[Expression], column: int) -> tuple[int, int | None, list[Expression]]:
    """The first and the last number that the conditions let through, and the other conditions."""
    first, last, rest = 1, None, []
    for condition in conditions:
        bound = _bound(condition, column)
        if bound is None:
            rest.append(condition)
            continue
        low, high = bound
        first = max(first, low)
        last = high if last is None else last if high is None else min(last, high)
    return first, last, rest


def _bound(condition: Expression, column: int) -> tuple[int, int | None] | None:
    if not isinstance(condition, FunctionCall) or condition.name not in _MIRRORED:
        return None
    one, other = (_stripped(argument) for argument in condition.arguments)
    name = condition.name
    if isinstance(one, Constant):
        one, other, name = other, one, _MIRRORED[name]
    if not isinstance(one, InputColumn) or one.index != column or not isinstance(other, Constant):
        return None
    number = other.value
    if not isinstance(number, int):
        return None
    return {"<": (1, number - 1), "<=": (1, number), "=": (number, number), ">": (number + 1, None)}.get(
        name, (number, None)
    )


def _stripped(expression: Expression) -> Expression:
    """A number without the cast that makes it comparable with another."""
    return expression.operand if isinstance(expression, Conversion) else expression
