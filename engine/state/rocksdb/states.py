"""Value, list and map state in RocksDB: what functions use, over the entries of one database.

`RocksDbBackend` makes them. A value is one entry; a list is an entry for each element, numbered, so that appending
reads and rewrites nothing; a map is an entry for each of its keys, so that it may be larger than memory. Where the
state has a time to live, eight bytes in front of each value say when it was touched. Values are copies: to change one
in place changes nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is a class
from typing import Any, Final

import pyarrow as pa

from penstock.engine.clock import Clock
from penstock.engine.errors import RecordError
from penstock.engine.state.backend import Key, ListState, MapState, Namespace, ValueState
from penstock.engine.state.descriptors import StateTtl
from penstock.engine.state.rocksdb.codec import byte_codec
from penstock.engine.state.rocksdb.keys import TOUCHED_TIME, FieldCodec, Places
from penstock.engine.state.rocksdb.store import RocksDbStore
from penstock.engine.state.state_tables import StateRows, ValueCodec
from penstock.engine.state.ttl import Lifetimes

_IMMUTABLE: Final = (type(None), bool, int, float, str, bytes)
_NUMBER: Final = Struct(">Q")
_SWEPT_AT_ONCE: Final = 256
_SWEPT_PER_ACCESS: Final = 2
"""More than one, or a sweep would only keep pace with what is added."""


class Entries:
    """The entries of one state: values under bytes, and what has expired of them.

    Args:
        store: of the backend.
        prefix: of all keys of the state.
        places: where the backend reads and writes now.
        codec: of the values.
        ttl: how long a value lives, or None.
        clock: processing time.
    """

    def __init__(
        self, store: RocksDbStore, prefix: bytes, places: Places, codec: ValueCodec, ttl: StateTtl | None, clock: Clock
    ) -> None:
        self.store = store
        self.prefix = prefix
        self.places = places
        self.codec = codec
        self.life = None if ttl is None else Lifetimes(ttl, clock, lambda item, now: None)
        self._bytes = byte_codec(codec)
        self._sweep = self._swept()
        self._to_sweep = 0

    @property
    def here(self) -> bytes:
        """The keys of the current key and namespace begin with this."""
        return self.prefix + self.places.current()

    def read(self, key: bytes) -> Any:
        """The value under `key`, or None."""
        data = self.store.get(key)
        if data is None:
            return None
        return self._bytes.loads(data) if self.life is None else self.read_mortal(key, data)

    def read_mortal(self, key: bytes, data: bytes) -> Any:
        """The value under `key`, or None if it has expired; frees it then, or renews it if reading does."""
        assert self.life is not None
        now = self.life.now()
        if self.is_over(data, now):
            self.store.delete(key)
            return self.value_of(data) if self.life.shows_expired else None
        if self.life.renews_on_read:
            self.store.put(key, TOUCHED_TIME.pack(now) + data[TOUCHED_TIME.size :])
        self._sweep_some(1)
        return self.value_of(data)

    def write(self, key: bytes, value: Any) -> None:
        """Set the value under `key`."""
        self.store.put(key, self.data_of(value))
        if self.life is not None:
            self._sweep_some(1)

    def write_all(self, entries: Iterable[tuple[bytes, Any]]) -> None:
        """Set many values."""
        written = [(key, self.data_of(value)) for key, value in entries]
        self.store.put_all(written)
        if self.life is not None:
            self._sweep_some(len(written))

    def data_of(self, value: Any, touched: int | None = None) -> bytes:
        """What is stored of a value, touched now if no time is given."""
        data = self._bytes.dumps(value)
        if self.life is None:
            return data
        return TOUCHED_TIME.pack(self.life.now() if touched is None else touched) + data

    def value_of(self, data: bytes) -> Any:
        """The value of what is stored."""
        return self._bytes.loads(data if self.life is None else data[TOUCHED_TIME.size :])

    def is_over(self, data: bytes, now: int) -> bool:
        """Whether a stored value has expired."""
        return self.life is not None and self.life.is_over(TOUCHED_TIME.unpack_from(data)[0], now)

    def alive(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The entries whose keys begin with `prefix`, but those that have expired."""
        entries = self.store.scan(prefix)
        if self.life is None:
            return entries
        now = self.life.now()
        return (entry for entry in entries if not self.is_over(entry[1], now))

    def clear(self) -> None:
        """Delete what the current key and namespace hold."""
        self.store.delete_all(key for key, _ in self.store.scan(self.here))

    def load(self, entries: Iterable[tuple[bytes, Any, int]]) -> None:
        """Store restored values, each with its key and when it was touched, unless it has expired."""
        if self.life is None:
            self.store.put_all((key, self.data_of(value)) for key, value, _ in entries)
            return
        now, is_over = self.life.now(), self.life.is_over
        self.store.put_all(
            (key, self.data_of(value, touched)) for key, value, touched in entries if not is_over(touched, now)
        )

    def times(self, rows: StateRows) -> Iterable[Any]:
        """When the rows were touched; anything where the state has no time to live."""
        return rows.times(0 if self.life is None else self.life.now())

    def touched(self, datas: Iterable[bytes]) -> list[int]:
        """When stored values were touched; nothing where the state has no time to live."""
        return [] if self.life is None else [TOUCHED_TIME.unpack_from(data)[0] for data in datas]

    def _sweep_some(self, accesses: int) -> None:
        """Free expired entries that nobody reads: after so many accesses, look at the next so many entries."""
        self._to_sweep += accesses * _SWEPT_PER_ACCESS
        while self._to_sweep >= _SWEPT_AT_ONCE:
            self._to_sweep -= _SWEPT_AT_ONCE
            next(self._sweep)

    def _swept(self) -> Iterator[None]:
        """Look at some entries at each step, and at all of them again when the oldest may have expired."""
        assert self.life is not None
        while True:
            oldest, position = self.life.now(), self.prefix
            while entries := list(islice(self.store.scan(self.prefix, position), _SWEPT_AT_ONCE)):
                now = self.life.now()
                self.store.delete_all(key for key, data in entries if self.is_over(data, now))
                oldest = min([oldest, *self.touched(data for _, data in entries if not self.is_over(data, now))])
                position = entries[-1][0] + b"\x00"
                yield
            while not self.life.is_over(oldest, self.life.now()):
                yield


class RocksDbValueState(ValueState):
    """One entry a key and namespace."""

    def __init__(self, entries: Entries, default: Any = None) -> None:
        self._entries = entries
        self._codec = entries.codec
        self._exact = entries.codec.exact
        self._default = default
        self._is_default_shared = isinstance(default, _IMMUTABLE)

    def value(self) -> Any:
        found = self._entries.read(self._entries.here)
        if found is None:
            return self._default if self._is_default_shared else copy.deepcopy(self._default)
        return found

    def update(self, value: Any) -> None:
        if value is None:
            self.clear()
        else:
            admitted = value if type(value) is self._exact else self._codec.admit(value)
            self._entries.write(self._entries.here, admitted)

    def clear(self) -> None:
        self._entries.store.delete(self._entries.here)

    def values(self) -> pa.Array:
        entries = self._entries
        keys = [entries.prefix + place for place in entries.places.batch()]
        found = zip(keys, entries.store.get_all(keys), strict=True)
        if entries.life is None:
            read = [None if data is None else entries.value_of(data) for _, data in found]
        else:
            read = [None if data is None else entries.read_mortal(key, data) for key, data in found]
        return self._codec.array_of(read, self._default)

    def update_values(self, values: Any) -> None:
        entries = self._entries
        keys = [entries.prefix + place for place in entries.places.batch()]
        given = list(zip(keys, self._codec.decode(self._codec.array(values, len(keys))), strict=True))
        entries.write_all((key, value) for key, value in given if value is not None)
        entries.store.delete_all(key for key, value in given if value is None)

    def load(self, rows: StateRows) -> None:
        entries = self._entries
        keys = (entries.prefix + entries.places.encode(*place) for place in rows.places)
        entries.load(zip(keys, rows.values, entries.times(rows), strict=True))

    def held(self) -> Iterator[tuple[Key, Namespace]]:
        entries = self._entries
        return (entries.places.decode(key)[0] for key, _ in entries.alive(entries.prefix))


class RocksDbListState(ListState):
    """An entry for each element; the rest of its key is a number that grows with every element of any list."""

    def __init__(self, entries: Entries) -> None:
        self._entries = entries
        self._admit = entries.codec.admit
        self._next = 0

    def get(self) -> list[Any]:
        entries, here = self._entries, self._entries.here
        held = list(entries.store.scan(here))
        if entries.life is None:
            return [entries.value_of(data) for _, data in held]
        now = entries.life.now()
        alive = [entry for entry in held if not entries.is_over(entry[1], now)]
        entries.store.delete_all(key for key, data in held if entries.is_over(data, now))
        shown = [entries.value_of(data) for _, data in (held if entries.life.shows_expired else alive)]
        if entries.life.renews_on_read:
            entries.store.put_all((key, TOUCHED_TIME.pack(now) + data[TOUCHED_TIME.size :]) for key, data in alive)
        return shown

    def add(self, value: Any) -> None:
        self._entries.write(self._entries.here + self._numbered(), self._admit(value))

    def add_all(self, values: Iterable[Any]) -> None:
        here = self._entries.here
        admitted = [self._admit(value) for value in values]
        self._entries.write_all((here + self._numbered(), value) for value in admitted)

    def update(self, values: Iterable[Any]) -> None:
        admitted = [self._admit(value) for value in values]
        self.clear()
        self.add_all(admitted)

    def clear(self) -> None:
        self._entries.clear()

    def _numbered(self) -> bytes:
        self._next += 1
        return _NUMBER.pack(self._next)

    def load(self, rows: StateRows) -> None:
        entries = self._entries
        for place, values, touched in zip(rows.places, rows.values, entries.times(rows), strict=True):
            here = entries.prefix + entries.places.encode(*place)
            times = touched if isinstance(touched, list) else [touched] * len(values)
            entries.load((here + self._numbered(), value, time) for value, time in zip(values, times, strict=True))

    def held(self) -> Iterator[tuple[Key, Namespace]]:
        return _distinct_places(self._entries)


class RocksDbMapState(MapState):
    """An entry for each map key, which is the rest of the entry's key."""

    def __init__(self, entries: Entries, key_codec: ValueCodec, key_bytes: FieldCodec) -> None:
        self._entries = entries
        self._admit = entries.codec.admit
        self._key_codec = key_codec
        self._key_bytes = key_bytes

    def get(self, key: Any, default: Any = None) -> Any:
        here = self._entries.here
        rest = self._sought(key)
        found = None if rest is None else self._entries.read(here + rest)
        return default if found is None else found

    def put(self, key: Any, value: Any) -> None:
        self._entries.write(self._entries.here + self._rest(key), self._admit(value))

    def put_all(self, entries: Mapping[Any, Any]) -> None:
        here = self._entries.here
        self._entries.write_all([(here + self._rest(key), self._admit(value)) for key, value in entries.items()])

    def remove(self, key: Any) -> None:
        here = self._entries.here
        rest = self._sought(key)
        if rest is not None:
            self._entries.store.delete(here + rest)

    def contains(self, key: Any) -> bool:
        return self.get(key) is not None

    def items(self) -> list[tuple[Any, Any]]:
        entries, here = self._entries, self._entries.here
        found = entries.store.scan(here)
        if entries.life is None:
            return [(self._key_of(key, len(here)), entries.value_of(data)) for key, data in found]
        read = [(self._key_of(key, len(here)), entries.read_mortal(key, data)) for key, data in list(found)]
        return [(key, value) for key, value in read if value is not None]

    def is_empty(self) -> bool:
        entries = self._entries
        shows_all = entries.life is None or entries.life.shows_expired
        held = entries.store.scan(entries.here) if shows_all else entries.alive(entries.here)
        return next(held, None) is None

    def clear(self) -> None:
        self._entries.clear()

    def _rest(self, key: Any) -> bytes:
        admitted = self._key_codec.admit(key)
        try:
            return self._key_bytes.dumps(admitted)
        except _MISFITS as error:
            raise RecordError(
                f"{self._key_codec.place}: the map key {key!r:.200} does not fit its type {self._key_codec.kind}: "
                f"{error}; use keys of that type, or declare another with key_type=..."
            ) from error

    def _sought(self, key: Any) -> bytes | None:
        """The bytes of a key that is looked for, or None if no key is like that."""
        sought = self._key_codec.sought(key)
        try:
            return None if sought is None else self._key_bytes.dumps(sought)
        except _MISFITS:
            return None

    def _key_of(self, key: bytes, rest: int) -> Any:
        return self._key_bytes.loads(key[rest:])

    def load(self, rows: StateRows) -> None:
        entries = self._entries
        keys = (
            entries.prefix + entries.places.encode(*place) + self._rest(key)
            for place, key in zip(rows.places, rows.map_keys, strict=True)
        )
        entries.load(zip(keys, rows.values, entries.times(rows), strict=True))

    def held(self) -> Iterator[tuple[Key, Namespace]]:
        return _distinct_places(self._entries)


_MISFITS: Final = (TypeError, ValueError, AttributeError, ArithmeticError, StructError)


def _distinct_places(entries: Entries) -> Iterator[tuple[Key, Namespace]]:
    last = b""
    for key, _ in entries.alive(entries.prefix):
        place, rest = entries.places.decode(key)
        if key[:rest] != last:
            last = key[:rest]
            yield place
