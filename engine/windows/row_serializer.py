"""Rows as bytes: for state that holds rows whose columns are not declared, so that it has no Arrow type.

Triggers and the window operator use it. The bytes are JSON, so a savepoint with them can be read by anything, and
restoring one runs no code; values that JSON lacks, and objects that look like one, are objects with a tag.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

_TAG: Final = "$type"
_EPOCH: Final = dt.datetime(1970, 1, 1)
_MICROSECOND: Final = dt.timedelta(microseconds=1)


class RowSerializer:
    """A `Serializer` of rows and of what they are made of: Python values of Arrow types, lists and dicts.

    Example:
        >>> RowSerializer().loads(RowSerializer().dumps({"n": 1, "amount": Decimal("0.10")}))
        {'n': 1, 'amount': Decimal('0.10')}
    """

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowSerializer)

    def __hash__(self) -> int:
        return hash(RowSerializer)

    def dumps(self, value: Any) -> bytes:
        return json.dumps(_escaped(value), default=_tagged, separators=(",", ":"), ensure_ascii=False).encode()

    def loads(self, data: bytes) -> Any:
        return json.loads(data, object_hook=_untagged)


def _escaped(value: Any) -> Any:
    """The value, where tuples are tagged objects, and dicts that have a key like the tag, too.

    Raises:
        TypeError: a dict has a key that is no text, which JSON would make one.
    """
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError(f"a dict with a key that is no text has no Arrow type: {value!r:.100}")
        items = {key: _escaped(held) for key, held in value.items()}
        return {_TAG: "dict", "value": list(items.items())} if _TAG in items else items
    if isinstance(value, list | tuple):
        held = [_escaped(each) for each in value]
        return {_TAG: "tuple", "value": held} if isinstance(value, tuple) else held
    return value


def _tagged(value: Any) -> Any:
    """What stands for a value that JSON lacks.

    Raises:
        TypeError: it has no Arrow type either.
    """
    match value:
        case dt.datetime():
            return _tagged_datetime(value)
        case dt.date() | dt.time():
            return {_TAG: type(value).__name__, "value": value.isoformat()}
        case dt.timedelta():
            return {_TAG: "timedelta", "value": value // _MICROSECOND}
        case Decimal():
            return {_TAG: "decimal", "value": str(value)}
        case bytes() | bytearray():
            return {_TAG: "bytes", "value": base64.b64encode(value).decode()}
        case np.generic() | np.ndarray():
            return _escaped(value.tolist())
        case _:
            raise TypeError(f"{type(value).__module__}.{type(value).__qualname__} has no Arrow type")


def _tagged_datetime(value: dt.datetime) -> Any:
    if value.tzinfo is None:
        return {_TAG: "datetime", "value": (value - _EPOCH) // _MICROSECOND}
    since = (value - _EPOCH.replace(tzinfo=dt.timezone.utc)) // _MICROSECOND
    return {_TAG: "datetime", "value": since, "zone": pa.lib.tzinfo_to_string(value.tzinfo)}


def _untagged(found: dict[str, Any]) -> Any:
    kind = found.get(_TAG)
    if kind is None:
        return found
    value = found["value"]
    match kind:
        case "datetime":
            since = value * _MICROSECOND
            if "zone" not in found:
                return _EPOCH + since
            utc = _EPOCH.replace(tzinfo=dt.timezone.utc) + since
            return utc if found["zone"] == "UTC" else utc.astimezone(pa.lib.string_to_tzinfo(found["zone"]))
        case "date":
            return dt.date.fromisoformat(value)
        case "time":
            return dt.time.fromisoformat(value)
        case "timedelta":
            return value * _MICROSECOND
        case "decimal":
            return Decimal(value)
        case "dict":
            return dict(value)
        case "tuple":
            return tuple(value)
        case _:
            return base64.b64decode(value)
