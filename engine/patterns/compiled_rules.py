"""Rules over arrays, plain functions of a module that call each other, compiled by numba.

Imported for many rows only, because the import takes longer than a small job. What is compiled gives the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, ModuleType
from typing import Any, cast

from numba.core import types

from penstock.engine.state.keys.xxh64_kernel import compile_cached


def compiled_rules(
    rules: ModuleType, names: Sequence[str], called: Sequence[str] = ()
) -> dict[str, Callable[..., Any]]:
    """Functions of a module, compiled.

    Args:
        names: of the functions.
        called: those that they call, each behind those that it calls: all see these as compiled ones.
    """
    made: dict[str, Callable[..., Any]] = {}
    for name in (*called, *names):
        plain = cast(FunctionType, getattr(rules, name))
        linked = FunctionType(plain.__code__, {**plain.__globals__, **made}, name)
        made[name] = _once_for_all_constants(compile_cached(linked, from_python=name in names))
    return made


def _once_for_all_constants(function: Any) -> Any:
    """Numba compiles what is called with a constant once more for its value, which takes longer than all the rest."""
    template = function.get_call_template
    # Numba's functions have no types of Python's.
    unliteral = cast(Callable[[types.Type], types.Type], types.unliteral)

    def of_values(args: Sequence[types.Type], named: Mapping[str, types.Type]) -> Any:
        return template([unliteral(one) for one in args], {key: unliteral(one) for key, one in named.items()})

    function.get_call_template = of_values
    return function
