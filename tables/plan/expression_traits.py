"""What is known of an expression without its values: whether it may fail, and whether it gives the same each time.

Rules ask before they move an expression, and the evaluation before it computes one for rows that may not need it.
"""

from __future__ import annotations

from penstock.tables.expressions import Constant, Conversion, Expression, FunctionCall, UserCall, walk
from penstock.tables.functions.casts import may_fail
from penstock.tables.functions.registry import SCALAR_FUNCTIONS


def is_fallible(expression: Expression) -> bool:
    """Whether it may have no value for some rows."""
    return any(
        isinstance(part, UserCall)
        or (isinstance(part, FunctionCall) and may_call_fail(part))
        or (isinstance(part, Conversion) and not part.safe and may_fail(part.operand.type, part.type))
        for part in walk(expression)
    )


def may_call_fail(call: FunctionCall) -> bool:
    """Whether a call, given what is below it, may have no value for some rows."""
    types = [argument.type for argument in call.arguments]
    return SCALAR_FUNCTIONS[call.name].may_fail(types, [isinstance(argument, Constant) for argument in call.arguments])


def is_repeatable(expression: Expression) -> bool:
    """Whether it has the same value each time that it is computed, unlike RAND()."""
    return all(is_deterministic(part) for part in walk(expression))


def is_deterministic(part: Expression) -> bool:
    """Whether one part, given what is below it, has the same value each time."""
    if isinstance(part, UserCall):
        return part.function.deterministic
    return not isinstance(part, FunctionCall) or SCALAR_FUNCTIONS[part.name].deterministic
