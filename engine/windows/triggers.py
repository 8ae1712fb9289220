"""The triggers that come with the engine: when a window is emitted, and whether its contents are then forgotten.

Users give them to `WindowedStream.trigger`; the window operator calls them. All are values, and `PurgingTrigger` wraps
another one.

Source: Flink's documentation, "Windows", "Triggers"; early and late firings follow Flink SQL's `table.exec.emit`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.engine.durations import Duration, format_duration, parse_duration
from penstock.engine.elements import MAX_TIMESTAMP
from penstock.engine.errors import ConfigurationError
from penstock.engine.state.descriptors import KeyedDescriptor, ReducingStateDescriptor, ValueStateDescriptor
from penstock.engine.windows.limits import check_count, check_span
from penstock.engine.windows.row_serializer import RowSerializer
from penstock.engine.windows.trigger_base import OnMergeContext, Row, Trigger, TriggerContext, TriggerResult
from penstock.engine.windows.windows import TimeWindow

_COUNT: Final = ReducingStateDescriptor("count", "int64", function=operator.add)
_FIRE_TIME: Final = ReducingStateDescriptor("fire-time", "int64", function=min)
_EARLY_COUNT: Final = ReducingStateDescriptor("early-count", "int64", function=operator.add)
_LATE_COUNT: Final = ReducingStateDescriptor("late-count", "int64", function=operator.add)
_LAST_ELEMENT: Final = ValueStateDescriptor("last-element", serializer=RowSerializer())


class _BlindTrigger(Trigger):
    """Goes by times and counts: it looks at no row, and may be on windows that merge."""

    __slots__ = ()

    @property
    def can_merge(self) -> bool:
        return True

    @property
    def reads_rows(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class EventTimeTrigger(_BlindTrigger):
    """Fires when the watermark has passed the window's end, and for late rows at once. The default in event time.

    Args:
        early_every: fire before that too, this long (processing time) after the window's first row, and so on.
        early_count: fire before that too, whenever so many rows have come.
        late_count: behind that, fire once so many late rows have come, and not for each; what is left then fires
            when the allowed lateness is over.

    Raises:
        ConfigurationError: no duration of more than 0, or no count of 1 or more.

    Example:
        >>> EventTimeTrigger().with_early_firings(every="10s").with_late_firings(count=100).describe()
        'event time, early every 10s, late every 100 rows'
    """

    early_every: Duration | None = None
    early_count: int | None = None
    late_count: int | None = None
    _every_ms: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        if self.early_every is not None:
            object.__setattr__(self, "_every_ms", _interval(self.early_every, "EventTimeTrigger: early_every"))
        for option, count in (("early_count", self.early_count), ("late_count", self.late_count)):
            if count is not None:
                check_count(count, f"EventTimeTrigger: {option}")

    def with_early_firings(self, every: Duration | None = None, count: int | None = None) -> EventTimeTrigger:
        """The same trigger with early results: after a time (processing time), a number of rows, or both.

        Raises:
            ConfigurationError: neither is given, or one cannot be used.
        """
        if every is None and count is None:
            raise ConfigurationError("with_early_firings: give every='10s', count=100, or both")
        return replace(self, early_every=every, early_count=count)

    def with_late_firings(self, count: int) -> EventTimeTrigger:
        """The same trigger with one late result for so many late rows.

        Raises:
            ConfigurationError: no count of 1 or more.
        """
        return replace(self, late_count=check_count(count, "with_late_firings: count"))

    @property
    def states(self) -> tuple[KeyedDescriptor, ...]:
        early = (_FIRE_TIME,) if self.early_every is not None else ()
        counts = ((_EARLY_COUNT, self.early_count), (_LATE_COUNT, self.late_count))
        return (*early, *(descriptor for descriptor, count in counts if count is not None))

    def on_element(self, row: Row, timestamp: int | None, window: TimeWindow, context: TriggerContext) -> TriggerResult:
        if window.max_timestamp <= context.current_watermark:
            return TriggerResult.FIRE if self.late_count is None else _counted(_LATE_COUNT, self.late_count, context)
        context.register_event_time_timer(window.max_timestamp)
        if self.early_every is not None:
            _start_interval(self._every_ms + context.current_processing_time, context)
        if self.early_count is not None:
            return _counted(_EARLY_COUNT, self.early_count, context)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, context: TriggerContext) -> TriggerResult:
        if time == window.max_timestamp:
            self._clear_early(context)
            # A session that late rows made longer has them in this result.
            self._clear_late(context)
            return TriggerResult.FIRE
        # Behind its end a window has one timer left, that of the end of its lateness.
        if self.late_count is not None and time > window.max_timestamp:
            late = context.get_partitioned_state(_LATE_COUNT)
            if late.get() is not None:
                late.clear()
                return TriggerResult.FIRE
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, context: TriggerContext) -> TriggerResult:
        if self.early_every is None:
            return TriggerResult.CONTINUE
        fire_time = context.get_partitioned_state(_FIRE_TIME)
        if fire_time.get() != time:
            return TriggerResult.CONTINUE
        fire_time.clear()
        _start_interval(max(time, context.current_processing_time) + self._every_ms, context)
        return TriggerResult.FIRE

    def on_merge(self, window: TimeWindow, context: OnMergeContext) -> None:
        for descriptor in self.states:
            assert isinstance(descriptor, ReducingStateDescriptor)
            context.merge_partitioned_state(descriptor)
        if window.max_timestamp > context.current_watermark:
            self._clear_late(context)
            context.register_event_time_timer(window.max_timestamp)
            if self.early_every is not None:
                _resume_interval(context, context.register_processing_time_timer)
        else:
            self._clear_early(context)

    def clear(self, window: TimeWindow, context: TriggerContext) -> None:
        context.delete_event_time_timer(window.max_timestamp)
        self._clear_early(context)
        self._clear_late(context)

    def _clear_late(self, context: TriggerContext) -> None:
        if self.late_count is not None:
            context.get_partitioned_state(_LATE_COUNT).clear()

    def _clear_early(self, context: TriggerContext) -> None:
        if self.early_count is not None:
            context.get_partitioned_state(_EARLY_COUNT).clear()
        if self.early_every is not None:
            _stop_interval(context, context.delete_processing_time_timer)

    def describe(self) -> str:
        early = [f"every {format_duration(self._every_ms)}"] if self.early_every is not None else []
        early += [f"every {self.early_count} rows"] if self.early_count is not None else []
        late = f", late every {self.late_count} rows" if self.late_count is not None else ""
        return f"event time{f', early {chr(32).join(early)}' if early else ''}{late}"


@dataclass(frozen=True, slots=True)
class ProcessingTimeTrigger(_BlindTrigger):
    """Fires when the clock has passed the window's end. The default in processing time."""

    def on_element(self, row: Row, timestamp: int | None, window: TimeWindow, context: TriggerContext) -> TriggerResult:
        context.register_processing_time_timer(window.max_timestamp)
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, context: TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE

    def on_merge(self, window: TimeWindow, context: OnMergeContext) -> None:
        if window.max_timestamp > context.current_processing_time:
            context.register_processing_time_timer(window.max_timestamp)

    def clear(self, window: TimeWindow, context: TriggerContext) -> None:
        context.delete_processing_time_timer(window.max_timestamp)

    def describe(self) -> str:
        return "processing time"


@dataclass(frozen=True, slots=True)
class CountTrigger(_BlindTrigger):
    """Fires whenever so many rows have come, and at no other time.

    Args:
        count: 1 or more.

    Raises:
        ConfigurationError: no whole number of 1 or more.
    """

    count: int

    def __post_init__(self) -> None:
        check_count(self.count, "CountTrigger: count")

    @property
    def states(self) -> tuple[KeyedDescriptor, ...]:
        return (_COUNT,)

    def on_element(self, row: Row, timestamp: int | None, window: TimeWindow, context: TriggerContext) -> TriggerResult:
        return _counted(_COUNT, self.count, context)

    def on_merge(self, window: TimeWindow, context: OnMergeContext) -> None:
        context.merge_partitioned_state(_COUNT)

    def clear(self, window: TimeWindow, context: TriggerContext) -> None:
        context.get_partitioned_state(_COUNT).clear()

    def describe(self) -> str:
        return f"count {self.count}"


@dataclass(frozen=True, slots=True)
class ContinuousEventTimeTrigger(_BlindTrigger):
    """Fires at every multiple of an interval that the watermark passes, at the window's end, and for late rows at once.

    Args:
        interval: more than 0.

    Raises:
        ConfigurationError: no duration of more than 0.
    """

    interval: Duration
    _interval_ms: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_interval_ms", _interval(self.interval, "ContinuousEventTimeTrigger: interval"))

    @property
    def states(self) -> tuple[KeyedDescriptor, ...]:
        return (_FIRE_TIME,)

    @property
    def needs_timestamps(self) -> bool:
        return True

    def on_element(self, row: Row, timestamp: int | None, window: TimeWindow, context: TriggerContext) -> TriggerResult:
        if window.max_timestamp <= context.current_watermark:
            return TriggerResult.FIRE
        context.register_event_time_timer(window.max_timestamp)
        if timestamp is not None and context.get_partitioned_state(_FIRE_TIME).get() is None:
            self._register(timestamp - timestamp % self._interval_ms, window, context)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, context: TriggerContext) -> TriggerResult:
        if time == window.max_timestamp:
            return TriggerResult.FIRE
        fire_time = context.get_partitioned_state(_FIRE_TIME)
        if fire_time.get() != time:
            return TriggerResult.CONTINUE
        fire_time.clear()
        if context.current_watermark == window.max_timestamp == MAX_TIMESTAMP:
            # At the end of time the global window would fire for ever: it fires once more, at its own end.
            return TriggerResult.CONTINUE
        self._register(time, window, context)
        return TriggerResult.FIRE

    def _register(self, start: int, window: TimeWindow, context: TriggerContext) -> None:
        time = min(start + self._interval_ms, window.max_timestamp)
        context.get_partitioned_state(_FIRE_TIME).add(time)
        context.register_event_time_timer(time)

    def on_merge(self, window: TimeWindow, context: OnMergeContext) -> None:
        context.merge_partitioned_state(_FIRE_TIME)
        _resume_interval(context, context.register_event_time_timer)

    def clear(self, window: TimeWindow, context: TriggerContext) -> None:
        context.delete_event_time_timer(window.max_timestamp)
        _stop_interval(context, context.delete_event_time_timer)

    def describe(self) -> str:
        return f"continuous event time {format_duration(self._interval_ms)}"


@dataclass(frozen=True, slots=True)
class ContinuousProcessingTimeTrigger(_BlindTrigger):
    """Fires at every multiple of an interval that the clock passes, and at the end of a window of processing time.

    Args:
        interval: more than 0.

    Raises:
        ConfigurationError: no duration of more than 0.
    """

    interval: Duration
    _interval_ms: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_interval_ms", _interval(self.interval, "ContinuousProcessingTimeTrigger: interval"))

    @property
    def states(self) -> tuple[KeyedDescriptor, ...]:
        return (_FIRE_TIME,)

    def on_element(self, row: Row, timestamp: int | None, window: TimeWindow, context: TriggerContext) -> TriggerResult:
        if context.get_partitioned_state(_FIRE_TIME).get() is None:
            now = context.current_processing_time
            time = now - now % self._interval_ms + self._interval_ms
            _start_interval(min(time, window.max_timestamp) if now <= window.max_timestamp else time, context)
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, context: TriggerContext) -> TriggerResult:
        fire_time = context.get_partitioned_state(_FIRE_TIME)
        if fire_time.get() != time:
            return TriggerResult.CONTINUE
        fire_time.clear()
        following = time + self._interval_ms
        # A window of event time may have ended long ago by the clock; its end must not come up for ever.
        _start_interval(min(following, window.max_timestamp) if time < window.max_timestamp else following, context)
        return TriggerResult.FIRE

    def on_merge(self, window: TimeWindow, context: OnMergeContext) -> None:
        context.merge_partitioned_state(_FIRE_TIME)
        _resume_interval(context, context.register_processing_time_timer)

    def clear(self, window: TimeWindow, context: TriggerContext) -> None:
        _stop_interval(context, context.delete_processing_time_timer)

    def describe(self) -> str:
        return f"continuous processing time {format_duration(self._interval_ms)}"


@dataclass(frozen=True, slots=True)
class PurgingTrigger(Trigger):
    """Does what another trigger does, and forgets the contents of a window whenever it fires.

    Args:
        nested: the other trigger.

    Raises:
        ConfigurationError: it is none.
    """

    nested: Trigger

    def __post_init__(self) -> None:
        if not isinstance(self.nested, Trigger):
            raise ConfigurationError(
                f"PurgingTrigger takes a trigger, such as PurgingTrigger(CountTrigger(100)), not {self.nested!r:.200}"
            )

    @property
    def states(self) -> tuple[KeyedDescriptor, ...]:
        return self.nested.states

    @property
    def can_merge(self) -> bool:
        return self.nested.can_merge

    @property
    def reads_rows(self) -> bool:
        return self.nested.reads_rows

    @property
    def needs_timestamps(self) -> bool:
        return self.nested.needs_timestamps

    def on_element(self, row: Row, timestamp: int | None, window: TimeWindow, context: TriggerContext) -> TriggerResult:
        return _purging(self.nested.on_element(row, timestamp, window, context))

    def on_event_time(self, time: int, window: TimeWindow, context: TriggerContext) -> TriggerResult:
        return _purging(self.nested.on_event_time(time, window, context))

    def on_processing_time(self, time: int, window: TimeWindow, context: TriggerContext) -> TriggerResult:
        return _purging(self.nested.on_processing_time(time, window, context))

    def on_merge(self, window: TimeWindow, context: OnMergeContext) -> None:
        self.nested.on_merge(window, context)

    def clear(self, window: TimeWindow, context: TriggerContext) -> None:
        self.nested.clear(window, context)

    def describe(self) -> str:
        return f"purging {self.nested.describe()}"


@dataclass(frozen=True, slots=True)
class DeltaTrigger(Trigger):
    """Fires when a row differs from the row at the last firing by more than a threshold. Not for windows that merge.

    Args:
        threshold: fires above it.
        delta: takes the row at the last firing (at first the window's first row) and the new row; returns a number.

    Raises:
        ConfigurationError: `delta` cannot be called.
    """

    threshold: float
    delta: Callable[[Row, Row], float]

    def __post_init__(self) -> None:
        check_delta(self.threshold, self.delta, "DeltaTrigger")

    @property
    def states(self) -> tuple[KeyedDescriptor, ...]:
        return (_LAST_ELEMENT,)

    def on_element(self, row: Row, timestamp: int | None, window: TimeWindow, context: TriggerContext) -> TriggerResult:
        last = context.get_partitioned_state(_LAST_ELEMENT)
        held = last.value()
        if held is not None and not self.delta(held, row) > self.threshold:
            return TriggerResult.CONTINUE
        last.update(dict(row))
        return TriggerResult.CONTINUE if held is None else TriggerResult.FIRE

    def clear(self, window: TimeWindow, context: TriggerContext) -> None:
        context.get_partitioned_state(_LAST_ELEMENT).clear()

    def describe(self) -> str:
        return f"delta over {self.threshold}"


@dataclass(frozen=True, slots=True)
class EndOfTimeTrigger(_BlindTrigger):
    """Fires once, when the end of a bounded stream completes event time."""

    def on_element(self, row: Row, timestamp: int | None, window: TimeWindow, context: TriggerContext) -> TriggerResult:
        context.register_event_time_timer(MAX_TIMESTAMP)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, context: TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE if time == MAX_TIMESTAMP else TriggerResult.CONTINUE

    def on_merge(self, window: TimeWindow, context: OnMergeContext) -> None:
        context.register_event_time_timer(MAX_TIMESTAMP)

    def clear(self, window: TimeWindow, context: TriggerContext) -> None:
        context.delete_event_time_timer(MAX_TIMESTAMP)

    def describe(self) -> str:
        return "end of time"


@dataclass(frozen=True, slots=True)
class NeverTrigger(_BlindTrigger):
    """Never fires. The default of global windows."""

    def on_element(self, row: Row, timestamp: int | None, window: TimeWindow, context: TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(self, window: TimeWindow, context: OnMergeContext) -> None:
        """Nothing to merge."""

    def describe(self) -> str:
        return "never"


def _counted(descriptor: ReducingStateDescriptor, limit: int, context: TriggerContext) -> TriggerResult:
    """Count one more row, and fire at the limit."""
    count = context.get_partitioned_state(descriptor)
    count.add(1)
    if count.get() < limit:
        return TriggerResult.CONTINUE
    count.clear()
    return TriggerResult.FIRE


def _start_interval(time: int, context: TriggerContext) -> None:
    """Fire at `time` of the clock, unless the window waits for such a time already."""
    fire_time = context.get_partitioned_state(_FIRE_TIME)
    if fire_time.get() is None:
        fire_time.add(time)
        context.register_processing_time_timer(time)


def _resume_interval(context: OnMergeContext, register: Callable[[int], None]) -> None:
    """Register the earliest of the times that merged windows waited for."""
    time = context.get_partitioned_state(_FIRE_TIME).get()
    if time is not None:
        register(time)


def _stop_interval(context: TriggerContext, delete: Callable[[int], None]) -> None:
    """Forget the time that the window waits for, and its timer."""
    fire_time = context.get_partitioned_state(_FIRE_TIME)
    time = fire_time.get()
    if time is not None:
        delete(time)
        fire_time.clear()


def _purging(result: TriggerResult) -> TriggerResult:
    # What is no result is refused by the operator, which can say where.
    return TriggerResult.FIRE_AND_PURGE if result is TriggerResult.FIRE else result


def _interval(value: Duration, option: str) -> int:
    return check_span(parse_duration(value, option), option)


def check_delta(threshold: float, delta: object, what: str) -> None:
    """Make sure that a threshold is a number and that `delta` can be called.

    Raises:
        ConfigurationError: it is not so.
    """
    if not isinstance(threshold, int | float) or isinstance(threshold, bool):
        raise ConfigurationError(f"{what}: the threshold must be a number, not {threshold!r}")
    if not callable(delta):
        raise ConfigurationError(
            f"{what}: delta must be a function of two rows that returns a number, not {delta!r:.200}"
        )
