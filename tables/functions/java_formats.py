"""PRINTF: texts by the patterns of Java's `Formatter`, which Flink calls with its own values.

So dates and times of day count from the epoch, and decimals are no numbers. What `Formatter` refuses gives null.
Source: `java.util.Formatter`, and what Flink 2.3 answers.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.tables import types as t
from penstock.tables.functions.shown_values import shown_value
from penstock.tables.functions.surrogates import storable
from penstock.tables.types import Kind, SqlType

_SPECIFIER: Final = re.compile(r"%(?:(\d+)\$)?([-#+ 0,(<]*)(\d+)?(?:\.(\d+))?([a-zA-Z%])")
_BITS: Final = {Kind.TINYINT: 8, Kind.SMALLINT: 16, Kind.BIGINT: 64, Kind.INTERVAL_MILLIS: 64}
_TAKEN_FLAGS: Final = {
    **dict.fromkeys("bBsS", "-"),
    **dict.fromkeys("cC%", "-"),
    "d": "-+ 0,(",
    **dict.fromkeys("xXo", "-#0"),
    **dict.fromkeys("eE", "-#+ 0("),
    "f": "-#+ 0,(",
    **dict.fromkeys("gG", "-+ 0,("),
    "n": "",
}
"""The conversions that there are, and the flags of each."""
_WITHOUT_PRECISION: Final = frozenset("cC%dxXon")
_EXACT: Final = decimal.Context(prec=800, rounding=decimal.ROUND_HALF_UP)


class _Float(float):
    """A number of four bytes, which %s shows as such."""


@dataclass(frozen=True, slots=True)
class _Specifier:
    flags: str
    width: int | None
    precision: int | None
    conversion: str


def formatted(pattern: str, values: Sequence[object], kinds: Sequence[SqlType], zone: str) -> str | None:
    """The pattern with the values; None where it means nothing, or not for these values.

    Args:
        pattern: such as `%-5s|%05d`.
        values: as Arrow gives them to Python; times with nanoseconds as their number.
        kinds: their types.
        zone: of TIMESTAMP_LTZ.

    Example:
        >>> formatted("%05d|%,.1f", [7, 1234.25], [t.INT, t.DOUBLE], "UTC")
        '00007|1,234.3'
    """
    arguments = [_given(value, kind, zone) for value, kind in zip(values, kinds, strict=True)]
    bits = [_BITS.get(kind.kind, 32) for kind in kinds]
    try:
        return storable("".join(_parts(pattern, arguments, bits)))
    except (ValueError, ArithmeticError):
        return None


def _given(value: object, kind: SqlType, zone: str) -> object:
    """The value as Flink has it inside: a boolean, a number, or what it shows as a text."""
    if isinstance(value, float) and kind.kind is Kind.FLOAT:
        return _Float(value)
    if value is None or kind.kind in (Kind.BOOLEAN, *t.INTEGERS, *t.INTERVALS, *t.APPROXIMATE):
        return value
    if kind.kind in t.TIMESTAMPS:
        return _java_time(value)
    if isinstance(value, datetime.date):
        return value.toordinal() - datetime.date(1970, 1, 1).toordinal()
    if isinstance(value, datetime.time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000
    return shown_value(value, kind, zone)


def _java_time(value: object) -> str:
    """As `LocalDateTime` shows it, in UTC."""
    date, _, time = (shown_value(value, t.timestamp(9), "UTC") or "").partition(" ")
    return f"{date}T{time.removesuffix('000').removesuffix('000').removesuffix('.000').removesuffix(':00')}"


def _parts(pattern: str, arguments: Sequence[object], bits: Sequence[int]) -> list[str]:
    """The texts between the specifiers, and what stands for each of these.

    Raises:
        ValueError: the pattern means nothing, or not for the arguments.
    """
    parts, place, ordinary, last = [], 0, 0, -1
    while (at := pattern.find("%", place)) >= 0:
        found = _SPECIFIER.match(pattern, at)
        if found is None:
            raise ValueError(pattern)
        parts.append(pattern[place:at])
        place = found.end()
        index, flags, width, precision, conversion = found.groups()
        which = _Specifier(
            flags.replace("<", ""), int(width) if width else None, int(precision) if precision else None, conversion
        )
        _check(which)
        if conversion in "%n":
            parts.append(_padded("%", which) if conversion == "%" else "\n")
            continue
        if "<" not in flags:
            last = int(index) - 1 if index else ordinary
            ordinary += not index
        if not 0 <= last < len(arguments):
            raise ValueError(pattern)
        parts.append(_shown(which, arguments[last], bits[last]))
    return [*parts, pattern[place:]]


def _check(which: _Specifier) -> None:
    flags, taken = which.flags, _TAKEN_FLAGS.get(which.conversion)
    if taken is None or len(set(flags)) < len(flags) or any(flag not in taken for flag in flags):
        raise ValueError(which)
    if ("-" in flags or "0" in flags) and which.width is None:
        raise ValueError(which)
    if {"-", "0"} <= set(flags) or {"+", " "} <= set(flags):
        raise ValueError(which)
    if which.precision is not None and which.conversion in _WITHOUT_PRECISION:
        raise ValueError(which)
    if which.conversion == "n" and which.width is not None:
        raise ValueError(which)


def _shown(which: _Specifier, value: object, bits: int) -> str:
    kind = which.conversion.lower()
    if kind == "b":
        text = str(value if isinstance(value, bool) else value is not None).lower()
    elif value is None:
        text = "null"
    elif kind == "s":
        text = _as_text(value)
    elif kind == "c":
        text = _character(value, bits)
    elif kind in "dxo":
        text = _whole(which, value, bits)
    else:
        text = _floating(which, value)
    if kind in "bs" or value is None:
        text = text if which.precision is None else text[: which.precision]
    return _padded(text.upper() if which.conversion.isupper() else text, which)


def _padded(text: str, which: _Specifier) -> str:
    width = which.width or 0
    return text.ljust(width) if "-" in which.flags else text.rjust(width)


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return shown_value(value, t.FLOAT if isinstance(value, _Float) else t.DOUBLE, "UTC") or ""
    return str(value)


def _character(value: object, bits: int) -> str:
    if isinstance(value, bool) or not isinstance(value, int) or bits == 64:
        raise ValueError(value)
    return chr(value)


def _whole(which: _Specifier, value: object, bits: int) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(value)
    if which.conversion == "d":
        return _signed(which, f"{abs(value):,d}" if "," in which.flags else str(abs(value)), value < 0)
    digits = f"{value % 2**bits:{which.conversion.lower()}}"
    prefix = {"x": "0x", "o": "0"}[which.conversion.lower()] if "#" in which.flags else ""
    return prefix + (digits.zfill((which.width or 0) - len(prefix)) if "0" in which.flags else digits)


def _floating(which: _Specifier, value: object) -> str:
    if not isinstance(value, float):
        raise ValueError(value)
    if math.isnan(value):
        return "NaN"
    is_negative = math.copysign(1.0, value) < 0
    if math.isinf(value):
        sign, end = _around(which.flags, is_negative)
        return f"{sign}Infinity{end}"
    number = decimal.Decimal(repr(abs(value)))
    precision = 6 if which.precision is None else which.precision
    kind = which.conversion.lower()
    if kind == "g":
        kind, precision = _shorter(number, max(precision, 1))
    digits = _fixed(number, precision) if kind == "f" else _scientific(number, precision)
    if "," in which.flags and kind == "f":
        whole, point, rest = digits.partition(".")
        digits = f"{int(whole):,d}{point}{rest}"
    if "#" in which.flags and not precision:
        mantissa, mark, exponent = digits.partition("e")
        digits = f"{mantissa}.{mark}{exponent}"
    return _signed(which, digits, is_negative)


def _shorter(number: decimal.Decimal, digits: int) -> tuple[str, int]:
    """As which conversion `g` writes a number with so many digits, and how many are behind the point."""
    rounded = decimal.Decimal(_scientific(number, digits - 1))
    if rounded and not -4 <= rounded.adjusted() < digits:
        return "e", digits - 1
    return "f", digits - 1 - (rounded.adjusted() if rounded else 0)


def _fixed(number: decimal.Decimal, precision: int) -> str:
    return f"{number.quantize(decimal.Decimal(1).scaleb(-precision), context=_EXACT):f}"


def _scientific(number: decimal.Decimal, precision: int) -> str:
    exponent = number.adjusted() if number else 0
    mantissa = number.scaleb(-exponent).quantize(decimal.Decimal(1).scaleb(-precision), context=_EXACT)
    if mantissa >= 10:
        # Rounded up to one digit more.
        exponent, mantissa = exponent + 1, decimal.Decimal(1).quantize(mantissa)
    return f"{mantissa:f}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def _around(flags: str, is_negative: bool) -> tuple[str, str]:
    """What stands before and behind a number."""
    if is_negative:
        return ("(", ")") if "(" in flags else ("-", "")
    return ("+" if "+" in flags else " " if " " in flags else ""), ""


def _signed(which: _Specifier, digits: str, is_negative: bool) -> str:
    sign, end = _around(which.flags, is_negative)
    if "0" in which.flags:
        digits = digits.rjust((which.width or 0) - len(sign) - len(end), "0")
    return f"{sign}{digits}{end}"
