"""Builds expressions whose types fit: calls of scalar functions, conversions, conditions joined by AND or OR.

The binder, the rules of the plan and the lowering call it, instead of putting nodes together by hand.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.tables.expressions import Constant, Conversion, Expression, FunctionCall
from penstock.tables.functions.registry import SCALAR_FUNCTIONS
from penstock.tables.types import SqlType


def converted(expression: Expression, wanted: SqlType) -> Expression:
    """The expression as a value of another type; itself where it has that type but for null."""
    kind = wanted.with_nullable(expression.type.nullable)
    if expression.type.same_as(wanted):
        return expression
    if isinstance(expression, Constant) and expression.value is None:
        return Constant(wanted.with_nullable(True), None)
    return Conversion(kind, expression)


def call(name: str, *arguments: Expression) -> FunctionCall:
    """A call whose arguments have fitting types."""
    return FunctionCall(SCALAR_FUNCTIONS[name].result([a.type for a in arguments]), name, arguments)


def chain(operator: str, conditions: Sequence[Expression]) -> Expression:
    """Conditions joined by AND or OR, in their order; of a thousand it is a tree ten deep, which all can walk."""
    parts = list(conditions)
    while len(parts) > 1:
        pairs = [parts[begin : begin + 2] for begin in range(0, len(parts), 2)]
        parts = [call(operator, *pair) if len(pair) == 2 else pair[0] for pair in pairs]
    return parts[0]
