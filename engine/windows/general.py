"""Window assigners that only the general window operator knows: global windows, and sessions whose gap each row gives.

Made by `global_windows()` and `session(gap=function)`. They guarantee what all assigners do: the same row and time
give the same windows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from penstock.engine.durations import Duration, parse_duration
from penstock.engine.errors import ConfigurationError, RecordError
from penstock.engine.windows.base import (
    AssignerContext,
    TimeKind,
    WindowAssigner,
    assigned_time,
    check_time_kind,
    time_suffix,
)
from penstock.engine.windows.limits import LARGEST_SPAN_MS
from penstock.engine.windows.trigger_base import Row, Trigger
from penstock.engine.windows.triggers import NeverTrigger
from penstock.engine.windows.windows import GLOBAL_WINDOW, TimeWindow

Gap: TypeAlias = Callable[[Row], "Duration | int"]
"""A function of a row that returns its session gap: a duration, or a number of milliseconds."""


@dataclass(frozen=True, slots=True)
class GlobalWindows(WindowAssigner):
    """One window for all rows of a key, for ever; it fires when its trigger says so, and never by default."""

    @property
    def is_event_time(self) -> bool:
        return False

    @property
    def reads_rows(self) -> bool:
        return False

    def assign_windows(self, row: Row, timestamp: int | None, context: AssignerContext) -> tuple[TimeWindow]:
        return _GLOBAL

    def default_trigger(self) -> Trigger:
        return NeverTrigger()

    def describe(self) -> str:
        return "global"


_GLOBAL: Final = (GLOBAL_WINDOW,)


@dataclass(frozen=True, slots=True)
class DynamicSessionWindows(WindowAssigner):
    """Sessions to which each row brings a gap of its own: a row opens [t, t + gap), touching windows are merged.

    Args:
        gap: a function of the row.
        time: event time, or that of the clock.
    """

    gap: Gap
    time: TimeKind = "event"

    def __post_init__(self) -> None:
        check_time_kind(self.time, "session")

    @property
    def is_event_time(self) -> bool:
        return self.time == "event"

    @property
    def is_merging(self) -> bool:
        return True

    def assign_windows(self, row: Row, timestamp: int | None, context: AssignerContext) -> list[TimeWindow]:
        start = assigned_time(self.time, timestamp, context)
        return [TimeWindow(start, start + self._gap_ms(row, context.where))]

    def _gap_ms(self, row: Row, where: str) -> int:
        given = self.gap(row)
        try:
            gap_ms = given if type(given) is int else parse_duration(given, "session gap")  # type: ignore[arg-type]
        except ConfigurationError as error:
            raise RecordError(
                f"{where}: the gap function of session returned {given!r:.200}, which is neither a duration "
                f"such as '10s' nor a whole number of milliseconds ({error}); the row is {row!r:.300}"
            ) from error
        if not 0 < gap_ms <= LARGEST_SPAN_MS:
            raise RecordError(
                f"{where}: the gap function of session returned {given!r:.200}; a gap must be more than 0 "
                f"and at most 2**60 ms; the row is {row!r:.300}"
            )
        return gap_ms

    def describe(self) -> str:
        name = str(getattr(self.gap, "__name__", type(self.gap).__name__))
        return f"session gap by {name}{time_suffix(self.time)}"


def global_windows() -> GlobalWindows:
    """One window for all rows of a key. Give it a trigger, or nothing is ever emitted.

    Example:
        >>> keyed.window(global_windows()).trigger(CountTrigger(100)).aggregate(n=count())  # doctest: +SKIP
    """
    return GlobalWindows()
