"""FLOOR and CEIL of times to units: where the unit begins that a time is in, or the next one.

`temporal.py` has them among its functions. A beginning that the type of a time does not reach fails, and is no other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.tables import types as t
from penstock.tables.functions import signatures as s
from penstock.tables.functions.casts import CastError
from penstock.tables.functions.signatures import CallValues
from penstock.tables.functions.times import in_unit, local_times, moments
from penstock.tables.types import Kind, SqlType, arrow_type

OF_TIMES: Final = frozenset({"HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND", "NANOSECOND"})
"""Units of times of day."""
_BY_DAYS: Final = frozenset({"WEEK", "MONTH", "YEAR"})
"""Units of which CEIL looks at days alone."""
_BY_MONTHS: Final = frozenset({"MONTH", "QUARTER", "YEAR"})
_YEARS_OF: Final = {"DECADE": 10, "CENTURY": 100, "MILLENNIUM": 1000}


def may_leave_its_unit(given: Sequence[SqlType], literal: Sequence[bool]) -> bool:
    """Whether a unit may begin where the type of its times does not reach: those of nanoseconds end amid a second."""
    return given[0].kind in t.TIMESTAMPS and given[0].precision > 6


def _floored(values: pa.Array, unit: str) -> pa.Array:
    if unit in _YEARS_OF:
        return _in_years(values, _YEARS_OF[unit], 0)
    return pc.floor_temporal(values, unit=unit.lower(), **_week_starts(unit))


def _ceiled(values: pa.Array, unit: str) -> pa.Array:
    """The next beginning of a unit; what is one stays, but, as in Flink, for units of many years."""
    if unit in _YEARS_OF:
        return _in_years(values, _YEARS_OF[unit], _YEARS_OF[unit])
    if unit in _BY_DAYS and not pa.types.is_date(values.type):
        # To Flink the first day of one is its beginning, whatever the time.
        values = pc.floor_temporal(values, unit="day")
    ceiled = pc.ceil_temporal(values, unit=unit.lower(), **_week_starts(unit))
    # Arrow moves beginnings of months and longer units on.
    return pc.if_else(pc.equal(_floored(values, unit), values), values, ceiled) if unit in _BY_MONTHS else ceiled


def _week_starts(unit: str) -> dict[str, bool]:
    return {"week_starts_monday": False} if unit == "WEEK" else {}


def _in_years(values: pa.Array, span: int, later: int) -> pa.Array:
    """The first day of the decade, or of the century or millennium, which begin with a year 1."""
    years = pc.year(values).fill_null(1970).to_numpy()
    first = 0 if span == 10 else 1
    begin = (years - first) // span * span + first + later
    days = (begin - 1970).astype("datetime64[Y]").astype("datetime64[D]")
    return pa.array(days, mask=values.is_null().to_numpy(zero_copy_only=False)).cast(values.type)


def _rounded(
    round_to: Callable[[pa.Array, str], pa.Array], in_micros: Callable[[pa.Array, str], pa.Array]
) -> s.Evaluate:
    """The function that rounds by `round_to`; times of nanoseconds as `in_micros` has them, which reach further."""

    def evaluate(call: CallValues) -> pa.Array:
        unit, (column, *_) = str(s.constant_at(call, 1) or "DAY"), call.columns
        if unit == "NANOSECOND":
            return column
        times = in_micros(column, unit) if _is_of_nanoseconds(column.type) else column
        if call.types[0].kind is not Kind.TIMESTAMP_LTZ:
            return _held(round_to(times, unit), call.result, unit)
        shown = local_times(times, call.session.zone)
        rounded = round_to(shown, unit)
        # Clocks may show it twice: it is the one next to the moment itself.
        near = pc.add(times, pc.subtract(rounded, shown)) if unit in OF_TIMES else moments(rounded, call.session.zone)
        return _held(near, call.result, unit)

    return evaluate


def _is_of_nanoseconds(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.unit == "ns")


def _micros_before(times: pa.Array, unit: str) -> pa.Array:
    return in_unit(times, "us")


def _micros_behind(times: pa.Array, unit: str) -> pa.Array:
    """The next microseconds, unless what is less than a day does not count."""
    before = in_unit(times, "us")
    if unit in _BY_DAYS or unit in _YEARS_OF:
        return before
    return pc.add(before, pc.greater(pc.nanosecond(times), 0).cast(pa.int64()).cast(pa.duration("us")))


def _held(times: pa.Array, wanted: SqlType, unit: str) -> pa.Array:
    """The times in the unit of a type.

    Raises:
        CastError: one is beyond it.
    """
    try:
        return times.cast(arrow_type(wanted))
    except pa.ArrowInvalid as error:
        raise CastError(
            f"the {unit} begins beyond what {wanted} holds, which is from 1677-09-21 00:12:43 to 2262-04-11 23:47:16; "
            "round it as TIMESTAMP(6)"
        ) from error


floored_to: Final = _rounded(_floored, _micros_before)
ceiled_to: Final = _rounded(_ceiled, _micros_behind)
