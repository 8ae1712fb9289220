"""Results of counts and sums: averages, variances and deviations, in the types and with the rounding of SQL.

Group aggregates and OVER windows finish by it. Of no values the result is null, but for `count` and `sum0`; and so are
decimals that have more digits than their type.
"""

from __future__ import annotations

import decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.columns import numpy_type

Int64s = npt.NDArray[np.int64]
Numbers = npt.NDArray[Any]
"""int64, float64, or (for decimals) objects."""

EXACT: Final = decimal.Context(prec=76, rounding=decimal.ROUND_HALF_UP)
"""As many digits as Arrow's widest decimals have."""
WIDE_DIGITS: Final = 76


def sum_type(kind: pa.DataType | None, function: str) -> pa.DataType | None:
    """The type in which sums of values of type `kind` are kept; None where the function needs none."""
    if function == "count" or kind is None:
        return None
    if function.startswith(("var", "stddev")) or pa.types.is_floating(kind):
        return pa.float64()
    return pa.decimal256(WIDE_DIGITS, kind.scale) if pa.types.is_decimal(kind) else pa.int64()


def finished(
    function: str, kind: pa.DataType, counts: Int64s, sums: Numbers | None = None, squares: Numbers | None = None
) -> pa.Array:
    """The results of a function.

    Args:
        function: `count`, or one of `calls.SUMS`.
        kind: their type.
        counts: how many values each has.
        sums: the sums of the values, but for `count`; 0 where there are none.
        squares: the sums of their squares, for variances and deviations.
    """
    if sums is None:
        return pa.array(counts).cast(kind)
    if function in ("sum", "sum0"):
        return _as_type(sums, counts == 0 if function == "sum" else np.zeros(len(counts), np.bool_), kind)
    if function == "avg":
        return _averages(sums, counts, kind)
    assert squares is not None, "variances need sums of squares"
    sample = function.endswith("samp")
    divisors = counts - 1 if sample else counts
    with np.errstate(invalid="ignore", divide="ignore"):
        variances = np.maximum((squares - sums * sums / counts) / divisors, 0.0)
        results = np.sqrt(variances) if function.startswith("stddev") else variances
    return _as_type(results, divisors <= 0, kind)


def _averages(sums: Numbers, counts: Int64s, kind: pa.DataType) -> pa.Array:
    some = np.maximum(counts, 1)
    if sums.dtype == np.object_ or pa.types.is_decimal(kind):
        return _quotients([_decimal(one) for one in sums.tolist()], counts, kind)
    if pa.types.is_integer(kind) and sums.dtype == np.int64:
        # Towards zero, as SQL divides integers.
        return _as_type(np.sign(sums) * (np.abs(sums) // some), counts == 0, kind)
    return _as_type(sums / some, counts == 0, kind)


def _decimal(value: Any) -> decimal.Decimal:
    return value if isinstance(value, decimal.Decimal) else decimal.Decimal(value)


def _quotients(sums: list[decimal.Decimal], counts: Int64s, kind: pa.DataType) -> pa.Array:
    quotients = [
        EXACT.divide(one, decimal.Decimal(count)) if count else None
        for one, count in zip(sums, counts.tolist(), strict=True)
    ]
    if not pa.types.is_decimal(kind):
        return pa.array([None if one is None else float(one) for one in quotients], pa.float64()).cast(kind)
    unit = decimal.Decimal(1).scaleb(-kind.scale)
    return pa.array(
        [None if one is None else _fitting(one.quantize(unit, context=EXACT), kind) for one in quotients], kind
    )


def _fitting(value: decimal.Decimal, kind: pa.DataType) -> decimal.Decimal | None:
    """The value, or None where a decimal type has too few digits for it."""
    fits = not pa.types.is_decimal(kind) or value.is_zero() or value.adjusted() < kind.precision - kind.scale
    return value if fits else None


def _cut_off(numbers: npt.NDArray[np.float64], bounds: np.iinfo[np.signedinteger]) -> npt.NDArray[np.int64]:
    """Whole numbers as Java makes them of others: towards 0, and what is too large the largest."""
    inside = (numbers > bounds.min) & (numbers < bounds.max)
    whole = np.where(inside, numbers, 0).astype(np.int64)
    return np.where(inside, whole, np.where(numbers >= bounds.max, bounds.max, bounds.min))


def _as_type(numbers: Numbers, nulls: npt.NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    mask = nulls if nulls.any() else None
    if numbers.dtype == np.object_:
        scale = kind.scale if pa.types.is_decimal(kind) else 0
        held = [
            None if null else _fitting(one, kind) for one, null in zip(numbers.tolist(), nulls.tolist(), strict=True)
        ]
        return pa.array(held, pa.decimal256(WIDE_DIGITS, scale)).cast(kind)
    if pa.types.is_decimal(kind):
        return pa.array(numbers, mask=mask).cast(kind)
    if pa.types.is_integer(kind) and numbers.dtype == np.float64:
        numbers = _cut_off(np.where(nulls, 0, numbers), np.iinfo(numpy_type(kind)))
    return pa.array(numbers.astype(numpy_type(kind), copy=False), kind, mask=mask)
