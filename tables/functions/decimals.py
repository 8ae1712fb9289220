"""Exact arithmetic: the types of Flink's decimals, and columns of them, rounded half up, null where they overflow.

Source: Flink's `LogicalTypeMerging` for the types, `DecimalDataUtils` for the values.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.tables.types import MAX_PRECISION, SqlType, arrow_type
from penstock.tables.types import decimal as decimal_type

_CONTEXT: Final = decimal.Context(prec=120, rounding=decimal.ROUND_HALF_UP)
_WIDE: Final = 76


def sum_of(one: SqlType, other: SqlType) -> SqlType:
    """The type of `one + other` and `one - other`."""
    scale = max(one.scale, other.scale)
    digits = max(one.precision - one.scale, other.precision - other.scale)
    return decimal_type(digits + scale + 1, scale)


def product_of(one: SqlType, other: SqlType) -> SqlType:
    """The type of `one * other`."""
    return decimal_type(one.precision + other.precision + 1, one.scale + other.scale)


def quotient_of(one: SqlType, other: SqlType) -> SqlType:
    """The type of `one / other`."""
    scale = max(6, one.scale + other.precision + 1)
    return decimal_type(one.precision - one.scale + other.scale + scale, scale)


def remainder_of(one: SqlType, other: SqlType) -> SqlType:
    """The type of `one % other`."""
    scale = max(one.scale, other.scale)
    return decimal_type(min(one.precision - one.scale, other.precision - other.scale) + scale, scale)


def rescaled(values: pa.Array, kind: SqlType) -> pa.Array:
    """Decimals of any width as the DECIMAL `kind`: rounded half up, null where they do not fit."""
    target = arrow_type(kind)
    if values.type == target:
        return values
    given = values.type
    whole = given.precision - given.scale
    if given.scale <= kind.scale and whole <= kind.precision - kind.scale:
        return values.cast(target)
    wide = values.cast(pa.decimal256(_WIDE, given.scale)) if given.precision < _WIDE else values
    if given.scale > kind.scale:
        # Without the digits that are gone: with 38 of them the limit has more than there is room for.
        wide = pc.round(wide, kind.scale, "half_towards_infinity").cast(pa.decimal256(_WIDE, kind.scale))
    limit = pa.scalar(decimal.Decimal(10) ** (kind.precision - kind.scale), wide.type)
    fits = pc.and_(pc.less(wide, limit), pc.greater(wide, pc.negate(limit)))
    kept = pc.if_else(fits, wide, pa.scalar(None, wide.type))
    return kept.cast(pa.decimal256(_WIDE, kind.scale), safe=False).cast(target, safe=False)


def widest(values: pa.Array) -> pa.Array:
    """Decimals with room for any number of digits in front of the point."""
    return values.cast(pa.decimal256(_WIDE, values.type.scale))


def rounded(values: pa.Array, digits: int, mode: str) -> pa.Array:
    """Decimals that `widest` gave, rounded to so many digits behind the point; `mode` is one of Arrow's."""
    if digits >= values.type.scale:
        return values
    # One digit further than all there is, everything is 0, which Arrow refuses to say of more.
    return pc.round(values, max(digits, values.type.scale - MAX_PRECISION - 1), mode)


def added(one: pa.Array, other: pa.Array, kind: SqlType) -> pa.Array:
    """`one + other`."""
    return rescaled(pc.add(_widened(one), _widened(other)), kind)


def subtracted(one: pa.Array, other: pa.Array, kind: SqlType) -> pa.Array:
    """`one - other`."""
    return rescaled(pc.subtract(_widened(one), _widened(other)), kind)


def multiplied(one: pa.Array, other: pa.Array, kind: SqlType) -> pa.Array:
    """`one * other`."""
    if one.type.precision + other.type.precision + 1 > _WIDE:
        return _by_value(one, other, kind, _CONTEXT.multiply)
    product = pc.multiply(one.cast(pa.decimal256(one.type.precision, one.type.scale)), _as_256(other))
    return rescaled(product, kind)


def divided(one: pa.Array, other: pa.Array, kind: SqlType) -> pa.Array:
    """`one / other`; null divisors give null.

    Raises:
        ZeroDivisionError: a divisor is 0.
    """
    return _by_value(one, other, kind, _quotient)


def remainders(one: pa.Array, other: pa.Array, kind: SqlType) -> pa.Array:
    """`one % other`, with the sign of `one`.

    Raises:
        ZeroDivisionError: a divisor is 0.
    """
    return _by_value(one, other, kind, _remainder)


def fitted(value: decimal.Decimal, kind: SqlType) -> decimal.Decimal | None:
    """The number as a value of the DECIMAL `kind`, or None where it does not fit."""
    if not value.is_finite() or (value and value.adjusted() >= kind.precision):
        return None
    rounded = value.quantize(decimal.Decimal(1).scaleb(-kind.scale), context=_CONTEXT)
    # `abs` would round it to the 28 digits of Python's own context.
    return rounded if rounded.copy_abs() < decimal.Decimal(10) ** (kind.precision - kind.scale) else None


def _quotient(one: decimal.Decimal, other: decimal.Decimal) -> decimal.Decimal:
    if not other:
        raise ZeroDivisionError("division by zero")
    return _CONTEXT.divide(one, other)


def _remainder(one: decimal.Decimal, other: decimal.Decimal) -> decimal.Decimal:
    if not other:
        raise ZeroDivisionError("division by zero")
    return _CONTEXT.remainder(one, other)


def _by_value(
    one: pa.Array,
    other: pa.Array,
    kind: SqlType,
    compute: Callable[[decimal.Decimal, decimal.Decimal], decimal.Decimal],
) -> pa.Array:
    pairs = zip(one.to_pylist(), other.to_pylist(), strict=True)
    values = [None if a is None or b is None else fitted(compute(a, b), kind) for a, b in pairs]
    return pa.array(values, arrow_type(kind))


def _widened(values: pa.Array) -> pa.Array:
    return values if values.type.precision < MAX_PRECISION else _as_256(values)


def _as_256(values: pa.Array) -> pa.Array:
    return values.cast(pa.decimal256(values.type.precision, values.type.scale))
