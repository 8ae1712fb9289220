"""Keyed state whose value states are columns: for functions that work on whole batches of keys.

`create_columnar_backend` makes it. `values()` and `update_values(...)` are vectorised; reading or writing one key at a
time, as timers do, takes some microseconds. What has no column (lists, maps, reducing and aggregating state, time to
live, serializers, namespaces) is kept by a heap backend inside. Memory is bounded by the keys that hold something.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.errors import StateError
from penstock.engine.state.backend import (
    AggregatingState,
    BackendContext,
    Key,
    KeyedStateBackend,
    ListState,
    MapState,
    Namespace,
    ReducingState,
    ValueState,
    key_tuple,
)
from penstock.engine.state.capture import (
    DELETED,
    CaptureRequest,
    CaptureScope,
    OperatorCapture,
    TableCapture,
)
from penstock.engine.state.changes import SLACK, CapturedRows, ChangedSlots
from penstock.engine.state.cursor import outside_key
from penstock.engine.state.declared import Kept
from penstock.engine.state.descriptors import (
    AggregatingStateDescriptor,
    KeyedDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.engine.state.heap import HeapBackend
from penstock.engine.state.keys.index import KeyIndex, Slots
from penstock.engine.state.slots import SlotColumn
from penstock.engine.state.snapshot import Redistribution, StateTable, parts_of
from penstock.engine.state.state_tables import START, VALUE, StateRows, StateTables, ValueCodec


class _Places:
    """The slots of the current key and of the current keys, looked up when a state asks for them."""

    def __init__(self, tables: StateTables, names: Sequence[str], where: str) -> None:
        self._tables = tables
        self._names = names
        self._where = where
        self.index = KeyIndex()
        self.columns: list[SlotColumn] = []
        self.has_namespace = False
        self._removed: KeyIndex | None = None
        self._key: list[Key] = []
        self._slot: int | None = None
        self._batch: list[pa.Array] | None = None
        self._batch_slots: Slots | None = None

    def set_key(self, key: Key, namespace: Namespace) -> None:
        self._key, self._slot, self.has_namespace = [key], None, namespace is not None

    def set_batch(self, columns: list[pa.Array]) -> None:
        self._batch, self._batch_slots = columns, None

    def clear(self) -> None:
        self._key, self._slot, self.has_namespace = [], None, False
        self._batch = self._batch_slots = None

    def slot(self) -> int:
        """The slot of the current key, or -1."""
        if not self._key:
            raise outside_key(self._where)
        if self._slot is None:
            key = key_tuple(self._key[0], self._names)
            self._slot = self.index.find_one(key, lambda: self._tables.key_columns(self._key))
        return self._slot

    def add(self) -> int:
        """The slot of the current key, which gets one if it has none."""
        if self.slot() < 0:
            self._slot = int(self.index.lookup(self._tables.key_columns(self._key))[0])
            self._batch_slots = None
        assert self._slot is not None
        return self._slot

    def batch(self) -> Slots:
        """The slots of the current keys, or -1."""
        if self._batch is None:
            raise StateError(
                f"{self._where}: values() and update_values(...) are for process_batch; call value() and update() here"
            )
        if self._batch_slots is None:
            self._batch_slots = self.index.find(self._batch)
        return self._batch_slots

    def add_batch(self, rows: npt.NDArray[np.bool_]) -> Slots:
        """The slots of the current keys; those of `rows` get one if they have none."""
        slots, batch = self.batch(), self._batch
        new = np.flatnonzero(rows & (slots < 0))
        if len(new) and batch is not None:
            slots[new] = self.index.lookup([column.take(pa.array(new)) for column in batch])
            self._slot = None
        return slots

    def release(self, slots: Slots) -> None:
        """Take back those of the slots at which no state holds anything."""
        empty = ~np.logical_or.reduce([column.has(slots) for column in self.columns])
        if empty.any():
            self._note_removed(slots[empty])
            self.index.remove(slots[empty])
            self._slot = self._batch_slots = None

    def _note_removed(self, slots: Slots) -> None:
        if self._removed is not None:
            self._removed.lookup(self.index.keys(slots))
            if len(self._removed) > len(self.index) + SLACK:
                self._removed = None

    def track(self) -> None:
        """What there is now has not changed."""
        self._removed = KeyIndex()

    def take_removed(self, scope: CaptureScope) -> _Removed | None:
        """The keys that have been removed since the last capture that counts; None where they are not known."""
        if scope is CaptureScope.COMPLETE:
            return None
        removed = self._removed
        self.track()
        if scope is CaptureScope.BASE or removed is None:
            return None
        slots = removed.slots()
        if len(slots) == 0:
            return _Removed(removed, slots, slots)
        here = self.index.find(removed.keys(slots))
        return _Removed(removed, slots[here < 0], here[here >= 0])


class _Removed(NamedTuple):
    """Keys that lost their slots.

    Args:
        keys: the index that holds them.
        gone: their slots in it, of those that have none again.
        back: the slots in the backend of the others.
    """

    keys: KeyIndex
    gone: Slots
    back: Slots


class ColumnarValueState(ValueState):
    """One value a slot; a heap state holds what belongs to namespaces."""

    def __init__(self, places: _Places, spaced: ValueState, codec: ValueCodec, default: Any) -> None:
        self._places = places
        self._spaced = spaced
        self._codec = codec
        self._default = None if default is None else codec.encode([default])
        self.column = SlotColumn(codec.kind)
        self.changed = ChangedSlots()
        self._is_direct = codec.is_plain and self.column.is_direct
        places.columns.append(self.column)

    def value(self) -> Any:
        if self._places.has_namespace:
            return self._spaced.value()
        slot = self._places.slot()
        found = None if slot < 0 else self._read(slot)
        if found is None and self._default is not None:
            return self._codec.decode(self._default)[0]
        return found

    def _read(self, slot: int) -> Any:
        if not self._is_direct:
            return self._codec.decode(self.column.get(np.array([slot])))[0]
        found = self.column.read(slot)
        return found if self._codec.shown is None else self._codec.shown(found)

    def update(self, value: Any) -> None:
        if self._places.has_namespace:
            self._spaced.update(value)
        elif value is None:
            self.clear()
        else:
            self._write(self._codec.admit(value))

    def _write(self, value: Any) -> None:
        if self._is_direct:
            try:
                if type(value) is str:
                    value.encode()
                slot = self._places.add()
                self.column.write(slot, value)
                self._mark(np.array([slot]))
            except (OverflowError, UnicodeEncodeError):
                self._codec.encode([value])  # says what does not fit
                raise
        else:
            slots = np.array([self._places.add()])
            self.column.set(slots, self._codec.encode([value]))
            self._mark(slots)

    def _mark(self, slots: Slots) -> None:
        self.changed.mark(slots, self._places.index.end)

    def clear(self) -> None:
        if self._places.has_namespace:
            self._spaced.clear()
        elif (slot := self._places.slot()) >= 0:
            slots = np.array([slot])
            self.column.clear(slots)
            self._mark(slots)
            self._places.release(slots)

    def values(self) -> pa.Array:
        slots = self._places.batch()
        known = slots >= 0
        found = self.column.get(slots[known])
        if not known.all():
            found = _spread(found, known)
        return found if self._default is None else _filled(found, self._default)

    def update_values(self, values: Any) -> None:
        array = self._codec.array(values, len(self._places.batch()))
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        slots = self._places.add_batch(valid)
        known = slots >= 0
        self.column.set(slots[known], array if known.all() else array.filter(pa.array(known)))
        self._mark(slots[known])
        if not valid.all():
            self._places.release(slots[known & ~valid])


def _spread(values: pa.Array, rows: npt.NDArray[np.bool_]) -> pa.Array:
    """The values one after another at `rows`, null at the others."""
    if len(values) == 0:
        return pa.nulls(len(rows), values.type)
    return values.take(pa.array(np.cumsum(rows) - 1, mask=~rows))


def _filled(values: pa.Array, default: pa.Array) -> pa.Array:
    """The values with the only value of `default` for null; of any type, which Arrow's `fill_null` does not take."""
    if values.null_count == 0:
        return values
    rows = np.where(values.is_valid().to_numpy(zero_copy_only=False), np.arange(len(values)), len(values))
    return pa.concat_arrays([values, default]).take(pa.array(rows))


class ColumnarBackend(KeyedStateBackend):
    """Value states as columns, all else on a heap.

    Args:
        context: of the operator, which has at least one key column.
    """

    def __init__(self, context: BackendContext) -> None:
        self._keys = list(context.keys)
        self._where = context.where
        self._heap = HeapBackend(context)
        self._places = _Places(self._heap.tables, self._keys, context.where)
        self._states: dict[str, tuple[ValueStateDescriptor, ColumnarValueState]] = {}

    def value_state(self, descriptor: ValueStateDescriptor) -> ValueState:
        if descriptor.ttl is not None or descriptor.serializer is not None:
            return self._heap.value_state(descriptor)
        restored = self._heap.declared.undeclared.pop(descriptor.name, None)
        spaced = self._heap.value_state(descriptor)
        if descriptor.name not in self._states:
            codec = self._heap.tables.codec(descriptor)
            state = ColumnarValueState(self._places, spaced, codec, descriptor.default)
            self._states[descriptor.name] = (descriptor, state)
        if restored is not None:
            self.restore({descriptor.name: restored})
        return self._states[descriptor.name][1]

    def list_state(self, descriptor: ListStateDescriptor) -> ListState:
        return self._heap.list_state(descriptor)

    def map_state(self, descriptor: MapStateDescriptor) -> MapState:
        return self._heap.map_state(descriptor)

    def reducing_state(self, descriptor: ReducingStateDescriptor) -> ReducingState:
        return self._heap.reducing_state(descriptor)

    def aggregating_state(self, descriptor: AggregatingStateDescriptor) -> AggregatingState:
        return self._heap.aggregating_state(descriptor)

    def bind_keys(self, schema: pa.Schema) -> None:
        self._heap.bind_keys(schema)

    def set_current_key(self, key: Key, namespace: Namespace = None) -> None:
        self._heap.set_current_key(key, namespace)
        self._places.set_key(key, namespace)

    def set_current_keys(self, keys: pa.RecordBatch) -> None:
        self._heap.set_current_keys(keys)
        self._places.set_batch([keys.column(name) for name in self._keys])

    def clear_current_key(self) -> None:
        self._heap.clear_current_key()
        self._places.clear()

    def entries(self, name: str) -> Iterator[tuple[Key, Namespace]]:
        yield from self._heap.entries(name)
        if name in self._states:
            slots = self._held(self._states[name][1])
            keys = pa.RecordBatch.from_arrays(self._taken_keys(slots)(), names=self._keys)
            yield from ((key, None) for key in self._heap.tables.key_values(keys))

    def key_counts(self) -> Mapping[str, Callable[[], int]]:
        in_columns = {name: state.column.count for name, (_, state) in self._states.items()}
        return {**self._heap.key_counts(), **in_columns}

    def _held(self, state: ColumnarValueState) -> Slots:
        """The slots at which a state holds something."""
        slots = self._places.index.slots()
        return slots[state.column.has(slots)]

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        heap, scope = self._heap, request.scope
        if heap.tables.schema is None:
            # No key came so far, so there is nothing to keep.
            return OperatorCapture()
        tables = heap.declared.capture_undeclared(scope, heap.tables.identities)
        removed = self._places.take_removed(scope)
        for descriptor, kept in heap.declared:
            if descriptor.name in self._states:
                state = self._states[descriptor.name][1]
                tables[descriptor.name] = self._captured(descriptor, state, kept, removed, scope)
            else:
                tables[descriptor.name] = heap.table_capture(descriptor, kept.capture(scope))
        return OperatorCapture(tables)

    def read_keys(self, name: str, keys: pa.RecordBatch) -> TableCapture | None:
        if name not in self._states or self._heap.tables.schema is None:
            return self._heap.read_keys(name, keys)
        descriptor, state = self._states[name]
        index = self._places.index
        slots = index.find([keys.column(key) for key in self._keys]) if len(index) else np.empty(0, np.int64)
        slots = slots[slots >= 0]
        none = self._heap.table_capture(descriptor, CapturedRows(lambda: StateRows([], [])))
        return replace(none, rows=self._rows(state, slots[state.column.has(slots)], None, none.rows), exact=True)

    def _captured(
        self,
        descriptor: KeyedDescriptor,
        state: ColumnarValueState,
        kept: Kept,
        removed: _Removed | None,
        scope: CaptureScope,
    ) -> TableCapture:
        """What is in the column and what is in the heap, either all of both or the changes of both."""
        spaced = kept.capture(scope)
        whole = CaptureScope.BASE if scope.takes_changes else scope
        slots = state.changed.take(scope if spaced.is_changes and removed else whole, len(self._places.index))
        if slots is None or removed is None:
            if spaced.is_changes:
                spaced = kept.capture(CaptureScope.COMPLETE)
            beside = self._heap.table_capture(descriptor, spaced)
            return replace(beside, rows=self._rows(state, self._held(state), None, beside.rows))
        beside = self._heap.table_capture(descriptor, spaced)
        slots = slots[self._places.index.holds(slots)]
        if len(removed.back):
            slots = np.union1d(slots, removed.back)
        return replace(beside, rows=self._rows(state, slots, removed, beside.rows))

    def _rows(
        self, state: ColumnarValueState, slots: Slots, removed: _Removed | None, beside: Callable[[], pa.Table]
    ) -> Callable[[], pa.Table]:
        """What makes the rows of `slots`, and those `beside` them; with `removed` they are changes."""
        tables = self._heap.tables.frozen()
        parts = [(self._taken_keys(slots), state.column.take(slots), ~state.column.has(slots))]
        if removed is not None and len(removed.gone):
            kind, count = state.column.type, len(removed.gone)
            gone = self._cast(removed.keys.take(removed.gone))
            parts.append((gone, lambda: pa.nulls(count, kind), np.ones(count, np.bool_)))

        def rows() -> pa.Table:
            made = []
            for keys, values, is_gone in parts:
                columns = {VALUE: values()} if removed is None else {VALUE: values(), DELETED: pa.array(is_gone)}
                made.append(tables.table(keys(), None, columns))
            return tables.join([*made, StateTable(Redistribution.KEYED, beside())]).data

        return rows

    def _taken_keys(self, slots: Slots) -> Callable[[], list[pa.Array]]:
        if len(slots) == 0:
            none = self._heap.tables.key_columns([])
            return lambda: none
        return self._cast(self._places.index.take(slots))

    def _cast(self, taken: Callable[[], list[pa.Array]]) -> Callable[[], list[pa.Array]]:
        schema = self._heap.tables.schema
        assert schema is not None, "keys come with their types"
        return lambda: [key.cast(kind) for key, kind in zip(taken(), schema.types, strict=True)]

    def restore(self, tables: Mapping[str, StateTable]) -> None:
        rest = dict(tables)
        for name, (descriptor, state) in self._states.items():
            if name in tables:
                table = self._heap.tables.evolved(descriptor, tables[name])
                if self._heap.tables.is_as_written(descriptor, tables[name]):
                    state.changed.begin()
                data = table.data
                self._load(state, data.filter(pc.is_null(data.column(START))))
                rest[name] = StateTable(table.redistribution, data.filter(pc.is_valid(data.column(START))))
        self._places.track()
        self._heap.restore(rest)

    def _load(self, state: ColumnarValueState, data: pa.Table) -> None:
        names = [*self._keys, self._heap.tables.column_name(VALUE)]
        for part in parts_of(data.select(names)):
            for batch in part.to_batches():
                slots = self._places.index.lookup(batch.columns[:-1])
                state.column.set(slots, batch.column(len(self._keys)))

    def close(self) -> None:
        self._heap.close()
        self._states.clear()
        self._places = _Places(self._heap.tables, self._keys, self._where)
