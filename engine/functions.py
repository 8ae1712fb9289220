"""What users subclass to write stateful logic, and what these functions are given.

`DataStream.process`, `KeyedStream.process` and `ConnectedStreams.process` take them; the operators in `operators/` call
them. Each subtask works on a copy of its own, calls it from one thread, and calls `open` first and `close` last.

Source: Flink's documentation, "Process Function" and "The Broadcast State Pattern".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.errors import ConfigurationError
from penstock.engine.metric_types import MetricGroup
from penstock.engine.schemas import SchemaLike, parse_schema
from penstock.engine.state.backend import AggregatingState, ListState, MapState, ReducingState, ValueState
from penstock.engine.state.descriptors import (
    AggregatingStateDescriptor,
    KeyedDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.engine.windows.windows import TimeWindow

Row: TypeAlias = dict[str, Any]
Rows: TypeAlias = "Iterable[Mapping[str, Any]] | None"
"""What a function gives back: any number of rows (yield them, or return a list), or None for none."""


@dataclass(frozen=True, slots=True)
class OutputTag:
    """Names a side output. Emit to it with `ctx.output(tag, row)`, read it with `stream.get_side_output(tag)`.

    Args:
        name: unique within the operator.
        columns: the columns of its rows, or None to infer them from the first. It is enough if the tag that is read
            or the one that is written has them; where both do, they must be the same.

    Raises:
        ConfigurationError: an empty name, or columns that declare nothing.

    Example:
        >>> OutputTag("late", {"user": "string", "at": "int64"}).schema.names
        ['user', 'at']
    """

    name: str
    columns: SchemaLike | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ConfigurationError(f"an OutputTag's name is a text, not {self.name!r}")
        _ = self.schema

    @property
    def schema(self) -> pa.Schema | None:
        """The declared columns, or None."""
        return None if self.columns is None else parse_schema(self.columns, f"OutputTag {self.name!r}")


class _PlaceAndState(Protocol):
    """What every function gets in `open`."""

    @property
    def is_restored(self) -> bool:
        """Whether the job resumes from a snapshot. State of the subtask then has its values in `open` already."""
        ...

    @property
    def operator(self) -> str:
        """The operator's name."""
        ...

    @property
    def subtask(self) -> int:
        """Index of the subtask, from 0."""
        ...

    @property
    def parallelism(self) -> int:
        """How many subtasks the operator has."""
        ...

    @property
    def metrics(self) -> MetricGroup:
        """Where the function counts what it wants shown: `context.metrics.counter("rejected")`."""
        ...

    def cached_file(self, name: str) -> Path:
        """The copy on this machine of a file or folder; read it, and change nothing there.

        Args:
            name: as `env.register_cached_file(path, name)` has it.

        Raises:
            ConfigurationError: none was registered under that name, or it cannot be read.
        """
        ...

    def get_state(self, descriptor: ValueStateDescriptor) -> ValueState:
        """One value a key.

        Raises:
            StateError: the stream is not keyed, `open` is over, or the name was declared otherwise.
        """
        ...

    def get_list_state(self, descriptor: ListStateDescriptor) -> ListState:
        """A list a key."""
        ...

    def get_map_state(self, descriptor: MapStateDescriptor) -> MapState:
        """A map a key."""
        ...

    def get_reducing_state(self, descriptor: ReducingStateDescriptor) -> ReducingState:
        """One reduced value a key."""
        ...

    def get_aggregating_state(self, descriptor: AggregatingStateDescriptor) -> AggregatingState:
        """One accumulator a key."""
        ...

    def get_operator_list_state(self, descriptor: ListStateDescriptor) -> ListState:
        """A list of the subtask; after a rescale the values of all subtasks are dealt out evenly. Needs no key."""
        ...

    def get_union_list_state(self, descriptor: ListStateDescriptor) -> ListState:
        """A list of the subtask; after a restore every subtask has the values of all. Needs no key.

        What every subtask got, every subtask saves again: write the list anew in `snapshot_state`, with this subtask's
        own values, or it grows by the factor of the parallelism at each restart.
        """
        ...


class RuntimeContext(_PlaceAndState, Protocol):
    """What `open` is given: where the function runs, and its state. Keyed state needs a keyed stream.

    All states must be declared here, in `open`: declaring one later is a `StateError`. State of the subtask can be used
    at once, keyed state from the first row on.
    """


class TimerService(Protocol):
    """The time, and timers of the current key. A timer is (key, time): registering it twice gives one."""

    def current_watermark(self) -> int:
        """Event time so far (int64 ms); `penstock.engine.elements.MIN_TIMESTAMP` before the first watermark."""
        ...

    def current_processing_time(self) -> int:
        """The clock (int64 ms since the epoch)."""
        ...

    def register_event_time_timer(self, timestamp: int) -> None:
        """Call `on_timer` when the watermark reaches `timestamp` (int64 ms); at the next watermark if it has.

        At the end of bounded input event time is complete, and every timer is due: one that registers its successor
        each time must not do so once `current_watermark()` is `MAX_TIMESTAMP`.

        Raises:
            StateError: the stream is not keyed, there is no current key, or the function has no `on_timer`.
        """
        ...

    def register_processing_time_timer(self, timestamp: int) -> None:
        """Call `on_timer` when the clock reaches `timestamp` (int64 ms).

        One that is registered for a time that has come fires behind this call, before or behind the next rows. Those
        that are left when bounded input ends do not fire, as in Flink.
        """
        ...

    def delete_event_time_timer(self, timestamp: int) -> None:
        """Forget a timer, if there is one."""
        ...

    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Forget a timer, if there is one."""
        ...

    def register_event_time_timers(self, timestamps: Any) -> None:
        """In `process_batch`: one timer for each of `batch.keys`.

        Args:
            timestamps: int64 ms, one for each key, in their order (an Arrow or NumPy array, or a list); null for none.

        Raises:
            StateError: another number of times, what is no array of times, or not called in `process_batch`.
        """
        ...

    def register_processing_time_timers(self, timestamps: Any) -> None:
        """As `register_event_time_timers`, for timers of the clock."""
        ...


class Context(Protocol):
    """What `process_element` is given beside the row."""

    @property
    def timestamp(self) -> int | None:
        """The row's event timestamp (int64 ms), or None."""
        ...

    @property
    def current_key(self) -> Any:
        """The row's key: a value, or a tuple where there are several key columns.

        Raises:
            StateError: the stream is not keyed.
        """
        ...

    @property
    def timer_service(self) -> TimerService:
        """Time and timers."""
        ...

    def output(self, tag: OutputTag, row: Mapping[str, Any]) -> None:
        """Emit a row to a side output, with the timestamp of the row (or timer) that is being worked on.

        Raises:
            ConfigurationError: `tag` is no `OutputTag`.
            RecordError: the stream has timestamps, and no row or timer is being worked on (in `process_batch`).
        """
        ...


class OnTimerContext(Context, Protocol):
    """What `on_timer` is given; `timestamp` is the timer's."""

    @property
    def is_event_time(self) -> bool:
        """Whether it is a timer of event time, and not of processing time."""
        ...


class BroadcastContext(Context, Protocol):
    """What `process_broadcast_element` is given: broadcast state that it may change."""

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> MapState:
        """The map that all subtasks hold alike.

        Raises:
            StateError: the descriptor was not given to `DataStream.broadcast(...)`.
        """
        ...

    def apply_to_keyed_state(self, descriptor: KeyedDescriptor, function: Callable[[Any, Any], None]) -> None:
        """Call `function(key, state)` for every key of the subtask at which a keyed state holds something.

        Args:
            descriptor: of a state that was declared in `open`.
            function: may read and change the state, and that of the same key under other names.

        Raises:
            ConfigurationError: `function` cannot be called.
            StateError: the stream is not keyed, or no such state was declared.
        """
        ...


class ReadOnlyBroadcastContext(Context, Protocol):
    """What `process_element` of a broadcast function is given: broadcast state that it may read."""

    def get_broadcast_state(self, descriptor: MapStateDescriptor) -> MapState:
        """The map that all subtasks hold alike; changing it here is a `StateError`, since subtasks would differ."""
        ...


class BroadcastOnTimerContext(ReadOnlyBroadcastContext, OnTimerContext, Protocol):
    """What `on_timer` of a keyed broadcast function is given: a timer's context, and broadcast state to read."""


@dataclass(frozen=True, slots=True)
class KeyedBatch:
    """What a batch-wise keyed function is given.

    Args:
        data: the rows, key columns included.
        timestamps: their event timestamps (int64 ms), or None.
        keys: the distinct keys among the rows, one a row, in order of first occurrence; the key columns only.
        groups: for each row, the index of its key in `keys`.
    """

    data: pa.RecordBatch
    timestamps: pa.Int64Array | None
    keys: pa.RecordBatch
    groups: npt.NDArray[np.int64]

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return int(self.data.num_rows)


class _Function:
    """The life of a function in its subtask."""

    def open(self, context: RuntimeContext) -> None:
        """Declare state, load models, open clients. Called once, before the first row."""

    def snapshot_state(self) -> None:
        """A snapshot is about to be taken: write to state of the subtask what is kept elsewhere. There is no key.

        Example:
            >>> def snapshot_state(self):
            ...     self.positions.update([self.position])
        """

    def close(self) -> None:
        """Release resources. Called once, also after an error."""


class ProcessFunction(_Function):
    """Any logic on a stream without keys: no keyed state, no timers; operator state and side outputs.

    Example:
        >>> class Split(ProcessFunction):
        ...     def process_element(self, row, ctx):
        ...         if row["n"] % 2:
        ...             yield row
        ...         else:
        ...             ctx.output(EVEN, row)
    """

    def process_element(self, row: Row, ctx: Context) -> Rows:
        """Handle one row (a dict of its own); yield or return rows."""
        raise NotImplementedError


class KeyedProcessFunction(_Function):
    """Any logic on a keyed stream: keyed state, timers, side outputs.

    Implement `process_element` (a row at a time) or `process_batch` (Arrow batches, many times as fast), not both.

    Example:
        >>> class Count(KeyedProcessFunction):
        ...     def open(self, context):
        ...         self.count = context.get_state(ValueStateDescriptor("count", "int64", default=0))
        ...     def process_element(self, row, ctx):
        ...         self.count.update(self.count.value() + 1)
        ...         yield {"user": ctx.current_key, "n": self.count.value()}
    """

    def process_element(self, row: Row, ctx: Context) -> Rows:
        """Handle one row (a dict of its own); yield or return rows."""
        raise NotImplementedError

    def process_batch(self, batch: KeyedBatch, ctx: Context) -> Any:
        """Handle the rows of a batch at once; value states read and write by `values()` and `update_values(...)`.

        Returns:
            A record batch, a table, a dict of arrays, or None. How rows are cut into batches must not change the sum of
            what comes out. On a stream with timestamps there are two kinds of results: one row for each row of the
            batch, in their order, which keeps its timestamp; or one row for each of `batch.keys`, in their order and
            with the key columns, which gets the largest timestamp among its key's rows. Anything else is a
            `RecordError`: filter behind the function, or by `process_element`.
        """
        raise NotImplementedError

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Rows:
        """A timer of `ctx.current_key` has come to its time; yield or return rows, which get its timestamp."""
        return None


class CoProcessFunction(_Function):
    """Any logic on two connected streams without keys."""

    def process_element1(self, row: Row, ctx: Context) -> Rows:
        """Handle a row of the first stream."""
        raise NotImplementedError

    def process_element2(self, row: Row, ctx: Context) -> Rows:
        """Handle a row of the second stream."""
        raise NotImplementedError


class KeyedCoProcessFunction(CoProcessFunction):
    """Any logic on two connected keyed streams, which share state and timers by key."""

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Rows:
        """As in `KeyedProcessFunction`."""
        return None


class BroadcastProcessFunction(_Function):
    """A stream without keys meets a broadcast stream of rules, which every subtask holds alike."""

    def process_element(self, row: Row, ctx: ReadOnlyBroadcastContext) -> Rows:
        """Handle a row of the stream; broadcast state can be read."""
        raise NotImplementedError

    def process_broadcast_element(self, row: Row, ctx: BroadcastContext) -> Rows:
        """Handle a row of the broadcast stream, in every subtask; it must do the same to the state in each."""
        raise NotImplementedError


class KeyedBroadcastProcessFunction(BroadcastProcessFunction):
    """A keyed stream meets a broadcast stream. In `process_broadcast_element` there is no current key."""

    def on_timer(self, timestamp: int, ctx: BroadcastOnTimerContext) -> Rows:
        """As in `KeyedProcessFunction`; broadcast state can be read."""
        return None


class KeyedStateStore(Protocol):
    """Gives states by their descriptors: declares them in `open`, and gives the same ones later."""

    def get_state(self, descriptor: ValueStateDescriptor) -> ValueState:
        """One value.

        Raises:
            StateError: it was not declared in `open`.
        """
        ...

    def get_list_state(self, descriptor: ListStateDescriptor) -> ListState:
        """A list."""
        ...

    def get_map_state(self, descriptor: MapStateDescriptor) -> MapState:
        """A map."""
        ...

    def get_reducing_state(self, descriptor: ReducingStateDescriptor) -> ReducingState:
        """One reduced value."""
        ...

    def get_aggregating_state(self, descriptor: AggregatingStateDescriptor) -> AggregatingState:
        """One accumulator."""
        ...


class WindowRuntimeContext(_PlaceAndState, Protocol):
    """What `ProcessWindowFunction.open` is given. Its own `get_state` and so on are those of `global_state`."""

    @property
    def window_state(self) -> KeyedStateStore:
        """State of a key and window; it goes with the window. Not for windows that merge, as in Flink."""
        ...

    @property
    def global_state(self) -> KeyedStateStore:
        """State of a key, shared by all its windows."""
        ...


class WindowContext(Protocol):
    """What `ProcessWindowFunction.process` is given beside the rows."""

    @property
    def window(self) -> TimeWindow:
        """The window: `start`, `end` and `max_timestamp` (int64 ms)."""
        ...

    @property
    def current_watermark(self) -> int:
        """Event time so far (int64 ms)."""
        ...

    @property
    def current_processing_time(self) -> int:
        """The clock (int64 ms)."""
        ...

    @property
    def window_state(self) -> KeyedStateStore:
        """State of this key and window, as declared in `open`."""
        ...

    @property
    def global_state(self) -> KeyedStateStore:
        """State of this key, as declared in `open`."""
        ...

    def output(self, tag: OutputTag, row: Mapping[str, Any]) -> None:
        """Emit a row to a side output, with the timestamp of the window's results."""
        ...


class ProcessWindowFunction:
    """What to compute of a window, with all its rows and with the window itself.

    Behind `aggregate(..., process=f)` and `reduce(..., process=f)` it is given the single result instead of the rows.

    Example:
        >>> class Report(ProcessWindowFunction):
        ...     def process(self, key, context, elements):
        ...         yield {"user": key, "end": context.window.end, "clicks": len(elements)}
    """

    def open(self, context: WindowRuntimeContext) -> None:
        """Declare state, load models, open clients. Called once, before the first row."""

    def close(self) -> None:
        """Release resources. Called once, also after an error."""

    def process(self, key: Any, context: WindowContext, elements: list[Row]) -> Rows:
        """A window has fired; yield or return rows, which get the timestamp `context.window.max_timestamp`.

        Args:
            key: a value, or a tuple where there are several key columns; None in `window_all`.
            context: the window, time, state and side outputs.
            elements: the window's rows in order of arrival, copies of the function's own; of sessions that a later row
                made one, session by session.
        """
        raise NotImplementedError

    def clear(self, context: WindowContext) -> None:
        """The window goes. Its `window_state` is cleared behind this call."""


class AsyncFunction:
    """Calls an outside service for each row, many rows at a time. It has no state.

    Example:
        >>> class Enrich(AsyncFunction):
        ...     async def process(self, row):
        ...         return [{**row, "city": await self.client.city_of(row["ip"])}]
    """

    def open(self, context: RuntimeContext) -> None:
        """Load models, open clients. Called once, before the first row."""

    def close(self) -> None:
        """Release resources. Called once, also after an error."""

    async def process(self, row: Row) -> Rows:
        """Rows for one row; anything awaitable may be awaited."""
        raise NotImplementedError

    def timeout(self, row: Row) -> Rows:
        """Rows for a row whose `process` (with all retries) took too long; by default that is an error."""
        raise TimeoutError("process() took longer than the timeout of map_async; override timeout(row) to emit instead")
