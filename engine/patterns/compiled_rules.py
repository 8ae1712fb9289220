"""Rules over arrays, plain functions of a module that call each other, compiled by numba.

Imported for many rows only, because the import takes longer than a small job. What is compiled gives the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType, ModuleType
from typing import Any, cast

from penstock.engine.state.keys.xxh64_kernel import compile_cached


def compiled_rules(rules: ModuleType, names: Sequence[str]) -> dict[str, Callable[..., Any]]:
    """Functions of a module, compiled.

    Args:
        names: of the functions, each behind those that it calls: it sees these as compiled ones.
    """
    made: dict[str, Callable[..., Any]] = {}
    for name in names:
        plain = cast(FunctionType, getattr(rules, name))
        linked = FunctionType(plain.__code__, {**plain.__globals__, **made}, name)
        made[name] = compile_cached(linked)
    return made
