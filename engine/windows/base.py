"""What a window assigner is: the class that custom assigners subclass.

Users give assigners to `KeyedStream.window`; the window operator asks them for the windows of each row. An assigner is
a value: it is pickled with the program, and shared by all subtasks.

Source: Flink's documentation, "Windows", "Window Assigners".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Final, Literal, Protocol, TypeAlias

from penstock.engine.errors import ConfigurationError
from penstock.engine.windows.trigger_base import Row, Trigger
from penstock.engine.windows.triggers import EventTimeTrigger, ProcessingTimeTrigger
from penstock.engine.windows.windows import TimeWindow, merge_intersecting

TimeKind: TypeAlias = Literal["event", "processing"]
"""Which time windows divide: that of the rows, or that of the clock."""
_TIME_KINDS: Final = ("event", "processing")


class AssignerContext(Protocol):
    """What an assigner is given beside the row."""

    @property
    def where(self) -> str:
        """Operator and subtask, for messages."""
        ...

    @property
    def current_processing_time(self) -> int:
        """The clock (int64 ms)."""
        ...


class WindowAssigner(ABC):
    """Says which windows a row belongs to. Subclass it for windows of your own.

    Example:
        >>> class ByShift(WindowAssigner):
        ...     def assign_windows(self, row, timestamp, context):
        ...         start = timestamp - timestamp % (8 * 3_600_000)
        ...         return [TimeWindow(start, start + 8 * 3_600_000)]
    """

    __slots__ = ()

    @abstractmethod
    def assign_windows(self, row: Row, timestamp: int | None, context: AssignerContext) -> Iterable[TimeWindow]:
        """The windows of a row; none drops it.

        Args:
            row: must not be changed.
            timestamp: its event timestamp (int64 ms), or None on a stream without.
            context: the clock.
        """

    @property
    def is_event_time(self) -> bool:
        """Whether windows end by the watermark (the default), and not by the clock."""
        return True

    @property
    def is_merging(self) -> bool:
        """Whether windows of one key are merged, as sessions are."""
        return False

    @property
    def reads_rows(self) -> bool:
        """Whether `assign_windows` looks at the row; if not, it may be given an empty one."""
        return True

    def default_trigger(self) -> Trigger:
        """The trigger where the user gives none."""
        return EventTimeTrigger() if self.is_event_time else ProcessingTimeTrigger()

    def merge_windows(self, windows: Sequence[TimeWindow]) -> list[tuple[TimeWindow, list[TimeWindow]]]:
        """The windows of a key to be merged: each merged window with its parts; by default those that touch."""
        return merge_intersecting(windows)

    def describe(self) -> str:
        """How `explain()` shows it."""
        return type(self).__name__


def check_time_kind(time: TimeKind, verb: str) -> TimeKind:
    """The kind of time itself, if it is one.

    Raises:
        ConfigurationError: it is none.
    """
    if time not in _TIME_KINDS:
        raise ConfigurationError(f"{verb}: time is 'event' or 'processing', not {time!r}")
    return time


def time_suffix(time: TimeKind) -> str:
    """What descriptions say about processing time."""
    return "" if time == "event" else ", processing time"


def assigned_time(time: TimeKind, timestamp: int | None, context: AssignerContext) -> int:
    """The time (int64 ms) by which a row is put into windows."""
    if time == "processing":
        return context.current_processing_time
    assert timestamp is not None, "the graph refuses event-time windows on streams without timestamps"
    return timestamp
