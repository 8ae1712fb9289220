"""What a trigger is: the class that custom triggers subclass, and what it is given.

A trigger is a value that all windows share: what it must remember of a window is state, which it declares in `states`
and gets from its context. The window operator calls it for each row and timer, in the context of one key and window.

Source: Flink's documentation, "Windows", "Triggers".
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from typing import Any, Protocol, TypeAlias, overload

from penstock.engine.state.backend import ListState, MapState, ReducingState, ValueState
from penstock.engine.state.descriptors import (
    KeyedDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.engine.windows.windows import TimeWindow

Row: TypeAlias = dict[str, Any]


class TriggerResult(enum.Enum):
    """What to do with a window: fire emits the result of its contents, purge forgets the contents."""

    CONTINUE = (False, False)
    FIRE = (True, False)
    PURGE = (False, True)
    FIRE_AND_PURGE = (True, True)

    @property
    def is_fire(self) -> bool:
        """Whether the window is emitted."""
        return self.value[0]

    @property
    def is_purge(self) -> bool:
        """Whether its contents are forgotten."""
        return self.value[1]


class TriggerContext(Protocol):
    """What a trigger is given: time, timers and state, all of the current key and window."""

    @property
    def current_watermark(self) -> int:
        """Event time so far (int64 ms); `penstock.engine.elements.MIN_TIMESTAMP` before the first watermark."""
        ...

    @property
    def current_processing_time(self) -> int:
        """The clock (int64 ms)."""
        ...

    def register_event_time_timer(self, time: int) -> None:
        """Call `on_event_time` when the watermark reaches `time` (int64 ms)."""
        ...

    def register_processing_time_timer(self, time: int) -> None:
        """Call `on_processing_time` when the clock reaches `time` (int64 ms)."""
        ...

    def delete_event_time_timer(self, time: int) -> None:
        """Forget a timer, if there is one."""
        ...

    def delete_processing_time_timer(self, time: int) -> None:
        """Forget a timer, if there is one."""
        ...

    @overload
    def get_partitioned_state(self, descriptor: ReducingStateDescriptor) -> ReducingState: ...
    @overload
    def get_partitioned_state(self, descriptor: ListStateDescriptor) -> ListState: ...
    @overload
    def get_partitioned_state(self, descriptor: MapStateDescriptor) -> MapState: ...
    @overload
    def get_partitioned_state(self, descriptor: ValueStateDescriptor) -> ValueState: ...
    def get_partitioned_state(self, descriptor: KeyedDescriptor) -> Any:
        """The state of this key and window; use it at once, and do not keep it.

        Raises:
            StateError: the trigger's `states` does not name the descriptor.
        """
        ...


class OnMergeContext(TriggerContext, Protocol):
    """What `on_merge` is given."""

    def merge_partitioned_state(self, descriptor: ReducingStateDescriptor | ListStateDescriptor) -> None:
        """Move the state of the windows that were merged into that of the merged window."""
        ...


class Trigger(ABC):
    """Decides when a window fires. Subclass it for rules of your own.

    Example:
        >>> class AfterEnd(Trigger):
        ...     def on_element(self, row, timestamp, window, context):
        ...         if row["kind"] == "end":
        ...             return TriggerResult.FIRE_AND_PURGE
        ...         return TriggerResult.CONTINUE
    """

    __slots__ = ()

    @property
    def states(self) -> tuple[KeyedDescriptor, ...]:
        """Descriptors of all state that the trigger keeps a window."""
        return ()

    @property
    def can_merge(self) -> bool:
        """Whether it works on windows that merge; then `on_merge` must be implemented."""
        return False

    @property
    def reads_rows(self) -> bool:
        """Whether `on_element` looks at the row; if not, it may be given an empty one."""
        return True

    @property
    def needs_timestamps(self) -> bool:
        """Whether the stream must have event timestamps."""
        return False

    @abstractmethod
    def on_element(self, row: Row, timestamp: int | None, window: TimeWindow, context: TriggerContext) -> TriggerResult:
        """A row was added to the window; it must not be changed. `timestamp` is its event timestamp, if it has one."""

    def on_event_time(self, time: int, window: TimeWindow, context: TriggerContext) -> TriggerResult:
        """The watermark has reached a timer of the window, or the time to forget it."""
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, context: TriggerContext) -> TriggerResult:
        """The clock has reached a timer of the window, or the time to forget it."""
        return TriggerResult.CONTINUE

    def on_merge(self, window: TimeWindow, context: OnMergeContext) -> None:
        """Windows were merged into `window`: merge state, register timers. `clear` follows for each of the old ones."""
        raise NotImplementedError(f"{type(self).__name__} has no on_merge(window, context), which merging windows need")

    def clear(self, window: TimeWindow, context: TriggerContext) -> None:  # noqa: B027 - optional hook
        """The window goes: delete timers and state."""

    def describe(self) -> str:
        """How `explain()` shows it."""
        return type(self).__name__
