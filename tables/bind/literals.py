"""Literals as constants: numbers, times, intervals; and the types that they make of calls."""

from __future__ import annotations

import decimal
import re
from dataclasses import replace
from typing import Final

from penstock.tables import types as t
from penstock.tables.expressions import Constant, FunctionCall
from penstock.tables.functions.temporal import fraction_digits
from penstock.tables.functions.times import parse_date, parse_time, parse_timestamp
from penstock.tables.parse import nodes as n
from penstock.tables.parse.text import SqlText
from penstock.tables.types import Kind, SqlType

_UNITS: Final = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")
_MS: Final = {"DAY": 86_400_000, "HOUR": 3_600_000, "MINUTE": 60_000, "SECOND": 1_000, "WEEK": 604_800_000}
_MONTHS: Final = {"YEAR": 12, "QUARTER": 3, "MONTH": 1}
_FEWER: Final = {"MILLISECOND": 1}
_UNITS_OF_DATES: Final = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY")


def number(literal: n.NumberLiteral, source: SqlText) -> Constant:
    """`1` is INT or BIGINT, `1.5` DECIMAL, `1e0` DOUBLE.

    Raises:
        SqlValidationError: more digits than DECIMAL holds.
    """
    text = literal.text.removesuffix(".")
    if "e" in text.lower():
        return Constant(t.DOUBLE.with_nullable(False), float(text))
    if text.isdigit():
        value = int(text)
        if value < 2**31:
            return Constant(t.INT.with_nullable(False), value)
        if value < 2**63:
            return Constant(t.BIGINT.with_nullable(False), value)
    # As in Calcite, each digit that is written counts: 0.1 is a DECIMAL(2, 1).
    whole, _, fraction = text.partition(".")
    precision = len(whole) + len(fraction)
    if precision > t.MAX_PRECISION:
        raise source.invalid(literal.at, f"a number has at most {t.MAX_PRECISION} digits; write it with an exponent")
    return Constant(SqlType(Kind.DECIMAL, False, precision, len(fraction)), decimal.Decimal(text))


def negative(literal: n.NumberLiteral, source: SqlText) -> Constant:
    """The same behind a minus: the smallest INT and BIGINT have one digit less than what they negate needs.

    Raises:
        SqlValidationError: as for `number`.
    """
    found = number(literal, source)
    if found.type.kind in t.EXACT and not found.type.scale:
        value = -int(found.value)  # type: ignore[call-overload]
        for kind, bits in ((t.INT, 32), (t.BIGINT, 64)):
            if value >= -(2 ** (bits - 1)):
                return Constant(kind.with_nullable(False), value)
    assert isinstance(found.value, int | float | decimal.Decimal), "it is a number"
    return Constant(found.type, -found.value)


def temporal(literal: n.TemporalLiteral, source: SqlText) -> Constant:
    """`DATE '2024-01-31'`, `TIME '12:34:56'`, `TIMESTAMP '2024-01-31 12:34:56.789'`.

    Raises:
        SqlValidationError: no such date or time.
    """
    digits = len(literal.text.partition(".")[2])
    try:
        if literal.kind == "DATE":
            return Constant(t.DATE.with_nullable(False), parse_date(literal.text))
        if literal.kind == "TIME":
            return Constant(SqlType(Kind.TIME, False, min(digits, t.DIGITS_OF_TIME)), parse_time(literal.text))
        return Constant(SqlType(Kind.TIMESTAMP, False, digits), parse_timestamp(literal.text, digits))
    except ValueError:
        form = {"DATE": "2024-01-31", "TIME": "12:34:56", "TIMESTAMP": "2024-01-31 12:34:56"}[literal.kind]
        raise source.invalid(
            literal.at, f"{literal.text!r} is no {literal.kind}; write it like {literal.kind} '{form}'"
        ) from None


def interval(literal: n.IntervalLiteral, source: SqlText) -> Constant:
    """An interval in months or in milliseconds.

    Raises:
        SqlValidationError: the text does not fit the units.
    """
    sign = -1 if literal.negative else 1
    text = literal.text.strip()
    if text.startswith("-"):
        sign, text = -sign, text[1:]
    months = literal.first in _MONTHS
    try:
        if literal.first == literal.last:
            amount = _single(text, literal.first)
        else:
            amount = _several(text, literal.first, literal.last)
    except (ValueError, IndexError, decimal.InvalidOperation):
        units = literal.first if literal.first == literal.last else f"{literal.first} TO {literal.last}"
        raise source.invalid(literal.at, f"{literal.text!r} is no interval of {units}") from None
    kind = t.INTERVAL_MONTHS if months else t.INTERVAL_MILLIS
    return Constant(kind.with_nullable(False), sign * amount)


def _single(text: str, unit: str) -> int:
    if unit in _MONTHS:
        return int(text) * _MONTHS[unit]
    return int(decimal.Decimal(text) * {**_MS, **_FEWER}[unit])


def _several(text: str, first: str, last: str) -> int:
    units = _UNITS[_UNITS.index(first) : _UNITS.index(last) + 1]
    if not units:
        raise ValueError(text)
    numbers = re.split(r"[-: ]", text)
    if len(numbers) != len(units):
        raise ValueError(text)
    scale = _MONTHS if first in _MONTHS else _MS
    return sum(int(decimal.Decimal(number) * scale[unit]) for number, unit in zip(numbers, units, strict=True))


def typed_call(made: FunctionCall) -> FunctionCall:
    """A call with the type that its literals make of it: how many digits ROUND leaves, what TIMESTAMPADD adds, of how
    many digits TO_TIMESTAMP_LTZ is.

    Source: `LogicalTypeMerging.findRoundDecimalType` of Flink.
    """
    arguments = made.arguments
    if made.name in ("ROUND", "TRUNCATE") and made.type.kind is Kind.DECIMAL and len(arguments) == 2:
        digits, given = arguments[1], arguments[0].type
        if isinstance(digits, Constant) and isinstance(digits.value, int) and digits.value < given.scale:
            whole = given.precision - given.scale + 1
            kept = max(digits.value, 0)
            kind = t.decimal(min(whole + kept, t.MAX_PRECISION), kept)
            return replace(made, type=kind.with_nullable(made.type.nullable))
    if made.name == "TIMESTAMPADD" and arguments[2].type.kind is Kind.DATE:
        unit = arguments[0]
        if isinstance(unit, Constant) and unit.value in _UNITS_OF_DATES:
            return replace(made, type=t.DATE.with_nullable(made.type.nullable))
    if made.name == "TO_TIMESTAMP_LTZ" and len(arguments) > 1 and isinstance(arguments[1], Constant):
        precise = t.timestamp_ltz(fraction_digits(arguments[1].value))
        return replace(made, type=precise.with_nullable(made.type.nullable))
    return made
