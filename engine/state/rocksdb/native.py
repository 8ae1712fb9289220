"""A RocksDB database in checkpoints: its own immutable files, hard-linked at the barrier, and how they become tables.

`RocksDbBackend` captures by it; `savepoints/` restores by `read_native`. A file of sorted entries (SST) never changes,
so a checkpoint uploads only those that are new since the one before. Its name says which database wrote it: databases
begin to count anew after each restore, and a name must have one content for ever.

Source: RocksDB's documentation, "Checkpoints"; Flink's, "Incremental Checkpoints".
"""

from __future__ import annotations

import base64
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from struct import Struct
from typing import Any, Final

import pyarrow as pa

from penstock.engine.errors import PenstockError, RestoreError
from penstock.engine.state.backend import Key, Namespace
from penstock.engine.state.descriptors import (
    KeyedDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtl,
    ValueStateDescriptor,
)
from penstock.engine.state.rocksdb.codec import byte_codec
from penstock.engine.state.rocksdb.folders import OwnedFolder
from penstock.engine.state.rocksdb.keys import GROUP, STATE_ID, TOUCHED_TIME, PlaceCodec, field_codec
from penstock.engine.state.rocksdb.store import RocksDbReader, RocksDbStore
from penstock.engine.state.snapshot import Redistribution, StateTable
from penstock.engine.state.state_tables import StateRows, StateTables

ROCKSDB_FORMAT: Final = "rocksdb"

_SST: Final = ".sst"
_NEEDED: Final = ("CURRENT", "MANIFEST-")
"""What a database cannot be read without, beside its sorted files. Its log is empty: all has been written to them."""
_CHUNK_ROWS: Final = 32_768
_CHUNK_BYTES: Final = 8 * 2**20
"""Of rows of a table that are Python objects at a time: how many, and about how many bytes."""
_FIRST_ROWS: Final = 256
"""How many rows are read before it is known how large they are."""
_LAYOUT: Final = "1"
"""Of the entries and of the metadata; a change of either needs another number, and a reader for both."""
_LIST: Final = "list"
_MAP: Final = "map"
_VALUE: Final = "value"


@dataclass(frozen=True, slots=True)
class StoredState:
    """One state, as a reader needs to know it.

    Args:
        descriptor: of value, list or map state; behind a serializer its values are bytes.
        number: with which the keys of its entries begin.
    """

    descriptor: KeyedDescriptor
    number: int


class RocksDbCapture:
    """A database at a barrier; see `NativeCapture`. The folder goes when it is released, or nobody holds it.

    Args:
        store: written to the disk and linked now.
        metadata: from `describe`.
        where: operator and subtask, for messages.
    """

    def __init__(self, store: RocksDbStore, metadata: Mapping[str, str], where: str) -> None:
        self._where = where
        # On the disk that the database is on: its files are linked.
        self._owned: Final = OwnedFolder(store.directory)
        self.folder: Final = self._owned.path
        store.link(self.folder)
        self._metadata = metadata
        needed = [path for path in self.folder.iterdir() if path.name.startswith(_NEEDED) or path.suffix == _SST]
        self._files = {f"{store.id}-{path.name}" if path.suffix == _SST else path.name: path for path in needed}

    @property
    def format(self) -> str:
        return ROCKSDB_FORMAT

    @property
    def files(self) -> Mapping[str, Path]:
        return self._files

    @property
    def immutable(self) -> frozenset[str]:
        return frozenset(name for name in self._files if name.endswith(_SST))

    @property
    def metadata(self) -> Mapping[str, str]:
        return self._metadata

    def table(self, name: str, expired_until: int | None) -> pa.Table:
        """All rows of a state; in any thread, while others use the database.

        Args:
            name: of the state.
            expired_until: leave out what was touched at or before this (int64 ms); None: leave out nothing.
        """
        states = _Described(self._metadata, self._where)
        with closing(RocksDbReader(self.folder)) as reader:
            return pa.concat_tables(states.chunks(reader, name, range(states.max_parallelism), expired_until))

    def release(self) -> None:
        self._owned.remove()


def read_native(directory: Path, metadata: Mapping[str, str], groups: range) -> dict[str, StateTable]:
    """The keyed tables of all states that the files of a checkpoint hold.

    They may be larger than memory: their rows lie in files, which are gone with whoever holds the tables.

    Args:
        directory: where the files are, under the names that the capture gave them. Links are made beside them.
        metadata: that of the capture.
        groups: the key groups to read; nothing else is looked at.

    Raises:
        RestoreError: the files are no such database, or were written by another version.
        ConfigurationError: `rocksdict` is not installed.
    """
    where = f"RocksDB files in {directory}"
    states = _Described(metadata, where)
    with tempfile.TemporaryDirectory(prefix="penstock-restore-", dir=directory) as folder:
        for path in directory.iterdir():
            if path.is_file():
                name = path.name.rpartition("-")[2] if path.suffix == _SST else path.name
                os.symlink(path.absolute(), Path(folder, name))
        try:
            with closing(RocksDbReader(Path(folder))) as reader:
                return {
                    name: _spilled(states.chunks(reader, name, groups), Path(folder, f"table-{number}.arrow"))
                    for number, name in enumerate(states.names)
                }
        except PenstockError:
            raise
        except Exception as error:
            raise RestoreError(f"{where} cannot be read: {error}; restore another checkpoint or savepoint") from error


def _spilled(chunks: Iterator[pa.Table], path: Path) -> StateTable:
    """The rows of all chunks, one at least, mapped from the file that they are written to."""
    first = next(chunks)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, first.schema) as writer:
        for chunk in chain([first], chunks):
            writer.write_table(chunk)
    # What is mapped stays there when the name goes.
    return StateTable(Redistribution.KEYED, pa.ipc.open_file(pa.memory_map(str(path))).read_all())


def table_of(
    entries: Sequence[tuple[bytes, bytes]],
    metadata: Mapping[str, str],
    name: str,
    expired_until: int | None,
    where: str,
) -> pa.Table:
    """The rows of entries of one state that were read before; in any thread.

    Args:
        entries: keys and values, those of one place behind one another.
        metadata: from `describe`.
        name, expired_until: as for `RocksDbCapture.table`.
        where: operator and subtask, for messages.
    """
    return pa.concat_tables(_Described(metadata, where).chunks_of(iter(entries), name, expired_until))


def describe(keys: pa.Schema, max_parallelism: int, states: Sequence[StoredState]) -> dict[str, str]:
    """What a reader needs to know of a database, as texts.

    Args:
        keys: the key columns.
        max_parallelism: number of key groups.
        states: all states.
    """
    return {
        "layout": _LAYOUT,
        "max_parallelism": str(max_parallelism),
        "keys": _text_of(keys),
        "states": json.dumps([_described(state) for state in states]),
    }


def _described(state: StoredState) -> dict[str, Any]:
    descriptor = state.descriptor
    types = {_VALUE: descriptor.value_type}
    kind = _LIST if isinstance(descriptor, ListStateDescriptor) else _VALUE
    if isinstance(descriptor, MapStateDescriptor):
        kind, types[_MAP] = _MAP, descriptor.map_key_type
    return {
        "name": descriptor.name,
        "number": state.number,
        "kind": kind,
        "types": _text_of(pa.schema(types)),
        "is_opaque": descriptor.serializer is not None,
        "is_mortal": descriptor.ttl is not None,
    }


def _text_of(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize()).decode()


def _schema_of(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


class _Bytes:
    """Leaves a serializer's bytes as they are: readers need neither the serializer nor its classes."""

    def dumps(self, value: Any) -> bytes:
        return bytes(value)

    def loads(self, data: bytes) -> Any:
        return data


_FOR_EVER: Final = StateTtl(2**62)


class _Described:
    """What `describe` wrote, and tables by it.

    Args:
        metadata: the texts.
        where: for messages.

    Raises:
        RestoreError: the texts are of another version.
    """

    def __init__(self, metadata: Mapping[str, str], where: str) -> None:
        if metadata.get("layout") != _LAYOUT:
            raise RestoreError(
                f"{where} have the layout {metadata.get('layout')!r}, and this version reads {_LAYOUT!r}; restore with "
                "the version of penstock that wrote them, and take a savepoint"
            )
        self.max_parallelism = int(metadata["max_parallelism"])
        keys = _schema_of(metadata["keys"])
        self._tables = StateTables(keys.names, self.max_parallelism, where)
        self._tables.bind(keys)
        self._places = PlaceCodec(keys, self.max_parallelism)
        states = [_stored(described) for described in json.loads(metadata["states"])]
        self._states = {state.descriptor.name: state for state in states}

    @property
    def names(self) -> Sequence[str]:
        return list(self._states)

    def chunks(
        self, reader: RocksDbReader, name: str, groups: range, expired_until: int | None = None
    ) -> Iterator[pa.Table]:
        """The rows of one state in a range of key groups, in parts that fit memory; one at least."""
        prefix = STATE_ID.pack(self._states[name].number)
        found = reader.scan(prefix + GROUP.pack(groups.start), prefix + GROUP.pack(groups.stop))
        return self.chunks_of(found, name, expired_until)

    def chunks_of(
        self, found: Iterator[tuple[bytes, bytes]], name: str, expired_until: int | None
    ) -> Iterator[pa.Table]:
        """As `chunks`, of entries of one state."""
        state = self._states[name]
        entries = _Entries(state.descriptor, self._tables, self._places)
        yield self._tables.write(state.descriptor, StateRows([], [])).data
        # Entries come by key group, so that the chunks behind one another are sorted too.
        for rows in entries.rows(_alive(found, expired_until)):
            yield self._tables.write(state.descriptor, rows).data


def _stored(described: Mapping[str, Any]) -> StoredState:
    types = _schema_of(described["types"])
    kind = None if described["is_opaque"] else types.field(_VALUE).type
    serializer = _Bytes() if described["is_opaque"] else None
    ttl = _FOR_EVER if described["is_mortal"] else None
    name = described["name"]
    descriptor: KeyedDescriptor
    if described["kind"] == _MAP:
        key_type = types.field(_MAP).type
        descriptor = MapStateDescriptor(name, kind, key_type=key_type, ttl=ttl, serializer=serializer)
    elif described["kind"] == _LIST:
        descriptor = ListStateDescriptor(name, kind, ttl=ttl, serializer=serializer)
    else:
        descriptor = ValueStateDescriptor(name, kind, ttl=ttl, serializer=serializer)
    return StoredState(descriptor, described["number"])


def _alive(entries: Iterator[tuple[bytes, bytes]], expired_until: int | None) -> Iterator[tuple[bytes, bytes]]:
    if expired_until is None:
        return entries
    return (entry for entry in entries if TOUCHED_TIME.unpack_from(entry[1])[0] > expired_until)


class _Entries:
    """Entries of one state as rows."""

    def __init__(self, descriptor: KeyedDescriptor, tables: StateTables, places: PlaceCodec) -> None:
        self._descriptor = descriptor
        self._decode = places.decode
        self._loads = byte_codec(tables.codec(descriptor)).loads
        self._time: Struct | None = None if descriptor.ttl is None else TOUCHED_TIME

    def rows(self, entries: Iterator[tuple[bytes, bytes]]) -> Iterator[StateRows]:
        """All entries, in order, in chunks."""
        match self._descriptor:
            case ListStateDescriptor():
                return self._lists(entries)
            case MapStateDescriptor() as descriptor:
                return self._maps(entries, field_codec(descriptor.map_key_type).loads)
            case _:
                return self._values(entries)

    def _value_of(self, data: bytes) -> Any:
        return self._loads(data if self._time is None else data[self._time.size :])

    def _touched(self, datas: Sequence[bytes]) -> list[int]:
        return [] if self._time is None else [self._time.unpack_from(data)[0] for data in datas]

    def _values(self, entries: Iterator[tuple[bytes, bytes]]) -> Iterator[StateRows]:
        for chunk in _chunks(entries):
            places = [self._decode(key)[0] for key, _ in chunk]
            datas = [data for _, data in chunk]
            yield StateRows(places, list(map(self._value_of, datas)), touched=self._touched(datas))

    def _maps(self, entries: Iterator[tuple[bytes, bytes]], key_of: Callable[[bytes], Any]) -> Iterator[StateRows]:
        for chunk in _chunks(entries):
            places, rests = zip(*(self._decode(key) for key, _ in chunk), strict=True)
            keys = [key_of(key[rest:]) for (key, _), rest in zip(chunk, rests, strict=True)]
            datas = [data for _, data in chunk]
            yield StateRows(list(places), list(map(self._value_of, datas)), keys, self._touched(datas))

    def _lists(self, entries: Iterator[tuple[bytes, bytes]]) -> Iterator[StateRows]:
        places: list[tuple[Key, Namespace]] = []
        lists: list[list[Any]] = []
        times: list[list[int]] = []
        last, count, size = b"", 0, 0
        for key, data in entries:
            place, rest = self._decode(key)
            if key[:rest] != last:
                if count >= _CHUNK_ROWS or size >= _CHUNK_BYTES:
                    yield StateRows(places, lists, touched=times)
                    places, lists, times, count, size = [], [], [], 0, 0
                places.append(place)
                lists.append([])
                times.append([])
                last = key[:rest]
            lists[-1].append(self._value_of(data))
            times[-1].extend(self._touched([data]))
            count += 1
            size += len(data)
        if places:
            yield StateRows(places, lists, touched=times)


def _chunks(entries: Iterator[tuple[bytes, bytes]]) -> Iterator[list[tuple[bytes, bytes]]]:
    rows = min(_FIRST_ROWS, _CHUNK_ROWS)
    while chunk := list(islice(entries, rows)):
        yield chunk
        size = sum(len(data) for _, data in chunk) // len(chunk)
        rows = max(1, min(_CHUNK_ROWS, _CHUNK_BYTES // max(size, 1)))
