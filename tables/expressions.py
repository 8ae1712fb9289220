"""Bound expressions: what the binder makes of syntax, and operators evaluate on Arrow columns.

Each has a type; columns are known by their place in the input. They are values: compared, hashed and pickled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from penstock.tables.functions.user import UserFunction
from penstock.tables.types import SqlType


@dataclass(frozen=True, slots=True)
class Expression:
    """A value for each row."""

    type: SqlType


@dataclass(frozen=True, slots=True)
class InputColumn(Expression):
    """Column `index` of the input, from 0."""

    index: int


@dataclass(frozen=True, slots=True)
class Constant(Expression):
    """The same value for each row: what `pa.scalar` takes for the type's Arrow type, tuples for lists."""

    value: object


@dataclass(frozen=True, slots=True)
class FunctionCall(Expression):
    """A call of the scalar function `name` of `functions/registry.py`."""

    name: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class UserCall(Expression):
    """A call of a function of the user, by its name in SQL."""

    name: str
    function: UserFunction
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Conditional(Expression):
    """The value of the first branch whose condition is true, else the default; others are not computed."""

    branches: tuple[tuple[Expression, Expression], ...]
    default: Expression


@dataclass(frozen=True, slots=True)
class Conversion(Expression):
    """The operand as a value of `type`; `safe`: null where that cannot be, instead of an error."""

    operand: Expression
    safe: bool = False


Substitute: TypeAlias = Callable[[Expression], "Expression | None"]


def parts_of(expression: Expression) -> tuple[Expression, ...]:
    """The expressions right below one."""
    match expression:
        case FunctionCall() | UserCall():
            return expression.arguments
        case Conditional():
            return (*(part for branch in expression.branches for part in branch), expression.default)
        case Conversion():
            return (expression.operand,)
    return ()


def walk(expression: Expression) -> Iterator[Expression]:
    """The expression and all below it."""
    yield expression
    for part in parts_of(expression):
        yield from walk(part)


def rewritten(expression: Expression, substitute: Substitute) -> Expression:
    """The expression with parts replaced, from the top down; None leaves a part and looks below it."""
    found = substitute(expression)
    if found is not None:
        return found
    match expression:
        case FunctionCall() | UserCall():
            return replace(expression, arguments=tuple(rewritten(part, substitute) for part in expression.arguments))
        case Conditional():
            branches = tuple((rewritten(a, substitute), rewritten(b, substitute)) for a, b in expression.branches)
            return replace(expression, branches=branches, default=rewritten(expression.default, substitute))
        case Conversion():
            return replace(expression, operand=rewritten(expression.operand, substitute))
    return expression


def columns_in(expression: Expression) -> set[int]:
    """The places of the input columns that it reads."""
    return {part.index for part in walk(expression) if isinstance(part, InputColumn)}


def on_columns(expression: Expression, place: Callable[[int], int]) -> Expression:
    """The expression over other places of its columns."""
    return rewritten(
        expression, lambda part: replace(part, index=place(part.index)) if isinstance(part, InputColumn) else None
    )


def over_values(expression: Expression, values: tuple[Expression, ...]) -> Expression:
    """The expression with each column replaced by the expression that computes it."""
    return rewritten(expression, lambda part: values[part.index] if isinstance(part, InputColumn) else None)


def conjuncts(expression: Expression) -> list[Expression]:
    """The conditions that AND joins."""
    if isinstance(expression, FunctionCall) and expression.name == "AND":
        return [found for part in expression.arguments for found in conjuncts(part)]
    return [expression]
