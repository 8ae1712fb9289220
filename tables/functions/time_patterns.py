"""Patterns of times, as Java's DateTimeFormatter has them: what times are written and read by.

The functions of `temporal.py` use them.
"""

from __future__ import annotations

import calendar
import datetime
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

DEFAULT_PATTERN: Final = "yyyy-MM-dd HH:mm:ss"
_JAVA: Final = {
    "yyyy": "%Y",
    "uuuu": "%Y",
    "yy": "%y",
    "MM": "%m",
    "MMM": "%b",
    "MMMM": "%B",
    "dd": "%d",
    "HH": "%H",
    "hh": "%I",
    "mm": "%M",
    "ss": "%S",
    "a": "%p",
    "E": "%a",
    "EE": "%a",
    "L": "%-m",
    "LL": "%m",
    "LLL": "%b",
    "LLLL": "%B",
    "u": "%Y",
    "uu": "%y",
    "EEE": "%a",
    "EEEE": "%A",
    "DDD": "%j",
    "D": "%-j",
    "y": "%Y",
    "M": "%-m",
    "d": "%-d",
    "H": "%-H",
    "h": "%-I",
    "m": "%-M",
    "s": "%-S",
}
_MOST_DIGITS: Final = 18
_LONGEST_MONTH: Final = 31
_OFFSETS: Final = ("X", "XX", "XXX", "Z")
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
NAME_OF_MONTH: Final = f"((?i:{'|'.join((*_MONTHS, *(name[:3] for name in _MONTHS)))}))"
HALF_OF_DAY: Final = "([AaPp][Mm])"
OFFSET: Final = r"(Z|[+-]\d{2}:?\d{2}|[+-]\d{2}(?!\d))"
"""What fields are read by that are no numbers."""
_ANY_DIGITS: Final = {
    "M": r"\d{1,2}",
    "d": r"\d{1,2}",
    "H": r"\d{1,2}",
    "h": r"\d{1,2}",
    "m": r"\d{1,2}",
    "s": r"\d{1,2}",
}


_UNITS: Final = (("day", "yuYMLdEeDQGwWF"), ("hour", "HhakK"), ("minute", "m"), ("second", "sZX"))
"""Which letters of patterns come to need each unit of time."""


def _week(value: datetime.datetime) -> tuple[int, int]:
    """The year and the number of a week as in the United States, Java's own: the first one has the first of January."""
    saturday = value.toordinal() + 6 - value.isoweekday() % 7
    next_year = datetime.date(value.year, 12, 31).toordinal() + 1
    is_next = saturday >= next_year
    first = next_year if is_next else datetime.date(value.year, 1, 1).toordinal()
    return value.year + is_next, (saturday - first) // 7 + 1


def _millis(value: datetime.datetime) -> int:
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000


_NUMBERS: Final[dict[str, Callable[[datetime.datetime], int]]] = {
    "k": lambda value: value.hour or 24,
    "K": lambda value: value.hour % 12,
    "w": lambda value: _week(value)[1],
    "W": lambda value: (value.day + value.replace(day=1).isoweekday() % 7 - 1) // 7 + 1,
    "F": lambda value: (value.day - 1) % 7 + 1,
    "e": lambda value: value.isoweekday() % 7 + 1,
    "n": lambda value: value.microsecond * 1000,
    "N": lambda value: _millis(value) * 1_000_000 + value.microsecond % 1000 * 1000,
    "A": _millis,
}
"""What letters mean that are written as numbers, with as many digits as there are letters at least."""


@lru_cache(256)
def tokens(pattern: str) -> tuple[tuple[str, bool], ...]:
    """The pieces of a pattern of Java's DateTimeFormatter, each with whether it is a field."""
    found = [match[0] for match in re.finditer(r"'(?:[^']|'')*'|([A-Za-z])\1*|[^A-Za-z']+", pattern)]
    return tuple((piece.strip("'") if piece[0] == "'" else piece, piece[0].isalpha()) for piece in found)


def format_time(value: datetime.datetime, pattern: str) -> str:
    """A time by a pattern of Java.

    Raises:
        ValueError: a letter in it that has no meaning here, or that means the offset of a time that has none.

    Example:
        >>> format_time(datetime.datetime(2024, 1, 31, 9, 5, 7, 120000), "yyyy/M/dd HH:mm:ss.SSS")
        '2024/1/31 09:05:07.120'
    """
    parts = []
    for piece, is_field in tokens(pattern):
        if is_field and set(piece) == {"S"}:
            parts.append(f"{value.microsecond:06d}000"[: len(piece)])
        elif is_field and piece in ("Q", "QQ"):
            parts.append(f"{(value.month + 2) // 3:0{len(piece)}d}")
        elif is_field and piece == "QQQ":
            parts.append(f"Q{(value.month + 2) // 3}")
        elif is_field and piece == "G":
            parts.append("AD")
        elif is_field and piece[0] in _NUMBERS and len(piece) <= _MOST_DIGITS:
            parts.append(f"{_NUMBERS[piece[0]](value):0{len(piece)}d}")
        elif is_field and piece in ("YYYY", "YY", "Y"):
            parts.append(str(_week(value)[0])[-2:] if piece == "YY" else f"{_week(value)[0]:04d}")
        elif is_field and piece in _OFFSETS:
            parts.append(_offset(value, piece, pattern))
        elif is_field:
            parts.append(value.strftime(_field(piece, pattern)))
        else:
            parts.append(piece)
    return "".join(parts)


def _offset(value: datetime.datetime, piece: str, pattern: str) -> str:
    """How far a time is from UTC: X, XX and XXX as ISO 8601 has it, Z in digits."""
    offset = value.utcoffset()
    if offset is None:
        raise ValueError(f"the pattern {pattern!r} has {piece!r}, and these times have no offset")
    total = offset // datetime.timedelta(minutes=1)
    if not total and piece != "Z":
        return "Z"
    hours, minutes = divmod(abs(total), 60)
    behind = {"X": "", "XXX": f":{minutes:02d}"}.get(piece, f"{minutes:02d}")
    return f"{'-' if total < 0 else '+'}{hours:02d}{behind}"


@lru_cache(256)
def shown_unit(pattern: str) -> str | None:
    """The longest unit of time whose times a pattern writes alike; None: there is none.

    Example:
        >>> shown_unit("yyyy-MM-dd HH:mm")
        'minute'
    """
    letters = {piece[0] for piece, is_field in tokens(pattern) if is_field}
    for unit, known in _UNITS:
        letters -= set(known)
        if not letters:
            return unit
    return None


def _field(piece: str, pattern: str) -> str:
    if piece not in _JAVA:
        raise ValueError(f"the pattern {pattern!r} has {piece!r}, which has no meaning here")
    return _JAVA[piece]


@lru_cache(256)
def reader(pattern: str) -> tuple[re.Pattern[str], tuple[str, ...]]:
    """The regular expression of texts of a pattern, and the letter of the field that each of its groups is.

    Raises:
        ValueError: a letter in it that cannot be read.
    """
    parts, fields = [], []
    for piece, is_field in tokens(pattern):
        if not is_field:
            parts.append(re.escape(piece))
            continue
        letter = piece[0]
        if letter == "S":
            parts.append(rf"(\d{{1,{len(piece)}}})")
        elif letter in "yu":
            parts.append(r"(\d{4})" if len(piece) != 2 else r"(\d{2})")
        elif letter == "M" and len(piece) > 2:
            parts.append(NAME_OF_MONTH)
        elif letter in _ANY_DIGITS:
            parts.append(f"({_ANY_DIGITS[letter]})" if len(piece) == 1 else rf"(\d{{{len(piece)}}})")
        elif letter == "a":
            parts.append(HALF_OF_DAY)
        elif letter == "X":
            parts.append(OFFSET)
        else:
            raise ValueError(f"the pattern {pattern!r} has {piece!r}, which cannot be read")
        fields.append(letter)
    return re.compile("".join(parts)), tuple(fields)


def read_time(text: str, pattern: str) -> datetime.datetime | None:
    """A time out of a text by a pattern of Java; None where the text is not of that form."""
    read_by, fields = reader(pattern)
    found = read_by.fullmatch(text)
    return None if found is None else time_of(fields, found.groups())


def fraction_of(text: str, pattern: str) -> str:
    """The digits behind the second in a text of a pattern of Java; none where it has none."""
    read_by, fields = reader(pattern)
    found = read_by.fullmatch(text)
    return found.groups()[fields.index("S")] if found is not None and "S" in fields else ""


def pattern_digits(pattern: str) -> int:
    """How many digits behind the second a pattern of Java has."""
    return sum(len(piece) for piece, is_field in tokens(pattern) if is_field and piece[0] == "S")


def time_of(fields: Sequence[str], texts: Sequence[str | Any]) -> datetime.datetime | None:
    """The time of the fields that `reader` has found, one text each; None where there is no such time.

    Of a day that a short month has not it is the last one of that month.
    """
    values = dict(zip(fields, texts, strict=True))
    digits = values.get("y") or values.get("u") or "1970"
    year, month, day = int(digits), month_number(values.get("M", "1")), int(values.get("d", 1))
    if len(digits) == 2:
        year += 2000
    hour = int(values.get("H", 0))
    if "h" in values:
        hour = int(values["h"]) % 12 + (12 if values.get("a", "am").lower() == "pm" else 0)
    try:
        return datetime.datetime(
            year,
            month,
            min(day, calendar.monthrange(year, month)[1]) if day <= _LONGEST_MONTH else day,
            hour,
            int(values.get("m", 0)),
            int(values.get("s", 0)),
            int((values.get("S") or "0").ljust(6, "0")[:6]),
        )
    except ValueError:
        return None


def month_number(text: str) -> int:
    """Of a number, or of a long or short name.

    Example:
        >>> month_number("feb")
        2
    """
    if text.isdecimal():
        return int(text)
    return next(number for number, name in enumerate(_MONTHS, start=1) if name[:3] == text[:3].capitalize())
