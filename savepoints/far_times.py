"""Times that no calendar has, as tables for people show them: bounds of windows without end, timers far ahead.

Python's and pandas' times end with the year 9999, and a table with others cannot be printed. What reads state back
takes the times as they are.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_FIRST_MS: Final = -62_135_596_800_000
"""The year 1."""
_LAST_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999."""


def printable(rows: pa.Table) -> pa.Table:
    """The rows with the last or the first time that there is in the place of those beyond.

    Args:
        rows: with columns of timestamps (ms, UTC), or none.

    Example:
        >>> far = pa.array([2**63 - 1], pa.int64()).cast(pa.timestamp("ms", "UTC"))
        >>> printable(pa.table({"time": far})).to_pylist()[0]["time"].year
        9999
    """
    for place, field in enumerate(rows.schema):
        if field.type == pa.timestamp("ms", "UTC"):
            times = rows.column(place).cast(pa.int64())
            within = pc.max_element_wise(
                pc.min_element_wise(times, _LAST_MS, skip_nulls=False), _FIRST_MS, skip_nulls=False
            )
            rows = rows.set_column(place, field, within.cast(field.type))
    return rows
