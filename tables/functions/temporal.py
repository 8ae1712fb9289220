"""Functions of dates, times, timestamps and intervals.

TIMESTAMP has no zone and is taken as it stands; TIMESTAMP_LTZ is a moment, whose parts are those in the session's zone.
"""

from __future__ import annotations

import datetime
import decimal
import math
import re
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.tables import types as t
from penstock.tables.functions import signatures as s
from penstock.tables.functions.calendar_patterns import calendar_reader, read_calendar
from penstock.tables.functions.casts import cast_values
from penstock.tables.functions.months import Int64s, add_months, months_between
from penstock.tables.functions.rounded_times import OF_TIMES, ceiled_to, floored_to, may_leave_its_unit
from penstock.tables.functions.signatures import CallValues, ScalarFunction, always
from penstock.tables.functions.time_patterns import (
    format_time,
    fraction_of,
    pattern_digits,
    read_time,
    reader,
    shown_unit,
)
from penstock.tables.functions.times import (
    epoch_ms,
    in_unit,
    local_times,
    parse_date,
    parse_plain_timestamp,
    parse_timestamp,
    zone_named,
)
from penstock.tables.types import Kind, SqlType, arrow_type

_Measure: TypeAlias = Callable[[Int64s, Int64s], Int64s]

_STORED_DIGITS: Final = {"ms": 3, "us": 6, "ns": 9}
_FIRST_SECOND: Final = -62_135_596_800
"""Of the year 1."""
_LAST_SECOND: Final = 253_402_300_799
"""Of the year 9999."""
_MS_OF: Final = {
    "MILLISECOND": 1,
    "SECOND": 1_000,
    "MINUTE": 60_000,
    "HOUR": 3_600_000,
    "DAY": 86_400_000,
    "WEEK": 7 * 86_400_000,
}
_MONTHS_OF: Final = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_DEFAULT_FORM: Final = re.compile(r"(\d{1,4})-(\d{1,2})-(\d{1,2}) (\d{1,2}):(\d{1,2}):(\d{1,2})")


# Parts of times

_PARTS: Final[dict[str, Callable[[pa.Array], pa.Array]]] = {
    "YEAR": pc.year,
    "QUARTER": pc.quarter,
    "MONTH": pc.month,
    "WEEK": pc.iso_week,
    "DAY": pc.day,
    "DOY": pc.day_of_year,
    "DOW": lambda values: pc.day_of_week(values, week_start=7, count_from_zero=False),
    "ISODOW": lambda values: pc.day_of_week(values, count_from_zero=False),
    "ISOYEAR": pc.iso_year,
    "HOUR": pc.hour,
    "MINUTE": pc.minute,
    "SECOND": pc.second,
    # Of the second, as in Flink: whole seconds are not in them.
    "MILLISECOND": pc.millisecond,
    "MICROSECOND": lambda values: pc.add(pc.multiply(pc.millisecond(values), 1000), pc.microsecond(values)),
    "NANOSECOND": lambda values: pc.round(pc.multiply(pc.subsecond(values), 1e9)).cast(pa.int64()),
    "EPOCH": lambda values: pc.floor_temporal(values, unit="second").cast(pa.timestamp("s")).cast(pa.int64()),
    "CENTURY": lambda values: pc.add(pc.divide(pc.subtract(pc.year(values), 1), 100), 1),
    "DECADE": lambda values: pc.divide(pc.year(values), 10),
    "MILLENNIUM": lambda values: pc.add(pc.divide(pc.subtract(pc.year(values), 1), 1000), 1),
}
UNITS: Final = frozenset(_PARTS)
"""What EXTRACT takes."""
_NEVER_BEGIN: Final = frozenset({"DOW", "DOY", "ISODOW", "ISOYEAR", "EPOCH"})
"""Parts of times that are no units to round to."""


def _units(of_date: frozenset[str], of_time: frozenset[str], of_both: frozenset[str]) -> dict[Kind, frozenset[str]]:
    return {Kind.DATE: of_date, Kind.TIME: of_time, Kind.TIMESTAMP: of_both, Kind.TIMESTAMP_LTZ: of_both}


_MONTHS_IN_INTERVALS: Final[dict[str, Callable[[Int64s], Int64s]]] = {
    "YEAR": lambda months: months // 12,
    "QUARTER": lambda months: months % 12 // 3 + 1,
    "MONTH": lambda months: months % 12,
}
_MS_IN_INTERVALS: Final[dict[str, Callable[[Int64s], Int64s]]] = {
    "DAY": lambda millis: millis // 86_400_000,
    "HOUR": lambda millis: millis // 3_600_000 % 24,
    "MINUTE": lambda millis: millis // 60_000 % 60,
    "SECOND": lambda millis: millis // 1_000 % 60,
    "MILLISECOND": lambda millis: millis % 1_000,
}
_EXTRACTED: Final = {
    **_units(UNITS - OF_TIMES, OF_TIMES, UNITS),
    Kind.INTERVAL_MONTHS: frozenset(_MONTHS_IN_INTERVALS),
    Kind.INTERVAL_MILLIS: frozenset(_MS_IN_INTERVALS),
}
_ROUNDED: Final = _units(UNITS - _NEVER_BEGIN, OF_TIMES, UNITS - _NEVER_BEGIN)
_COUNTED: Final = _units(frozenset((*_MS_OF, *_MONTHS_OF)), frozenset(_MS_OF), frozenset((*_MS_OF, *_MONTHS_OF)))
"""The units that EXTRACT, FLOOR and CEIL, TIMESTAMPADD and TIMESTAMPDIFF take, by the kind of time or interval."""


def _local(call: CallValues, place: int) -> pa.Array:
    column, kind = call.columns[place], call.types[place]
    return local_times(column, call.session.zone) if kind.kind is Kind.TIMESTAMP_LTZ else column


def _extract(call: CallValues) -> pa.Array:
    unit = str(s.constant_at(call, 0))
    if call.types[1].kind in t.INTERVALS:
        return _part_of_intervals(call.columns[1], unit, call.types[1].kind)
    values = _local(call, 1)
    if call.types[1].kind is Kind.TIME and pa.types.is_time32(values.type):
        values = values.cast(pa.time64("us"))
    return _PARTS[unit](values).cast(pa.int64())


def _part_of_intervals(values: pa.Array, unit: str, kind: Kind) -> pa.Array:
    """With the sign of the interval."""
    measure = (_MONTHS_IN_INTERVALS if kind is Kind.INTERVAL_MONTHS else _MS_IN_INTERVALS)[unit]
    numbers = values.cast(pa.int64()).fill_null(0).to_numpy()
    parts = measure(np.abs(numbers)) * np.sign(numbers)
    return pa.array(parts, pa.int64(), mask=values.is_null().to_numpy(zero_copy_only=False))


def _part(unit: str) -> s.Evaluate:
    def evaluate(call: CallValues) -> pa.Array:
        return _PARTS[unit](_local(call, 0)).cast(pa.int64())

    return evaluate


def _without_zone(call: CallValues) -> pa.Array:
    return call.columns[0].cast(arrow_type(call.result))


# Adding intervals


def _shifted(column: pa.Array, kind: SqlType, amounts: pa.Array, in_months: bool, result: SqlType) -> pa.Array:
    target = arrow_type(result)
    if in_months:
        return add_months(column, amounts).cast(target)
    if kind.kind is Kind.DATE:
        if result.kind is Kind.DATE:
            days = pc.divide(amounts.cast(pa.int64()), 86_400_000).cast(pa.int32(), safe=False)
            return pc.add(column.cast(pa.int32()), days).cast(pa.date32())
        column = column.cast(target)
    if kind.kind is Kind.TIME:
        return _shifted_time(column, amounts, target)
    if column.type.unit == "s":
        column = column.cast(pa.timestamp("ms", column.type.tz))
    factor = {"ms": 1, "us": 1_000, "ns": 1_000_000}[column.type.unit]
    moved = pc.add_checked(column.cast(pa.int64()), pc.multiply_checked(amounts.cast(pa.int64()), factor))
    return moved.cast(column.type).cast(target)


def _shifted_time(column: pa.Array, amounts: pa.Array, target: pa.DataType) -> pa.Array:
    millis = column.cast(pa.time32("ms"), safe=False).cast(pa.int32()).cast(pa.int64())
    moved = pc.add(millis, amounts.cast(pa.int64()))
    nulls = moved.is_null().to_numpy(zero_copy_only=False)
    wrapped = np.mod(moved.fill_null(0).to_numpy(), 86_400_000).astype(np.int32)
    return pa.array(wrapped, mask=nulls).cast(pa.time32("ms")).cast(target)


def _leaves_its_unit(given: Sequence[SqlType], literal: Sequence[bool]) -> bool:
    """Whether what an interval leads to may be none of the times of the type: of nanoseconds, or by any interval."""
    return given[0].kind in t.TIMESTAMPS and (given[0].precision > 6 or not literal[1])


def _plus_interval(sign: int) -> s.Evaluate:
    def evaluate(call: CallValues) -> pa.Array:
        amounts = call.columns[1] if sign > 0 else pc.negate(call.columns[1])
        in_months = call.types[1].kind is Kind.INTERVAL_MONTHS
        return _shifted(call.columns[0], call.types[0], amounts, in_months, call.result)

    return evaluate


def _intervals(function: Callable[[pa.Array, pa.Array], pa.Array]) -> s.Evaluate:
    def evaluate(call: CallValues) -> pa.Array:
        return function(call.columns[0], call.columns[1]).cast(arrow_type(call.result), safe=False)

    return evaluate


def _multiplied(call: CallValues) -> pa.Array:
    interval, factor = call.columns
    if pa.types.is_floating(factor.type):
        interval, factor = interval.cast(pa.float64(), safe=False), factor.cast(pa.float64())
    elif pa.types.is_decimal(factor.type):
        # Both together have more digits than the narrower type does.
        interval, factor = interval.cast(pa.decimal256(19, 0)), factor.cast(pa.decimal256(38, factor.type.scale))
    return pc.multiply(interval, factor).cast(arrow_type(call.result), safe=False)


def _timestamp_add(call: CallValues) -> pa.Array:
    unit = str(s.constant_at(call, 0))
    amounts = call.columns[1].cast(pa.int64())
    in_months = unit in _MONTHS_OF
    scaled = pc.multiply(amounts, _MONTHS_OF[unit] if in_months else _MS_OF[unit])
    return _shifted(call.columns[2], call.types[2], scaled, in_months, call.result)


def _timestamp_add_type(given: Sequence[SqlType]) -> SqlType:
    return t.timestamp(6) if given[2].kind is Kind.DATE else given[2]


def _timestamp_diff(call: CallValues) -> pa.Array:
    unit = str(s.constant_at(call, 0))
    measure, size = (months_between, _MONTHS_OF[unit]) if unit in _MONTHS_OF else (_elapsed, _MS_OF[unit])
    return pc.divide(_distances(call, 1, measure), size).cast(pa.int32(), safe=False)


def _between(measure: _Measure) -> s.Evaluate:
    def evaluate(call: CallValues) -> pa.Array:
        return _distances(call, 0, measure).cast(arrow_type(call.result), safe=False)

    return evaluate


def _elapsed(begins: Int64s, ends: Int64s) -> Int64s:
    return ends - begins


def _distances(call: CallValues, place: int, measure: _Measure) -> pa.Array:
    """From the times at a place to those behind it, as `measure` has it of milliseconds.

    Between two moments it is what has passed, as in Flink; clocks count where one of both is none.
    """
    both = (place, place + 1)
    are_moments = all(call.types[one].kind is Kind.TIMESTAMP_LTZ for one in both)
    times = [call.columns[one] if are_moments else _local(call, one) for one in both]
    times = [time.cast(pa.timestamp("ms")) if pa.types.is_date(time.type) else time for time in times]
    begin, end = map(epoch_ms, times)
    nulls = pc.or_(times[0].is_null(), times[1].is_null()).to_numpy(zero_copy_only=False)
    return pa.array(measure(begin, end), mask=nulls)


# Formats


def _date_format(call: CallValues) -> pa.Array:
    if call.types[0].kind in t.CHARACTERS:
        times = pa.array([_read_default(text) for text in call.columns[0].to_pylist()], pa.timestamp("ms"))
    else:
        times = _local(call, 0)
        times = times.cast(pa.timestamp("s")) if pa.types.is_date(times.type) else times
    written = call.columns[1].unique()
    if len(written) == 1 and written[0].is_valid and pa.types.is_timestamp(times.type):
        return _formatted(times, written[0].as_py())
    stamps, patterns = times.to_pylist(), call.columns[1].to_pylist()
    texts = [None if v is None or p is None else format_time(v, p) for v, p in zip(stamps, patterns, strict=True)]
    return pa.array(texts, pa.string())


def _formatted(times: pa.Array, pattern: str) -> pa.Array:
    """Times by one pattern: those that look alike are written once."""
    unit = shown_unit(pattern)
    coded = (times if unit is None else pc.floor_temporal(times, unit=unit)).dictionary_encode()
    texts = pa.array([format_time(value, pattern) for value in coded.dictionary.to_pylist()], pa.string())
    return texts.take(coded.indices)


def _read_default(text: str | None) -> datetime.datetime | None:
    """What a text begins with, as `yyyy-MM-dd HH:mm:ss`; like Java, the 31st of February is a day of March."""
    found = None if text is None else _DEFAULT_FORM.match(text)
    if found is None:
        return None
    year, month, day, hour, minute, second = map(int, found.groups())
    try:
        first = datetime.datetime(year + (month - 1) // 12, (month - 1) % 12 + 1, 1)
        return first + datetime.timedelta(days=day - 1, hours=hour, minutes=minute, seconds=second)
    except (ValueError, OverflowError):
        return None


def _to_timestamp(call: CallValues) -> pa.Array:
    texts = call.columns[0].to_pylist()
    if len(call.columns) == 1:
        return pa.array([_millis_or_none(text) for text in texts], pa.timestamp("ms"))
    patterns = call.columns[1].to_pylist()
    read = [None if v is None or p is None else read_time(v, p) for v, p in zip(texts, patterns, strict=True)]
    return in_unit(pa.array(read, pa.timestamp("us")), "ms")


def _millis_or_none(text: str | None) -> int | None:
    try:
        return None if text is None else parse_plain_timestamp(text)
    except (ValueError, OverflowError):
        return None


def _to_date(call: CallValues) -> pa.Array:
    texts = call.columns[0].to_pylist()
    if len(call.columns) == 1:
        return pa.array([None if text is None else _date_or_none(text) for text in texts], pa.date32())
    patterns = call.columns[1].to_pylist()
    read = [None if v is None or p is None else read_calendar(v, p) for v, p in zip(texts, patterns, strict=True)]
    return pa.array([None if found is None else found.time.date() for found in read], pa.date32())


def _date_or_none(text: str) -> datetime.date | None:
    try:
        return parse_date(text)
    except ValueError:
        return None


def fraction_digits(precision: object) -> int:
    """How many digits behind the second TO_TIMESTAMP_LTZ gives, of its literal: a precision, or a pattern.

    Example:
        >>> fraction_digits(0), fraction_digits(6), fraction_digits("HH:mm:ss.SSSSSSSSS")
        (3, 6, 9)
    """
    digits = precision if isinstance(precision, int) else pattern_digits(precision) if isinstance(precision, str) else 3
    return max(digits, 3)


def _to_timestamp_ltz(call: CallValues) -> pa.Array:
    kind, target = call.result, arrow_type(call.result)
    stored = _STORED_DIGITS[target.unit]
    if call.types[0].kind in t.CHARACTERS:
        rows = list(zip(*(column.to_pylist() for column in call.columns), strict=True))
        moments = [None if None in row else _moment(kind.precision, *row) for row in rows]
        return pa.array([_within(moment, stored) for moment in moments], pa.int64()).cast(target)
    numbers = call.columns[0]
    digits = call.columns[1] if len(call.columns) > 1 else pa.array([3] * call.rows, pa.int32())
    exponent = stored - digits[0].as_py() if s.is_constant(digits) and digits.null_count == 0 else -1
    if pa.types.is_integer(numbers.type) and 0 <= exponent <= stored:
        first, last = (bound // 10**exponent for bound in _bounds(stored))
        counts = numbers.cast(pa.int64())
        near = pc.if_else(pc.and_(pc.greater(counts, first), pc.less_equal(counts, last)), counts, None)
        return pc.multiply(near, 10**exponent).cast(target)
    pairs = zip(numbers.to_pylist(), digits.to_pylist(), strict=True)
    values = [None if None in pair else _counted(*pair, stored) for pair in pairs]
    return pa.array(values, pa.int64()).cast(target)


def _counted(number: float | decimal.Decimal, digits: int, stored: int) -> int | None:
    """A number with some digits behind the second as one with those that are stored; what is behind them is cut off."""
    if not 0 <= digits <= 9 or not math.isfinite(number):
        return None
    # Of decimals Flink cuts off what is behind the point, of floating-point numbers what has no room.
    exact = decimal.Decimal(repr(number) if isinstance(number, float) else int(number)).scaleb(stored - digits)
    return _within(exact, stored)


def _within(moment: int | decimal.Decimal | None, stored: int) -> int | None:
    """A moment of the years 1 to 9999 that 64 bits hold; others are null."""
    first, last = _bounds(stored)
    return None if moment is None or not first < moment <= last else int(moment)


def _bounds(stored: int) -> tuple[int, int]:
    """What is right before the first moment, and the last."""
    scale = 10**stored
    return max(_FIRST_SECOND * scale - 1, -(2**63)), min((_LAST_SECOND + 1) * scale, 2**63) - 1


def _moment(precision: int, text: str, pattern: str | None = None, zone: str = "UTC") -> int | None:
    if pattern is None:
        try:
            return parse_timestamp(text, precision, zone_named(zone))
        except ValueError:
            return None
    read, fraction = read_time(text, pattern), fraction_of(text, pattern)
    if read is None:
        return None
    seconds = math.floor(read.replace(tzinfo=zone_named(zone), microsecond=0).timestamp())
    stored = 3 if precision <= 3 else 6 if precision <= 6 else 9
    return int(seconds * 10**stored + int(fraction.ljust(9, "0")[:stored]))


# What literals must be

_CAN_WRITE: Final = s.checked_text(1, lambda pattern: format_time(datetime.datetime(2024, 1, 31), pattern))
_CAN_READ: Final = s.checked_text(1, reader)


def _readable_in_zone(literals: Sequence[object]) -> None:
    digits = literals[1] if len(literals) > 1 else None
    if isinstance(digits, int) and not 0 <= digits <= 9:
        raise s.MisfitError(1, f" takes 0 to 9, the digits behind the second, not {digits}")
    _CAN_READ(literals)
    s.checked_text(2, zone_named)(literals)


def _text_or_number_alike(given: Sequence[SqlType]) -> Sequence[SqlType]:
    """TO_TIMESTAMP_LTZ takes a number and how many digits it has, or a text, its pattern and its zone."""
    is_text = given[0].kind in t.CHARACTERS
    if len(given) > 1 and is_text is not (given[1].kind in t.CHARACTERS):
        wanted = "a pattern behind a text" if is_text else "0 to 9, the digits behind the second, behind a number"
        raise s.MisfitError(1, f" takes {wanted}, not {given[1]}")
    if len(given) > 2 and not is_text:
        raise s.MisfitError(2, " takes a zone behind a text only, not behind a number")
    return given


# The present


def _now(kind: SqlType) -> s.Evaluate:
    def evaluate(call: CallValues) -> pa.Array:
        moment = pa.repeat(pa.scalar(call.session.now_ms, pa.timestamp("ms", "UTC")), call.rows)
        return cast_values(moment, t.timestamp_ltz(3), kind, False, call.session)

    return evaluate


def _current_watermark(call: CallValues) -> pa.Array:
    watermark = call.session.watermark
    return pa.array([watermark] * call.rows, pa.int64()).cast(arrow_type(call.result))


def _watermark_type(given: Sequence[SqlType]) -> SqlType:
    return SqlType(given[0].kind, precision=3)


def _function(
    name: str,
    parameters: tuple[str, ...],
    kind: SqlType,
    evaluate: s.Evaluate,
    optional: int = 0,
    check: s.Check | None = None,
) -> ScalarFunction:
    return ScalarFunction(name, parameters, always(kind), evaluate, optional=optional, nullable=True, check=check)


def _present(name: str, kind: SqlType) -> ScalarFunction:
    return ScalarFunction(name, (), always(kind), _now(kind), deterministic=False)


_LTZ: Final = t.timestamp_ltz(3)
_TIME: Final = SqlType(Kind.TIME, precision=0)

FUNCTIONS: Final = (
    ScalarFunction("EXTRACT", (s.KEYWORD, s.TEMPORAL_OR_INTERVAL), always(t.BIGINT), _extract, units=_EXTRACTED),
    *(
        ScalarFunction(name, (s.INSTANT,), always(t.BIGINT), _part(unit))
        for name, unit in (
            *((unit, unit) for unit in ("YEAR", "QUARTER", "MONTH", "WEEK")),
            ("DAYOFYEAR", "DOY"),
            ("DAYOFMONTH", "DAY"),
            ("DAYOFWEEK", "DOW"),
        )
    ),
    *(ScalarFunction(unit, (s.TIME_OF_DAY,), always(t.BIGINT), _part(unit)) for unit in ("HOUR", "MINUTE", "SECOND")),
    *(
        ScalarFunction(
            *(name, (s.TEMPORAL, s.KEYWORD), s.like_first, evaluate), units=_ROUNDED, fallible_of=may_leave_its_unit
        )
        for name, evaluate in (("FLOOR_TO", floored_to), ("CEIL_TO", ceiled_to))
    ),
    ScalarFunction("WITHOUT_ZONE", (s.LTZ,), always(t.timestamp(3)), _without_zone),
    *(
        ScalarFunction(name, (s.TEMPORAL, s.INTERVAL), s.like_first, _plus_interval(sign), fallible_of=_leaves_its_unit)
        for name, sign in (("PLUS_INTERVAL", 1), ("MINUS_INTERVAL", -1))
    ),
    ScalarFunction("ADD_INTERVALS", (s.INTERVAL, s.INTERVAL), s.like_first, _intervals(pc.add)),
    ScalarFunction("SUBTRACT_INTERVALS", (s.INTERVAL, s.INTERVAL), s.like_first, _intervals(pc.subtract)),
    ScalarFunction("MULTIPLY_INTERVAL", (s.INTERVAL, s.NUMBER), s.like_first, _multiplied),
    ScalarFunction("TIME_BETWEEN", (s.INSTANT, s.INSTANT), always(t.INTERVAL_MILLIS), _between(_elapsed)),
    ScalarFunction("MONTHS_BETWEEN", (s.INSTANT, s.INSTANT), always(t.INTERVAL_MONTHS), _between(months_between)),
    ScalarFunction(
        *("TIMESTAMPADD", (s.KEYWORD, s.INTEGER, s.TEMPORAL), _timestamp_add_type, _timestamp_add),
        units=_COUNTED,
        fallible=True,
    ),
    ScalarFunction("TIMESTAMPDIFF", (s.KEYWORD, s.INSTANT, s.INSTANT), always(t.INT), _timestamp_diff, units=_COUNTED),
    _function("DATE_FORMAT", (s.TEXT_OR_TIME, s.TEXT), t.STRING, _date_format, check=_CAN_WRITE),
    _function("TO_TIMESTAMP", (s.TEXT, s.TEXT), t.timestamp(3), _to_timestamp, 1, check=_CAN_READ),
    ScalarFunction(
        "TO_TIMESTAMP_LTZ",
        (s.TEXT_OR_NUMBER, s.TEXT_OR_INTEGER, s.TEXT),
        always(_LTZ),
        _to_timestamp_ltz,
        optional=2,
        nullable=True,
        coerce=_text_or_number_alike,
        check=_readable_in_zone,
    ),
    _function("TO_DATE", (s.TEXT, s.TEXT), t.DATE, _to_date, 1, check=s.checked_text(1, calendar_reader)),
    _present("CURRENT_TIMESTAMP", _LTZ),
    _present("NOW", _LTZ),
    _present("PROCTIME", _LTZ),
    _present("CURRENT_ROW_TIMESTAMP", _LTZ),
    _present("LOCALTIMESTAMP", t.timestamp(3)),
    _present("CURRENT_DATE", t.DATE),
    _present("CURRENT_TIME", _TIME),
    _present("LOCALTIME", _TIME),
    ScalarFunction(
        "CURRENT_WATERMARK", (s.TIMESTAMP,), _watermark_type, _current_watermark, nullable=True, deterministic=False
    ),
)
