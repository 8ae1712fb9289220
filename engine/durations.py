"""Durations as users write them: `timedelta`, or text such as `"50ms"`, `"5m"`, `"1h 30min"`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final, TypeAlias

from penstock.engine.errors import ConfigurationError

Duration: TypeAlias = timedelta | str

_UNITS_MS: Final = {
    "ms": 1,
    "s": 1000,
    "sec": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_WORDS_MS: Final = {
    **{
        f"{word}{plural}": _UNITS_MS[unit]
        for word, unit in (
            ("millisecond", "ms"),
            ("second", "s"),
            ("minute", "m"),
            ("hour", "h"),
            ("day", "d"),
            ("week", "w"),
        )
        for plural in ("", "s")
    },
    "milli": 1,
    "millis": 1,
    **_UNITS_MS,
}
"""The units, and the words for them that Flink's configuration knows."""
_PART: Final = re.compile(r"\s*(\d+)\s*([a-z]+)\s*")


def parse_duration(value: Duration, option: str) -> int:
    """The duration in whole milliseconds.

    Args:
        value: a `timedelta`, or text of one or more numbers with a unit: ms, s (sec), m (min), h, d, w, or the words
            for them (`10 seconds`).
        option: the name of the option, for messages.

    Raises:
        ConfigurationError: no duration, negative, or finer than a millisecond.

    Example:
        >>> parse_duration("1h 30m", "gap")
        5400000
    """
    milliseconds = parse_signed_duration(value, option)
    if milliseconds < 0:
        raise ConfigurationError(f"{option}: {value} is negative; give a time forward")
    return milliseconds


def parse_signed_duration(value: Duration, option: str) -> int:
    """The duration in whole milliseconds, which may be negative: a `timedelta`, or text that may begin with `-`.

    Raises:
        ConfigurationError: no duration, or finer than a millisecond.

    Example:
        >>> parse_signed_duration("-1m 30s", "lower")
        -90000
    """
    if isinstance(value, str) and value.strip().startswith("-"):
        return -_parse_text(value.strip().removeprefix("-"), option)
    return _milliseconds(value, option)


def _milliseconds(value: Duration, option: str) -> int:
    if isinstance(value, timedelta):
        milliseconds, rest = divmod(value, timedelta(milliseconds=1))
        if rest:
            raise ConfigurationError(f"{option}: {value} is finer than a millisecond, the engine's unit of time")
    elif isinstance(value, str):
        milliseconds = _parse_text(value, option)
    else:
        raise ConfigurationError(
            f"{option}: {value!r} is no duration; give a timedelta or a text with a unit such as '50ms', '5m', '1h'"
        )
    return milliseconds


def _parse_text(text: str, option: str) -> int:
    total, position = 0, 0
    stripped = text.strip().lower()
    while position < len(stripped):
        part = _PART.match(stripped, position)
        if part is None or part[2] not in _WORDS_MS:
            position = -1
            break
        total += int(part[1]) * _WORDS_MS[part[2]]
        position = part.end()
    if position <= 0:
        if stripped == "0":
            return 0
        raise ConfigurationError(
            f"{option}: {text!r} is no duration; write a number with a unit ({', '.join(_UNITS_MS)}), such as '50ms'"
        )
    return total


def format_duration(milliseconds: int) -> str:
    """The duration in its largest whole units, as `explain()` shows it: 5400000 is `1h 30m`."""
    if milliseconds == 0:
        return "0ms"
    if milliseconds < 0:
        return f"-{format_duration(-milliseconds)}"
    parts, rest = [], milliseconds
    for unit in ("d", "h", "m", "s", "ms"):
        count, rest = divmod(rest, _UNITS_MS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts)
