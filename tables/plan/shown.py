"""Expressions as texts, for EXPLAIN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.tables.expressions import (
    Conditional,
    Constant,
    Conversion,
    Expression,
    FunctionCall,
    InputColumn,
    UserCall,
)
from penstock.tables.types import CHARACTERS

_INFIX: Final = frozenset({"=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "||", "AND", "OR"})
_NAMES: Final = {"PLUS_INTERVAL": "+", "MINUS_INTERVAL": "-"}


def shown_expression(expression: Expression, names: Sequence[str]) -> str:
    """The expression as SQL.

    Args:
        names: of the input's columns.
    """
    match expression:
        case InputColumn():
            return names[expression.index]
        case Constant():
            return _constant(expression)
        case Conversion():
            verb = "TRY_CAST" if expression.safe else "CAST"
            return f"{verb}({shown_expression(expression.operand, names)} AS {expression.type.with_nullable(True)})"
        case Conditional():
            branches = [
                f"WHEN {shown_expression(test, names)} THEN {shown_expression(value, names)}"
                for test, value in expression.branches
            ]
            return f"CASE {' '.join(branches)} ELSE {shown_expression(expression.default, names)} END"
        case FunctionCall():
            arguments = [shown_expression(argument, names) for argument in expression.arguments]
            name = _NAMES.get(expression.name, expression.name)
            if name in _INFIX or expression.name in _NAMES:
                return f"({arguments[0]} {name} {arguments[1]})"
            return f"{expression.name}({', '.join(arguments)})"
        case UserCall():
            return f"{expression.name}({', '.join(shown_expression(one, names) for one in expression.arguments)})"
    raise AssertionError(expression)


def _constant(constant: Constant) -> str:
    if constant.value is None:
        return "NULL"
    return f"'{constant.value}'" if constant.type.kind in CHARACTERS else str(constant.value)
