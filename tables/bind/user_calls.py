"""Finds the calls of the user's functions in a statement.

The environment resolves names before a statement is bound, so that a view keeps the functions that it was made with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from penstock.tables.functions.user import UserFunction, UserFunctionKind
from penstock.tables.parse import nodes as n
from penstock.tables.parse import queries as q
from penstock.tables.parse.rewriting import rewritten
from penstock.tables.parse.text import SqlText

_Tree = TypeVar("_Tree")


def resolved(tree: _Tree, functions: Mapping[str, UserFunction], source: SqlText) -> _Tree:
    """A statement, in which each call of a function of the user is a `UserCall`.

    Args:
        tree: the statement, or a part of it.
        functions: by name, in capitals.
        source: its text, for errors.

    Raises:
        SqlError: a call in a place where its function may not stand.
    """
    if not functions:
        return tree

    def change(part: Any) -> Any:
        if isinstance(part, q.FunctionTable) and part.call.name in functions:
            call = _call(part.call, functions[part.call.name], functions, source, table=True)
            unnest = n.Call(call.at, "UNNEST", (n.Argument(call.at, call),))
            return replace(part, call=unnest, lateral=True)
        if isinstance(part, n.Call) and part.name in functions:
            return _call(part, functions[part.name], functions, source, table=False)
        return None

    return rewritten(tree, change)


def _call(
    node: n.Call, function: UserFunction, functions: Mapping[str, UserFunction], source: SqlText, *, table: bool
) -> n.UserCall:
    is_table = function.kind is UserFunctionKind.TABLE
    if table is not is_table:
        where = "in FROM, as LATERAL TABLE(...)" if is_table else "in expressions, not in FROM"
        raise source.invalid(node.at, f"{node.name} is a function of kind {function.kind.value}; it may stand {where}")
    if node.star or node.within:
        raise source.unsupported(node.at, f"{node.name} takes no * or ORDER BY: it is written in Python")
    is_aggregate = function.kind is UserFunctionKind.AGGREGATE
    if not is_aggregate and (node.filter is not None or node.over is not None or node.distinct):
        raise source.invalid(node.at, f"{node.name} is no aggregate: no DISTINCT, FILTER or OVER")
    if function.takes is not None and len(function.takes) != len(node.arguments):
        raise source.invalid(node.at, f"{node.name} takes {len(function.takes)} arguments, not {len(node.arguments)}")
    if any(argument.name is not None for argument in node.arguments):
        raise source.unsupported(node.at, f"{node.name} takes no named arguments")
    values = tuple(resolved(argument.value, functions, source) for argument in node.arguments)
    if function.kind is not UserFunctionKind.AGGREGATE:
        return n.UserCall(node.at, node.name, function, values)
    if not values:
        raise source.invalid(node.at, f"{node.name} is an aggregate; give it an argument")
    typed = typed_arguments(values, node.name, function)
    value = typed[0] if len(typed) == 1 else n.Constructor(node.at, "ROW", typed)
    of_group = n.Call(
        node.at,
        "ARRAY_AGG",
        (n.Argument(node.at, value),),
        distinct=node.distinct,
        filter=resolved(node.filter, functions, source),
        over=resolved(node.over, functions, source),
        said=node.name,
    )
    return n.UserCall(node.at, node.name, function, (of_group,))


def typed_arguments(values: tuple[n.Node, ...], name: str, function: UserFunction) -> tuple[n.Typed, ...]:
    """The arguments, each as the type that the function takes."""
    kinds = function.takes or (None,) * len(values)
    return tuple(n.Typed(value.at, value, name, kind) for value, kind in zip(values, kinds, strict=True))
