"""What the operators of process functions share: the life of the function, calls row by row, timers, and snapshots.

The operators in `process.py`, `keyed_process.py`, `co_process.py` and `broadcast_process.py` say what is called for
which input. It guarantees that results keep their order, that they leave in batches of `max_batch_rows` at the most
and before the next batch of rows is taken, and that due timers fire before the watermark is passed on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.engine.aggregates.accumulators import plain_type
from penstock.engine.elements import MIN_TIMESTAMP, Batch, Watermark
from penstock.engine.errors import StateError
from penstock.engine.functions import Row
from penstock.engine.operators.base import USER_FAILURES, Collector, Operator, OperatorContext, SchemaOrUnknown
from penstock.engine.operators.functions.element_context import NO_KEY, ElementContext
from penstock.engine.operators.functions.function_context import FunctionRuntime
from penstock.engine.operators.functions.row_results import (
    USUAL,
    SideOutputs,
    checked_rows,
    unknown_timestamp,
)
from penstock.engine.operators.functions.user_functions import create_function
from penstock.engine.operators.keyed import KeyedServices, backend_context
from penstock.engine.operators.saved_aggregates import ANOTHER_UID
from penstock.engine.row_buffer import RowBuffer
from penstock.engine.rows import batch_columns, rows_of
from penstock.engine.state.backend import Key, KeyedStateBackend, Namespace
from penstock.engine.state.backends import create_backend
from penstock.engine.state.capture import CaptureRequest, OperatorCapture, TableCapture
from penstock.engine.state.operator_state import OperatorState
from penstock.engine.state.request import StateRequest
from penstock.engine.state.snapshot import EMPTY_SNAPSHOT, OperatorSnapshot, Redistribution

_Due = Iterator[tuple[int, Key, Namespace]]


class FunctionOperator(Operator):
    """Calls a function of the user, the subtask's own copy.

    Args:
        given: the function (an object to be copied), or its class.
        keys: the key columns (of the first input, where there are two); none where the stream has no keys.
        schema: the declared columns of its result, or None to infer them.
        timed: whether the stream has event timestamps.
    """

    def __init__(self, given: Any, keys: tuple[str, ...], schema: SchemaOrUnknown, timed: bool) -> None:
        self._given = given
        self._keys = keys
        self._schema = schema
        self._timed = timed
        self._function: Any = None
        self._services: KeyedServices | None = None
        self._watermark = MIN_TIMESTAMP
        self._bound: set[int] = set()

    def open(self, context: OperatorContext) -> None:
        self._context = context
        if self._keys:
            self._services = KeyedServices(context, self._keys, self._create_backend(context))
        restored = EMPTY_SNAPSHOT if context.restored is None else context.restored
        self._operator_state = OperatorState(context.where, restored.tables, context.subtask)
        self._runtime = FunctionRuntime(context, self._services, self._operator_state)
        self._gathered = RowBuffer(self._schema, context.where)
        self._sides = SideOutputs(context, self._timed)
        self._element = self._create_element(context)
        self._function = create_function(self._given, context)
        try:
            self._function.open(self._runtime)
        except USER_FAILURES as error:
            raise context.life_cycle_error(error, "open(context)") from error
        self._runtime.seal()
        if self._services is not None:
            backend = self._services.backend
            for name in backend.key_counts():
                context.metrics.count_keys(name, backend, partial(_held_keys, name))

    def _create_backend(self, context: OperatorContext) -> KeyedStateBackend:
        return create_backend(context.config.state_backend, backend_context(context, self._keys))

    def _create_element(self, context: OperatorContext) -> ElementContext:
        return ElementContext(context, self._given, self._services, self._sides, self._event_time)

    def _event_time(self) -> int:
        return self._watermark

    # Rows

    def _process_rows(
        self,
        method: Callable[[Row, Any], Any],
        element: ElementContext,
        batch: Batch,
        keys: Sequence[Key] | None,
        rows: Iterable[Row],
        out: Collector,
    ) -> None:
        """Call `method` with each row, and emit what it gives.

        Args:
            method, element: of the user's function, and the context for it.
            batch: where the rows come from.
            keys: the key of each row, or None where there is none.
            rows: the batch's rows.
        """
        timestamps = batch.timestamps if self._timed else None
        clock = repeat(None) if timestamps is None else timestamps.to_numpy().tolist()
        if keys is None and self._services is not None:
            self._services.backend.clear_current_key()
        set_key = _ignore if keys is None else self._keyed.backend.set_current_key
        given = zip(rows, repeat(NO_KEY) if keys is None else keys, clock, strict=False)
        for first, ends in self._call(method, element, given, set_key):
            self._sides.flush()
            if len(self._gathered):
                times = self._times_of(timestamps, first, ends)
                out.collect(Batch(self._gathered.take(), times))

    def _call(
        self,
        method: Callable[[Row, Any], Any],
        element: ElementContext,
        rows: Iterable[tuple[Row, Any, int | None]],
        set_key: Callable[[Any], None],
    ) -> Iterator[tuple[int, list[int]]]:
        """Gather the results for rows with their keys and timestamps, as many at a time as a batch may hold.

        Whatever the caller does with them raises there, and is not taken for an error of the user's.

        Yields:
            the index of the row that the first of the results come from, and how many there were behind each row from
            there on. The list is used again.
        """
        self._gathered.clear()
        ends: list[int] = []
        add, count, full_sides = self._gathered.add, ends.append, self._sides.full
        first = 0
        room = limit = self._context.config.max_batch_rows
        row: Row = {}
        try:
            for row, key, time in rows:
                set_key(key)
                element.key = key
                element.timestamp = time
                made = method(row, element)
                if made is not None:
                    for result in made if type(made) in USUAL else self._checked(made, method):
                        add(result)
                        room -= 1
                        if not room:
                            count(limit)
                            yield first, ends
                            # The next results may be of this row too.
                            first += len(ends) - 1
                            room = limit
                            ends.clear()
                count(limit - room)
                if full_sides:
                    yield first, ends
                    first += len(ends)
                    room = limit
                    ends.clear()
        except USER_FAILURES as error:
            raise self._context.user_code_error(error, row) from error
        yield first, ends

    def _checked(self, made: Any, method: Callable[..., Any]) -> Iterable[Any]:
        return checked_rows(made, method.__name__, self._context.where)

    def _times_of(self, timestamps: pa.Int64Array | None, first: int, ends: list[int]) -> pa.Int64Array | None:
        """The timestamp of each result: that of its row, which is row `first` for the first of `ends`."""
        if not self._timed:
            return None
        if timestamps is None:
            raise unknown_timestamp(self._context.where)
        counts = np.diff(ends, prepend=0)
        of_rows = timestamps.slice(first, len(ends))
        return of_rows if (counts == 1).all() else pa.array(np.repeat(of_rows.to_numpy(), counts))

    # Keys

    @property
    def _keyed(self) -> KeyedServices:
        assert self._services is not None, "the operator of a keyed function"
        return self._services

    def _bind(self, input_index: int, schema: pa.Schema, names: tuple[str, ...]) -> None:
        """Learn the types of an input's keys, and check them against those of the state."""
        if input_index in self._bound:
            return
        self._bound.add(input_index)
        self._keyed.bind(schema, names)
        pairs = zip(self._keys, names, strict=True)
        fields = [pa.field(own, plain_type(schema.field(name).type)) for own, name in pairs]
        self._keyed.backend.bind_keys(pa.schema(fields))

    # Time

    def on_watermark(self, watermark: Watermark, out: Collector) -> Watermark | None:
        self._watermark = watermark.timestamp
        if self._services is not None:
            self._fire(self._services.due_event_timers(watermark.timestamp), True, out)
        return watermark

    @property
    def next_processing_time(self) -> int | None:
        return None if self._services is None else self._services.next_processing_time

    def on_processing_time(self, now_ms: int, out: Collector) -> None:
        self._fire(self._keyed.processing_timers_so_far(now_ms), False, out)

    def _fire(self, due: _Due, is_event_time: bool, out: Collector) -> None:
        """Call `on_timer` for each timer that is due, and emit what they give."""
        self._element.is_event_time = is_event_time
        for times in self._call_timers(due):
            self._sides.flush()
            if times:
                out.collect(Batch(self._gathered.take(), pa.array(times, pa.int64()) if self._timed else None))

    def _call_timers(self, due: _Due) -> Iterator[list[int]]:
        """Gather the results of timers, as many at a time as a batch may hold; gives their timestamps in a list that
        is used again.

        Whatever the caller does with them raises there, and is not taken for an error of the user's.
        """
        element, set_key, full_sides = self._element, self._keyed.backend.set_current_key, self._sides.full
        limit = self._context.config.max_batch_rows
        self._gathered.clear()
        add = self._gathered.add
        times: list[int] = []
        for time, key, _ in due:
            set_key(key)
            element.key = key
            element.timestamp = time
            try:
                made = self._function.on_timer(time, element)
                if made is not None:
                    for result in made if type(made) in USUAL else self._checked(made, self._function.on_timer):
                        add(result)
                        times.append(time)
                        if len(times) >= limit:
                            yield times
                            times.clear()
            except USER_FAILURES as error:
                raise self._context.user_code_error(error, _Timer(time, key)) from error
            if full_sides:
                yield times
                times.clear()
        yield times

    # State

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        self._save_function()
        tables = self._operator_state.capture()
        if self._services is None:
            return OperatorCapture(tables, self._watermark)
        keyed = self._services.capture(request)
        return OperatorCapture({**keyed.tables, **tables}, keyed.watermark, keyed.native)

    def read_state(self, request: StateRequest) -> Mapping[str, TableCapture]:
        """What is in its states: what the function puts into them at barriers only is as old as the last one."""
        tables = self._operator_state.capture()
        if self._services is None or request.state in tables:
            return tables
        return {**self._services.read_state(request), **tables}

    def _save_function(self) -> None:
        """Let the function put into its state what it wants to keep."""
        self._leave_key()
        try:
            self._function.snapshot_state()
        except USER_FAILURES as error:
            raise self._context.life_cycle_error(error, "snapshot_state()") from error

    def restore(self, snapshot: OperatorSnapshot) -> None:
        self._watermark = snapshot.watermark
        keyed = {n: t for n, t in snapshot.tables.items() if t.redistribution is Redistribution.KEYED}
        if self._services is not None:
            self._services.restore(OperatorSnapshot(keyed, snapshot.watermark))
        elif keyed:
            raise StateError(
                f"{self._context.where}: the saved state {', '.join(sorted(keyed))} belongs to keys, and the stream "
                f"has none now; call key_by as before, or {ANOTHER_UID}"
            )

    def _leave_key(self) -> None:
        """There is no row or timer at hand, and no current key."""
        self._element.key = NO_KEY
        self._element.timestamp = None
        if self._services is not None:
            self._services.backend.clear_current_key()

    def close(self) -> None:
        try:
            if self._function is not None:
                self._leave_key()
                self._function.close()
        except USER_FAILURES as error:
            raise self._context.life_cycle_error(error, "close()") from error
        finally:
            if self._services is not None:
                self._services.close()


class _Timer:
    """Shows a timer in an error."""

    def __init__(self, time: int, key: Key) -> None:
        self._time = time
        self._key = key

    def __repr__(self) -> str:
        return f"on_timer at {self._time}, key {self._key!r}"


def _ignore(key: Any) -> None:
    """Sets the key where there is none."""


def rows_and_keys(data: pa.RecordBatch, names: Sequence[str], where: str) -> tuple[Iterator[Row], Sequence[Key] | None]:
    """The rows of a batch, each made when it is asked for, and the key of each, as users see it.

    Args:
        names: the key columns; where there are none, there are no keys.
    """
    columns = batch_columns(data, where)
    rows = rows_of(data.schema.names, columns)
    return rows, _keys([columns[data.schema.get_field_index(name)] for name in names]) if names else None


def _held_keys(state: str, backend: KeyedStateBackend) -> int:
    return backend.key_counts()[state]()


def key_values(rows: list[Row], names: Sequence[str]) -> list[Key]:
    """The key of each row, as users see it; taken before the rows are handed out to be changed."""
    return _keys([[row[name] for row in rows] for name in names])


def _keys(columns: Sequence[list[Any]]) -> list[Key]:
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
