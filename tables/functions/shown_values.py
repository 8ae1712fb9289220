"""Values as texts, as CAST to STRING and the terminal show them: numbers as Java does, times with their digits."""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Mapping
from typing import Any, Final
from zoneinfo import ZoneInfo

from penstock.tables.functions.roaring import shown_bitmap
from penstock.tables.types import BYTES_KINDS, Kind, SqlType

_SCIENTIFIC_FROM: Final = 1e7
_SCIENTIFIC_BELOW: Final = 1e-3
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def shown_value(value: Any, kind: SqlType, zone: str) -> str | None:
    """The text of one value; None for null.

    Args:
        value: as Arrow gives it to Python; a time with nanoseconds as their number.
        kind: its type.
        zone: of TIMESTAMP_LTZ.

    Example:
        >>> shown_value(1e10, SqlType(Kind.DOUBLE), "UTC")
        '1.0E10'
    """
    if value is None:
        return None
    match kind.kind:
        case Kind.DOUBLE:
            return java_double(value)
        case Kind.FLOAT:
            return java_double(_shortest_float(value))
        case Kind.DECIMAL:
            return f"{value:f}" if isinstance(value, decimal.Decimal) else str(value)
        case Kind.BOOLEAN:
            return "TRUE" if value else "FALSE"
        case Kind.TIMESTAMP | Kind.TIMESTAMP_LTZ:
            moment, nanos = _moment(value)
            if kind.kind is Kind.TIMESTAMP_LTZ:
                moment = moment.astimezone(ZoneInfo(zone))
            text = moment.strftime("%Y-%m-%d %H:%M:%S").zfill(19)
            return _with_digits(text, moment.microsecond, kind.precision, nanos)
        case Kind.TIME:
            moment, nanos = _moment(value)
            return _with_digits(moment.strftime("%H:%M:%S"), moment.microsecond, kind.precision, nanos)
        case Kind.ARRAY:
            return f"[{', '.join(_inner(item, kind.parts[0], zone) for item in value)}]"
        case Kind.MAP | Kind.MULTISET:
            return _map(value, kind, zone)
        case Kind.BITMAP:
            return shown_bitmap(value)
        case Kind.ROW:
            parts = [_inner(value[field.name], field.type, zone) for field in kind.fields]
            if kind.class_name:
                parts = [f"{field.name}={part}" for field, part in zip(kind.fields, parts, strict=True)]
            return f"({', '.join(parts)})"
        case Kind.INTERVAL_MONTHS:
            return f"{'-' if value < 0 else '+'}{abs(value) // 12}-{abs(value) % 12:02d}"
        case Kind.INTERVAL_MILLIS:
            return _day_time(value)
    if kind.kind in BYTES_KINDS:
        return str(value.decode("utf-8", "replace"))
    return value.isoformat() if isinstance(value, datetime.date) else str(value)


def java_double(value: float) -> str:
    """A floating-point number as Java's `Double.toString` writes it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    size = abs(value)
    if size == 0 or _SCIENTIFIC_BELOW <= size < _SCIENTIFIC_FROM:
        text = f"{decimal.Decimal(repr(value)):f}"
        return text if "." in text else f"{text}.0"
    digits = decimal.Decimal(repr(value)).normalize()
    mantissa = f"{digits:E}"
    number, _, exponent = mantissa.partition("E")
    return f"{number if '.' in number else number + '.0'}E{int(exponent)}"


def _shortest_float(value: float) -> float:
    """The shortest decimal number that is this value of four bytes."""
    import numpy as np

    return float(str(np.float32(value)))


def _moment(value: Any) -> tuple[Any, int]:
    """A time as Python has it, and the nanoseconds behind its microseconds."""
    if not isinstance(value, int):
        return value, 0
    return _EPOCH + datetime.timedelta(microseconds=value // 1000), value % 1000


def _with_digits(text: str, microsecond: int, precision: int, nanosecond: int) -> str:
    digits = f"{microsecond:06d}{nanosecond:03d}"[:precision]
    return f"{text}.{digits}" if digits else text


def _inner(value: Any, kind: SqlType, zone: str) -> str:
    text = shown_value(value, kind, zone)
    return "NULL" if text is None else text


def _map(value: Any, kind: SqlType, zone: str) -> str:
    item_type = kind.parts[1] if kind.kind is Kind.MAP else SqlType(Kind.INT)
    items = value.items() if isinstance(value, Mapping) else value
    parts = [f"{_inner(key, kind.parts[0], zone)}={_inner(item, item_type, zone)}" for key, item in items]
    return f"{{{', '.join(parts)}}}"


def _day_time(millis: int) -> str:
    sign, rest = ("-" if millis < 0 else "+"), abs(millis)
    days, rest = divmod(rest, 86_400_000)
    hours, rest = divmod(rest, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    return f"{sign}{days} {hours:02d}:{minutes:02d}:{rest // 1000:02d}.{rest % 1000:03d}"
