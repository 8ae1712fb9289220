"""Keyed state as Arrow tables: Python values of the declared types to columns, and back.

Every backend writes and reads its snapshots by it, so that what one backend wrote another can restore. Values come back
as `batch_rows` makes them, so restored keys equal those that rows carry.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.engine.errors import RecordError, RestoreError, ResultError, StateError
from penstock.engine.rows import batch_columns
from penstock.engine.state.backend import Key, Namespace, key_tuple
from penstock.engine.state.capture import DELETED
from penstock.engine.state.descriptors import (
    KeyedDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    Serializer,
    ValueStateDescriptor,
)
from penstock.engine.state.schema_evolution import evolve
from penstock.engine.state.snapshot import KEY_GROUP, StateTable, keyed_table
from penstock.engine.state.values import Normal, ValueForm, zone_of

START: Final = "__start"
END: Final = "__end"
TOUCHED: Final = "__touched"
VALUE: Final = "value"
MAP_KEY: Final = "map_key"

_EXACT: Final[dict[pa.DataType, type]] = {
    pa.int64(): int,
    pa.float64(): float,
    pa.bool_(): bool,
    pa.string(): str,
    pa.large_string(): str,
    pa.binary(): bytes,
    pa.large_binary(): bytes,
}
"""The Python type of which (nearly) every value fits; 2**63 as int64 is found by the snapshot."""


class ValueCodec:
    """Turns the values of one state into Arrow arrays and back.

    Args:
        name: the state's name, for messages.
        kind: their Arrow type; binary where there is a serializer.
        serializer: turns values into bytes, or None.
        where: operator and subtask, for messages.

    Example:
        `ValueCodec("count", pa.int64(), None, "operator 'f', subtask 0").encode([1, 2])`
    """

    def __init__(self, name: str, kind: pa.DataType, serializer: Serializer | None, where: str) -> None:
        self.kind = kind
        self.exact: type | None = None if serializer else _EXACT.get(kind)
        """The type whose values need not be admitted one by one, or None."""
        self.place = f"{where}: state {name!r}"
        """Names operator and state, for messages."""
        self.is_opaque = serializer is not None
        """Whether values are kept as a serializer's bytes."""
        self._serializer = serializer
        self._form = ValueForm(name, kind, where)
        self.copied: Normal | None = None if serializer else self._form.copied
        """Copies a kept value, so that to change it in place changes no state; None where that is not needed."""
        self.shown: Normal | None = None if serializer else self._form.shown
        """Makes of a value that a column holds one for a user; None where it is that already."""
        is_read = not self._form.has_nested_times or self.shown is not self.copied
        self.is_plain = serializer is None and not pa.types.is_temporal(kind) and is_read
        """Whether Arrow reads values in a form of which `shown` makes that in which they are kept."""

    def admit(self, value: Any) -> Any:
        """The value as it is kept: as a snapshot would give it back, or, with a serializer, the value itself.

        Raises:
            RecordError: None, or a value that does not fit.
        """
        if value is None:
            raise ResultError(
                f"{self.place}: None cannot be kept here; leave it out, or keep a value that stands for it"
            )
        if type(value) is self.exact or self._serializer:
            return value
        if isinstance(value, np.generic) and type(value.item()) is self.exact:
            return value.item()
        admitted = self._form.normal(value)
        if admitted is None:
            raise ResultError(f"{self.place}: {value!r} stands for no value, and cannot be kept; call clear() instead")
        return admitted

    def sought(self, value: Any) -> Any:
        """The form in which a value that is looked for would be kept, or None where nothing can be like it."""
        return value if type(value) is self.exact else self._form.sought(value)

    def encode(self, values: Sequence[Any]) -> pa.Array:
        """The values (None for none) as an array; later changes of mutable values do not show in it.

        Raises:
            RecordError: a value that does not fit.
        """
        if self._serializer is not None:
            return pa.array([None if value is None else self.dump(value) for value in values], self.kind)
        return self._form.encode(values)

    def decode(self, array: pa.Array) -> list[Any]:
        """The values of an array, in the form in which they are kept."""
        if self._serializer is None:
            return self._form.decode(array)
        return [None if value is None else self.load(value) for value in array.to_pylist()]

    def array(self, values: Any, count: int) -> pa.Array:
        """What a user gave for `count` keys, as one array of the state's type.

        Args:
            values: an Arrow or NumPy array, or a sequence.
            count: how many there must be.

        Raises:
            StateError: the state has a serializer.
            RecordError: another number of values, or one that does not fit.
        """
        if self.is_opaque:
            raise StateError(f"{self.place} has a serializer, so it takes no arrays; use update(...) for each key")
        if isinstance(values, pa.ChunkedArray):
            values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
        elif not isinstance(values, pa.Array):
            values = self._listed(values)
        if len(values) != count:
            raise RecordError(
                f"{self.place}: update_values was given {len(values)} values for {count} keys; give one a row of "
                "batch.keys, null where there is none"
            )
        array = values if isinstance(values, pa.Array) else self._array(values)
        if array.type == self.kind:
            return array
        if not _are_alike(array.type, self.kind):
            raise self._wrong_array(array, "no cast is made between them")
        try:
            return array.cast(self.kind)
        except pa.ArrowException as error:
            raise self._wrong_array(array, str(error)) from error

    def _listed(self, values: Any) -> Any:
        """A NumPy array of one dimension, or a list."""
        is_array = isinstance(values, np.ndarray)
        if getattr(values, "ndim", 1) != 1 or not hasattr(values, "__len__") or isinstance(values, _NO_ROWS):
            shown = f"an array of {values.ndim} dimensions" if is_array else f"{type(values).__name__} {values!r:.200}"
            raise RecordError(
                f"{self.place}: update_values was given {shown}; give an Arrow or NumPy array or a list, with one "
                "value a row of batch.keys"
            )
        return values if is_array else list(values)

    def _array(self, values: Any) -> pa.Array:
        if isinstance(values, list) or values.dtype == np.object_:
            return self.encode(list(values))
        try:
            return pa.array(values)
        except pa.ArrowException as error:
            raise RecordError(
                f"{self.place}: update_values was given an array of {values.dtype}, which Arrow does not take: "
                f"{error}; convert it to {self.kind}"
            ) from error

    def array_of(self, values: Sequence[Any], default: Any) -> pa.Array:
        """What `values()` gives: an array of kept values, with a default for None.

        Raises:
            StateError: the state has a serializer, so that its values have no Arrow type.
        """
        if self.is_opaque:
            raise StateError(f"{self.place} has a serializer, so its values make no array; use value() for each key")
        return self.encode([default if value is None else value for value in values])

    def _wrong_array(self, array: pa.Array, reason: str) -> RecordError:
        return RecordError(
            f"{self.place}: update_values was given {array.type}, which does not fit {self.kind}: {reason}; cast the "
            "values, or declare another type"
        )

    def dump(self, value: Any) -> bytes:
        """The serializer's bytes of a value, of a state that has one."""
        assert self._serializer is not None
        try:
            data = self._serializer.dumps(value)
        except Exception as error:
            raise RecordError(
                f"{self.place}: {type(self._serializer).__name__} cannot turn {value!r:.200} into bytes: {error}; "
                "keep another value, or declare another serializer"
            ) from error
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise RecordError(
                f"{self.place}: dumps of {type(self._serializer).__name__} made {type(data).__name__} of "
                f"{value!r:.200}; it must return bytes"
            )
        return bytes(data)

    def load(self, data: bytes) -> Any:
        """The value of a serializer's bytes."""
        assert self._serializer is not None
        try:
            return self._serializer.loads(data)
        except Exception as error:
            raise StateError(
                f"{self.place}: {type(self._serializer).__name__} cannot read what was saved: {error}; use the "
                "serializer, and the classes, with which it was"
            ) from error


def _are_alike(given: pa.DataType, kept: pa.DataType) -> bool:
    """Whether values of one type may be kept as the other where they fit: text is never taken for a number."""
    if pa.types.is_null(given) or pa.types.is_nested(given) or pa.types.is_dictionary(given):
        return True
    return any(is_one(given) and is_one(kept) for is_one in (_is_flat_number, *_FAMILIES))


_FAMILIES: Final = (
    pa.types.is_decimal,
    pa.types.is_timestamp,
    pa.types.is_duration,
    pa.types.is_time,
    pa.types.is_date,
    lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind),
    lambda kind: pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind),
)


_NO_ROWS: Final = (str, bytes, bytearray, Mapping, Set)


def _is_flat_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


@dataclass(frozen=True, slots=True)
class StateRows:
    """Entries of one state, as lists of the same length.

    Args:
        places: key and namespace of each row.
        values: the values; lists of values for list state.
        map_keys: the map's keys, in map state.
        touched: when each was last touched (int64 ms), where the state has a time to live; lists for list state.
        deleted: so many rows at the end are of what is gone; their values (and times) are None.
    """

    places: list[tuple[Key, Namespace]]
    values: list[Any]
    map_keys: list[Any] = field(default_factory=list)
    touched: list[Any] = field(default_factory=list)
    deleted: int = 0

    def times(self, now: int) -> list[Any]:
        """When each row was touched; `now` where that is not known, since the state had no time to live then."""
        return self.touched or [now] * len(self.places)


class StateTables:
    """Writes and reads the keyed tables of one operator; holds the types of its key columns.

    Args:
        keys: names of the key columns.
        max_parallelism: number of key groups.
        where: operator and subtask, for messages.
    """

    def __init__(self, keys: Sequence[str], max_parallelism: int, where: str) -> None:
        self._names = list(keys)
        self._max_parallelism = max_parallelism
        self._where = where
        self.schema: pa.Schema | None = None
        """The key columns' fields (dictionaries as their values); None before they are known."""
        self.instant: Callable[[Key], Key] | None = None
        """Makes of a key what tells it apart from others in a dict; None where the key itself does.

        Of a time with a zone Python compares the time of day, which comes twice in the night when summer time ends.
        """
        self.zoned: Callable[[Key], Key] = _same
        """The key, as rows carry it, of what `instant` made."""

    def frozen(self) -> StateTables:
        """One for another thread: what this one learns later does not show."""
        made = StateTables(self._names, self._max_parallelism, self._where)
        made.schema = self.schema
        return made

    def identity(self, descriptor: KeyedDescriptor) -> tuple[str, ...]:
        """The columns that tell the rows of a state apart."""
        map_key = (self.column_name(MAP_KEY),) if isinstance(descriptor, MapStateDescriptor) else ()
        return (*self._names, START, END, *map_key)

    @property
    def identities(self) -> tuple[str, ...]:
        """The columns that may tell rows apart, where a table has them."""
        return (*self._names, START, END, self.column_name(MAP_KEY))

    def codec(self, descriptor: KeyedDescriptor) -> ValueCodec:
        """For the values of a state."""
        return ValueCodec(descriptor.name, descriptor.value_type, descriptor.serializer, self._where)

    def key_codec(self, descriptor: MapStateDescriptor) -> ValueCodec:
        """For the map keys of a state."""
        return ValueCodec(descriptor.name, descriptor.map_key_type, None, self._where)

    def bind(self, schema: pa.Schema) -> None:
        """Take the key columns' types from a schema that has them; null stands for a type that is not known yet.

        Raises:
            StateError: a column is missing, or has another type than before.
        """
        if self.schema is not None and schema is self.schema:
            return
        for name in self._names:
            if name not in schema.names:
                raise StateError(f"{self._where}: the saved state has no key column {name!r}; key by the same columns")
        came = pa.schema([pa.field(name, _plain_type(schema.field(name).type)) for name in self._names])
        held = came if self.schema is None else self.schema
        fields = []
        for old, new in zip(held, came, strict=True):
            if old.type != new.type and not pa.types.is_null(old.type) and not pa.types.is_null(new.type):
                raise StateError(
                    f"{self._where}: key column {new.name!r} is {new.type}, but the state so far has keys of "
                    f"{old.type}; cast it to {old.type} before key_by"
                )
            fields.append(new if pa.types.is_null(old.type) else old)
        self.schema = pa.schema(fields)
        if any(_has_zone(kind) for kind in self.schema.types):
            self.instant = instant
            self.zoned = _zoned([zone_of(kind.tz) if _has_zone(kind) else None for kind in self.schema.types])

    def key_columns(self, keys: Iterable[Key]) -> list[pa.Array]:
        """Keys as one array for each key column, of the types that are bound."""
        assert self.schema is not None, "keys come with their types"
        tuples = [key_tuple(key, self._names) for key in keys]
        return [pa.array([values[i] for values in tuples], kind) for i, kind in enumerate(self.schema.types)]

    def key_values(self, data: pa.RecordBatch | pa.Table) -> list[Key]:
        """The keys of all rows, as rows carry them."""
        if not self._names:
            return [()] * data.num_rows
        selected = data.select(self._names)
        batches = selected.to_batches() if isinstance(selected, pa.Table) else [selected]
        columns = [batch_columns(batch, self._where) for batch in batches]
        if len(self._names) == 1:
            return [key for (only,) in columns for key in only]
        return [key for each in columns for key in zip(*each, strict=True)]

    def key_instants(self, data: pa.RecordBatch | pa.Table) -> list[Key]:
        """As `key_values`, but times with a zone in UTC, so that a dict tells all keys apart (see `instant`)."""
        for name in self._names:
            kind = _plain_type(data.schema.field(name).type)
            if _has_zone(kind):
                in_utc = data.column(name).cast(kind).cast(pa.timestamp(kind.unit, "UTC"))
                data = data.set_column(data.schema.get_field_index(name), name, in_utc)
        return self.key_values(data)

    def write_changes(self, descriptor: KeyedDescriptor, rows: StateRows) -> StateTable:
        """As `write`, with a column that says which rows are gone."""
        gone = np.zeros(len(rows.places), np.bool_)
        gone[len(gone) - rows.deleted :] = True
        return self.write(descriptor, rows, {DELETED: pa.array(gone)})

    def write(
        self, descriptor: KeyedDescriptor, rows: StateRows, more: Mapping[str, pa.Array] = MappingProxyType({})
    ) -> StateTable:
        """A keyed table of the entries of a state, as `KeyedStateBackend.capture` describes it, and `more` columns."""
        codec = self.codec(descriptor)
        columns = {}
        if isinstance(descriptor, MapStateDescriptor):
            columns[MAP_KEY] = self.key_codec(descriptor).encode(rows.map_keys)
        if isinstance(descriptor, ListStateDescriptor):
            flat = codec.encode([value for values in rows.values if values is not None for value in values])
            columns[VALUE] = _lists(rows.values, flat)
        else:
            columns[VALUE] = codec.encode(rows.values)
        if descriptor.ttl is not None:
            is_list = isinstance(descriptor, ListStateDescriptor)
            columns[TOUCHED] = pa.array(rows.touched, pa.list_(pa.int64()) if is_list else pa.int64())
        columns.update(more)
        keys = self.key_columns(key for key, _ in rows.places)
        return self.table(keys, [space for _, space in rows.places], columns)

    def table(
        self, keys: Sequence[pa.Array], namespaces: Sequence[Namespace] | None, columns: Mapping[str, pa.Array]
    ) -> StateTable:
        """A keyed table of key columns, namespaces (None: none has one) and the state's own columns."""
        rows = len(next(iter(columns.values())))
        data = dict(zip(self._names, keys, strict=True))
        for index, name in enumerate((START, END)):
            bounds = None if namespaces is None else [None if space is None else space[index] for space in namespaces]
            data[name] = pa.nulls(rows, pa.int64()) if bounds is None else pa.array(bounds, pa.int64())
        data.update((self.column_name(name), column) for name, column in columns.items())
        return keyed_table(pa.table(data), self._names, self._max_parallelism)

    def join(self, tables: Sequence[StateTable]) -> StateTable:
        """One keyed table with the rows of all."""
        data = [table.data.drop_columns(KEY_GROUP) for table in tables if table.data.num_rows]
        if len(data) < 2:
            return next((table for table in tables if table.data.num_rows), tables[0])
        joined = pa.concat_tables(data, promote_options="default")
        return keyed_table(joined, self._names, self._max_parallelism)

    def column_name(self, name: str) -> str:
        """The name of a column of the state itself, with underscores in front where a key column is called so."""
        while name in self._names:
            name = f"__{name}"
        return name

    def read(self, descriptor: KeyedDescriptor, table: StateTable) -> StateRows:
        """The entries of a keyed table; `touched` is empty where it has no such times.

        Raises:
            StateError: the table holds another kind of state, or values of another type.
        """
        data = self.evolved(descriptor, table).data
        places = list(zip(self.key_instants(data), _namespaces(data), strict=True))
        codec, values = self.codec(descriptor), data.column(self.column_name(VALUE))
        if isinstance(descriptor, ListStateDescriptor):
            flat = iter(decoded(codec, [chunk.flatten() for chunk in values.chunks]))
            lists = [[next(flat) for _ in range(length or 0)] for length in _lengths(values)]
        map_keys: list[Any] = []
        if isinstance(descriptor, MapStateDescriptor):
            map_keys = decoded(self.key_codec(descriptor), data.column(self.column_name(MAP_KEY)).chunks)
        is_list = isinstance(descriptor, ListStateDescriptor)
        touched = data.column(TOUCHED).to_pylist() if TOUCHED in data.column_names else []
        return StateRows(places, lists if is_list else decoded(codec, values.chunks), map_keys, touched)

    def check(self, descriptor: KeyedDescriptor, table: StateTable) -> None:
        """Take the key types of a table, and make sure that it can be state of `descriptor`.

        Raises:
            StateError: it cannot.
        """
        self.evolved(descriptor, StateTable(table.redistribution, table.data.slice(0, 0)))

    def is_as_written(self, descriptor: KeyedDescriptor, table: StateTable) -> bool:
        """Whether a table has the columns that `write` would give it, so that changes may be added to it."""
        schema, value = table.data.schema, self.column_name(VALUE)
        kind = pa.list_(descriptor.value_type) if isinstance(descriptor, ListStateDescriptor) else descriptor.value_type
        is_mortal = TOUCHED in schema.names
        return value in schema.names and schema.field(value).type == kind and is_mortal is (descriptor.ttl is not None)

    def evolved(self, descriptor: KeyedDescriptor, table: StateTable) -> StateTable:
        """The table with values of the declared type, where it was saved with another that can become that.

        Raises:
            StateError: the table holds another kind of state, or values of a type that cannot.
        """
        self.bind(table.data.schema)
        schema, value, map_key = table.data.schema, self.column_name(VALUE), self.column_name(MAP_KEY)
        expected = {value: descriptor.value_type}
        if isinstance(descriptor, ListStateDescriptor):
            expected[value] = pa.list_(descriptor.value_type)
        if isinstance(descriptor, MapStateDescriptor):
            expected[map_key] = descriptor.map_key_type
        own = {KEY_GROUP, START, END, TOUCHED, *self._names}
        saved = ", ".join(f"{entry.name}: {entry.type}" for entry in schema if entry.name not in own)
        unlike = (
            f"{self._where}: state {descriptor.name!r} was saved as ({saved}) and is declared now with "
            f"({', '.join(f'{name}: {kind}' for name, kind in expected.items())}); "
        )
        is_map = isinstance(descriptor, MapStateDescriptor)
        if (
            value not in schema.names
            or (map_key in schema.names) != is_map
            or (is_map and schema.field(map_key).type != expected[map_key])
        ):
            raise StateError(f"{unlike}declare it as before, or give the new state another name")
        if schema.field(value).type == expected[value]:
            return table
        default = descriptor.default if isinstance(descriptor, ValueStateDescriptor) else None
        try:
            column = evolve(table.data.column(value), expected[value], default)
        except RestoreError as error:
            raise StateError(f"{unlike}{error}") from error
        index = schema.get_field_index(value)
        return StateTable(table.redistribution, table.data.set_column(index, value, column))


def _has_zone(kind: pa.DataType) -> bool:
    """Whether Python's comparison of values confuses some of them."""
    return bool(pa.types.is_timestamp(kind)) and kind.tz not in (None, "UTC")


def _same(key: Key) -> Key:
    return key


def instant(key: Key) -> Key:
    """A key with its times in UTC, where they have a zone, so that a dict tells all keys apart.

    Example:
        >>> instant(("a", datetime(2023, 10, 29, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))))
        ('a', datetime.datetime(2023, 10, 29, 1, 30, tzinfo=datetime.timezone.utc))
    """
    if isinstance(key, tuple):
        return tuple(map(instant, key))
    return key.astimezone(dt.timezone.utc) if isinstance(key, dt.datetime) and key.tzinfo is not None else key


def _zoned(zones: Sequence[dt.tzinfo | None]) -> Callable[[Key], Key]:
    def one(value: Any, zone: dt.tzinfo | None) -> Any:
        return value if value is None or zone is None else value.astimezone(zone)

    if len(zones) == 1:
        return lambda key: one(key, zones[0])
    return lambda key: tuple(one(value, zone) for value, zone in zip(key, zones, strict=True))


def _plain_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _lists(lists: Sequence[Sequence[Any] | None], flat: pa.Array) -> pa.Array:
    offsets = np.zeros(len(lists) + 1, np.int32)
    np.cumsum([0 if values is None else len(values) for values in lists], out=offsets[1:])
    nulls = pa.array([values is None for values in lists]) if None in lists else None
    return pa.ListArray.from_arrays(pa.array(offsets), flat, mask=nulls)


def _lengths(lists: pa.ChunkedArray) -> Iterator[int]:
    for chunk in lists.chunks:
        yield from chunk.value_lengths().to_pylist()


def decoded(codec: ValueCodec, chunks: Iterable[pa.Array]) -> list[Any]:
    """The values of all chunks."""
    return [value for chunk in chunks for value in codec.decode(chunk)]


def _namespaces(data: pa.Table) -> Iterator[Namespace]:
    if data.column(START).null_count == data.num_rows:
        return iter([None] * data.num_rows)
    bounds = (data.column(name).to_pylist() for name in (START, END))
    return (None if start is None else (start, end) for start, end in zip(*bounds, strict=True))
