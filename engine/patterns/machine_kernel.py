"""The rules of `machine_rules`, compiled by numba.

Imported by the machine only for many rows, because the import takes longer than a small job. Gives the same results.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, Final, cast

from penstock.engine.patterns import machine_rules
from penstock.engine.state.keys.xxh64_kernel import compile_cached

_ORDER: Final = (
    *("copies", "with_room", "puts", "sets", "precedes", "swaps", "rises", "settles", "keeps", "drops", "begun"),
    *("bounded", "skips", "adds", "has_old", "advances", "takes", "emits", "run", "paths", "compacted", "owners"),
)
"""Each behind those that it calls."""


def _compiled(names: tuple[str, ...]) -> dict[str, Callable[..., Any]]:
    """Functions that call each other, compiled: each sees those before it as compiled ones."""
    made: dict[str, Callable[..., Any]] = {}
    for name in names:
        plain = cast(FunctionType, getattr(machine_rules, name))
        linked = FunctionType(plain.__code__, {**plain.__globals__, **made}, name)
        made[name] = compile_cached(linked)
    return made


_MADE: Final = _compiled(_ORDER)
run: Final = _MADE["run"]
paths: Final = _MADE["paths"]
compacted: Final = _MADE["compacted"]
owners: Final = _MADE["owners"]
