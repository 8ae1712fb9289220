"""CAST and TRY_CAST: which types become which, and how the values do.

The binder asks `castable`, the evaluation calls `cast_values`. A value that has no counterpart raises `CastError`; with
`safe` it becomes null instead.

Source: Flink's documentation, "Data Types", "CAST"; the texts of numbers are those of Java.
"""

from __future__ import annotations

import datetime
import decimal
import re
from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.columns import with_numbers
from penstock.tables import types as t
from penstock.tables.functions.decimals import fitted, rescaled
from penstock.tables.functions.shown_values import shown_value
from penstock.tables.functions.signatures import SessionValues
from penstock.tables.functions.times import (
    held_in,
    in_unit,
    local_times,
    moments,
    parse_date,
    parse_plain_timestamp,
    parse_time,
)
from penstock.tables.types import Kind, SqlType, arrow_type

_TRUE: Final = frozenset({"t", "true", "y", "yes", "1"})
_FALSE: Final = frozenset({"f", "false", "n", "no", "0"})
_NO_DIGITS: Final = re.compile(r"[+-]?(NaN|Infinity)")
_INTEGER_BITS: Final = {Kind.TINYINT: 8, Kind.SMALLINT: 16, Kind.INT: 32, Kind.BIGINT: 64}


class CastError(ValueError):
    """A value that has no counterpart in the type."""


def castable(given: SqlType, wanted: SqlType) -> bool:
    """Whether CAST takes values of one type to another."""
    one, other = given.kind, wanted.kind
    if one is Kind.NULL or given.same_as(wanted):
        return True
    if Kind.VARIANT in (one, other):
        return False
    if Kind.BITMAP in (one, other):
        return one is Kind.BITMAP and other in t.CHARACTERS
    if other in t.CHARACTERS:
        return True
    if one in t.CHARACTERS:
        return other in (*t.NUMERIC, *t.TEMPORAL, *t.BYTES_KINDS, Kind.BOOLEAN)
    if one in t.NUMERIC:
        return other in (*t.NUMERIC, Kind.BOOLEAN)
    if one is Kind.BOOLEAN:
        return other in t.NUMERIC
    if one in t.BYTES_KINDS:
        return other in t.BYTES_KINDS
    if one in t.TIMESTAMPS:
        return other in t.TEMPORAL
    if one is Kind.DATE:
        return other in t.TIMESTAMPS
    if one is Kind.TIME:
        return other in (Kind.TIME, *t.TIMESTAMPS)
    if one is other and one in (Kind.ARRAY, Kind.MAP):
        return all(castable(a, b) for a, b in zip(given.parts, wanted.parts, strict=True))
    if one is other is Kind.ROW:
        same_length = len(given.fields) == len(wanted.fields)
        return same_length and all(castable(a.type, b.type) for a, b in zip(given.fields, wanted.fields, strict=True))
    return one is other


def may_fail(given: SqlType, wanted: SqlType) -> bool:
    """Whether a value of one type may have no counterpart in the other."""
    if given.kind in (Kind.ARRAY, Kind.MAP, Kind.ROW) and wanted.kind is given.kind:
        parts = (*given.parts, *(field.type for field in given.fields))
        others = (*wanted.parts, *(field.type for field in wanted.fields))
        return any(may_fail(one, other) for one, other in zip(parts, others, strict=True))
    if wanted.kind in t.TIMESTAMPS and given.kind in (*t.TIMESTAMPS, Kind.DATE):
        return _is_of_nanoseconds(wanted) and not _is_of_nanoseconds(given)
    return given.kind in t.CHARACTERS and wanted.kind not in t.CHARACTERS


def _is_of_nanoseconds(kind: SqlType) -> bool:
    """Whether times are stored so, and those before 1678 and behind 2261 are none of it."""
    return kind.kind in t.TIMESTAMPS and bool(arrow_type(kind).unit == "ns")


def cast_values(values: pa.Array, given: SqlType, wanted: SqlType, safe: bool, session: SessionValues) -> pa.Array:
    """The values as those of another type.

    Raises:
        CastError: a value has no counterpart, and `safe` is false.
    """
    target = arrow_type(wanted)
    if given.kind is Kind.NULL:
        return pa.nulls(len(values), target)
    if wanted.kind in t.CHARACTERS:
        return _sized_text(_to_text(values, given, session), wanted)
    if given.kind in t.CHARACTERS:
        return _from_text(values, wanted, safe, session)
    if given.kind in t.NUMERIC and wanted.kind in t.NUMERIC:
        return _number(values, given, wanted)
    if wanted.kind is Kind.BOOLEAN:
        return pc.not_equal(values, 0) if given.kind is not Kind.BOOLEAN else values
    if given.kind is Kind.BOOLEAN:
        return _number(values.cast(pa.int8()), t.SqlType(Kind.TINYINT), wanted)
    if wanted.kind in t.BYTES_KINDS:
        return _sized_bytes(values, wanted)
    if given.kind in t.TEMPORAL and wanted.kind in t.TEMPORAL:
        return _temporal(_held(values, wanted, safe), given, wanted, session)
    if not safe:
        return _nested(values, given, wanted, session)
    return _nested_or_null(values, given, wanted, session)


# Texts


def _to_text(values: pa.Array, given: SqlType, session: SessionValues) -> pa.Array:
    if given.kind in t.CHARACTERS:
        return values
    if given.kind in t.INTEGERS:
        return values.cast(pa.string())
    if given.kind is Kind.BOOLEAN:
        return pc.if_else(values, "TRUE", "FALSE")
    if given.kind in t.BYTES_KINDS:
        return pa.array([None if v is None else v.decode("utf-8", "replace") for v in values.to_pylist()], pa.string())
    return pa.array(
        [shown_value(value, given, session.zone) for value in with_numbers(values).to_pylist()], pa.string()
    )


def _sized_text(values: pa.Array, wanted: SqlType) -> pa.Array:
    if wanted.precision == t.MAX_LENGTH:
        return values
    cut = pc.utf8_slice_codeunits(values, 0, wanted.precision)
    return pc.utf8_rpad(cut, wanted.precision, " ") if wanted.kind is Kind.CHAR else cut


def _sized_bytes(values: pa.Array, wanted: SqlType) -> pa.Array:
    if wanted.precision == t.MAX_LENGTH:
        return values
    size, pads = wanted.precision, wanted.kind is Kind.BINARY
    sized = [None if v is None else v[:size].ljust(size, b"\0") if pads else v[:size] for v in values.to_pylist()]
    return pa.array(sized, pa.binary())


def _from_text(values: pa.Array, wanted: SqlType, safe: bool, session: SessionValues) -> pa.Array:
    if wanted.kind in t.BYTES_KINDS:
        return _sized_bytes(values.cast(pa.binary()), wanted)
    parse = _parser(wanted, session)
    # As in Flink, where these may not stand between blanks.
    keeps_blanks = wanted.kind in (Kind.BOOLEAN, *t.TIMESTAMPS)
    parsed = []
    for text in values.to_pylist():
        try:
            parsed.append(None if text is None else parse(text if keeps_blanks else text.strip()))
        except (ValueError, ArithmeticError) as error:
            if not safe:
                raise CastError(f"{text!r} cannot be cast to {wanted}") from error
            parsed.append(None)
    return pa.array(parsed, arrow_type(wanted))


def _parser(wanted: SqlType, session: SessionValues) -> Callable[[str], object]:
    match wanted.kind:
        case Kind.BOOLEAN:
            return _boolean
        case Kind.DECIMAL:
            return lambda text: fitted(_decimal(text), wanted)
        case Kind.FLOAT | Kind.DOUBLE:
            return parse_double
        case Kind.DATE:
            return parse_date
        case Kind.TIME:
            return parse_time
        case Kind.TIMESTAMP:
            return lambda text: parse_plain_timestamp(text, wanted.precision)
        case Kind.TIMESTAMP_LTZ:
            zone = session.zone_info
            return lambda text: parse_plain_timestamp(text, wanted.precision, zone)
    bits = _INTEGER_BITS[wanted.kind]
    return lambda text: _integer(text, bits)


def _decimal(text: str) -> decimal.Decimal:
    if "_" in text:
        raise ValueError(text)
    return decimal.Decimal(text)


def _boolean(text: str) -> bool:
    word = text.lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ValueError(text)


def _integer(text: str, bits: int) -> int:
    # As Java's parser in Flink does, what stands behind a point is dropped.
    whole, _, fraction = text.partition(".")
    if fraction and not fraction.isdigit():
        raise ValueError(text)
    if "_" in whole or not text.strip("+-."):
        raise ValueError(text)
    number = int(whole) if whole.strip("+-") else 0
    if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        raise ValueError(text)
    return number


def parse_double(text: str) -> float:
    """A floating-point number as Java's parser reads it: infinity and NaN have one spelling each.

    Raises:
        ValueError: no number.
    """
    if _NO_DIGITS.fullmatch(text) is None and ("_" in text or not any(sign.isdigit() for sign in text)):
        raise ValueError(text)
    return float(text.rstrip("dDfF"))


# Numbers


def _number(values: pa.Array, given: SqlType, wanted: SqlType) -> pa.Array:
    if wanted.kind is Kind.DECIMAL:
        return _to_decimal(values, given, wanted)
    target = arrow_type(wanted)
    if given.kind is Kind.DECIMAL:
        if wanted.kind in t.APPROXIMATE:
            # By way of texts: Arrow's own cast misses the nearest number.
            return values.cast(pa.string()).cast(pa.float64()).cast(target)
        whole = pc.cast(values, pa.decimal128(t.MAX_PRECISION, 0), safe=False)
        return whole.cast(pa.int64(), safe=False).cast(target, safe=False)
    if given.kind in t.APPROXIMATE and wanted.kind in t.INTEGERS:
        return _cut(values, target)
    return values.cast(target, safe=False)


def _cut(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Floating-point numbers as Java casts them: towards 0, to the nearest that there is, NaN to 0."""
    bits = max(target.bit_width, 32)
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    numbers = np.nan_to_num(values.fill_null(0.0).to_numpy(zero_copy_only=False).astype(np.float64), nan=0.0)
    inside = (numbers > low) & (numbers < high)
    whole = np.where(inside, numbers, 0).astype(np.int64)
    whole = np.where(inside, whole, np.where(numbers >= high, high, low))
    return pa.array(whole, mask=values.is_null().to_numpy(zero_copy_only=False)).cast(target, safe=False)


def _to_decimal(values: pa.Array, given: SqlType, wanted: SqlType) -> pa.Array:
    if given.kind is Kind.DECIMAL:
        return rescaled(values, wanted)
    if given.kind in t.INTEGERS:
        exact = t.as_decimal(given)
        return rescaled(values.cast(arrow_type(exact)), wanted)
    numbers = [None if value is None else fitted(decimal.Decimal(repr(value)), wanted) for value in values.to_pylist()]
    return pa.array(numbers, arrow_type(wanted))


# Times


def _temporal(values: pa.Array, given: SqlType, wanted: SqlType, session: SessionValues) -> pa.Array:
    target, zone = arrow_type(wanted), session.zone
    if given.kind is Kind.TIMESTAMP_LTZ and wanted.kind is not Kind.TIMESTAMP_LTZ:
        values = local_times(values, zone)
    if given.kind is Kind.TIME and wanted.kind in t.TIMESTAMPS:
        values = _on_first_day(values, target)
    if wanted.kind is Kind.TIMESTAMP_LTZ and given.kind is not Kind.TIMESTAMP_LTZ:
        return moments(in_unit(values, target.unit), zone)
    if wanted.kind is Kind.TIME and pa.types.is_timestamp(values.type):
        return values.cast(pa.time64("ns" if values.type.unit == "ns" else "us")).cast(target, safe=False)
    if wanted.kind is Kind.DATE:
        return values.cast(target, safe=False)
    if pa.types.is_timestamp(target):
        values = in_unit(values, target.unit)
    return _cut_to(values.cast(target, safe=False), wanted)


def _held(values: pa.Array, wanted: SqlType, safe: bool) -> pa.Array:
    """Dates and times without those that the other type does not hold, which are null where that is wanted."""
    if wanted.kind not in t.TIMESTAMPS or pa.types.is_time(values.type):
        return values
    held = held_in(values, arrow_type(wanted).unit)
    if not safe and held.null_count > values.null_count:
        beyond = values.filter(pc.and_(held.is_null(), values.is_valid()))[0]
        try:
            shown = str(beyond)
        except (OverflowError, ValueError):
            # Of a year that Python has not.
            shown = f"{beyond.value} {beyond.type}"
        raise CastError(f"{shown} cannot be cast to {wanted}, which holds the years from 1678 to 2261")
    return held


def _cut_to(values: pa.Array, wanted: SqlType) -> pa.Array:
    """Timestamps with no more digits behind the second than their type has.

    As in Flink, less than a millisecond is cut off towards the past, and milliseconds towards 1970.
    """
    if wanted.precision in (3, 6, 9) or not pa.types.is_timestamp(values.type):
        return values
    stored = {"ms": 3, "us": 6, "ns": 9}[values.type.unit]
    step = 10 ** (stored - wanted.precision)
    numbers = values.cast(pa.int64())
    known = numbers.fill_null(0).to_numpy()
    remainder = pa.array(np.mod(known, step) if wanted.precision > 3 else np.fmod(known, step))
    return pc.subtract(numbers, remainder).cast(values.type)


def _on_first_day(values: pa.Array, target: pa.DataType) -> pa.Array:
    first = datetime.date(1970, 1, 1)
    times = [None if value is None else datetime.datetime.combine(first, value) for value in values.to_pylist()]
    return pa.array(times, pa.timestamp(target.unit))


def _nested_or_null(values: pa.Array, given: SqlType, wanted: SqlType, session: SessionValues) -> pa.Array:
    """Collections and rows; one with a part that has no counterpart is null as a whole."""
    try:
        return _nested(values, given, wanted, session)
    except CastError:
        if len(values) == 1:
            return pa.nulls(1, arrow_type(wanted))
    half = len(values) // 2
    parts = (values.slice(0, half), values.slice(half))
    return pa.concat_arrays([_nested_or_null(part, given, wanted, session) for part in parts])


def _nested(values: pa.Array, given: SqlType, wanted: SqlType, session: SessionValues) -> pa.Array:
    if given.same_as(wanted) or given.kind not in (Kind.ARRAY, Kind.MAP, Kind.ROW):
        return values
    mask = values.is_null()
    if given.kind is not Kind.ROW:
        # Of the offsets of a slice, Arrow makes no lists that may be null; and it has the elements of all rows.
        values = values.take(pa.array(np.arange(len(values))))
    if given.kind is Kind.ARRAY:
        items = cast_values(values.values, given.parts[0], wanted.parts[0], False, session)
        return pa.ListArray.from_arrays(values.offsets, items, mask=mask)
    if given.kind is Kind.MAP:
        keys, items = (
            cast_values(part, given.parts[place], wanted.parts[place], False, session)
            for place, part in enumerate((values.keys, values.items))
        )
        return pa.MapArray.from_arrays(values.offsets, keys, items, mask=mask)
    fields = zip(values.flatten(), given.fields, wanted.fields, strict=True)
    arrays = [cast_values(part, one.type, other.type, False, session) for part, one, other in fields]
    return pa.StructArray.from_arrays(arrays, names=[field.name for field in wanted.fields], mask=mask)
