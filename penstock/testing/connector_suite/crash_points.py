"""Lets a connector's code die before any of its lines, as a process that is killed there would.

The suites call it around one call of a connector. Only lines of the packages count that the connector and its readers
or writers are in, so that client libraries are not left half way in a process that lives on. The exception is no
`Exception`; but `finally` blocks do run, which they would not in a process that is killed.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, Final

from penstock.engine.connectors import Sink, SinkWriter, Source, SourceReader
from penstock.testing.connector_suite.rules import CRASH_POINTS, require

_NOBODYS: Final = frozenset({"abc", "builtins", "typing", "penstock.engine.connectors"})
_SUITES: Final = f"{__name__.rpartition('.')[0]}."
_PARTS: Final = (Source, SourceReader, Sink, SinkWriter)
"""What connectors are made of, each of which may be in a package of its own."""


class SimulatedCrash(BaseException):
    """The process dies here."""


class LineCounter:
    """Counts the lines that run in the packages of a connector, and may die before one of them.

    Args:
        connector: an object whose package counts; so do those of its readers and writers that are called.
        fatal: the number, from 0, of the line before which it dies; None to live.

    Attributes:
        lines: how many have been begun.

    Example:
        >>> counter = LineCounter(sink)  # doctest: +SKIP
        >>> counter.run(lambda: sink.commit(committables, context))  # doctest: +SKIP
    """

    def __init__(self, connector: object, fatal: int | None = None) -> None:
        self._seen: set[type] = set()
        self._prefixes: tuple[str, ...] = ()
        self._take_in(type(connector))
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

    def require_lines(self, what: str) -> None:
        """Make sure that there was a line to die before: a crash in `what` shows nothing otherwise.

        Raises:
            ConformanceError: there was none.
        """
        packages = ", ".join(prefix[:-1] for prefix in self._prefixes)
        require(self.lines > 0, CRASH_POINTS, f"no line of {packages} ran in {what}")

    def _take_in(self, kind: type) -> None:
        if kind not in self._seen:
            self._seen.add(kind)
            modules = {one.__module__ for one in kind.__mro__} - _NOBODYS
            packages = {f"{name.rpartition('.')[0] or name}." for name in modules if not name.startswith(_SUITES)}
            self._prefixes = tuple(sorted(packages.union(self._prefixes)))

    def _on_call(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        owner = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
        if isinstance(owner, _PARTS):
            self._take_in(type(owner))
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
