"""State on the heap that lives for a time: values, lists and maps whose entries expire in processing time.

The heap backend makes these where a descriptor has a time to live, so that state without one pays nothing. An expired
entry is freed by the access that finds it, by a snapshot, or by the few steps of a sweep that every access takes: an
entry that nobody touches is freed within twice its time to live, if the state is used often enough meanwhile. Of lists
that have not changed, captures of changes leave what has expired where it was saved; a restore drops it.

Source: Flink's documentation, "State Time-To-Live (TTL)"; what an access does to an expired entry is as in its
`AbstractTtlDecorator`.
"""

from __future__ import annotations

import copy
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

import pyarrow as pa

from penstock.engine.clock import Clock
from penstock.engine.state.backend import ListState, MapState, ValueState
from penstock.engine.state.capture import CaptureScope
from penstock.engine.state.changes import CapturedRows, ChangedItems, entries_of
from penstock.engine.state.cursor import Cursor, Place, key_and_namespace, place_of
from penstock.engine.state.descriptors import StateTtl, TtlUpdate, TtlVisibility
from penstock.engine.state.map_keys import MapKeys
from penstock.engine.state.state_tables import StateRows, ValueCodec

_E = TypeVar("_E")

_GONE: Final = (None, None)
_NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})
_SWEPT_AT_ONCE: Final = 2
"""More than one, or a sweep would only keep pace with what is added."""


class Lifetimes:
    """Says what has expired, and sweeps: a queue of all items, each looked at when its time may be over.

    An item that was touched meanwhile goes to the back of the queue, so touching costs nothing here.

    Args:
        ttl: how long items live.
        clock: processing time.
        purge: frees what has expired of an item at a time; returns when the oldest rest was touched, or None.
    """

    def __init__(self, ttl: StateTtl, clock: Clock, purge: Callable[[Any, int], int | None]) -> None:
        self._ttl_ms = ttl.ttl_ms
        self.renews_on_read = ttl.update is TtlUpdate.ON_READ_AND_WRITE
        self.shows_expired = ttl.visibility is TtlVisibility.RETURN_EXPIRED_IF_NOT_CLEANED_UP
        self.now = clock.now_ms
        self._purge = purge
        self._queue: OrderedDict[Hashable, int] = OrderedDict()

    def is_over(self, touched: int, now: int) -> bool:
        """Whether what was touched then has expired now (int64 ms)."""
        return touched + self._ttl_ms <= now

    def watch(self, item: Hashable, touched: int) -> None:
        """Look at an item in time; nothing changes if it is watched."""
        if item not in self._queue:
            self._queue[item] = touched

    def forget(self, item: Hashable) -> None:
        """An item is gone."""
        self._queue.pop(item, None)

    def sweep(self, now: int, most: int = _SWEPT_AT_ONCE) -> None:
        """Look at up to `most` items whose time may be over, and free what has expired."""
        while most and self._queue and self.is_over(next(iter(self._queue.values())), now):
            item, _ = self._queue.popitem(last=False)
            rest = self._purge(item, now)
            if rest is not None:
                self._queue[item] = rest
            most -= 1

    def sweep_all(self, now: int) -> None:
        """Free all that has expired."""
        for item in list(self._queue):
            if self._purge(item, now) is None:
                self._queue.pop(item, None)


def _itself(value: Any) -> Any:
    return value


class _LastingEntries(Generic[_E]):
    """What a state holds at each place, what of it has changed since the last capture, and what is over."""

    _entries: dict[Place, _E]
    _log: ChangedItems
    _life: Lifetimes

    def _mark(self, place: Place) -> None:
        if self._log.items is not None:
            self._log.items.add(place)

    def _drop(self, place: Place) -> None:
        if place in self._entries:
            del self._entries[place]
            self._log.drop(place, self._entries.__len__)
            self._life.forget(place)

    def count(self) -> int:
        return len(self._entries)

    def places(self) -> list[Place]:
        self._life.sweep_all(self._life.now())
        return list(self._entries)

    def track(self) -> None:
        self._log.begin()


class TtlValueState(_LastingEntries[tuple[Any, int]], ValueState):
    """One value a place, with the time at which it was touched."""

    def __init__(self, cursor: Cursor, codec: ValueCodec, default: Any, ttl: StateTtl, clock: Clock) -> None:
        self._cursor = cursor
        self._codec = codec
        self._default = default
        self._copied = codec.copied or _itself
        self._entries: dict[Place, tuple[Any, int]] = {}
        self._log = ChangedItems()
        self._life = Lifetimes(ttl, clock, self._purge)

    def value(self) -> Any:
        now = self._life.now()
        value = self._read(self._cursor.at, now)
        if self._codec.is_opaque:
            # It may be changed in place now.
            self._mark(self._cursor.at)
        self._life.sweep(now)
        return copy.deepcopy(self._default) if value is None else self._copied(value)

    def update(self, value: Any) -> None:
        now = self._life.now()
        self._write(self._cursor.at, None if value is None else self._codec.admit(value), now)
        self._life.sweep(now)

    def clear(self) -> None:
        self._drop(self._cursor.at)

    def values(self) -> pa.Array:
        now, keys = self._life.now(), self._cursor.batch_keys()
        found = [self._read(key, now) for key in keys]
        self._life.sweep(now, _SWEPT_AT_ONCE * len(keys))
        return self._codec.array_of(found, self._default)

    def update_values(self, values: Any) -> None:
        now, keys = self._life.now(), self._cursor.batch_keys()
        for key, value in zip(keys, self._codec.decode(self._codec.array(values, len(keys))), strict=True):
            self._write(key, value, now)
        self._life.sweep(now, _SWEPT_AT_ONCE * len(keys))

    def _read(self, place: Place, now: int) -> Any:
        found = self._entries.get(place)
        if found is None:
            return None
        value, touched = found
        if self._life.is_over(touched, now):
            self._drop(place)
            return value if self._life.shows_expired else None
        if self._life.renews_on_read:
            self._entries[place] = (value, now)
            self._mark(place)
        return value

    def _write(self, place: Place, value: Any, now: int) -> None:
        if value is None:
            self._drop(place)
        else:
            self._entries[place] = (value, now)
            self._mark(place)
            self._life.watch(place, now)

    def _purge(self, place: Place, now: int) -> int | None:
        _, touched = self._entries[place]
        if not self._life.is_over(touched, now):
            return touched
        del self._entries[place]
        self._log.drop(place, self._entries.__len__)
        return None

    def capture(self, scope: CaptureScope) -> CapturedRows:
        entries = self._entries
        changed = self._log.take(scope, entries.__len__)
        if changed is None:
            places, held = self.places(), list(entries.values())
            return CapturedRows(lambda: _value_rows(places, held, []))
        gone = [place for place in changed if place not in entries]
        places = [place for place in changed if place in entries]
        held = [entries[place] for place in places]
        return CapturedRows(lambda: _value_rows(places, held, gone), is_changes=True)

    def at(self, places: Sequence[Place]) -> CapturedRows:
        held = [place for place in places if place in self._entries]
        entries = [self._entries[place] for place in held]
        count = sum(entries_of(value) for value, _ in entries)
        return CapturedRows(lambda: _value_rows(held, entries, []), entries=count)

    def load(self, rows: StateRows) -> None:
        now = self._life.now()
        for (key, namespace), value, touched in zip(rows.places, rows.values, rows.times(now), strict=True):
            place = place_of(key, namespace)
            self._entries[place] = (value, touched)
            self._life.watch(place, touched)
        self._life.sweep_all(now)


def _value_rows(places: list[Place], held: list[tuple[Any, int]], gone: list[Place]) -> StateRows:
    nothing = [None] * len(gone)
    values, touched = ([entry[index] for entry in held] for index in (0, 1))
    rows = [key_and_namespace(place) for place in (*places, *gone)]
    return StateRows(rows, values + nothing, touched=touched + nothing, deleted=len(gone))


class TtlListState(_LastingEntries[deque[tuple[Any, int]]], ListState):
    """A list a place, each value with the time at which it was touched; the oldest come first."""

    def __init__(self, cursor: Cursor, codec: ValueCodec, ttl: StateTtl, clock: Clock) -> None:
        self._cursor = cursor
        self._admit = codec.admit
        self._copied = codec.copied or _itself
        self._is_opaque = codec.is_opaque
        self._entries: dict[Place, deque[tuple[Any, int]]] = {}
        self._log = ChangedItems()
        self._life = Lifetimes(ttl, clock, self._purge)

    def get(self) -> list[Any]:
        now, place = self._life.now(), self._cursor.at
        held = self._entries.get(place, ())
        alive = [entry for entry in held if not self._life.is_over(entry[1], now)]
        shown = [self._copied(value) for value, _ in (held if self._life.shows_expired else alive)]
        if self._life.renews_on_read:
            alive = [(value, now) for value, _ in alive]
        if self._life.renews_on_read or len(alive) < len(held):
            self._hold(place, alive)
        elif self._is_opaque and held:
            # They may be changed in place now.
            self._mark(place)
        self._life.sweep(now)
        return shown

    def add(self, value: Any) -> None:
        self.add_all((value,))

    def add_all(self, values: Iterable[Any]) -> None:
        now, place = self._life.now(), self._cursor.at
        if added := [(self._admit(value), now) for value in values]:
            self._entries.setdefault(place, deque()).extend(added)
            self._mark(place)
            self._life.watch(place, now)
        self._life.sweep(now)

    def update(self, values: Iterable[Any]) -> None:
        now = self._life.now()
        self._hold(self._cursor.at, [(self._admit(value), now) for value in values])
        self._life.sweep(now)

    def clear(self) -> None:
        self._hold(self._cursor.at, [])

    def _hold(self, place: Place, entries: list[tuple[Any, int]]) -> None:
        if entries:
            self._entries[place] = deque(entries)
            self._mark(place)
            self._life.watch(place, entries[0][1])
        else:
            self._drop(place)

    def _purge(self, place: Place, now: int) -> int | None:
        held = self._entries[place]
        while held and self._life.is_over(held[0][1], now):
            held.popleft()
            self._mark(place)
        if held:
            return held[0][1]
        del self._entries[place]
        self._log.drop(place, self._entries.__len__)
        return None

    def at(self, places: Sequence[Place]) -> CapturedRows:
        now, is_over = self._life.now(), self._life.is_over
        found = [
            (place, [entry for entry in self._entries.get(place, ()) if not is_over(entry[1], now)]) for place in places
        ]
        held = [(key_and_namespace(place), entries) for place, entries in found if entries]

        def rows() -> StateRows:
            values, touched = ([[entry[index] for entry in of_place] for _, of_place in held] for index in (0, 1))
            return StateRows([place for place, _ in held], values, touched=touched)

        return CapturedRows(rows, entries=sum(len(entries) for _, entries in held))

    def capture(self, scope: CaptureScope) -> CapturedRows:
        entries = self._entries
        changed = self._log.take(scope, entries.__len__)
        places = self.places() if changed is None else [place for place in changed if place in entries]
        gone = [] if changed is None else [place for place in changed if place not in entries]
        held = [tuple(entries[place]) for place in places]

        def rows() -> StateRows:
            values, touched = ([[entry[index] for entry in of_place] for of_place in held] for index in (0, 1))
            nothing = [None] * len(gone)
            of = [key_and_namespace(place) for place in (*places, *gone)]
            return StateRows(of, values + nothing, touched=touched + nothing, deleted=len(gone))

        return CapturedRows(rows, changed is not None)

    def load(self, rows: StateRows) -> None:
        now = self._life.now()
        times = rows.touched or [[now] * len(values) for values in rows.values]
        for (key, namespace), values, touched in zip(rows.places, rows.values, times, strict=True):
            place = place_of(key, namespace)
            self._entries[place] = deque(zip(values, touched, strict=True))
            self._life.watch(place, touched[0])
        self._life.sweep_all(now)


class TtlMapState(MapState):
    """A dict a place, each entry with the time at which it was touched."""

    def __init__(self, cursor: Cursor, codec: ValueCodec, key_codec: ValueCodec, ttl: StateTtl, clock: Clock) -> None:
        self._cursor = cursor
        self._admit = codec.admit
        self._keys = MapKeys(key_codec)
        self._copied = codec.copied or _itself
        self._is_opaque = codec.is_opaque
        self._entries: dict[Place, dict[Any, tuple[Any, int]]] = {}
        self._log = ChangedItems()
        self._life = Lifetimes(ttl, clock, self._purge)

    def get(self, key: Any, default: Any = None) -> Any:
        now = self._life.now()
        value = self._read(self._cursor.at, self._keys.sought(key), now)
        self._life.sweep(now)
        return default if value is None else self._copied(value)

    def contains(self, key: Any) -> bool:
        return self.get(key) is not None

    def items(self) -> list[tuple[Any, Any]]:
        now, place = self._life.now(), self._cursor.at
        read = [(key, self._read(place, key, now)) for key in list(self._entries.get(place, ()))]
        self._life.sweep(now)
        return [(self._keys.shown(key), self._copied(value)) for key, value in read if value is not None]

    def is_empty(self) -> bool:
        now, place = self._life.now(), self._cursor.at
        held = self._entries.get(place)
        # Expired entries are freed up to the first that is not, so that the next call does not look at them again.
        while held and not self._life.shows_expired:
            key, (_, touched) = next(iter(held.items()))
            if not self._life.is_over(touched, now):
                break
            self._drop(place, key)
        return not held

    def put(self, key: Any, value: Any) -> None:
        now, place, key = self._life.now(), self._cursor.at, self._keys.admit(key)
        self._write(place, key, self._admit(value), now)
        self._life.sweep(now)

    def put_all(self, entries: Mapping[Any, Any]) -> None:
        for key, value in entries.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        sought = self._keys.sought(key)
        if sought in self._entries.get(self._cursor.at, ()):
            self._drop(self._cursor.at, sought)

    def clear(self) -> None:
        if self._cursor.at in self._entries:
            for key in self._entries.pop(self._cursor.at):
                self._life.forget((self._cursor.at, key))
                self._log.drop((self._cursor.at, key), self._count)

    def _read(self, place: Place, key: Any, now: int) -> Any:
        found = self._entries.get(place, {}).get(key)
        if found is None:
            return None
        value, touched = found
        if self._life.is_over(touched, now):
            self._drop(place, key)
            return value if self._life.shows_expired else None
        if self._life.renews_on_read:
            self._entries[place][key] = (value, now)
        if self._life.renews_on_read or self._is_opaque:
            # What is opaque may be changed in place now.
            self._mark(place, key)
        return value

    def _write(self, place: Place, key: Any, value: Any, now: int) -> None:
        self._entries.setdefault(place, {})[key] = (value, now)
        self._mark(place, key)
        self._life.watch((place, key), now)

    def _mark(self, place: Place, key: Any) -> None:
        if self._log.items is not None:
            self._log.items.add((place, key))

    def _count(self) -> int:
        return sum(map(len, self._entries.values()))

    def _drop(self, place: Place, key: Any) -> None:
        self._log.drop((place, key), self._count)
        self._life.forget((place, key))
        held = self._entries[place]
        del held[key]
        if not held:
            del self._entries[place]

    def _purge(self, item: tuple[Place, Any], now: int) -> int | None:
        place, key = item
        _, touched = self._entries[place][key]
        if not self._life.is_over(touched, now):
            return touched
        self._drop(place, key)
        return None

    def count(self) -> int:
        return len(self._entries)

    def places(self) -> list[Place]:
        self._life.sweep_all(self._life.now())
        return list(self._entries)

    def track(self) -> None:
        self._log.begin()

    def capture(self, scope: CaptureScope) -> CapturedRows:
        entries = self._entries
        changed = self._log.take(scope, self._count)
        if changed is None:
            held = [(place, entries[place].copy()) for place in self.places()]
            return CapturedRows(
                lambda: _map_rows([(place, key, *entry) for place, of in held for key, entry in of.items()])
            )
        # None stands for what is gone.
        found = [(place, key, *entries.get(place, _NOTHING).get(key, _GONE)) for place, key in changed]
        return CapturedRows(lambda: _map_rows(found), is_changes=True)

    def at(self, places: Sequence[Place]) -> CapturedRows:
        held = [(place, key, *entry) for place in places for key, entry in self._entries.get(place, _NOTHING).items()]
        return CapturedRows(lambda: _map_rows(held), entries=len(held))

    def load(self, rows: StateRows) -> None:
        now = self._life.now()
        entries = zip(rows.places, rows.map_keys, rows.values, rows.times(now), strict=True)
        for (key, namespace), map_key, value, touched in entries:
            place, held = place_of(key, namespace), self._keys.held(map_key)
            self._entries.setdefault(place, {})[held] = (value, touched)
            self._life.watch((place, held), touched)
        self._life.sweep_all(now)


def _map_rows(found: list[tuple[Place, Any, Any, int | None]]) -> StateRows:
    """Rows of places, map keys, values and times; those without a value are gone, and come last."""
    live = [entry for entry in found if entry[2] is not None]
    if gone := len(found) - len(live):
        live += [entry for entry in found if entry[2] is None]
    map_keys, values, touched = ([entry[index] for entry in live] for index in (1, 2, 3))
    return StateRows([key_and_namespace(entry[0]) for entry in live], values, map_keys, touched, gone)
