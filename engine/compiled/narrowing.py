"""Which variables a condition shows not to be None.

`translation` asks before it reads a variable that may be None: of a state without a default, say. It never errs towards
a value: what it does not understand shows nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import reduce
from typing import Final, NamedTuple

_NONE: Final[frozenset[str]] = frozenset()


class Shown(NamedTuple):
    """The variables that have a value for sure where a condition is true, and where it is false."""

    if_true: frozenset[str]
    if_false: frozenset[str]


def shown_by(test: ast.expr) -> Shown:
    """What the condition shows.

    Example:
        >>> shown_by(ast.parse("a is not None and b", mode="eval").body).if_true
        frozenset({'a'})
    """
    match test:
        case ast.Compare(left=ast.Name(id=name), ops=[ast.Is()], comparators=[ast.Constant(value=None)]):
            return Shown(_NONE, frozenset([name]))
        case ast.Compare(left=ast.Name(id=name), ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
            return Shown(frozenset([name]), _NONE)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            shown = shown_by(operand)
            return Shown(shown.if_false, shown.if_true)
        case ast.BoolOp(op=operator, values=values):
            parts = [shown_by(value) for value in values]
            if isinstance(operator, ast.And):
                return Shown(_any(part.if_true for part in parts), _all(part.if_false for part in parts))
            return Shown(_all(part.if_true for part in parts), _any(part.if_false for part in parts))
    return Shown(_NONE, _NONE)


def _any(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return reduce(frozenset.union, sets)


def _all(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return reduce(frozenset.intersection, sets)


def doubted_in(body: Iterable[ast.stmt]) -> list[ast.expr]:
    """The expressions that the statements compare with None, or use where they are not None or false (`x or y`)."""
    found = []
    for node in (node for statement in body for node in ast.walk(statement)):
        match node:
            case ast.Compare(left=left, ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant(value=None)]):
                found.append(left)
            case ast.BoolOp(op=ast.Or(), values=[first, *_]):
                found.append(first)
    return found


def assigned_in(statements: Iterable[ast.stmt]) -> list[str]:
    """The names to which the statements assign, once for each time."""
    nodes = (node for statement in statements for node in ast.walk(statement))
    return [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
