"""Times of the day and the week, as the autoscaler's excluded periods spell them: `9:30-12:00`, `* * 9-11 ? * MON-FRI`.

Flink's spelling: a cron expression in Quartz's order (seconds, minutes, hours, day of the month, month, day of the
week), a range of the day, or both joined by `&&`. All times are UTC.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Final

from penstock.engine.errors import ConfigurationError

_DAILY: Final = re.compile(r"(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})")
_MONTHS: Final = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
_DAYS: Final = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]
_FIELDS: Final[Sequence[tuple[str, int, int, Sequence[str]]]] = (
    ("second", 0, 59, ()),
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 1, 7, _DAYS),
    ("year", 1970, 2199, ()),
)
_HELP: Final = "write it as 9:30-12:00, as a cron expression such as * * 9-11 ? * MON-FRI, or both joined by &&"


@dataclass(frozen=True, slots=True)
class Period:
    """A time that comes again.

    Args:
        text: as it was written.
        fields: the seconds, minutes, hours, days of the month, months, days of the week (Sunday is 1) and years that
            belong to it; None: any.
        minutes: of the day, from the first to before the second, which may be on the next day; None: all day.
    """

    text: str
    fields: tuple[frozenset[int] | None, ...] = ()
    minutes: tuple[int, int] | None = None

    def holds(self, now_ms: int) -> bool:
        """Whether it is now, int64 ms UTC."""
        now = datetime.fromtimestamp(now_ms / 1000, timezone.utc)
        week_day = now.isoweekday() % 7 + 1
        values = (now.second, now.minute, now.hour, now.day, now.month, week_day, now.year)
        if any(field is not None and value not in field for field, value in zip(self.fields, values, strict=False)):
            return False
        if self.minutes is None:
            return True
        minute, (begin, end) = now.hour * 60 + now.minute, self.minutes
        return begin <= minute < end if begin <= end else minute >= begin or minute < end


def parse_period(text: str) -> Period:
    """The period.

    Raises:
        ConfigurationError: it is none.

    Example:
        >>> parse_period("22:00-6:00").holds(0)
        True
    """
    fields: tuple[frozenset[int] | None, ...] = ()
    minutes: tuple[int, int] | None = None
    for part in (part.strip() for part in text.split("&&")):
        daily = _DAILY.fullmatch(part)
        if daily is not None and minutes is None:
            minutes = _daily(daily, text)
        elif daily is None and part and not fields:
            fields = _cron(part, text)
        else:
            raise ConfigurationError(f"{text!r} is no period: {_HELP}")
    return Period(text, fields, minutes)


def _daily(found: re.Match[str], text: str) -> tuple[int, int]:
    begin_hour, begin, end_hour, end = map(int, found.groups())
    if begin_hour > 23 or end_hour > 24 or begin > 59 or end > 59 or end_hour * 60 + end > 24 * 60:
        raise ConfigurationError(f"{text!r} is no period: a day has the times 0:00 to 24:00")
    return begin_hour * 60 + begin, end_hour * 60 + end


def _cron(part: str, text: str) -> tuple[frozenset[int] | None, ...]:
    given = part.split()
    if len(given) not in (6, 7):
        raise ConfigurationError(f"{text!r} is no period: {_HELP}")
    return tuple(_field(one, text, *limits) for one, limits in zip(given, _FIELDS, strict=False))


def _field(given: str, text: str, name: str, low: int, high: int, names: Sequence[str]) -> frozenset[int] | None:
    if given in ("*", "?"):
        return None
    values: set[int] = set()
    for part in given.split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        begin = low if first == "*" else _value(first, low, names)
        end = high if first == "*" or (step and not last) else _value(last or first, low, names)
        every = int(step) if step.isdecimal() else 0 if step else 1
        if begin is None or end is None or every < 1 or not (low <= begin <= high and low <= end <= high):
            raise ConfigurationError(f"{text!r} is no period: {given!r} is no {name} ({low} to {high})")
        # FRI-MON goes over the end of the week.
        values.update(range(begin, end + 1, every) if begin <= end else [*range(begin, high + 1), *range(low, end + 1)])
    return frozenset(values)


def _value(given: str, low: int, names: Sequence[str]) -> int | None:
    if given.upper() in names:
        return names.index(given.upper()) + low
    return int(given) if given.isdecimal() else None
