"""`compiled`: marks a Python function of a row that is to run at the speed of compiled code.

Users decorate functions of `map`, `flat_map`, `filter`, `reduce` and patterns with it, and keyed functions; the stream
API makes specs of compiled operators of them.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar, overload

from penstock.engine.errors import GraphError
from penstock.engine.functions import KeyedProcessFunction, ProcessWindowFunction
from penstock.engine.state.descriptors import AggregateFunction

_R = TypeVar("_R")
_K = TypeVar("_K", bound=type[KeyedProcessFunction] | type[AggregateFunction] | type[ProcessWindowFunction])
_M = TypeVar("_M")
_LOG = logging.getLogger(__name__)
_MARK: Final = "_penstock_compiled"
_FALLBACK: Final = "_penstock_fallback"


class CompiledFunction(Generic[_R]):
    """A function of a row, or of two; called by itself, it is plain Python.

    Attributes:
        function: the plain function.
        fallback: whether it may run as plain Python where it cannot be compiled.
    """

    def __init__(self, function: Callable[..., _R], fallback: bool = False) -> None:
        self.function = function
        self.fallback = fallback
        functools.update_wrapper(self, function)

    def __call__(self, *rows: dict[str, Any]) -> _R:
        return self.function(*rows)

    def __reduce__(self) -> Any:
        return CompiledFunction, (self.function, self.fallback)

    def unless_refused(self, make: Callable[[], _M]) -> _M | None:
        """What `make` gives; None, and a message, where it refuses the function, which may run as plain Python then.

        Raises:
            GraphError: it refuses the function, which may not.
        """
        return unless_refused(make, self.fallback)


def unless_refused(make: Callable[[], _M], fallback: bool) -> _M | None:
    """As `CompiledFunction.unless_refused`, of any function.

    Raises:
        GraphError: `make` does, and there is no `fallback`.
    """
    try:
        return make()
    except GraphError as error:
        if not fallback:
            raise
        _LOG.warning("%s; it runs as plain Python, row by row (fallback=True)", error)
        return None


class _Decorator(Protocol):
    """What `compiled` is without a function."""

    @overload
    def __call__(self, function: _K, /) -> _K: ...  # type: ignore[overload-overlap] # a class is called, too

    @overload
    def __call__(self, function: Callable[..., _R], /) -> CompiledFunction[_R]: ...


@overload
def compiled(function: _K, *, fallback: bool = False) -> _K: ...  # type: ignore[overload-overlap]


@overload
def compiled(function: Callable[..., _R], *, fallback: bool = False) -> CompiledFunction[_R]: ...


@overload
def compiled(*, fallback: bool) -> _Decorator: ...


def compiled(function: Any = None, *, fallback: bool = False) -> Any:
    """Let `map`, `flat_map`, `filter`, `reduce` or `process` run a function over columns, as plain Python would.

    What it does must be clear from the types of columns: numbers (int of 64 bits, float, bool), comparisons, `and`,
    `or`, `not`, `if`, loops over `range`, `abs`, `bool`, `int`, `float`, `min` and `max` of two; texts are compared for
    being equal, kept and passed on; timestamps are compared; values of other columns are passed on. What is outside of
    this is refused when the graph is built, with its line, or runs as plain Python where `fallback` allows it. So do
    batches of few rows, and those that compiled code cannot take (nulls that the function does not test for, results
    beyond 64 bits, errors): plain Python gives the same rows, or the error with its row.

    Of an `AggregateFunction` of windows, `add` is compiled; the accumulator may be changed, or returned anew. Of a
    `ProcessWindowFunction`, `process` is: loops over its elements, `elements[index]`, `len`, and `sum`, `min`, `max`,
    `any` and `all` of an expression for each row (`sum(row["n"] for row in elements)`); it has no state and no `clear`.

    A function that returns a bool may be a condition of a `Pattern`. It is asked of all rows then, as expressions are.

    Global variables, and those of functions around it, are constants: they are read when the graph is built, and again
    where a subtask begins. A change behind that is not seen.

    Of a `KeyedProcessFunction`, `process_element` and `on_timer` are compiled. They may use value, list and map states
    of `int64`, `float64`, `bool` and `string` (what may be None as `state.value() or 0`, compared with None, or in a
    variable that is), timers of both kinds, the time, side outputs whose `OutputTag` declares its columns, and numbers
    and texts of the object, as they are behind `open`. The clock stands still during a batch. State and timers are
    those of the plain function, also in savepoints.

    Args:
        function: takes a row and returns a dict with all columns that `returns` declares, or a bool for `filter`; for
            `flat_map`, yields such dicts, or returns a list of them; for `reduce`, takes two rows and returns one;
            defined with `def` in a file. Or a subclass of
            `KeyedProcessFunction`: it stays as it is, and a subclass of it that is compiled is returned. Without
            it, a decorator is returned: `@compiled(fallback=True)`.
        fallback: where it cannot be compiled, log why, and run it as plain Python.

    Raises:
        GraphError: `function` is a class, or nothing that can be called.

    Example:
        >>> @compiled
        ... def late(row):
        ...     return row["delay"] > 15 and row["carrier"] != "HA"
        >>> late({"delay": 20, "carrier": "AA"})
        True

    Source: compiled by LLVM, https://llvm.org, through https://llvmlite.readthedocs.io.
    """
    if function is None:
        return functools.partial(compiled, fallback=fallback)
    if isinstance(function, type) and issubclass(
        function, (KeyedProcessFunction, AggregateFunction, ProcessWindowFunction)
    ):
        names = {"__module__": function.__module__, "__qualname__": function.__qualname__, "__doc__": function.__doc__}
        marked = type(function.__name__, (function,), names)
        setattr(marked, _MARK, marked)
        setattr(marked, _FALLBACK, fallback)
        return marked
    if isinstance(function, type) or not callable(function):
        raise GraphError(
            "compiled: takes a function of a row, for map, flat_map or filter, a KeyedProcessFunction, an "
            f"AggregateFunction or a ProcessWindowFunction, not {function!r}"
        )
    return CompiledFunction(function, fallback)


def is_compiled(function: object) -> bool:
    """Whether a keyed function, or its class, is to be compiled; a subclass is not, unless it says so itself."""
    kind = function if isinstance(function, type) else type(function)
    return getattr(kind, _MARK, None) is kind


def may_fall_back(function: object) -> bool:
    """Whether a compiled keyed function, or its class, may run as plain Python where it cannot be compiled."""
    return bool(getattr(function, _FALLBACK, False))
