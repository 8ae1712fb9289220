"""Keyed state as Python objects in dicts: the fastest backend record by record, for state that fits in memory.

`create_backend("heap", ...)` makes it; `ColumnarBackend` keeps in it what has no column. Values of Arrow types are
copied as they come and go; one behind a serializer is kept as the object that was given, so who changes it in place
changes the state. Snapshots are converted to Arrow at once and never change.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
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
from penstock.engine.state.snapshot import StateTable
from penstock.engine.state.state_tables import StateRows, StateTables, ValueCodec
from penstock.engine.state.ttl import TtlListState, TtlMapState, TtlValueState

_IMMUTABLE: Final = (type(None), bool, int, float, str, bytes)


class HeapValueState(ValueState):
    """One value a place."""

    def __init__(self, cursor: Cursor, codec: ValueCodec, default: Any = None) -> None:
        self._cursor = cursor
        self._codec = codec
        self._exact = codec.exact
        self._copied = codec.copied
        self._default = default
        self._is_default_shared = isinstance(default, _IMMUTABLE)
        self._entries: dict[Place, Any] = {}

    def value(self) -> Any:
        found = self._entries.get(self._cursor.at)
        if found is None:
            return self._default if self._is_default_shared else copy.deepcopy(self._default)
        return found if self._copied is None else self._copied(found)

    def update(self, value: Any) -> None:
        if type(value) is self._exact:
            self._entries[self._cursor.at] = value
        elif value is None:
            self.clear()
        else:
            self._entries[self._cursor.at] = self._codec.admit(value)

    def clear(self) -> None:
        if self._cursor.at in self._entries:  # pop(place, None) would not notice that there is no key
            del self._entries[self._cursor.at]

    def values(self) -> pa.Array:
        return self._codec.array_of([self._entries.get(key) for key in self._cursor.batch_keys()], self._default)

    def update_values(self, values: Any) -> None:
        keys = self._cursor.batch_keys()
        for key, value in zip(keys, self._codec.decode(self._codec.array(values, len(keys))), strict=True):
            if value is None:
                self._entries.pop(key, None)
            else:
                self._entries[key] = value

    def places(self) -> list[Place]:
        return list(self._entries)

    def dump(self) -> StateRows:
        return StateRows([key_and_namespace(place) for place in self._entries], list(self._entries.values()))

    def load(self, rows: StateRows) -> None:
        for (key, namespace), value in zip(rows.places, rows.values, strict=True):
            self._entries[place_of(key, namespace)] = value


class HeapListState(ListState):
    """A list a place."""

    def __init__(self, cursor: Cursor, codec: ValueCodec) -> None:
        self._cursor = cursor
        self._admit = codec.admit
        self._exact = codec.exact
        self._copied = codec.copied
        self._entries: dict[Place, list[Any]] = {}

    def get(self) -> list[Any]:
        held = self._entries.get(self._cursor.at, ())
        return list(held) if self._copied is None else list(map(self._copied, held))

    def add(self, value: Any) -> None:
        if type(value) is not self._exact:
            value = self._admit(value)
        found = self._entries.get(self._cursor.at)
        if found is None:
            self._entries[self._cursor.at] = [value]
        else:
            found.append(value)

    def add_all(self, values: Iterable[Any]) -> None:
        if admitted := [self._admit(value) for value in values]:
            self._entries.setdefault(self._cursor.at, []).extend(admitted)

    def update(self, values: Iterable[Any]) -> None:
        if admitted := [self._admit(value) for value in values]:
            self._entries[self._cursor.at] = admitted
        else:
            self.clear()

    def clear(self) -> None:
        if self._cursor.at in self._entries:  # pop(place, None) would not notice that there is no key
            del self._entries[self._cursor.at]

    def places(self) -> list[Place]:
        return list(self._entries)

    def dump(self) -> StateRows:
        return StateRows([key_and_namespace(place) for place in self._entries], list(self._entries.values()))

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
        self._entries: dict[Place, dict[Any, Any]] = {}

    def get(self, key: Any, default: Any = None) -> Any:
        held = self._entries.get(self._cursor.at)
        if held is None:
            return default
        if type(key) is not self._exact_key:
            key = self._keys.sought(key)
        found = held.get(key)
        if found is None:
            return default
        return found if self._copied is None else self._copied(found)

    def put(self, key: Any, value: Any) -> None:
        if type(key) is not self._exact_key:
            key = self._keys.admit(key)
        if type(value) is not self._exact:
            value = self._admit(value)
        found = self._entries.get(self._cursor.at)
        if found is None:
            self._entries[self._cursor.at] = {key: value}
        else:
            found[key] = value

    def put_all(self, entries: Mapping[Any, Any]) -> None:
        for key, value in entries.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        found = self._entries.get(self._cursor.at)
        if found is not None and found.pop(self._keys.sought(key), None) is not None and not found:
            del self._entries[self._cursor.at]

    def contains(self, key: Any) -> bool:
        return self._keys.sought(key) in self._entries.get(self._cursor.at, ())

    def items(self) -> list[tuple[Any, Any]]:
        found = self._entries.get(self._cursor.at, {})
        if self._copied is None and self._keys.zone is None:
            return list(found.items())
        copied = self._copied or _itself
        return [(self._keys.shown(key), copied(value)) for key, value in found.items()]

    def is_empty(self) -> bool:
        return self._cursor.at not in self._entries

    def clear(self) -> None:
        if self._cursor.at in self._entries:  # pop(place, None) would not notice that there is no key
            del self._entries[self._cursor.at]

    def places(self) -> list[Place]:
        return list(self._entries)

    def dump(self) -> StateRows:
        items = [
            (key_and_namespace(place), key, value)
            for place, entries in self._entries.items()
            for key, value in entries.items()
        ]
        return StateRows([item[0] for item in items], [item[2] for item in items], [item[1] for item in items])

    def load(self, rows: StateRows) -> None:
        for (key, namespace), map_key, value in zip(rows.places, rows.map_keys, rows.values, strict=True):
            self._entries.setdefault(place_of(key, namespace), {})[self._keys.held(map_key)] = value


def _itself(value: Any) -> Any:
    return value


class HeapBackend(KeyedStateBackend):
    """Keyed state in dicts.

    Args:
        context: of the operator.

    Attributes:
        cursor: the current key.
        tables: the types of the keys, once they are known.
    """

    def __init__(self, context: BackendContext) -> None:
        self._context = context
        self.cursor = Cursor(context.where)
        self.tables = StateTables(context.keys, context.max_parallelism, context.where)
        self._instant: Callable[[Key], Key] | None = None
        self._declared: Declared[Kept] = Declared(context.where)

    def value_state(self, descriptor: ValueStateDescriptor) -> ValueState:
        def make() -> tuple[ValueState, Kept]:
            state = self._value(descriptor, descriptor.default)
            return state, state

        return self._declared.get(descriptor, make)

    def list_state(self, descriptor: ListStateDescriptor) -> ListState:
        def make() -> tuple[ListState, Kept]:
            codec, ttl = self.tables.codec(descriptor), descriptor.ttl
            if ttl is not None:
                mortal = TtlListState(self.cursor, codec, ttl, self._context.clock)
                return mortal, mortal
            state = HeapListState(self.cursor, codec)
            return state, state

        return self._declared.get(descriptor, make)

    def map_state(self, descriptor: MapStateDescriptor) -> MapState:
        def make() -> tuple[MapState, Kept]:
            codecs = self.tables.codec(descriptor), self.tables.key_codec(descriptor)
            if descriptor.ttl is not None:
                mortal = TtlMapState(self.cursor, *codecs, descriptor.ttl, self._context.clock)
                return mortal, mortal
            state = HeapMapState(self.cursor, *codecs)
            return state, state

        return self._declared.get(descriptor, make)

    def reducing_state(self, descriptor: ReducingStateDescriptor) -> ReducingState:
        def make() -> tuple[ReducingState, Kept]:
            value = self._value(descriptor, None)
            return ReducingOverValue(value, descriptor.function, self.tables.codec(descriptor).place), value

        return self._declared.get(descriptor, make)

    def aggregating_state(self, descriptor: AggregatingStateDescriptor) -> AggregatingState:
        def make() -> tuple[AggregatingState, Kept]:
            value = self._value(descriptor, None)
            return AggregatingOverValue(value, descriptor.function, self.tables.codec(descriptor).place), value

        return self._declared.get(descriptor, make)

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

    def entries(self, name: str) -> Iterator[tuple[Key, Namespace]]:
        zoned = self.tables.zoned
        places = [key_and_namespace(place) for place in self._declared.kept(name).places()]
        return ((zoned(key), namespace) for key, namespace in places)

    def snapshot(self) -> dict[str, StateTable]:
        if self.tables.schema is None:
            # No key came so far, so there is nothing to keep.
            return {}
        return {descriptor.name: self.tables.write(descriptor, kept.dump()) for descriptor, kept in self._declared}

    def restore(self, tables: Mapping[str, StateTable]) -> None:
        for descriptor, kept in self._declared:
            if descriptor.name in tables:
                kept.load(self.tables.read(descriptor, tables[descriptor.name]))
        self._instant = self.tables.instant

    def close(self) -> None:
        self._declared.forget()
        self.cursor.clear()
