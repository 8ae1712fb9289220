"""`compiled`: marks a Python function of a row that is to run at the speed of compiled code.

Users decorate functions of `map`, `flat_map` and `filter` with it; the stream API makes specs of
`operators/compiled.py` of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar, overload

from penstock.engine.errors import GraphError
from penstock.engine.functions import KeyedProcessFunction

_R = TypeVar("_R")


_K = TypeVar("_K", bound=type[KeyedProcessFunction])
_MARK: Final = "_penstock_compiled"


class CompiledFunction(Generic[_R]):
    """A function of a row; called by itself, it is plain Python.

    Attributes:
        function: the plain function.
    """

    def __init__(self, function: Callable[[dict[str, Any]], _R]) -> None:
        self.function = function
        functools.update_wrapper(self, function)

    def __call__(self, row: dict[str, Any]) -> _R:
        return self.function(row)

    def __reduce__(self) -> Any:
        return CompiledFunction, (self.function,)


@overload
def compiled(function: Callable[[dict[str, Any]], _R]) -> CompiledFunction[_R]: ...


@overload
def compiled(function: _K) -> _K: ...


def compiled(function: Any) -> Any:
    """Let `map`, `flat_map`, `filter` or `process` run a function over columns, with the results of plain Python.

    What it does must be clear from the types of columns: numbers (int of 64 bits, float, bool), comparisons, `and`,
    `or`, `not`, `if`, loops over `range`, `abs`, `int`, `float`, `min` and `max` of two; texts of columns are compared
    with texts that stand in the function; values of other columns are passed on. What is outside of this is refused
    when the graph is built, with its line. Batches that compiled code cannot take (nulls in numbers, results beyond 64
    bits, errors) run as plain Python, which gives the same rows, or the error with its row.

    Global variables, and those of functions around it, are constants: they are read when the graph is built, and again
    where a subtask begins. A change behind that is not seen.

    Of a `KeyedProcessFunction`, `process_element` and `on_timer` are compiled. They may use value states of `int64`,
    `float64` and `bool` that have a default, timers of both kinds, the time, side outputs whose `OutputTag` declares
    its columns, and numbers and texts of the object, as they are behind `open`. The clock stands still during a batch.
    State and timers are those of the plain function, also in savepoints.

    Args:
        function: takes a row and returns a dict with all columns that `returns` declares, or a bool for `filter`; for
            `flat_map`, yields such dicts, or returns a list of them; defined with `def` in a file. Or a subclass of
            `KeyedProcessFunction`: it stays as it is, and a subclass of it that is compiled is returned.

    Raises:
        GraphError: `function` is a class, or nothing that can be called.

    Example:
        >>> @compiled
        ... def late(row):
        ...     return row["delay"] > 15 and row["carrier"] != "HA"
        >>> late({"delay": 20, "carrier": "AA"})
        True

    Source: compiled by numba, https://numba.readthedocs.io.
    """
    if isinstance(function, type) and issubclass(function, KeyedProcessFunction):
        names = {"__module__": function.__module__, "__qualname__": function.__qualname__, "__doc__": function.__doc__}
        marked = type(function.__name__, (function,), names)
        setattr(marked, _MARK, marked)
        return marked
    if isinstance(function, type) or not callable(function):
        raise GraphError(
            f"compiled: takes a function of a row, for map, flat_map or filter, or a KeyedProcessFunction, not "
            f"{function!r}"
        )
    return CompiledFunction(function)


def is_compiled(function: object) -> bool:
    """Whether a keyed function, or its class, is to be compiled; a subclass is not, unless it says so itself."""
    kind = function if isinstance(function, type) else type(function)
    return getattr(kind, _MARK, None) is kind
