"""Evictors: which rows leave a window before, or behind, the call of its function.

Users give them to `WindowedStream.evictor`; the window operator calls them whenever a window fires. Rows that were
evicted are gone for later firings too. With an evictor all rows of a window are kept until then, also for aggregates.

Source: Flink's documentation, "Windows", "Evictors".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, TypeAlias

from penstock.engine.durations import Duration, format_duration, parse_duration
from penstock.engine.errors import ConfigurationError
from penstock.engine.windows.trigger_base import Row
from penstock.engine.windows.triggers import check_delta
from penstock.engine.windows.windows import TimeWindow

When: TypeAlias = Literal["before", "after"]
"""Whether rows are evicted before the window's function is called, or behind that."""


class TimestampedRow(NamedTuple):
    """A row in a window, in order of arrival, and its event timestamp (int64 ms) or None."""

    row: Row
    timestamp: int | None


class EvictorContext(Protocol):
    """What an evictor is given beside the rows."""

    @property
    def current_watermark(self) -> int:
        """Event time so far (int64 ms)."""
        ...

    @property
    def current_processing_time(self) -> int:
        """The clock (int64 ms)."""
        ...


class Evictor:
    """Says which rows of a window stay. Subclass it, and override one of the methods or both.

    Example:
        >>> class WithoutTests(Evictor):
        ...     def evict_before(self, elements, window, context):
        ...         return [element for element in elements if not element.row["is_test"]]
    """

    __slots__ = ()

    def evict_before(
        self, elements: list[TimestampedRow], window: TimeWindow, context: EvictorContext
    ) -> list[TimestampedRow]:
        """The elements that stay, asked before the window's function is called."""
        return elements

    def evict_after(
        self, elements: list[TimestampedRow], window: TimeWindow, context: EvictorContext
    ) -> list[TimestampedRow]:
        """The elements that stay, asked when the window's function has been called."""
        return elements

    def describe(self) -> str:
        """How `explain()` shows it."""
        return type(self).__name__


@dataclass(frozen=True, slots=True)
class CountEvictor(Evictor):
    """Keeps the last rows, by arrival.

    Args:
        count: how many stay, 0 or more.
        evict: before the function, or behind it.

    Raises:
        ConfigurationError: no whole number of 0 or more; neither "before" nor "after".
    """

    count: int
    evict: When = "before"

    def __post_init__(self) -> None:
        _check_when(self.evict, "CountEvictor")
        if not isinstance(self.count, int) or isinstance(self.count, bool) or self.count < 0:
            raise ConfigurationError(f"CountEvictor: count must be a whole number of 0 or more, not {self.count!r}")

    def evict_before(
        self, elements: list[TimestampedRow], window: TimeWindow, context: EvictorContext
    ) -> list[TimestampedRow]:
        return self._kept(elements) if self.evict == "before" else elements

    def evict_after(
        self, elements: list[TimestampedRow], window: TimeWindow, context: EvictorContext
    ) -> list[TimestampedRow]:
        return self._kept(elements) if self.evict == "after" else elements

    def _kept(self, elements: list[TimestampedRow]) -> list[TimestampedRow]:
        return elements[max(0, len(elements) - self.count) :]

    def describe(self) -> str:
        return f"count {self.count}{_suffix(self.evict)}"


@dataclass(frozen=True, slots=True)
class TimeEvictor(Evictor):
    """Keeps the rows that are younger than the youngest one less a span; without timestamps, all of them.

    Args:
        span: a row this much older than the youngest goes.
        evict: before the function, or behind it.

    Raises:
        ConfigurationError: no duration; neither "before" nor "after".
    """

    span: Duration
    evict: When = "before"
    _span_ms: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        _check_when(self.evict, "TimeEvictor")
        object.__setattr__(self, "_span_ms", parse_duration(self.span, "TimeEvictor: span"))

    def evict_before(
        self, elements: list[TimestampedRow], window: TimeWindow, context: EvictorContext
    ) -> list[TimestampedRow]:
        return self._kept(elements) if self.evict == "before" else elements

    def evict_after(
        self, elements: list[TimestampedRow], window: TimeWindow, context: EvictorContext
    ) -> list[TimestampedRow]:
        return self._kept(elements) if self.evict == "after" else elements

    def _kept(self, elements: list[TimestampedRow]) -> list[TimestampedRow]:
        times = [element.timestamp for element in elements if element.timestamp is not None]
        if not times:
            return elements
        cutoff = max(times) - self._span_ms
        return [element for element in elements if element.timestamp is None or element.timestamp > cutoff]

    def describe(self) -> str:
        return f"time {format_duration(self._span_ms)}{_suffix(self.evict)}"


@dataclass(frozen=True, slots=True)
class DeltaEvictor(Evictor):
    """Evicts the rows that differ from the last one by a threshold or more.

    Args:
        threshold: at it, and above, a row goes.
        delta: takes a row and the last row, and returns a number.
        evict: before the function, or behind it.

    Raises:
        ConfigurationError: `delta` cannot be called; neither "before" nor "after".
    """

    threshold: float
    delta: Callable[[Row, Row], float]
    evict: When = "before"

    def __post_init__(self) -> None:
        check_delta(self.threshold, self.delta, "DeltaEvictor")
        _check_when(self.evict, "DeltaEvictor")

    def evict_before(
        self, elements: list[TimestampedRow], window: TimeWindow, context: EvictorContext
    ) -> list[TimestampedRow]:
        return self._kept(elements) if self.evict == "before" else elements

    def evict_after(
        self, elements: list[TimestampedRow], window: TimeWindow, context: EvictorContext
    ) -> list[TimestampedRow]:
        return self._kept(elements) if self.evict == "after" else elements

    def _kept(self, elements: list[TimestampedRow]) -> list[TimestampedRow]:
        last = elements[-1].row if elements else {}
        return [element for element in elements if self.delta(element.row, last) < self.threshold]

    def describe(self) -> str:
        return f"delta {self.threshold}{_suffix(self.evict)}"


def _check_when(evict: When, what: str) -> None:
    if evict not in ("before", "after"):
        raise ConfigurationError(f"{what}: evict is 'before' or 'after' (the function), not {evict!r}")


def _suffix(evict: When) -> str:
    return " after" if evict == "after" else ""
