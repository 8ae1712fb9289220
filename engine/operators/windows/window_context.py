"""What triggers, evictors and window functions are given: the current key and window, time, timers and state.

The window operator makes one of each, and moves them from window to window before each call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from penstock.engine.errors import StateError, nearest
from penstock.engine.functions import OutputTag
from penstock.engine.operators.functions.row_results import SideOutputs
from penstock.engine.operators.keyed import KeyedServices
from penstock.engine.operators.windows.window_state import PlacedStore, declare, prefixed
from penstock.engine.state.backend import Key
from penstock.engine.state.descriptors import KeyedDescriptor, ListStateDescriptor, ReducingStateDescriptor
from penstock.engine.state.timers import timer_time
from penstock.engine.windows.windows import GLOBAL_WINDOW, TimeWindow

CleanupTime: TypeAlias = Callable[[TimeWindow], "int | None"]
"""When a window is forgotten, by one kind of time; None for never."""


class WindowTimers:
    """The `TriggerContext`, `OnMergeContext` and `EvictorContext` of one operator; `key` and `window` are set before.

    Args:
        services: keyed state and timers.
        states: descriptors of the trigger's states.
        event_cleanup, processing_cleanup: when a window is forgotten, by the one kind of time or the other. Triggers
            cannot delete that timer, whose time may be one of theirs, unless the window `goes`.
    """

    def __init__(
        self,
        services: KeyedServices,
        states: Iterable[KeyedDescriptor],
        event_cleanup: CleanupTime,
        processing_cleanup: CleanupTime,
    ) -> None:
        self._services = services
        self._backend = services.backend
        self._where = services.context.where
        self._event_timers = services.event_timers
        self._processing_timers = services.processing_timers
        self._states = {state.name: declare(self._backend, prefixed(state, "trigger"), self._where) for state in states}
        self._now_ms = services.context.clock.now_ms
        self._event_cleanup, self._processing_cleanup = event_cleanup, processing_cleanup
        self.batch_time: int | None = None
        self.goes = False
        self.key: Key = None
        self.window: TimeWindow = GLOBAL_WINDOW
        self.merged: Sequence[TimeWindow] = ()

    @property
    def current_watermark(self) -> int:
        return self._services.watermark

    @property
    def current_processing_time(self) -> int:
        # While rows are handled time stands still: the trigger agrees with the assigner on it.
        return self._now_ms() if self.batch_time is None else self.batch_time

    def register_event_time_timer(self, time: int) -> None:
        self._event_timers.register(self._time(time), self.key, self.window)

    def register_processing_time_timer(self, time: int) -> None:
        self._processing_timers.register(self._time(time), self.key, self.window)

    def delete_event_time_timer(self, time: int) -> None:
        if self.goes or time != self._event_cleanup(self.window):
            self._event_timers.delete(self._time(time), self.key, self.window)

    def delete_processing_time_timer(self, time: int) -> None:
        if self.goes or time != self._processing_cleanup(self.window):
            self._processing_timers.delete(self._time(time), self.key, self.window)

    def _time(self, time: object) -> int:
        return timer_time(time, self._where, "window.max_timestamp")

    def get_partitioned_state(self, descriptor: KeyedDescriptor) -> Any:
        self._backend.set_current_key(self.key, self.window)
        return self._state(descriptor)

    def _state(self, descriptor: KeyedDescriptor) -> Any:
        try:
            return self._states[descriptor.name]
        except (KeyError, AttributeError):
            name = getattr(descriptor, "name", repr(descriptor))
            raise StateError(
                f"{self._where}: the trigger uses state {name!r}, which it has not declared"
                f"{nearest(name, self._states)}; give the descriptor in its property `states`"
            ) from None

    def merge_partitioned_state(self, descriptor: ReducingStateDescriptor | ListStateDescriptor) -> None:
        """As `OnMergeContext`: the windows `merged` are merged into `window`."""
        state = self._state(descriptor)
        if not isinstance(descriptor, ReducingStateDescriptor | ListStateDescriptor):
            raise StateError(
                f"{self._where}: state {descriptor.name!r} cannot be merged; use reducing state or list state in "
                "triggers for windows that merge"
            )
        values: list[Any] = []
        for window in self.merged:
            self._backend.set_current_key(self.key, window)
            held = state.get()
            values.extend(held if isinstance(descriptor, ListStateDescriptor) else [] if held is None else [held])
            state.clear()
        self._backend.set_current_key(self.key, self.window)
        for value in values:
            state.add(value)


class FiringContext:
    """The `WindowContext` of one operator; `timers` and `timestamp` say which window, and what its results carry.

    Args:
        timers: the trigger's context, which knows the current key and window.
        window_state, global_state: the stores of the function.
        sides: takes what is emitted to side outputs.
    """

    def __init__(
        self, timers: WindowTimers, window_state: PlacedStore, global_state: PlacedStore, sides: SideOutputs
    ) -> None:
        self._timers = timers
        self._sides = sides
        self.window_state = window_state
        self.global_state = global_state
        self.timestamp: int | None = None

    def __repr__(self) -> str:
        return f"WindowContext({self._timers.window}, key {self._timers.key!r})"

    @property
    def window(self) -> TimeWindow:
        return self._timers.window

    @property
    def current_watermark(self) -> int:
        return self._timers.current_watermark

    @property
    def current_processing_time(self) -> int:
        return self._timers.current_processing_time

    def output(self, tag: OutputTag, row: Mapping[str, Any]) -> None:
        self._sides.add(tag, row, self.timestamp)
