"""Python values as bytes and back, for the values of state in RocksDB; used by `backend.py` alone.

What is read is what was written: ints of any size, floats, texts, bytes, bools, None, lists, tuples, dicts, `Decimal`,
dates and times, with their time zone. Other values are a `RecordError` that names the state. No pickle, unless the
state's own serializer is one.

The bytes are MessagePack by the `msgpack` package, which Ray needs anyway: one call in C (0.1 us for a number, 0.2 us
back) that keeps nested values small and tells ints from floats, so that values need no schema. Types that MessagePack
lacks are extension types; `msgspec` was not taken because it writes dates and decimals as texts and reads them as such.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, Final

import msgpack
import numpy as np

from penstock.engine.errors import RecordError
from penstock.engine.state.state_tables import ValueCodec
from penstock.engine.state.values import zone_of

EPOCH: Final = dt.datetime(1970, 1, 1)
EPOCH_UTC: Final = EPOCH.replace(tzinfo=dt.timezone.utc)
MICROSECOND: Final = dt.timedelta(microseconds=1)

_INT: Final = 1
_DECIMAL: Final = 2
_DATE: Final = 3
_NAIVE: Final = 4
_AWARE: Final = 5
_TIME: Final = 6
_DURATION: Final = 7
_TUPLE: Final = 8


@dataclass(frozen=True, slots=True)
class ByteCodec:
    """How the values of one state become bytes.

    Args:
        dumps: value to bytes.
        loads: bytes to value.
    """

    dumps: Callable[[Any], bytes]
    loads: Callable[[bytes], Any]


def byte_codec(codec: ValueCodec) -> ByteCodec:
    """For the values of a state: its serializer, or MessagePack.

    Args:
        codec: of the state.

    Example:
        >>> codec = byte_codec(ValueCodec("n", pa.int64(), None, "operator 'count', subtask 0"))
        >>> codec.loads(codec.dumps(7))
        7
    """
    if codec.is_opaque:
        return ByteCodec(codec.dump, codec.load)
    pack_one = msgpack.Packer(default=_extended, strict_types=True).pack

    def dumps(value: Any) -> bytes:
        try:
            packed: bytes = pack_one(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise RecordError(
                f"{codec.place}: {value!r:.200} cannot be kept: {error}; keep values of the declared type "
                f"{codec.kind}, or declare the state with serializer=PickleSerializer()"
            ) from error
        return packed

    return ByteCodec(dumps, unpack)


def pack(value: Any) -> bytes:
    """`value` as bytes.

    Raises:
        TypeError, ValueError, OverflowError: a value that cannot be written.
    """
    packed: bytes = msgpack.packb(value, default=_extended, strict_types=True)
    return packed


def _extended(value: Any) -> Any:
    """An extension type, or one of the types that MessagePack has, for a value that has neither."""
    for base, convert in _CONVERSIONS:
        if isinstance(value, base):
            return convert(value)
    raise TypeError(f"{type(value).__module__}.{type(value).__qualname__} has no Arrow type")


def _big_int(value: int) -> Any:
    # Asked for ints beyond 64 bits, and for the subclasses of int.
    if -(2**63) <= value < 2**64:
        return int.__int__(value)
    return msgpack.ExtType(_INT, _signed(value))


def _signed(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


def _datetime(value: dt.datetime) -> Any:
    if value.tzinfo is None:
        return msgpack.ExtType(_NAIVE, _signed((value - EPOCH) // MICROSECOND))
    offset = value.utcoffset()
    if offset is None:
        raise TypeError(f"the time zone {value.tzinfo!r} has no offset")
    name = getattr(value.tzinfo, "key", None) or getattr(value.tzinfo, "zone", None)
    zone = offset // MICROSECOND if name is None else name
    return msgpack.ExtType(_AWARE, pack([(value - EPOCH_UTC) // MICROSECOND, zone]))


def _time(value: dt.time) -> Any:
    if value.tzinfo is not None:
        raise TypeError("a time of day with a time zone has no Arrow type")
    since = dt.timedelta(hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond)
    return msgpack.ExtType(_TIME, _signed(since // MICROSECOND))


def _numpy_time(value: np.datetime64 | np.timedelta64) -> Any:
    if np.isnat(value):
        return None
    plain = value.item()
    if isinstance(plain, int):
        # Below microseconds (and beyond the years of Python) numpy gives up on Python's types.
        exact = value.astype(f"{value.dtype.kind}8[us]")
        if exact != value:
            raise TypeError(f"{value!r} has more than microseconds")
        plain = exact.item()
    return _extended(plain)


_CONVERSIONS: Final[tuple[tuple[type | tuple[type, ...], Callable[[Any], Any]], ...]] = (
    ((np.datetime64, np.timedelta64), _numpy_time),
    (int, _big_int),
    (float, float.__float__),
    (str, str.__str__),
    ((bytes, bytearray, memoryview), bytes),
    (np.generic, lambda value: value.item()),
    (np.ndarray, lambda value: value.tolist()),
    (Decimal, lambda value: msgpack.ExtType(_DECIMAL, str(value).encode())),
    (dt.datetime, _datetime),
    (dt.date, lambda value: msgpack.ExtType(_DATE, _signed(value.toordinal()))),
    (dt.time, _time),
    (dt.timedelta, lambda value: msgpack.ExtType(_DURATION, _signed(value // MICROSECOND))),
    (tuple, lambda value: msgpack.ExtType(_TUPLE, pack(list(value)))),
    (list, list),
    (Mapping, dict),
)
"""In order: `datetime` is a `date`, numpy's float64 and str_ are Python's."""


def _aware(data: bytes) -> dt.datetime:
    since, zone = unpack(data)
    if isinstance(zone, str):
        return (EPOCH_UTC + dt.timedelta(microseconds=since)).astimezone(zone_of(zone))
    return (EPOCH_UTC + dt.timedelta(microseconds=since)).astimezone(dt.timezone(dt.timedelta(microseconds=zone)))


def _number(data: bytes) -> int:
    return int.from_bytes(data, "big", signed=True)


_READERS: Final[Mapping[int, Callable[[bytes], Any]]] = {
    _INT: _number,
    _DECIMAL: lambda data: Decimal(data.decode()),
    _DATE: lambda data: dt.date.fromordinal(_number(data)),
    _NAIVE: lambda data: EPOCH + dt.timedelta(microseconds=_number(data)),
    _AWARE: _aware,
    _TIME: lambda data: (EPOCH + dt.timedelta(microseconds=_number(data))).time(),
    _DURATION: lambda data: dt.timedelta(microseconds=_number(data)),
    _TUPLE: lambda data: tuple(unpack(data)),
}

unpack: Final[Callable[[bytes], Any]] = partial(
    msgpack.unpackb, strict_map_key=False, ext_hook=lambda code, data: _READERS[code](data)
)
"""The value of bytes that `pack` or a codec wrote."""
