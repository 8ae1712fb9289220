"""Finds the source of functions that are to be compiled, and what their names mean.

The translators call it. What it cannot read is refused with the remedy.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

from penstock.engine.errors import GraphError
from penstock.engine.texts import function_name


def source_of(function: Callable[..., Any], parameters: int) -> tuple[ast.FunctionDef, str, int]:
    """The function's source, where it stands, and the number of lines above it.

    Raises:
        GraphError: there is no source, it is that of a function that another one wraps, or no function of so many
            `parameters`.
    """
    if hasattr(function, "__wrapped__"):
        raise GraphError(
            f"compiled: {function_name(function)}: it is wrapped by another function, which is not seen in its source; "
            "take the decorator below @compiled away, or do without @compiled"
        )
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
    except (OSError, TypeError, SyntaxError) as error:
        raise GraphError(
            f"compiled: the source of {function!r} cannot be read ({error}); define it with `def` in a file, or do "
            "without @compiled"
        ) from None
    place = f"{inspect.getsourcefile(function)}, {getattr(function, '__qualname__', function)}"
    if not isinstance(tree, ast.FunctionDef) or len(tree.args.args) != parameters or tree.args.vararg:
        raise GraphError(f"compiled: {place}: it must be defined with `def` and take {parameters} parameters")
    return tree, place, first - 1


def outer_names(function: Callable[..., Any]) -> Mapping[str, Any]:
    """What the names mean that the function takes from around it."""
    constants = inspect.getclosurevars(function)
    return {**constants.globals, **constants.nonlocals}
