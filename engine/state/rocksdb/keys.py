"""Keys and namespaces as bytes and back, for the keys of entries in RocksDB; used by `backend.py` alone.

An entry's key is `state id | key group (2 bytes, big-endian) | key columns | namespace | rest`; the rest is a list
element's number, a map key, or empty. Everything before the rest says where it ends, so that no key's entries begin
with another key's bytes, and iterating gives key groups in order.

Each key column is a byte (0: null, 1: value) and its value. Numbers, booleans, dates and times are 8 bytes that sort as
the values do; texts, binary values and decimals are their length (4 bytes) and their bytes. Key groups are those of
`key_groups`, which hashes columns; here one key is hashed.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact, InvalidOperation
from operator import index
from struct import Struct
from typing import Any, Final, cast

import pyarrow as pa
import xxhash

from penstock.engine.state.backend import BackendContext, Key, Namespace, key_tuple
from penstock.engine.state.cursor import Cursor, outside_key
from penstock.engine.state.rocksdb.codec import EPOCH, EPOCH_UTC, MICROSECOND, pack, unpack
from penstock.engine.state.state_tables import StateTables
from penstock.engine.state.values import zone_of

STATE_ID: Final = Struct(">H")
GROUP: Final = Struct(">H")
TOUCHED_TIME: Final = Struct(">q")
"""In front of each value of a state with a time to live."""

_LENGTH: Final = Struct(">I")
_WORD: Final = Struct(">Q")
_HASHED_WORD: Final = Struct("<Q")
_FLOAT: Final = Struct(">d")
_NAMESPACE: Final = Struct(">QQ")
_NO_NAMESPACE: Final = b"\x00"
_SIGN: Final = 2**63
_ALL: Final = 2**64 - 1
_EPOCH_DAY: Final = EPOCH.toordinal()
_HASH_SEED: Final = 42
_NO_KEY: Final = object()
# Decimals of Arrow have at most 76 digits; Python's own context would round to 28, and round what does not fit.
_EXACT: Final = Context(prec=76, traps=[Inexact, InvalidOperation])


@dataclass(frozen=True, slots=True)
class FieldCodec:
    """How the values of one type become bytes that can be compared.

    Args:
        is_word: whether they are always 8 bytes.
        dumps: value (never None) to bytes, the same for equal values.
        loads: bytes to value.
        hashed: those bytes to the bytes that the key group is made of.
    """

    is_word: bool
    dumps: Callable[[Any], bytes]
    loads: Callable[[bytes], Any]
    hashed: Callable[[bytes], bytes]


class PlaceCodec:
    """Turns keys and namespaces into bytes and back.

    Args:
        fields: the key columns.
        max_parallelism: number of key groups.

    Example:
        >>> codec = PlaceCodec(pa.schema([("id", pa.int64())]), 128)
        >>> codec.decode(b"\\x00\\x01" + codec.encode(7, (0, 1000)))
        ((7, (0, 1000)), 30)
    """

    def __init__(self, fields: pa.Schema, max_parallelism: int) -> None:
        self.fields = fields
        self._names = fields.names
        self._columns = [field_codec(field.type) for field in fields]
        self._max_parallelism = max_parallelism

    def encode(self, key: Key, namespace: Namespace) -> bytes:
        """The bytes between the state's id and the rest."""
        parts = [b""]
        seed = _HASH_SEED
        for column, value in zip(self._columns, key_tuple(key, self._names), strict=False):
            if value is None:
                parts.append(b"\x00")
                continue
            data = column.dumps(value)
            seed = xxhash.xxh64_intdigest(column.hashed(data), seed)
            parts.append(b"\x01" + data if column.is_word else b"\x01" + _LENGTH.pack(len(data)) + data)
        # The hash is a signed number. Without key columns all state is in key group 0.
        group = (seed - 2**64 if seed >= _SIGN else seed) % self._max_parallelism if self._columns else 0
        parts[0] = GROUP.pack(group)
        parts.append(_NO_NAMESPACE if namespace is None else _namespace_bytes(*namespace))
        return b"".join(parts)

    def decode(self, data: bytes) -> tuple[tuple[Key, Namespace], int]:
        """Key and namespace of an entry's whole key, and where its rest begins."""
        position = STATE_ID.size + GROUP.size
        values: list[Any] = []
        for column in self._columns:
            present = data[position]
            position += 1
            if not present:
                values.append(None)
                continue
            length = _WORD.size
            if not column.is_word:
                length = _LENGTH.unpack_from(data, position)[0]
                position += _LENGTH.size
            values.append(column.loads(data[position : position + length]))
            position += length
        namespace, position = _namespace_of(data, position)
        return (values[0] if len(values) == 1 else tuple(values), namespace), position


class Places:
    """Where the states of one backend read and write now, as bytes.

    Args:
        context: of the operator.
        tables: hold the types of the key columns.
    """

    def __init__(self, context: BackendContext, tables: StateTables) -> None:
        self._context = context
        self._tables = tables
        self._bound: pa.Schema | None = None
        self._codec: PlaceCodec | None = None
        self._key: Key = _NO_KEY
        self._namespace: Namespace = None
        self._current: bytes | None = None
        self._batch = Cursor(context.where)

    def bind(self, schema: pa.Schema) -> None:
        """Take the key columns' types from a schema that has them."""
        if schema is self._bound:
            return
        self._tables.bind(schema)
        self._bound = schema
        if self._codec is None or self._codec.fields != self._tables.schema:
            # A type that was not known before: of its column there are nulls so far, whose bytes are the same.
            self._codec = PlaceCodec(self._tables.schema, self._context.max_parallelism)

    def move(self, key: Key, namespace: Namespace) -> None:
        """There is a current key."""
        self._key = key
        self._namespace = namespace
        self._current = None

    def move_to_batch(self, keys: pa.RecordBatch) -> None:
        """There are current keys of a batch."""
        self._batch.set_batch(lambda: [self.encode(key, None) for key in self._tables.key_values(keys)])

    def clear(self) -> None:
        """There is no current key, nor are there current keys."""
        self.move(_NO_KEY, None)
        self._batch.clear()

    def current(self) -> bytes:
        """The current key and namespace.

        Raises:
            StateError: there is no current key.
        """
        if self._current is None:
            if self._key is _NO_KEY:
                raise outside_key(self._context.where)
            self._current = self.encode(self._key, self._namespace)
        return self._current

    def batch(self) -> list[bytes]:
        """The current keys of a batch.

        Raises:
            StateError: no batch is being worked on.
        """
        return cast("list[bytes]", self._batch.batch_keys())

    def encode(self, key: Key, namespace: Namespace) -> bytes:
        """A key and namespace as bytes."""
        assert self._codec is not None, "keys come with their types"
        return self._codec.encode(key, namespace)

    def decode(self, data: bytes) -> tuple[tuple[Key, Namespace], int]:
        """Key and namespace of an entry's whole key, and where its rest begins."""
        assert self._codec is not None, "keys come with their types"
        return self._codec.decode(data)


def _namespace_bytes(start: int, end: int) -> bytes:
    return b"\x01" + _NAMESPACE.pack(start + _SIGN, end + _SIGN)


def _namespace_of(data: bytes, position: int) -> tuple[Namespace, int]:
    if not data[position]:
        return None, position + 1
    start, end = _NAMESPACE.unpack_from(data, position + 1)
    return (start - _SIGN, end - _SIGN), position + 1 + _NAMESPACE.size


def field_codec(kind: pa.DataType) -> FieldCodec:
    """The codec of values of an Arrow type.

    Numbers, booleans, dates, times and texts sort as the values do; what cannot be a key column (nested values as map
    keys) is written as the value of a state would be.
    """
    if pa.types.is_dictionary(kind):
        return field_codec(kind.value_type)
    if pa.types.is_floating(kind):
        return FieldCodec(True, _float_bytes, _float_of, bytes)
    if pa.types.is_decimal(kind):
        return _decimal_codec(kind.scale)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return FieldCodec(False, str.encode, bytes.decode, bytes)
    if (
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    ):
        return FieldCodec(False, _plain_bytes, bytes, bytes)
    word = _word_conversions(kind)
    if word is None:
        return FieldCodec(False, pack, unpack, bytes)
    return _word_codec(*word, bias=0 if pa.types.is_uint64(kind) else _SIGN)


def _word_codec(to_word: Callable[[Any], int], of_word: Callable[[int], Any], bias: int) -> FieldCodec:
    """Values that are whole numbers: shifted to 0 and above, big-endian, they sort as bytes."""

    def dumps(value: Any) -> bytes:
        return _WORD.pack(to_word(value) + bias)

    def loads(data: bytes) -> Any:
        return of_word(_WORD.unpack(data)[0] - bias)

    def hashed(data: bytes) -> bytes:
        return _HASHED_WORD.pack((_WORD.unpack(data)[0] - bias) & _ALL)

    return FieldCodec(True, dumps, loads, hashed)


def _word_conversions(kind: pa.DataType) -> tuple[Callable[[Any], int], Callable[[int], Any]] | None:
    """To and from the whole number that a value is; what is hashed of times are microseconds too."""
    if pa.types.is_boolean(kind):
        return index, bool
    if pa.types.is_integer(kind):
        return index, int
    if pa.types.is_date(kind):
        return lambda value: value.toordinal() - _EPOCH_DAY, lambda word: dt.date.fromordinal(word + _EPOCH_DAY)
    if pa.types.is_time(kind):
        return _time_word, lambda word: (EPOCH + dt.timedelta(microseconds=word)).time()
    if pa.types.is_duration(kind):
        return lambda value: value // MICROSECOND, lambda word: dt.timedelta(microseconds=word)
    if not pa.types.is_timestamp(kind):
        return None
    if kind.tz is None:
        return lambda value: (value - EPOCH) // MICROSECOND, lambda word: EPOCH + dt.timedelta(microseconds=word)
    zone = zone_of(kind.tz)
    return (
        lambda value: (value - EPOCH_UTC) // MICROSECOND,
        lambda word: (EPOCH_UTC + dt.timedelta(microseconds=word)).astimezone(zone),
    )


def _time_word(value: dt.time) -> int:
    return (dt.datetime.combine(EPOCH, value) - EPOCH) // MICROSECOND


def _decimal_codec(scale: int) -> FieldCodec:
    """Decimals as their text with all decimal places, as Arrow writes it, so that 1.5 and 1.50 are one key."""
    unit = Decimal(1).scaleb(-scale)

    def dumps(value: Any) -> bytes:
        return str(Decimal(value).quantize(unit, context=_EXACT)).encode()

    return FieldCodec(False, dumps, lambda data: Decimal(data.decode()), bytes)


def _float_bytes(value: Any) -> bytes:
    # -0.0 + 0.0 is 0.0, and the two are equal. Negative numbers sort the other way round.
    bits = _WORD.unpack(_FLOAT.pack(value + 0.0))[0]
    return _WORD.pack(bits ^ (_ALL if bits & _SIGN else _SIGN))


def _float_of(data: bytes) -> float:
    bits = _WORD.unpack(data)[0]
    value: float = _FLOAT.unpack(_WORD.pack(bits ^ (_SIGN if bits & _SIGN else _ALL)))[0]
    return value


def _plain_bytes(value: Any) -> bytes:
    if not isinstance(value, (bytes, bytearray)):
        raise TypeError(f"{type(value).__name__} is not bytes")
    return bytes(value)
