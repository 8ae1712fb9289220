"""Lets a connector's code die before any of its lines, as a process that is killed there would.

The suites call it around one call of a connector. Only lines of the connector's own package count, so that client
libraries are not left half way in a process that lives on. The exception is no `Exception`; but `finally` blocks do
run, which they would not in a process that is killed.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, Final

_NOBODYS: Final = frozenset({"abc", "builtins", "typing", "penstock.engine.connectors"})


class SimulatedCrash(BaseException):
    """The process dies here."""


class LineCounter:
    """Counts the lines that run in the package of an object, and may die before one of them.

    Args:
        connector: the object whose package counts.
        fatal: the number, from 0, of the line before which it dies; None to live.

    Attributes:
        lines: how many have been begun.

    Example:
        >>> counter = LineCounter(sink)  # doctest: +SKIP
        >>> counter.run(lambda: sink.commit(committables, context))  # doctest: +SKIP
    """

    def __init__(self, connector: object, fatal: int | None = None) -> None:
        modules = {kind.__module__ for kind in type(connector).__mro__} - _NOBODYS
        self._prefixes = tuple(sorted({f"{module.rpartition('.')[0] or module}." for module in modules}))
        self._fatal = fatal
        self.lines = 0

    def run(self, call: Callable[[], object]) -> bool:
        """Make the call; whether it lived to its end."""
        before = sys.gettrace()
        sys.settrace(self._on_call)
        try:
            next(_apart(call))
        except SimulatedCrash:
            return False
        finally:
            sys.settrace(before)
        return True

    def _on_call(self, frame: FrameType, event: str, argument: Any) -> Any:
        name = f"{frame.f_globals.get('__name__', '')}."
        return self._on_line if name.startswith(self._prefixes) else None

    def _on_line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.lines += 1
            if self._fatal is not None and self.lines == self._fatal + 1:
                raise SimulatedCrash
        return self._on_line


def _apart(call: Callable[[], object]) -> Iterator[None]:
    """Make the call where an exception is handled that ends with this generator.

    CPython 3.11 continues to handle an exception whose `except` block is left by an error of the trace function,
    at its `break` or `return`: every later error of the thread would be raised "during handling" of that one.
    """
    call()
    yield


@contextlib.contextmanager
def leaving_things_open() -> Iterator[None]:
    """Let files and connections be left open, as by processes that die: the operating system closes theirs.

    Nor does anybody hear of writers that cannot end their files when they are collected.
    """
    hook = sys.unraisablehook
    sys.unraisablehook = _ignore
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
            yield
            gc.collect()
    finally:
        sys.unraisablehook = hook


def _ignore(_: object) -> None:
    pass


def spread(count: int, most: int) -> Sequence[int]:
    """At most `most` of the numbers below `count`, evenly spread, the first and the last among them.

    Example:
        >>> spread(5, 3)
        [0, 2, 4]
    """
    if count <= most:
        return list(range(count))
    return sorted({round(i * (count - 1) / (most - 1)) for i in range(most)})
