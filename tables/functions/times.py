"""Times: reading them from texts, zones, and parts of them.

`casts.py` and `temporal.py` share this module.
"""

from __future__ import annotations

import calendar
import datetime
import re
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

_EPOCH: Final = datetime.datetime(1970, 1, 1)
_LAST: Final = (1 << 63) - 1
_PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DATE: Final = re.compile(r"(\d{1,4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?")
_TIME: Final = re.compile(r"(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,9}))?)?)?")
_GMT_OFFSET: Final = re.compile(r"GMT([+-])(\d{1,2})(?::?00)?")
_PLAIN: Final = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?: (\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{0,9}))?)?")
_ZONED: Final = re.compile(r"(.*?)\s*(Z|[+-]\d{2}:?\d{2})")


def parse_date(text: str) -> datetime.date:
    """`2024-02-29`, `2024-2`, `2024`.

    Raises:
        ValueError: no date.
    """
    found = _DATE.fullmatch(text.split(" ")[0])
    if found is None:
        raise ValueError(text)
    return datetime.date(int(found[1]), int(found[2] or 1), int(found[3] or 1))


def parse_time(text: str) -> datetime.time:
    """`12:34:56.789`, `12:34`.

    Raises:
        ValueError: no time.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(text)
    micros = int((found[4] or "0").ljust(6, "0")[:6])
    return datetime.time(int(found[1]), int(found[2] or 0), int(found[3] or 0), micros)


def parse_timestamp(text: str, precision: int, zone: ZoneInfo | None = None) -> int:
    """A date, and a time if there is one, in the unit that Arrow stores for `precision`: since the epoch.

    Args:
        text: `2024-01-31 12:34:56.789`, also with a T between, and with a Z or an offset at the end.
        precision: digits behind the second; more are cut off.
        zone: what local times are of; None: they are stored as they are.

    Raises:
        ValueError: no timestamp, or none that 64 bits hold.
    """
    zoned = _ZONED.fullmatch(text)
    offset_s = 0
    if zoned is not None and (":" in zoned[1] or "T" in zoned[1]):
        text, offset_s, zone = zoned[1], _offset(zoned[2]), None
    date, _, rest = text.replace("T", " ", 1).partition(" ")
    time = _TIME.fullmatch(rest.strip() or "00:00:00")
    if time is None:
        raise ValueError(text)
    moment = datetime.datetime.combine(
        parse_date(date), datetime.time(int(time[1]), int(time[2] or 0), int(time[3] or 0))
    )
    seconds = _local_seconds(moment, zone) - offset_s
    return _stored(seconds, time[4] or "", precision, text)


def parse_plain_timestamp(text: str, precision: int = 3, zone: ZoneInfo | None = None) -> int:
    """`2024-01-31 12:34:56.789` or `2024-01-31`, and no other form: as CAST and TO_TIMESTAMP read texts.

    Args:
        text: a day that the month does not have is its last one, and a day may end at 24:00:00, as in Java.
        precision: digits behind the second; more are cut off.
        zone: what local times are of; None: they are stored as they are.

    Raises:
        ValueError: of another form, or no timestamp, or none that 64 bits hold.
        OverflowError: the day behind the last one that there is.
    """
    found = _PLAIN.fullmatch(text)
    if found is None:
        raise ValueError(text)
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    last = calendar.monthrange(year, month)[1] if day > 28 and 1 <= month <= 12 else day
    is_end = (hour, minute, second) == (24, 0, 0)
    moment = datetime.datetime(year, month, min(day, last) if day <= 31 else day, 0 if is_end else hour, minute, second)
    seconds = _local_seconds(moment + datetime.timedelta(days=is_end), zone)
    return _stored(seconds, found[7] or "", precision, text)


def _stored(seconds: int, fraction: str, precision: int, text: str) -> int:
    """In the unit that Arrow stores for a precision."""
    stored = 3 if precision <= 3 else 6 if precision <= 6 else 9
    digits = fraction[:precision].ljust(stored, "0")
    number = int(seconds * 10**stored + int(digits or 0))
    if not -(2**63) <= number < 2**63:
        raise ValueError(text)
    return number


def _offset(text: str) -> int:
    if text == "Z":
        return 0
    hours, minutes = int(text[1:3]), int(text[-2:])
    return (hours * 3600 + minutes * 60) * (-1 if text[0] == "-" else 1)


def _local_seconds(moment: datetime.datetime, zone: ZoneInfo | None) -> int:
    if zone is None:
        return int((moment - _EPOCH).total_seconds())
    return int(moment.replace(tzinfo=zone).timestamp())


def zone_named(name: str) -> ZoneInfo:
    """A time zone.

    Raises:
        ValueError: there is none of the name.
    """
    offset = _GMT_OFFSET.fullmatch(name)
    try:
        # The names of whole hours have the other sign.
        return ZoneInfo(f"Etc/GMT{'-' if offset[1] == '+' else '+'}{int(offset[2])}" if offset else name)
    except (KeyError, ValueError, OSError):
        raise ValueError(f"{name!r} is no time zone; there are 'UTC', 'Europe/Berlin', ...") from None


def local_times(values: pa.Array, zone: str) -> pa.Array:
    """Moments as the clocks of a zone show them: timestamps without a zone."""
    import pyarrow.compute as pc

    plain = pa.timestamp(values.type.unit)
    if zone == "UTC":
        return values.cast(plain)
    return pc.local_timestamp(values.cast(pa.timestamp(values.type.unit, zone)))


def moments(values: pa.Array, zone: str) -> pa.Array:
    """The moments of times that the clocks of a zone show.

    As in Java, where clocks go back it is the earlier one, and of times that they skip, what clocks would have shown
    that had not been put forward.
    """
    import pyarrow.compute as pc

    utc = pa.timestamp(values.type.unit, "UTC")
    if zone == "UTC":
        return values.cast(utc)
    # Of what is skipped it is the last moment before.
    near = pc.assume_timezone(values, zone, ambiguous="earliest", nonexistent="earliest")
    return pc.add(near.cast(utc), pc.subtract(values, pc.local_timestamp(near)))


def in_unit(values: pa.Array, unit: str) -> pa.Array:
    """Timestamps, or dates, as timestamps of a unit; finer ones are cut off towards the past.

    Raises:
        pa.ArrowInvalid: one is beyond the times of that unit (see `held_in`).
    """
    if pa.types.is_date(values.type):
        return values.cast(pa.timestamp(unit))
    target = pa.timestamp(unit, values.type.tz)
    step = _PER_SECOND[values.type.unit] // _PER_SECOND[unit]
    if step <= 1:
        return values.cast(target)
    # By arithmetic: Arrow casts towards 1970.
    numbers = values.cast(pa.int64())
    cut = pa.array(numbers.fill_null(0).to_numpy() // step, mask=numbers.is_null().to_numpy(zero_copy_only=False))
    return cut.cast(target)


def held_in(values: pa.Array, unit: str) -> pa.Array:
    """Timestamps or dates, null where they are beyond the times of a unit: of "ns", before 1677 or behind 2262.

    Example:
        >>> held_in(pa.array([0, 120530], pa.int32()).cast(pa.date32()), "ns").to_pylist()
        [datetime.date(1970, 1, 1), None]
    """
    import pyarrow.compute as pc

    if pa.types.is_date32(values.type):
        step, numbers = 86_400 * _PER_SECOND[unit], values.cast(pa.int32())
    else:
        step, numbers = _PER_SECOND[unit] // _PER_SECOND[values.type.unit], values.cast(pa.int64())
    if step <= 1:
        return values
    # A day less: the clocks of other zones are behind or ahead.
    most = _LAST // step - 86_400 * _PER_SECOND[unit] // step
    return pc.if_else(pc.and_(pc.greater_equal(numbers, -most), pc.less_equal(numbers, most)), values, None)


def epoch_ms(values: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Timestamps as int64 milliseconds, finer ones cut off towards the past; nulls are 0."""
    per_ms = _PER_SECOND[values.type.unit] // 1_000
    numbers = values.cast(pa.int64()).fill_null(0).to_numpy()
    result: np.ndarray[tuple[int], np.dtype[np.int64]] = numbers * 1_000 if per_ms == 0 else numbers // per_ms
    return result
