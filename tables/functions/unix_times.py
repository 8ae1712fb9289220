"""Seconds since the epoch and texts of times in a zone: FROM_UNIXTIME, UNIX_TIMESTAMP, CONVERT_TZ.

What is beyond the years 1 to 9999 has no text.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Sequence
from typing import Any, Final
from zoneinfo import ZoneInfo

import pyarrow as pa

from penstock.tables import types as t
from penstock.tables.functions import signatures as s
from penstock.tables.functions.calendar_patterns import calendar_reader, read_calendar
from penstock.tables.functions.signatures import CallValues, ScalarFunction, always
from penstock.tables.functions.time_patterns import DEFAULT_PATTERN, format_time
from penstock.tables.functions.times import zone_named

_NO_TIME: Final = -(2**63)
"""What Flink gives for a text that is no time."""


def _from_unixtime(call: CallValues) -> pa.Array:
    return pa.array(_by_pattern(call, _unix_text), pa.string())


def _by_pattern(call: CallValues, function: Callable[[Any, str, ZoneInfo], object]) -> list[object]:
    """What a function makes of each value by its pattern, the second argument, which may be left out."""
    zone = call.session.zone_info
    patterns = call.columns[1].to_pylist() if len(call.columns) > 1 else [DEFAULT_PATTERN] * call.rows
    pairs = zip(call.columns[0].to_pylist(), patterns, strict=True)
    return [None if value is None or pattern is None else function(value, pattern, zone) for value, pattern in pairs]


def _unix_text(seconds: int, pattern: str, zone: ZoneInfo) -> str | None:
    try:
        moment = datetime.datetime.fromtimestamp(seconds, zone)
    except (ValueError, OverflowError, OSError):
        return None
    return format_time(moment, pattern)


def _unix_timestamp(call: CallValues) -> pa.Array:
    if not call.columns:
        return pa.array([call.session.now_ms // 1000] * call.rows, pa.int64())
    return pa.array(_by_pattern(call, _unix_seconds), pa.int64())


def _unix_seconds(text: str, pattern: str, zone: ZoneInfo) -> int:
    """The seconds since the epoch of what a text begins with; as in Flink, the smallest number where it is no time."""
    read = read_calendar(text, pattern)
    if read is None:
        return _NO_TIME
    return math.floor(_later_moment(read.time.replace(tzinfo=read.zone or zone)).timestamp())


def _later_moment(time: datetime.datetime) -> datetime.datetime:
    """The later of both moments of a time that clocks show twice or skip, as in Java's calendars."""
    return max(time, time.replace(fold=1), key=datetime.datetime.timestamp)


def _convert_tz(call: CallValues) -> pa.Array:
    rows = zip(*(column.to_pylist() for column in call.columns), strict=True)
    return pa.array([None if None in row else _in_zone(*row) for row in rows], pa.string())


def _in_zone(text: str, given: str, wanted: str) -> str | None:
    read = read_calendar(text, DEFAULT_PATTERN)
    if read is None:
        return None
    time, zone = read.time.replace(tzinfo=zone_named(given)), zone_named(wanted)
    try:
        found = _later_moment(time).astimezone(zone)
    except (OverflowError, ValueError):
        return None
    return format_time(found, DEFAULT_PATTERN)


def _are_zones(literals: Sequence[object]) -> None:
    for place in (1, 2):
        s.checked_text(place, zone_named)(literals)


_CAN_WRITE: Final = s.checked_text(
    1, lambda pattern: format_time(datetime.datetime(2024, 1, 31, tzinfo=datetime.timezone.utc), pattern)
)
_CAN_READ: Final = s.checked_text(1, calendar_reader)

FUNCTIONS: Final = (
    ScalarFunction(
        *("FROM_UNIXTIME", (s.INTEGER, s.TEXT), always(t.STRING), _from_unixtime),
        optional=1,
        nullable=True,
        check=_CAN_WRITE,
    ),
    ScalarFunction(
        "UNIX_TIMESTAMP",
        (s.TEXT, s.TEXT),
        always(t.BIGINT),
        _unix_timestamp,
        optional=2,
        deterministic=False,
        check=_CAN_READ,
    ),
    ScalarFunction(
        *("CONVERT_TZ", (s.TEXT, s.TEXT, s.TEXT), always(t.STRING), _convert_tz), nullable=True, check=_are_zones
    ),
)
