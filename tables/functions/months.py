"""Arithmetic of months on columns of times, for any year that their numbers reach.

The functions of `temporal.py` use it. A day that a month does not have is its last one, as in Flink.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Int64s = npt.NDArray[np.int64]

_A_DAY: Final = {"D": 1, "s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def add_months(times: pa.Array, months: pa.Array) -> pa.Array:
    """Dates or timestamps some months later, at the same time of the same day of the month.

    Args:
        times: date32 or timestamp; moments are taken in UTC.
        months: whole numbers, one for each.

    Returns:
        An array of the type of `times`; null where one of both is null.

    Raises:
        pa.ArrowInvalid: one is beyond the times of that type's unit.

    Example:
        >>> add_months(pa.array([19753]).cast(pa.int32()).cast(pa.date32()), pa.array([1])).to_pylist()
        [datetime.date(2024, 2, 29)]
    """
    is_date = pa.types.is_date32(times.type)
    numbers = times.cast(pa.int32() if is_date else pa.int64()).fill_null(0).to_numpy().astype(np.int64)
    unit = "D" if is_date else times.type.unit
    days, of_day = np.divmod(numbers, _A_DAY[unit])
    shifted = _shifted(days, months.cast(pa.int64()).fill_null(0).to_numpy())
    is_null = pc.or_(times.is_null(), months.is_null()).to_numpy(zero_copy_only=False)
    if is_date:
        return pa.array(shifted.astype(np.int32), mask=is_null).cast(times.type)
    # Towards 1970 first: the first day of nanoseconds is not a whole one.
    is_early = shifted < 0
    whole = pc.multiply_checked(pa.array(shifted + is_early, mask=is_null), _A_DAY[unit])
    return pc.add_checked(whole, pa.array(of_day - is_early * _A_DAY[unit])).cast(times.type)


def months_between(begins: Int64s, ends: Int64s) -> Int64s:
    """How many whole months lie between times, both as milliseconds since the epoch; negative from a later one.

    Example:
        >>> months_between(np.array([0, 0]), np.array([31 * 86_400_000, 31 * 86_400_000 - 1])).tolist()
        [1, 0]
    """
    (first, begin_of_day), (last, end_of_day) = (np.divmod(times, _A_DAY["ms"]) for times in (begins, ends))
    # Whole months between the days, from the earlier one on in both directions, as in Flink; then the time of day.
    later, earlier = np.maximum(first, last), np.minimum(first, last)
    counts = _month(later) - _month(earlier)
    whole = counts - (_shifted(earlier, counts) > later)
    between: Int64s = np.where(first > last, -whole, whole)
    found: Int64s = between - ((_shifted(first, between) == last) & (end_of_day < begin_of_day))
    return found


def _month(days: Int64s) -> Int64s:
    found: Int64s = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
    return found


def _shifted(days: Int64s, months: Int64s) -> Int64s:
    """Days since the epoch, some months later."""
    dates = days.astype("datetime64[D]")
    first = dates.astype("datetime64[M]")
    month = first + months.astype("timedelta64[M]")
    last_day = (month + np.timedelta64(1, "M")).astype("datetime64[D]") - np.timedelta64(1, "D")
    shifted: Int64s = np.minimum(
        month.astype("datetime64[D]") + (dates - first.astype("datetime64[D]")), last_day
    ).astype(np.int64)
    return shifted
