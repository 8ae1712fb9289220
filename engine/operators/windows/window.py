"""The general window operator: any assigner, trigger, evictor and function, key by key and row by row.

`WindowedStream` chooses it where the operators on whole batches cannot do the work. It follows Flink's `WindowOperator`
and `EvictingWindowOperator` rule by rule: which rows are late, when windows fire, merge and are forgotten.

Time does not move while a batch is handled, so results do not depend on how rows are cut into batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from penstock.engine.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, Batch, Watermark
from penstock.engine.errors import RecordError
from penstock.engine.functions import OutputTag, ProcessWindowFunction, Row
from penstock.engine.operators.base import USER_FAILURES, Collector, Operator, OperatorContext, SchemaOrUnknown
from penstock.engine.operators.functions.function_operator import key_values
from penstock.engine.operators.functions.row_results import SideOutputs
from penstock.engine.operators.functions.user_functions import create_function
from penstock.engine.operators.keyed import KeyedServices, backend_context
from penstock.engine.operators.spec import OperatorSpec, OperatorTraits
from penstock.engine.operators.windows.merging_windows import MERGING_WINDOWS, MergingWindows
from penstock.engine.operators.windows.saved_contents import check_contents, check_lateness, check_places, check_times
from penstock.engine.operators.windows.window_contents import (
    EvictableContents,
    Eviction,
    FoldContents,
    RowContents,
    WindowContents,
)
from penstock.engine.operators.windows.window_context import FiringContext, WindowTimers
from penstock.engine.operators.windows.window_folds import CONTENTS, FoldSpec, NamedFold
from penstock.engine.operators.windows.window_results import AggregateEmitter, RowEmitter, WindowEmitter
from penstock.engine.operators.windows.window_state import PlacedStore, WindowRuntime
from penstock.engine.rows import batch_rows
from penstock.engine.state.backend import Key
from penstock.engine.state.backends import create_backend
from penstock.engine.state.capture import CaptureRequest, OperatorCapture, complete_table
from penstock.engine.state.descriptors import ValueStateDescriptor
from penstock.engine.state.snapshot import OperatorSnapshot, Redistribution, StateTable
from penstock.engine.windows.base import WindowAssigner
from penstock.engine.windows.evictors import Evictor
from penstock.engine.windows.general import GlobalWindows
from penstock.engine.windows.trigger_base import Trigger, TriggerResult
from penstock.engine.windows.triggers import ContinuousProcessingTimeTrigger, ProcessingTimeTrigger, PurgingTrigger
from penstock.engine.windows.windows import TimeWindow

_LAST_TIMESTAMP: Final = ValueStateDescriptor("last-timestamp", "int64")
"""Of a window without an end, whose results carry it."""
_SCHEMA: Final = "window-schema"
"""The table in snapshots that has the columns of the rows, where they were not known before the job ran."""

_TYPES: Final = "window-accumulators"
"""The table in snapshots that has the types of named aggregates' accumulators, where the columns were declared."""

_LATENESS: Final = "window-lateness"
"""The table in snapshots that has the allowed lateness (ms), by which windows are forgotten."""

_FIRED_UNTIL: Final = "window-fired-until"
"""The table in snapshots that has the time of the clock up to which windows have fired, so that none fires again."""


@dataclass(frozen=True, slots=True)
class WindowOperatorSpec(OperatorSpec):
    """Creates the general window operator.

    Args:
        windows: the assigner.
        keys: the key columns; none where all rows are one group.
        fold: how a window's rows are kept as one accumulator, or None to keep them all.
        function: called for each window that fires, with all rows or with the result of the fold; or None.
        result: the declared columns of rows that functions give back, or None to infer them.
        schema: the columns of the input, if they are known.
        timed: whether the input has event timestamps.
        trigger: or None for the assigner's own.
        evictor: or None.
        allowed_lateness_ms: how long (event time) windows are kept behind their end.
        late_tag: the side output of late rows, or None to drop them.
    """

    windows: WindowAssigner
    keys: tuple[str, ...]
    fold: FoldSpec | None
    function: ProcessWindowFunction | type[ProcessWindowFunction] | None
    result: SchemaOrUnknown
    schema: SchemaOrUnknown
    timed: bool
    trigger: Trigger | None = None
    evictor: Evictor | None = None
    allowed_lateness_ms: int = 0
    late_tag: OutputTag | None = None

    def create(self) -> WindowOperator:
        return WindowOperator(self)

    def describe(self) -> str:
        return f"window({self.windows.describe()})"

    @property
    def traits(self) -> OperatorTraits:
        return OperatorTraits(
            keys=(self.keys,) if self.keys else (),
            waits_for_clock=_fires_by_clock(self.trigger or self.windows.default_trigger()),
        )


def _fires_by_clock(trigger: Trigger) -> bool:
    fires = trigger.nested if isinstance(trigger, PurgingTrigger) else trigger
    return isinstance(fires, ProcessingTimeTrigger | ContinuousProcessingTimeTrigger)


class WindowOperator(Operator):
    """Keeps the windows of each key, and does with each what its trigger says."""

    def __init__(self, plan: WindowOperatorSpec) -> None:
        self._plan = plan
        self._assigner = plan.windows
        self._trigger = plan.trigger or plan.windows.default_trigger()
        self._is_event_time = plan.windows.is_event_time
        self._function: ProcessWindowFunction | None = None
        self._services: KeyedServices | None = None
        self._fired_until = MIN_TIMESTAMP

    # Life

    def open(self, context: OperatorContext) -> None:
        plan = self._plan
        self._context = context
        backend = create_backend(context.config.state_backend, backend_context(context, plan.keys))
        services = self._services = KeyedServices(context, plan.keys, backend)
        self._event_timers, self._processing_timers = services.event_timers, services.processing_timers
        self._backend = backend
        by_event, by_clock = (self._kept_until, _never) if self._is_event_time else (_never, self._kept_until)
        self._timers = WindowTimers(services, self._trigger.states, by_event, by_clock)
        self._clock = _BatchClock(context.where)
        self._sides = SideOutputs(context, plan.timed)
        self._fold = None if plan.fold is None else plan.fold.create(context, plan.schema)
        self._contents, self._evictable = self._create_contents()
        self._last_timestamp = backend.value_state(_LAST_TIMESTAMP) if plan.timed else None
        self._merging = MergingWindows(self._assigner, backend) if self._assigner.is_merging else None
        self._emitter = self._create_emitter()
        self._reads_rows = (
            self._fold is None
            or self._fold.reads_rows
            or self._evictable is not None
            or self._assigner.reads_rows
            or self._trigger.reads_rows
        )

    def _create_contents(self) -> tuple[WindowContents, EvictableContents | None]:
        plan = self._plan
        if plan.evictor is not None:
            evictable = EvictableContents(self._backend, plan.schema, self._fold, plan.evictor, self._context.where)
            return evictable, evictable
        if self._fold is not None:
            return FoldContents(self._backend, self._fold), None
        return RowContents(self._backend, plan.schema), None

    def _create_emitter(self) -> WindowEmitter:
        plan, where = self._plan, self._context.where
        refusal = "windows that merge have no state of their own; use global_state" if self._assigner.is_merging else ""
        self._window_state = PlacedStore(self._backend, "window-state", self._go_to_window, where, refusal)
        global_state = PlacedStore(self._backend, "global-state", self._go_to_key, where)
        self._firing = FiringContext(self._timers, self._window_state, global_state, self._sides)
        if plan.function is None and isinstance(self._fold, NamedFold):
            bounded = not isinstance(plan.windows, GlobalWindows)
            return AggregateEmitter(plan.keys, self._fold, bounded, plan.timed)
        if plan.function is not None:
            self._function = create_function(plan.function, self._context)
            runtime = WindowRuntime(self._context, self._window_state, global_state)
            try:
                self._function.open(runtime)
            except USER_FAILURES as error:
                raise self._context.life_cycle_error(error, "open(context)") from error
        self._window_state.seal()
        global_state.seal()
        return RowEmitter(plan.result, where, plan.timed, self._fold, self._function, self._firing)

    def close(self) -> None:
        try:
            if self._function is not None:
                self._function.close()
        except USER_FAILURES as error:
            raise self._context.life_cycle_error(error, "close()") from error
        finally:
            if self._services is not None:
                self._services.close()

    @property
    def _keyed(self) -> KeyedServices:
        assert self._services is not None, "open comes first"
        return self._services

    def _go_to_window(self) -> None:
        self._backend.set_current_key(self._timers.key, self._timers.window)

    def _go_to_key(self) -> None:
        self._backend.set_current_key(self._timers.key)

    # Rows

    def process_batch(self, batch: Batch, input_index: int, out: Collector) -> None:
        self._keyed.bind(batch.data.schema)
        self._clock.current_processing_time = self._timers.batch_time = self._assigning_time()
        rows = batch_rows(batch.data, self._context.where) if self._reads_rows else [{}] * batch.num_rows
        times = [None] * batch.num_rows if batch.timestamps is None else batch.timestamps.to_pylist()
        keys = self._keys(batch.data, rows)
        items = self._contents.items(batch, rows, times)
        add = self._add_aligned if self._merging is None else self._add_merging
        late: list[int] = []
        row: Row = {}
        try:
            for index, (key, row, item, time) in enumerate(zip(keys, rows, items, times, strict=True)):
                if not add(key, row, item, time):
                    late.append(index)
        except USER_FAILURES as error:
            raise self._context.user_code_error(error, row) from error
        self._timers.batch_time = None
        if late:
            self._give_late(batch, late)
        self._flush(out)

    def _assigning_time(self) -> int:
        """The clock; where windows that end at this very millisecond have fired, the next one: none fires twice."""
        return max(self._context.clock.now_ms(), self._fired_until + 1)

    def _keys(self, data: pa.RecordBatch, rows: list[Row]) -> Sequence[Key]:
        """The key of each row, as users see it; () where there are no key columns."""
        names = self._plan.keys
        if not names:
            return [()] * data.num_rows
        keyed = rows if self._reads_rows else batch_rows(data.select(list(names)), self._context.where)
        return key_values(keyed, names)

    def _add_aligned(self, key: Key, row: Row, item: Any, time: int | None) -> bool:
        """Add a row to its windows; whether it was in time for one, or for none by the assigner's will."""
        watermark = self._keyed.watermark
        timers = self._timers
        timers.key = key
        skipped = True
        for window in self._assigned(row, time):
            cleanup = self._cleanup_time(window)
            if self._is_event_time and cleanup <= watermark:
                continue
            skipped = False
            self._backend.set_current_key(key, window)
            self._contents.add(item)
            timers.window = window
            self._act_on_row(row, time, window, window, cleanup)
        return not (skipped and self._is_late(time))

    def _add_merging(self, key: Key, row: Row, item: Any, time: int | None) -> bool:
        """As `_add_aligned`, for windows that merge."""
        merging, watermark = self._merging, self._keyed.watermark
        assert merging is not None, "the assigner merges"
        timers = self._timers
        timers.key = key
        skipped = True
        merging.go_to(key)
        for assigned in self._assigned(row, time):
            self._check_window(assigned)
            window = merging.add(assigned, self._merge)
            cleanup = self._cleanup_time(window)
            if self._is_event_time and cleanup <= watermark:
                merging.retire(window)
                continue
            skipped = False
            place = merging.state_window(window)
            assert place is not None, "the window was just added"
            self._backend.set_current_key(key, place)
            self._contents.add(item)
            timers.window = window
            self._act_on_row(row, time, window, place, cleanup)
        return not (skipped and self._is_late(time))

    def _assigned(self, row: Row, time: int | None) -> Iterable[TimeWindow]:
        windows = self._assigner.assign_windows(row, time, self._clock)
        if isinstance(windows, TimeWindow) or not isinstance(windows, Iterable):
            raise RecordError(
                f"{self._context.where}: assign_windows of the assigner {self._assigner.describe()!r} returned "
                f"{windows!r:.200}; return a list of TimeWindow"
            )
        return windows

    def _act_on_row(self, row: Row, time: int | None, window: TimeWindow, place: TimeWindow, cleanup: int) -> None:
        """Ask the trigger about a row that was just added, and see to it that the window will be forgotten."""
        if window.end == MAX_TIMESTAMP and self._last_timestamp is not None:
            self._backend.set_current_key(self._timers.key, window)
            self._last_timestamp.update(time)
        result = self._trigger.on_element(row, time, window, self._timers)
        if result is not TriggerResult.CONTINUE:
            self._act(result, place)
        if cleanup != MAX_TIMESTAMP:
            queue = self._event_timers if self._is_event_time else self._processing_timers
            queue.register(cleanup, self._timers.key, window)

    def _is_late(self, time: int | None) -> bool:
        if not self._is_event_time or time is None:
            return False
        return time + self._plan.allowed_lateness_ms <= self._keyed.watermark

    def _cleanup_time(self, window: TimeWindow) -> int:
        """When a window is forgotten; MAX_TIMESTAMP for never."""
        self._check_window(window)
        if not self._is_event_time:
            return window.max_timestamp
        return min(window.max_timestamp + self._plan.allowed_lateness_ms, MAX_TIMESTAMP)

    def _kept_until(self, window: TimeWindow) -> int | None:
        time = self._cleanup_time(window)
        return None if time == MAX_TIMESTAMP else time

    def _check_window(self, window: TimeWindow) -> None:
        if not (
            window.__class__ is TimeWindow
            and window.start.__class__ is int
            and window.end.__class__ is int
            and MIN_TIMESTAMP <= window.start < window.end <= MAX_TIMESTAMP
        ):
            raise RecordError(
                f"{self._context.where}: the assigner {self._assigner.describe()!r} gave {window!r:.200} as a window; "
                "give TimeWindow(start, end) with a start before its end, both ints, in int64 milliseconds"
            )

    def _give_late(self, batch: Batch, late: list[int]) -> None:
        if self._plan.late_tag is None:
            self._context.metrics.late_rows += len(late)
        else:
            self._context.emit_side(self._plan.late_tag.name, batch.take(pa.array(late, pa.int64())))

    # Merging

    def _merge(
        self, merged: TimeWindow, parts: Sequence[TimeWindow], place: TimeWindow, given_up: Sequence[TimeWindow]
    ) -> None:
        """Windows of the current key merge: the trigger's state, the timers and the contents follow."""
        self._check_merge(merged)
        timers, key = self._timers, self._timers.key
        timers.window, timers.merged = merged, parts
        self._trigger.on_merge(merged, timers)
        for part in parts:
            timers.window = part
            self._clear_trigger()
            queue = self._event_timers if self._is_event_time else self._processing_timers
            queue.delete(self._cleanup_time(part), key, part)
        for old in given_up:
            self._backend.set_current_key(key, old)
            contents = self._contents.take()
            self._backend.set_current_key(key, place)
            self._contents.put(contents)

    def _check_merge(self, merged: TimeWindow) -> None:
        watermark, now = self._keyed.watermark, self._clock.current_processing_time
        if self._is_event_time and self._cleanup_time(merged) <= watermark:
            reached = f"the watermark is at {watermark}"
        elif not self._is_event_time and merged.max_timestamp < now:
            reached = f"the clock is at {now}"
        else:
            return
        raise RecordError(
            f"{self._context.where}: the assigner {self._assigner.describe()!r} merged windows of key "
            f"{self._timers.key!r} into {merged}, which is over already: {reached}; merge_windows must not make a "
            "window end earlier than its parts"
        )

    # Firing

    def _act(self, result: TriggerResult, place: TimeWindow) -> None:
        """Do what the trigger said with the current window, whose contents are at `place`."""
        if result.__class__ is not TriggerResult:
            raise RecordError(
                f"{self._context.where}: the trigger {type(self._trigger).__name__} returned {result!r:.200}, which is "
                "no TriggerResult; return TriggerResult.CONTINUE, FIRE, PURGE or FIRE_AND_PURGE from all its methods"
            )
        if result.is_fire:
            self._fire(place)
        if result.is_purge:
            self._backend.set_current_key(self._timers.key, place)
            self._contents.clear()
            if self._last_timestamp is not None and self._timers.window.end == MAX_TIMESTAMP:
                self._go_to_window()
                self._last_timestamp.clear()

    def _fire(self, place: TimeWindow) -> None:
        key, window = self._timers.key, self._timers.window
        timestamp = self._result_timestamp(window)
        self._backend.set_current_key(key, place)
        contents = self._contents.get()
        if contents is None:
            return
        if self._evictable is None:
            self._emitter.emit(key, window, contents, timestamp)
            return
        eviction = Eviction(contents)
        kept = self._evictable.evict_before(eviction, window, self._timers)
        if kept is not None:
            self._emitter.emit(key, window, kept, timestamp)
        self._evictable.evict_after(eviction, window, self._timers)
        self._backend.set_current_key(key, place)
        self._evictable.replace(eviction.entries)

    def _result_timestamp(self, window: TimeWindow) -> int | None:
        if self._last_timestamp is None:
            return None
        if window.end != MAX_TIMESTAMP:
            return window.max_timestamp
        self._backend.set_current_key(self._timers.key, window)
        last: int | None = self._last_timestamp.value()
        return last

    # Time

    def on_watermark(self, watermark: Watermark, out: Collector) -> Watermark | None:
        for time, key, namespace in self._keyed.due_event_timers(watermark.timestamp):
            assert namespace is not None, "all timers belong to windows"
            self._on_timer(time, key, TimeWindow(*namespace), self._trigger.on_event_time, self._is_event_time)
        self._flush(out)
        return watermark

    @property
    def next_processing_time(self) -> int | None:
        return self._keyed.next_processing_time

    def on_processing_time(self, now_ms: int, out: Collector) -> None:
        for time, key, namespace in self._keyed.processing_timers_so_far(now_ms):
            assert namespace is not None, "all timers belong to windows"
            self._on_timer(time, key, TimeWindow(*namespace), self._trigger.on_processing_time, not self._is_event_time)
        self._fired_until = max(now_ms, self._fired_until)
        self._flush(out)

    def _on_timer(self, time: int, key: Key, window: TimeWindow, ask: Any, may_clean_up: bool) -> None:
        """A timer of a window is due: ask the trigger, and forget the window if its time has come."""
        timers, merging = self._timers, self._merging
        timers.key, timers.window = key, window
        place: TimeWindow | None = window
        if merging is not None:
            merging.go_to(key)
            place = merging.state_window(window)
            if place is None:
                # A timer that the trigger left behind when the window was merged into another.
                return
        assert place is not None, "windows that do not merge are their own place"
        try:
            result = ask(time, window, timers)
            if result is not TriggerResult.CONTINUE:
                self._act(result, place)
            if may_clean_up and time == self._cleanup_time(window):
                self._forget(place)
        except USER_FAILURES as error:
            raise self._context.user_code_error(error, FiredTimer(time, key, window)) from error

    def _forget(self, place: TimeWindow) -> None:
        """Clear everything of the current window."""
        key, window = self._timers.key, self._timers.window
        self._backend.set_current_key(key, place)
        self._contents.clear()
        self._clear_trigger()
        if self._function is not None:
            self._firing.timestamp = self._result_timestamp(window)
            self._function.clear(self._firing)
            self._window_state.clear()
        if self._merging is not None:
            self._merging.retire(window)

    def _clear_trigger(self) -> None:
        """The current window goes: the trigger deletes timers and state."""
        timers = self._timers
        timers.goes = True
        self._trigger.clear(timers.window, timers)
        timers.goes = False

    def _flush(self, out: Collector) -> None:
        self._sides.flush()
        self._emitter.flush(out)

    # State

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        self._complete_state()
        capture = self._keyed.capture(request)
        beside = {name: complete_table(table) for name, table in self._beside().items()}
        return replace(capture, tables={**capture.tables, **beside})

    def _complete_state(self) -> None:
        if self._merging is not None:
            self._merging.write()

    def _beside(self) -> dict[str, StateTable]:
        """What is kept beside the state of keys; of a few values each."""
        fold, tables = self._fold, {}
        if isinstance(fold, NamedFold) and fold.schema is not None:
            name, schema = (_TYPES, fold.scalar.schema) if fold.is_declared else (_SCHEMA, fold.schema)
            nulls = pa.table([pa.nulls(1, kind) for kind in schema.types], names=schema.names)
            tables[name] = StateTable(Redistribution.UNION, nulls)
        if self._is_event_time:
            lateness = pa.table({_LATENESS: [self._plan.allowed_lateness_ms]})
            tables[_LATENESS] = StateTable(Redistribution.BROADCAST, lateness)
        elif self._fired_until != MIN_TIMESTAMP:
            times = pa.table({_FIRED_UNTIL: pa.array([self._fired_until], pa.int64())})
            tables[_FIRED_UNTIL] = StateTable(Redistribution.UNION, times)
        return tables

    def restore(self, snapshot: OperatorSnapshot) -> None:
        tables = dict(snapshot.tables)
        fired = tables.pop(_FIRED_UNTIL, None)
        if fired is not None:
            self._fired_until = max(fired.data.column(_FIRED_UNTIL).to_pylist())
        lateness = tables.pop(_LATENESS, None)
        if lateness is not None:
            saved = lateness.data.column(_LATENESS)[0].as_py()
            check_lateness(saved, self._plan.allowed_lateness_ms, self._context.where)
        columns, types = tables.pop(_SCHEMA, None), tables.pop(_TYPES, None)
        check_places(tables, self._merging is not None, self._context.where)
        check_contents(tables.get(CONTENTS), columns is not None, self._fold, self._context.where)
        if types is not None and CONTENTS in tables:
            check_times(types.data.schema, self._fold, self._context.where)
        if self._merging is None:
            # Nothing is in these windows; kept, they would pass for those of a later snapshot.
            tables.pop(MERGING_WINDOWS.name, None)
        if columns is not None and isinstance(self._fold, NamedFold):
            self._fold.bind(columns.data.schema)
        self._keyed.restore(OperatorSnapshot(tables, snapshot.watermark))


class _BatchClock:
    """The `AssignerContext`: one time for all rows of a batch."""

    __slots__ = ("current_processing_time", "where")

    def __init__(self, where: str) -> None:
        self.where = where
        self.current_processing_time = 0


def _never(window: TimeWindow) -> None:
    """When windows are forgotten by the time that is not theirs."""


class FiredTimer:
    """Shows a timer in an error."""

    def __init__(self, time: int, key: Key, window: TimeWindow) -> None:
        self._time = time
        self._key = key
        self._window = window

    def __repr__(self) -> str:
        return f"a timer at {self._time} of {self._window}, key {self._key!r}"
