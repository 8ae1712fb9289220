"""Timestamps as ISO-8601 text.

The CSV and JSON encoders of the file sink call it. The text is exact, and what it cannot express is refused.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_FARTHEST_DAYS: Final = 10_000_000
_UNITS_A_DAY: Final = {
    "s": 86_400,
    "ms": 86_400_000,
    "us": 86_400_000_000,
    "date32[day]": 1,
    "date64[ms]": 86_400_000,
}


def has_zone(column: pa.DataType) -> bool:
    """Whether it is the type of timestamps with a time zone."""
    return bool(pa.types.is_timestamp(column) and column.tz is not None)


def timestamp_text(timestamps: pa.Array) -> pa.Array:
    """Each as `2024-01-02T03:04:05.678`; those with a zone in UTC, with a `Z` behind.

    Example:
        >>> timestamp_text(pa.array([0], pa.timestamp("s", tz="Europe/Paris")))[0].as_py()
        '1970-01-01T00:00:00Z'
    """
    # Arrow's own text of a timestamp with a zone takes 30 times as long.
    utc = timestamps.cast(pa.timestamp(timestamps.type.unit)).cast(pa.string())
    text = pc.replace_substring(utc, " ", "T", max_replacements=1)
    return pc.binary_join_element_wise(text, "Z", "") if has_zone(timestamps.type) else text


def refuse_far_times(rows: pa.RecordBatch) -> None:
    """Raises where a time is too far for text: Arrow would write `<value out of range>` and say nothing.

    Raises:
        pyarrow.ArrowInvalid: a date or timestamp is more than 10 million days from 1970.
    """
    for field, column in zip(rows.schema, rows.columns, strict=True):
        _refuse_far(column, field.name)


def _refuse_far(column: pa.Array, name: str) -> None:
    kind = column.type
    if pa.types.is_nested(kind):
        for part in _parts(column):
            _refuse_far(part, name)
        return
    unit = kind.unit if pa.types.is_timestamp(kind) else str(kind)
    if unit not in _UNITS_A_DAY:
        return
    bounds = pc.min_max(column.view(pa.int32() if pa.types.is_date32(kind) else pa.int64())).as_py()
    limit = _FARTHEST_DAYS * _UNITS_A_DAY[unit]
    if bounds["min"] is not None and not -limit <= bounds["min"] <= bounds["max"] <= limit:
        raise pa.ArrowInvalid(f"column {name!r} holds a time beyond the year 29000, which has no text")


def _parts(column: pa.Array) -> list[pa.Array]:
    """What a nested column is made of, of its own rows alone."""
    if pa.types.is_struct(column.type):
        return column.flatten()  # type: ignore[no-any-return]
    if not pa.types.is_map(column.type):
        return [column.flatten()]
    begin, end = column.offsets[0].as_py(), column.offsets[-1].as_py()
    return [part.slice(begin, end - begin) for part in (column.keys, column.items)]
