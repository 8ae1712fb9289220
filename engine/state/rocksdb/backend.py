"""Keyed state on local disk, by RocksDB: for state that is larger than memory.

`create_backend("rocksdb", ...)` makes it. Each operator has a database of its own in each subtask, removed when it is
closed: what survives a failure is in snapshots, which are the same tables as those of `heap`, so each restores what the
other saved. However many keys there are, it takes some 80 MB of memory, in checkpoints and restores from them too; the
tables of a savepoint are held whole. To read and set a value takes 5 us of CPU (written just now) to 11 us (in files);
`perf/state_memory.py` measures it.

The layout of an entry's key is in `keys.py`, the bytes of values in `codec.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol, TypeVar

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
    CaptureRequest,
    CaptureScope,
    OperatorCapture,
    TableCapture,
)
from penstock.engine.state.declared import Declared
from penstock.engine.state.derived import AggregatingOverValue, ReducingOverValue
from penstock.engine.state.descriptors import (
    AggregatingStateDescriptor,
    KeyedDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from penstock.engine.state.rocksdb.keys import STATE_ID, Places, field_codec
from penstock.engine.state.rocksdb.native import RocksDbCapture, StoredState, describe, table_of
from penstock.engine.state.rocksdb.states import Entries, RocksDbListState, RocksDbMapState, RocksDbValueState
from penstock.engine.state.rocksdb.store import RocksDbStore
from penstock.engine.state.snapshot import Redistribution, StateTable
from penstock.engine.state.state_tables import StateRows, StateTables

_CHUNK_ROWS: Final = 32_768
"""Rows of a table that are Python objects at a time, in a restore."""


class _Kept(Protocol):
    """What the backend needs of a state beside what users do."""

    def held(self) -> Iterator[tuple[Key, Namespace]]:
        """Where it holds something, each place once."""
        ...

    def load(self, rows: StateRows) -> None:
        """Hold `rows` too."""
        ...


_S = TypeVar("_S", bound=_Kept)


class RocksDbBackend(KeyedStateBackend):
    """Keyed state in a RocksDB database.

    Args:
        context: of the operator; its directory is where the database's folder is made.

    Raises:
        ConfigurationError: `rocksdict` is not installed, or the directory cannot be written to.

    Example:
        `RocksDbBackend(BackendContext("operator 'f', subtask 0", ("user",), 128, SystemClock(), "/mnt/fast"))`
    """

    def __init__(self, context: BackendContext) -> None:
        self._context = context
        self._tables = StateTables(context.keys, context.max_parallelism, context.where)
        self._places = Places(context, self._tables)
        self._declared: Declared[_Kept] = Declared(context.where, self._load)
        self._numbers: dict[str, int] = {}
        self._store = RocksDbStore(context.directory, context.where)

    def value_state(self, descriptor: ValueStateDescriptor) -> ValueState:
        return self._get(descriptor, lambda entries: RocksDbValueState(entries, descriptor.default))

    def list_state(self, descriptor: ListStateDescriptor) -> ListState:
        return self._get(descriptor, RocksDbListState)

    def map_state(self, descriptor: MapStateDescriptor) -> MapState:
        key_codec = self._tables.key_codec(descriptor)
        return self._get(
            descriptor, lambda entries: RocksDbMapState(entries, key_codec, field_codec(descriptor.map_key_type))
        )

    def reducing_state(self, descriptor: ReducingStateDescriptor) -> ReducingState:
        def make() -> tuple[ReducingState, _Kept]:
            value = RocksDbValueState(self._entries(descriptor))
            return ReducingOverValue(value, descriptor.function, self._tables.codec(descriptor).place), value

        return self._declared.get(descriptor, make)

    def aggregating_state(self, descriptor: AggregatingStateDescriptor) -> AggregatingState:
        def make() -> tuple[AggregatingState, _Kept]:
            value = RocksDbValueState(self._entries(descriptor))
            return AggregatingOverValue(value, descriptor.function, self._tables.codec(descriptor).place), value

        return self._declared.get(descriptor, make)

    def _get(self, descriptor: KeyedDescriptor, make: Callable[[Entries], _S]) -> _S:
        def make_kept() -> tuple[_S, _Kept]:
            state = make(self._entries(descriptor))
            return state, state

        return self._declared.get(descriptor, make_kept)

    def _entries(self, descriptor: KeyedDescriptor) -> Entries:
        number = self._numbers.setdefault(descriptor.name, len(self._numbers) + 1)
        prefix, codec = STATE_ID.pack(number), self._tables.codec(descriptor)
        return Entries(self._store, prefix, self._places, codec, descriptor.ttl, self._context.clock)

    def bind_keys(self, schema: pa.Schema) -> None:
        self._places.bind(schema)

    def set_current_key(self, key: Key, namespace: Namespace = None) -> None:
        self._places.move(key, namespace)

    def set_current_keys(self, keys: pa.RecordBatch) -> None:
        self._places.move_to_batch(keys)

    def clear_current_key(self) -> None:
        self._places.clear()

    def entries(self, name: str) -> Iterator[tuple[Key, Namespace]]:
        return self._declared.kept(name).held()

    def capture(self, request: CaptureRequest) -> OperatorCapture:
        """As `KeyedStateBackend.capture`: the database's own files, or (complete) tables that are read from them later.

        At the barrier the write buffers go to the disk and links are made, some 10 to 150 ms by how much was written.
        """
        keys = self._tables.schema
        if keys is None:
            # No key came so far, so there is nothing to keep.
            return OperatorCapture()
        undeclared = self._declared.capture_undeclared(request.scope, self._tables.identities)
        stored = [StoredState(descriptor, self._numbers[descriptor.name]) for descriptor, _ in self._declared]
        if not stored:
            return OperatorCapture(undeclared)
        native = RocksDbCapture(self._store, describe(keys, self._context.max_parallelism, stored), self._context.where)
        if request.scope is not CaptureScope.COMPLETE:
            return OperatorCapture(undeclared, native=native)
        return OperatorCapture({state.descriptor.name: self._table(native, state) for state in stored} | undeclared)

    def read_keys(self, name: str, keys: pa.RecordBatch) -> TableCapture | None:
        found, schema = self._declared.find(name), self._tables.schema
        if found is None or schema is None:
            return None
        state = StoredState(found[0], self._numbers[name])
        prefix = STATE_ID.pack(state.number)
        places = [self._places.encode(key, None) for key in self._tables.key_values(keys)]
        entries = [entry for place in places for entry in self._store.scan(prefix + place)]
        metadata = describe(schema, self._context.max_parallelism, [state])
        expired_until = self._expired_until(state)
        return TableCapture(
            Redistribution.KEYED, lambda: table_of(entries, metadata, name, expired_until, self._context.where)
        )

    def _expired_until(self, state: StoredState) -> int | None:
        ttl = state.descriptor.ttl
        return None if ttl is None else self._context.clock.now_ms() - ttl.ttl_ms

    def _table(self, native: RocksDbCapture, state: StoredState) -> TableCapture:
        name, expired_until = state.descriptor.name, self._expired_until(state)
        return TableCapture(Redistribution.KEYED, lambda: native.table(name, expired_until))

    def restore(self, tables: Mapping[str, StateTable]) -> None:
        for table in tables.values():
            self._places.bind(table.data.schema)
        self._declared.restore(tables)

    def _load(self, descriptor: KeyedDescriptor, kept: _Kept, table: StateTable) -> None:
        self._tables.check(descriptor, table)
        self._places.bind(table.data.schema)
        for batch in table.data.to_batches(max_chunksize=_CHUNK_ROWS):
            chunk = StateTable(table.redistribution, pa.Table.from_batches([batch]))
            kept.load(self._tables.read(descriptor, chunk))

    def close(self) -> None:
        self._places.clear()
        self._declared.forget()
        self._store.close()
