"""What TO_DATE, UNIX_TIMESTAMP and CONVERT_TZ read by a pattern: as Java's SimpleDateFormat with its lenient calendar.

It reads numbers of as many digits as there are, and fields that are too large count on: the 30th of February is the
first of March, or the second. What comes behind is not read. (TO_TIMESTAMP reads as DateTimeFormatter does.)
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from penstock.tables.functions.time_patterns import HALF_OF_DAY, NAME_OF_MONTH, OFFSET, month_number, tokens

_BLANKS: Final = r"[ \t]*"

_YEARS_BEHIND: Final = 80
"""Two digits of a year mean one of the hundred years that begin so many years ago."""
_NO_NUMBERS: Final[Mapping[str, str]] = {"M": NAME_OF_MONTH, "a": HALF_OF_DAY, "X": OFFSET}


@dataclass(frozen=True, slots=True)
class CalendarTime:
    """A time that has been read.

    Args:
        time: of the calendar.
        zone: what the text says that it is from UTC; None where it says nothing.
    """

    time: datetime.datetime
    zone: datetime.tzinfo | None


@lru_cache(256)
def calendar_reader(pattern: str) -> tuple[re.Pattern[str], tuple[str, ...]]:
    """The regular expression of how texts of a pattern begin, and the field that each of its groups is.

    Raises:
        ValueError: a letter in it that cannot be read.
    """
    parts: list[str] = []
    fields: list[str] = []
    pieces = tokens(pattern)
    for (piece, is_field), (_, is_followed) in zip(pieces, (*pieces[1:], ("", False)), strict=True):
        if not is_field:
            parts.append(re.escape(piece))
            continue
        fields.append(piece)
        if piece[0] in "yuMdHhmsS" and not (piece[0] == "M" and len(piece) > 2):
            # Right before another field there are as many digits as letters; no fewer may be tried when that fails.
            digits = rf"(?=(\d{{1,{len(piece)}}}))\{len(fields)}" if is_followed else r"(-?\d+)"
            parts.append(_BLANKS + digits)
        elif piece[0] in _NO_NUMBERS:
            parts.append(_BLANKS + _NO_NUMBERS[piece[0]])
        else:
            raise ValueError(f"the pattern {pattern!r} has {piece!r}, which cannot be read")
    return re.compile("".join(parts)), tuple(fields)


def read_calendar(text: str, pattern: str) -> CalendarTime | None:
    """The time that a text begins with; None where that is not of the form of the pattern, or beyond years 1 to 9999.

    Example:
        >>> read_calendar("30/2/2020", "dd/MM/yyyy").time
        datetime.datetime(2020, 3, 1, 0, 0)
    """
    read_by, fields = calendar_reader(pattern)
    found = read_by.match(text)
    if found is None:
        return None
    values = {piece[0]: (piece, value) for piece, value in zip(fields, found.groups(), strict=True)}
    try:
        # Of thousands of digits Python makes no number.
        number = {letter: int(value) for letter, (_, value) in values.items() if value.lstrip("-").isdecimal()}
        month = number["M"] if "M" in number else month_number(values.get("M", ("", "1"))[1])
        hours = number.get("H", 0)
        if "h" in number:
            hours = (0 if number["h"] == 12 else number["h"]) + 12 * (values.get("a", ("", "am"))[1].lower() == "pm")
        first = datetime.datetime(_year(values) + (month - 1) // 12, (month - 1) % 12 + 1, 1)
        time = first + datetime.timedelta(
            days=number.get("d", 1) - 1,
            hours=hours,
            minutes=number.get("m", 0),
            seconds=number.get("s", 0),
            milliseconds=number.get("S", 0),
        )
        return CalendarTime(time, _zone(values["X"][1]) if "X" in values else None)
    except (ValueError, OverflowError):
        return None


def _year(values: Mapping[str, tuple[str, str]]) -> int:
    piece, text = values.get("y") or values.get("u") or ("yyyy", "1970")
    year = int(text)
    if len(piece) > 2 or len(text) != 2 or not text.isdecimal():
        return year
    begin = datetime.datetime.now(datetime.timezone.utc).year - _YEARS_BEHIND
    return begin + (year - begin) % 100


def _zone(text: str) -> datetime.tzinfo | None:
    offset = f"{text}00" if len(text) == len("+08") else text
    return datetime.datetime.strptime(offset, "%z").tzinfo
