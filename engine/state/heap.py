"""Keyed state as Python objects in dicts: the fastest backend record by record, for state that fits in memory.

`create_backend("heap", ...)` makes it; `ColumnarBackend` keeps in it what has no column. Values of Arrow types are
copied as they come and go; one behind a serializer is kept as the object that was given, so who changes it in place
changes the state. A capture takes what has changed by reference, and is converted to Arrow in another thread: so values
are replaced and never changed, and those behind a serializer become bytes at the barrier.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa

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
)
from penstock.engine.state.capture import (
    FEW_ENTRIES,
    CaptureRequest,
    CaptureScope,
    Expiry,
    OperatorCapture,
    TableCapture,
)
from penstock.engine.state.changes import SLACK, CapturedRows, ChangedItems, UntrackedCaptures, are_most, entries_of
from penstock.engine.state.cursor import Cursor, Place, key_and_namespace, place_of
from penstock.engine.state.declared import Declared, Kept
from penstock.engine.state.derived import AggregatingOverValue, ReducingOverValue
from penstock.engine.state.descriptors import (
    AggregatingStateDescriptor,
    KeyedDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.engine.state.map_keys import MapKeys
from penstock.engine.state.snapshot import Redistribution, StateTable
from penstock.engine.state.state_tables import TOUCHED, StateRows, StateTables, ValueCodec
from penstock.engine.state.ttl import TtlListState, TtlMapState, TtlValueState

_NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})
_ALL: Final = CaptureRequest(0, CaptureScope.COMPLETE)
_IMMUTABLE: Final = (type(None), bool, int, float, str, bytes)


class HeapValueState(ValueState):
    """One value a place."""

    def __init__(self, cursor: Cursor, codec: ValueCodec, default: Any = None) -> None:
        self._cursor = cursor
        self._codec = codec
        self._exact = codec.exact
        self._copied = self._given_away if codec.is_opaque else codec.copied
        self._default = default
        self._is_default_shared = isinstance(default, _IMMUTABLE)
        self._entries: dict[Place, Any] = {}
        # What was set since the last capture that counts; `_entries` may be behind. The same dict while nothing counts
        # from any capture. So a value costs one dict more where it is read for the first time, and no other.
        self._changed = self._entries
        self._deleted: set[Place] = set()
        self._untracked = UntrackedCaptures()

    def value(self) -> Any:
        at = self._cursor.at
        found = self._changed.get(at)
        if found is None:
            found = self._entries.get(at)
            if found is None:
                return self._default if self._is_default_shared else copy.deepcopy(self._default)
        return found if self._copied is None else self._copied(found)

    def _given_away(self, value: Any) -> Any:
        """The object itself, which may be changed in place now."""
        self._changed[self._cursor.at] = value
        return value

    def update(self, value: Any) -> None:
        if type(value) is self._exact:
            self._changed[self._cursor.at] = value
        elif value is None:
            self.clear()
        else:
            self._changed[self._cursor.at] = self._codec.admit(value)

    def clear(self) -> None:
        self._drop(self._cursor.at)

    def _drop(self, place: Place) -> None:
        changed, entries = self._changed, self._entries
        if place in changed:  # pop(place, None) would not notice that there is no key
            del changed[place]
        if changed is not entries and place in entries:
            del entries[place]
            self._deleted.add(place)
            if len(self._deleted) > len(entries) + SLACK:
                self._settle()
                self._changed = entries
                self._deleted = set()

    def _settle(self) -> None:
        """Make `_entries` complete."""
        if self._changed is not self._entries:
            self._entries.update(self._changed)

    def values(self) -> pa.Array:
        changed, entries = self._changed.get, self._entries.get
        found = [entries(key) if (value := changed(key)) is None else value for key in self._cursor.batch_keys()]
        return self._codec.array_of(found, self._default)

    def update_values(self, values: Any) -> None:
        keys = self._cursor.batch_keys()
        for key, value in zip(keys, self._codec.decode(self._codec.array(values, len(keys))), strict=True):
            if value is None:
                self._drop(key)
            else:
                self._changed[key] = value

    def count(self) -> int:
        entries, changed = self._entries, self._changed
        return len(entries) if changed is entries else len(entries) + len(changed.keys() - entries.keys())

    def places(self) -> list[Place]:
        self._settle()
        return list(self._entries)

    def track(self) -> None:
        self._settle()
        self._changed, self._deleted = {}, set()

    def capture(self, scope: CaptureScope) -> CapturedRows:
        self._settle()
        entries, changed, deleted = self._entries, self._changed, self._deleted
        is_tracked = changed is not entries
        has_changed_much = is_tracked and are_most(len(changed) + len(deleted), len(entries))
        if scope is not CaptureScope.COMPLETE:
            is_worth_it = self._untracked.next(is_tracked, has_changed_much)
            self._changed, self._deleted = {} if is_worth_it else entries, set()
        gives_all = has_changed_much and scope is not CaptureScope.SWITCH
        if not scope.takes_changes or not is_tracked or gives_all:
            places, values = list(entries), list(entries.values())
            return CapturedRows(lambda: StateRows(list(map(key_and_namespace, places)), values))
        gone = [place for place in deleted if place not in entries]

        def rows() -> StateRows:
            places = [key_and_namespace(place) for place in (*changed, *gone)]
            return StateRows(places, [*changed.values(), *repeat(None, len(gone))], deleted=len(gone))

        return CapturedRows(rows, is_changes=True)

    def at(self, places: Sequence[Place]) -> CapturedRows:
        changed, entries = self._changed, self._entries
        found = [(place, changed.get(place, entries.get(place))) for place in places]
        held = [(key_and_namespace(place), value) for place, value in found if value is not None]
        count = sum(entries_of(value) for _, value in held)
        return CapturedRows(lambda: StateRows([p for p, _ in held], [value for _, value in held]), entries=count)

    def load(self, rows: StateRows) -> None:
        # Of a million keys, a call for each would be a third of what it takes.
        places = [key if namespace is None else (key, namespace) for key, namespace in rows.places]
        self._entries.update(zip(places, rows.values, strict=True))


class HeapListState(ListState):
    """A list a place."""

    def __init__(self, cursor: Cursor, codec: ValueCodec) -> None:
        self._cursor = cursor
        self._admit = codec.admit
        self._exact = codec.exact
        self._copied = codec.copied
        self._is_opaque = codec.is_opaque
        self._entries: dict[Place, list[Any]] = {}
        self._log = ChangedItems()

    def get(self) -> list[Any]:
        held = self._entries.get(self._cursor.at, ())
        if self._is_opaque and held:
            # They may be changed in place now.
            self._mark(self._cursor.at)
        return list(held) if self._copied is None else list(map(self._copied, held))

    def add(self, value: Any) -> None:
        if type(value) is not self._exact:
            value = self._admit(value)
        at = self._cursor.at
        found = self._entries.get(at)
        if found is None:
            self._entries[at] = [value]
        else:
            found.append(value)
        changed = self._log.items
        if changed is not None:
            changed.add(at)

    def add_all(self, values: Iterable[Any]) -> None:
        if admitted := [self._admit(value) for value in values]:
            self._entries.setdefault(self._cursor.at, []).extend(admitted)
            self._mark(self._cursor.at)

    def add_rows(self, rows: Sequence[Any]) -> None:
        # They are what would be kept of them.
        if rows:
            self._entries.setdefault(self._cursor.at, []).extend(rows)
            self._mark(self._cursor.at)

    def update(self, values: Iterable[Any]) -> None:
        if admitted := [self._admit(value) for value in values]:
            self._entries[self._cursor.at] = admitted
            self._mark(self._cursor.at)
        else:
            self.clear()

    def _mark(self, place: Place) -> None:
        if self._log.items is not None:
            self._log.items.add(place)

    def clear(self) -> None:
        if self._cursor.at in self._entries:  # pop(place, None) would not notice that there is no key
            del self._entries[self._cursor.at]
            self._log.drop(self._cursor.at, self._entries.__len__)

    def count(self) -> int:
        return len(self._entries)

    def places(self) -> list[Place]:
        return list(self._entries)

    def track(self) -> None:
        self._log.begin()

    def capture(self, scope: CaptureScope) -> CapturedRows:
        entries = self._entries
        changed = self._log.take(scope, entries.__len__)
        places = list(entries) if changed is None else [place for place in changed if place in entries]
        gone = [] if changed is None else [place for place in changed if place not in entries]
        # A list only grows at its end, or gives way to another: its values up to here stay.
        held = [(entries[place], len(entries[place])) for place in places]

        def rows() -> StateRows:
            values = [*(values[:length] for values, length in held), *repeat(None, len(gone))]
            return StateRows([key_and_namespace(place) for place in (*places, *gone)], values, deleted=len(gone))

        return CapturedRows(rows, changed is not None)

    def at(self, places: Sequence[Place]) -> CapturedRows:
        held = [(key_and_namespace(place), list(self._entries[place])) for place in places if place in self._entries]
        count = sum(len(values) for _, values in held)
        return CapturedRows(lambda: StateRows([p for p, _ in held], [values for _, values in held]), entries=count)

    def load(self, rows: StateRows) -> None:
        for (key, namespace), values in zip(rows.places, rows.values, strict=True):
            self._entries.setdefault(place_of(key, namespace), []).extend(values)


class HeapMapState(MapState):
    """A dict a place."""

    def __init__(self, cursor: Cursor, codec: ValueCodec, key_codec: ValueCodec) -> None:
        self._cursor = cursor
        self._admit = codec.admit
        self._keys = MapKeys(key_codec)
        self._exact = codec.exact
        self._exact_key = key_codec.exact
        self._copied = codec.copied
        self._is_opaque = codec.is_opaque
        self._entries: dict[Place, dict[Any, Any]] = {}
        self._log = ChangedItems()

    def get(self, key: Any, default: Any = None) -> Any:
        held = self._entries.get(self._cursor.at)
        if held is None:
            return default
        if type(key) is not self._exact_key:
            key = self._keys.sought(key)
        found = held.get(key)
        if found is None:
            return default
        if self._is_opaque:
            self._give_away((key,))
        return found if self._copied is None else self._copied(found)

    def _give_away(self, keys: Iterable[Any]) -> None:
        """The objects of `keys` may be changed in place now."""
        if self._log.items is not None:
            self._log.items.update((self._cursor.at, key) for key in keys)

    def put(self, key: Any, value: Any) -> None:
        if type(key) is not self._exact_key:
            key = self._keys.admit(key)
        if type(value) is not self._exact:
            value = self._admit(value)
        at = self._cursor.at
        found = self._entries.get(at)
        if found is None:
            self._entries[at] = {key: value}
        else:
            found[key] = value
        changed = self._log.items
        if changed is not None:
            changed.add((at, key))

    def put_all(self, entries: Mapping[Any, Any]) -> None:
        for key, value in entries.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        at, sought = self._cursor.at, self._keys.sought(key)
        found = self._entries.get(at)
        if found is not None and found.pop(sought, None) is not None:
            self._log.drop((at, sought), self._count)
            if not found:
                del self._entries[at]

    def contains(self, key: Any) -> bool:
        return self._keys.sought(key) in self._entries.get(self._cursor.at, ())

    def items(self) -> list[tuple[Any, Any]]:
        found = self._entries.get(self._cursor.at, {})
        if self._is_opaque and found:
            self._give_away(found)
        if self._copied is None and self._keys.zone is None:
            return list(found.items())
        copied = self._copied or _itself
        return [(self._keys.shown(key), copied(value)) for key, value in found.items()]

    def is_empty(self) -> bool:
        return self._cursor.at not in self._entries

    def clear(self) -> None:
        at = self._cursor.at
        if at in self._entries:  # pop(place, None) would not notice that there is no key
            for key in self._entries.pop(at):
                self._log.drop((at, key), self._count)

    def _count(self) -> int:
        return sum(map(len, self._entries.values()))

    def count(self) -> int:
        return len(self._entries)

    def places(self) -> list[Place]:
        return list(self._entries)

    def track(self) -> None:
        self._log.begin()

    def capture(self, scope: CaptureScope) -> CapturedRows:
        entries = self._entries
        changed = self._log.take(scope, self._count)
        if changed is None:
            held = [(place, of_place.copy()) for place, of_place in entries.items()]
            return CapturedRows(lambda: _map_rows([(p, k, v) for p, of_place in held for k, v in of_place.items()]))
        # None stands for what is gone.
        found = [(place, key, entries.get(place, _NOTHING).get(key)) for place, key in changed]
        return CapturedRows(lambda: _map_rows(found), is_changes=True)

    def at(self, places: Sequence[Place]) -> CapturedRows:
        held = [(place, key, value) for place in places for key, value in self._entries.get(place, _NOTHING).items()]
        return CapturedRows(lambda: _map_rows(held), entries=len(held))

    def load(self, rows: StateRows) -> None:
        for (key, namespace), map_key, value in zip(rows.places, rows.map_keys, rows.values, strict=True):
            self._entries.setdefault(place_of(key, namespace), {})[self._keys.held(map_key)] = value


def _map_rows(found: list[tuple[Place, Any, Any]]) -> StateRows:
    """Rows of places, map keys and values; those without a value are gone, and come last."""
    live = [entry for entry in found if entry[2] is not None]
    if gone := len(found) - len(live):
        live += [entry for entry in found if entry[2] is None]
    places = [key_and_namespace(place) for place, _, _ in live]
    return StateRows(places, [value for _, _, value in live], [key for _, key, _ in live], deleted=gone)


def _itself(value: Any) -> Any:
    return value


class HeapBackend(KeyedStateBackend):
    """Keyed state in dicts.

    Args:
        context: of the operator.

    Attributes:
        cursor: the current key.
        tables: the types of the keys, once they are known.
        declared: the states.
    """

    def __init__(self, context: BackendContext) -> None:
        self._context = context
        self.cursor = Cursor(context.where)
        self.tables = StateTables(context.keys, context.max_parallelism, context.where)
        self._instant: Callable[[Key], Key] | None = None
        self.declared: Declared[Kept] = Declared(context.where, self._load)

    def value_state(self, descriptor: ValueStateDescriptor) -> ValueState:
        def make() -> tuple[ValueState, Kept]:
            state = self._value(descriptor, descriptor.default)
            return state, state

        return self.declared.get(descriptor, make)

    def list_state(self, descriptor: ListStateDescriptor) -> ListState:
        def make() -> tuple[ListState, Kept]:
            codec, ttl = self.tables.codec(descriptor), descriptor.ttl
            if ttl is not None:
                mortal = TtlListState(self.cursor, codec, ttl, self._context.clock)
                return mortal, mortal
            state = HeapListState(self.cursor, codec)
            return state, state

        return self.declared.get(descriptor, make)

    def map_state(self, descriptor: MapStateDescriptor) -> MapState:
        def make() -> tuple[MapState, Kept]:
            codecs = self.tables.codec(descriptor), self.tables.key_codec(descriptor)
            if descriptor.ttl is not None:
                mortal = TtlMapState(self.cursor, *codecs, descriptor.ttl, self._context.clock)
                return mortal, mortal
            state = HeapMapState(self.cursor, *codecs)
            return state, state

        return self.declared.get(descriptor, make)

    def reducing_state(self, descriptor: ReducingStateDescriptor) -> ReducingState:
        def make() -> tuple[ReducingState, Kept]:
            value = self._value(descriptor, None)
            return ReducingOverValue(value, descriptor.function, self.tables.codec(descriptor).place), value

        return self.declared.get(descriptor, make)

    def aggregating_state(self, descriptor: AggregatingStateDescriptor) -> AggregatingState:
        def make() -> tuple[AggregatingState, Kept]:
            value = self._value(descriptor, None)
            return AggregatingOverValue(value, descriptor.function, self.tables.codec(descriptor).place), value

        return self.declared.get(descriptor, make)

    def _value(self, descriptor: KeyedDescriptor, default: Any) -> HeapValueState | TtlValueState:
        codec = self.tables.codec(descriptor)
        if descriptor.ttl is not None:
            return TtlValueState(self.cursor, codec, default, descriptor.ttl, self._context.clock)
        return HeapValueState(self.cursor, codec, default)

    def bind_keys(self, schema: pa.Schema) -> None:
        self.tables.bind(schema)
        self._instant = self.tables.instant

    def set_current_key(self, key: Key, namespace: Namespace = None) -> None:
        if self._instant is not None:
            key = self._instant(key)
        self.cursor.at = key if namespace is None else (key, namespace)

    def set_current_keys(self, keys: pa.RecordBatch) -> None:
        self.cursor.set_batch(lambda: self.tables.key_instants(keys))

    def clear_current_key(self) -> None:
        self.cursor.clear()

    def key_counts(self) -> Mapping[str, Callable[[], int]]:
        return {of.name: kept.count for of, kept in self.declared}

    def entries(self, name: str) -> Iterator[tuple[Key, Namespace]]:
        zoned = self.tables.zoned
        places = [key_and_namespace(place) for place in self.declared.kept(name).places()]
        return ((zoned(key), namespace) for key, namespace in places)

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        if self.tables.schema is None:
            # No key came so far, so there is nothing to keep.
            return OperatorCapture()
        scope = request.scope
        tables = {of.name: self.table_capture(of, kept.capture(scope)) for of, kept in self.declared}
        return OperatorCapture(tables | self.declared.capture_undeclared(scope, self.tables.identities))

    def read_keys(self, name: str, keys: pa.RecordBatch) -> TableCapture | None:
        found = self.declared.find(name)
        if found is None or self.tables.schema is None:
            return None
        descriptor, kept = found
        captured = kept.at(self.tables.key_instants(keys))
        return replace(self.table_capture(descriptor, captured), exact=captured.entries <= FEW_ENTRIES)

    def table_capture(self, descriptor: KeyedDescriptor, captured: CapturedRows) -> TableCapture:
        """The table of a state of which the barrier took these entries."""
        tables = self.tables.frozen()
        write = tables.write_changes if captured.is_changes else tables.write

        def rows() -> pa.Table:
            return write(descriptor, captured.rows()).data

        if descriptor.serializer is not None:
            # The objects may be changed in place as soon as the operator continues.
            encoded = rows()
            rows = lambda: encoded  # noqa: E731
        return TableCapture(
            Redistribution.KEYED, rows, tables.identity(descriptor), captured.is_changes, self._expiry(descriptor)
        )

    def _expiry(self, descriptor: KeyedDescriptor) -> Expiry | None:
        """Which rows are dead now; those of lists hold several times, and are never dead altogether."""
        if descriptor.ttl is None or isinstance(descriptor, ListStateDescriptor):
            return None
        return Expiry(TOUCHED, self._context.clock.now_ms() - descriptor.ttl.ttl_ms + 1)

    def restore(self, tables: Mapping[str, StateTable]) -> None:
        for table in tables.values():
            self.tables.bind(table.data.schema)
        self.declared.restore(tables)
        self._instant = self.tables.instant

    def _load(self, descriptor: KeyedDescriptor, kept: Kept, table: StateTable) -> None:
        rows = self.tables.read(descriptor, table)
        if self.tables.is_as_written(descriptor, table):
            kept.track()
        kept.load(rows)

    def close(self) -> None:
        self.declared.forget()
        self.cursor.clear()
