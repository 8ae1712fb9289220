"""What all operators with keyed state share: the backend, timers of both kinds of time, event time, and snapshots.

Process functions and the general window operator each hold one `KeyedServices`. It guarantees that a snapshot holds the
states, the timers and the watermark, and that a restore brings all of them back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from penstock.engine.aggregates.accumulators import plain_type
from penstock.engine.elements import MIN_TIMESTAMP
from penstock.engine.errors import StateError
from penstock.engine.operators.base import OperatorContext
from penstock.engine.operators.saved_aggregates import ANOTHER_UID
from penstock.engine.state.backend import BackendContext, Key, KeyedStateBackend, Namespace, key_tuple
from penstock.engine.state.capture import CaptureRequest, CaptureScope, OperatorCapture, TableCapture
from penstock.engine.state.request import StateRequest
from penstock.engine.state.snapshot import KEY_GROUP, OperatorSnapshot, StateTable
from penstock.engine.state.state_tables import MAP_KEY, START, VALUE
from penstock.engine.state.timers import EVENT_TIMERS, PROCESSING_TIMERS, TIMER_TIME, TimerQueue


def backend_context(context: OperatorContext, keys: Sequence[str]) -> BackendContext:
    """What the operator's state backend needs to know."""
    config = context.config
    return BackendContext(context.where, tuple(keys), config.max_parallelism, context.clock, config.state_directory)


class KeyedServices:
    """Keyed state and timers of one operator in one subtask.

    Args:
        context: where the operator runs.
        keys: names of the key columns (of the first input, where there are two).
        backend: holds the states; closed by `close`.
    """

    def __init__(self, context: OperatorContext, keys: Sequence[str], backend: KeyedStateBackend) -> None:
        self.context = context
        self.keys = tuple(keys)
        self.backend = backend
        self.event_timers = TimerQueue()
        self.processing_timers = TimerQueue()
        self.watermark = MIN_TIMESTAMP
        self._key_schema: pa.Schema | None = None

    def bind(self, schema: pa.Schema, names: Sequence[str] | None = None) -> None:
        """Learn the types of the key columns; called with the columns of each batch before its rows are handled.

        Args:
            schema: the batch's columns.
            names: the key columns there, where they are named otherwise (second inputs).
        """
        if self._key_schema is None:
            fields = [schema.field(name) for name in names or self.keys]
            # Null keys are refused by the exchange in front of every keyed operator.
            bound = [pa.field(name, plain_type(f.type)) for name, f in zip(self.keys, fields, strict=True)]
            self._bind(pa.schema(bound))

    def _bind(self, key_schema: pa.Schema) -> None:
        self._key_schema = key_schema
        self.backend.bind_keys(key_schema)

    def key_batch(self, keys: Sequence[Key]) -> pa.RecordBatch:
        """Keys as rows carry them, as the key columns; batches have been bound."""
        assert self._key_schema is not None
        tuples = [key_tuple(key, self.keys) for key in keys]
        arrays = [pa.array([values[at] for values in tuples], f.type) for at, f in enumerate(self._key_schema)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._key_schema)

    def due_event_timers(self, watermark: int) -> Iterator[tuple[int, Key, Namespace]]:
        """Move event time on, and take the timers that are due: set the current key, then act, one after another."""
        self.watermark = watermark
        return self.event_timers.due(watermark)

    @property
    def next_processing_time(self) -> int | None:
        """For `Operator.next_processing_time`."""
        return self.processing_timers.next_time

    def due_processing_timers(self, now_ms: int) -> Iterator[tuple[int, Key, Namespace]]:
        """Take the timers of processing time that are due."""
        return self.processing_timers.due(now_ms)

    def processing_timers_so_far(self, now_ms: int) -> Iterator[tuple[int, Key, Namespace]]:
        """Take the timers of processing time that are due, but for those registered meanwhile: they wait for the next
        call, so that one that is registered for now each time it fires does not keep the operator for ever."""
        return self.processing_timers.due_so_far(now_ms)

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        """States, timers and watermark at a barrier, by reference."""
        if self._key_schema is None:
            return OperatorCapture(watermark=self.watermark)
        states = self.backend.capture(request)
        tables = dict(states.tables)
        for name, queue in ((EVENT_TIMERS, self.event_timers), (PROCESSING_TIMERS, self.processing_timers)):
            timers = queue.capture(request.scope, self._key_schema, self.context.config.max_parallelism)
            if len(queue):
                tables[name] = timers
        return OperatorCapture(tables, self.watermark, states.native)

    def read_state(self, request: StateRequest) -> Mapping[str, TableCapture]:
        """As `Operator.read_state`, for operators whose state belongs to keys and not to windows of them."""
        if self._key_schema is None:
            return {}
        found = None if request.keys is None else self.backend.read_keys(request.state, request.keys)
        if found is not None:
            return {request.state: found}
        return self.capture(CaptureRequest(0, CaptureScope.COMPLETE)).tables

    def restore(self, snapshot: OperatorSnapshot) -> None:
        """Hold what the snapshot holds; the operator has declared its states.

        State that the operator does not declare (any more, or yet) is carried over from snapshot to snapshot, as in
        Flink, until a program declares it.

        Raises:
            StateError: the snapshot was made with other key columns, or in another order, or by an operator of
                another kind.
        """
        self.watermark = snapshot.watermark
        tables = dict(snapshot.tables)
        if not tables:
            return
        schemas = [restored_keys(table, self.keys, self.context.where) for table in tables.values()]
        self._bind(schemas[0])
        assert self._key_schema is not None
        for name, queue in ((EVENT_TIMERS, self.event_timers), (PROCESSING_TIMERS, self.processing_timers)):
            table = tables.pop(name, None)
            if table is not None:
                queue.restore(table, self._key_schema)
        self.backend.restore(tables)

    def close(self) -> None:
        """Release the backend."""
        self.backend.close()


def restored_keys(table: StateTable, keys: Sequence[str], where: str) -> pa.Schema:
    """The key columns of a table of keyed state that is restored.

    Raises:
        StateError: it was made with other key columns, or by an operator of another kind.
    """
    names = table.data.column_names
    if not _is_of_states(names):
        raise StateError(
            f"{where}: the saved state ({', '.join(names)}) is that of an operator of another kind; {ANOTHER_UID}"
        )
    saved = names[names.index(KEY_GROUP) + 1 : names.index(START)]
    if tuple(saved) != tuple(keys):
        raise StateError(
            f"{where}: the state was saved by the keys ({', '.join(saved)}), and the stream has the "
            f"keys ({', '.join(keys)}) now; key by the same columns in the same order, or start without this "
            "operator's state"
        )
    return pa.schema([table.data.schema.field(name) for name in saved])


def _is_of_states(names: list[str]) -> bool:
    """Whether these are the columns of a state of keys, or of timers: those of sessions' accumulators are alike."""
    if START not in names:
        return False
    behind = names[names.index(START) :]
    return any(name == TIMER_TIME or name.lstrip("_") in (VALUE, MAP_KEY) for name in behind)
