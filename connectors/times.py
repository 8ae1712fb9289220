"""Timestamps as ISO-8601 text, and back.

The encoders and readers of CSV and JSON call it. Text that is written is exact, and what it cannot express is refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.columns import rebuilt
from penstock.engine.elements import table_to_record_batch

_FARTHEST_DAYS: Final = 10_000_000
_DIGITS: Final = {"s": 0, "ms": 3, "us": 6}
"""Behind the second, by unit."""
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


def is_cut(column: pa.DataType) -> bool:
    """Whether it is the type of timestamps that texts may have more digits for."""
    return bool(pa.types.is_timestamp(column) and column.unit in _DIGITS)


def cut_moments(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Texts as timestamps, as JSON has them: those with a zone and those without, which are of UTC, side by side.

    Digits behind the second that the type does not hold are cut off, up to nanoseconds.

    Raises:
        pyarrow.ArrowInvalid: a text is no time.

    Example:
        >>> cut_moments(pa.array(["2024-01-02 03:04:05.678901"]), pa.timestamp("ms"))[0].as_py()
        datetime.datetime(2024, 1, 2, 3, 4, 5, 678000)
    """
    cut = _cut(texts, kind)
    is_moment = pc.match_substring_regex(cut, r":\d{2}(\.\d+)?(Z|[+-]\d{2}(:?\d{2})?)$")
    behind = pc.if_else(pc.match_substring_regex(cut, r"^\d{4}-\d{2}-\d{2}$"), " 00:00Z", "Z")
    moments = pc.if_else(is_moment, cut, pc.binary_join_element_wise(cut, behind, ""))
    return moments.cast(pa.timestamp(kind.unit, "UTC")).cast(pa.int64()).cast(kind)


def cut_time(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The array, where it has the type; else, as timestamps, texts that stand in their place, as CSV has them.

    They are cut as by `cut_moments`, but have a zone where the type has one, and none where it has none.

    Raises:
        pyarrow.ArrowInvalid: a text is no time, or has a zone where it should have none, or none where it should.
    """
    return array if array.type.equals(kind) else _cut(array, kind).cast(kind)


def _cut(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    digits = _DIGITS[kind.unit]
    fraction = rf"(:\d{{2}})(\.\d{{{digits}}})\d{{1,{9 - digits}}}($|[Z+-])"
    return pc.replace_substring_regex(texts, fraction, r"\1\2\3" if digits else r"\1\3")


def parsed(
    read: Callable[[pa.Schema], pa.Table],
    schema: pa.Schema,
    convert: Callable[[pa.Array, pa.DataType], pa.Array] = cut_time,
) -> pa.RecordBatch:
    """What one of Arrow's parsers reads; where it fails at times of more digits than their columns hold, these are cut.

    Args:
        read: has the parser give columns of these types.
        schema: the types that are wanted.
        convert: makes a column of a type of one that has texts in the place of timestamps.

    Raises:
        pyarrow.ArrowException, ValueError: what `read` raises.
    """
    try:
        return table_to_record_batch(read(schema))
    except pa.ArrowInvalid as error:
        texts = with_texts(schema)
        if texts == schema:
            raise
        with contextlib.suppress(pa.ArrowException, ValueError):
            found = table_to_record_batch(read(texts))
            columns = [convert(array, field.type) for array, field in zip(found.columns, schema, strict=True)]
            return pa.RecordBatch.from_arrays(columns, schema=schema)
        raise error


def with_texts(schema: pa.Schema) -> pa.Schema:
    """The columns with texts for timestamps that may be cut."""
    return pa.schema([field.with_type(_with_texts(field.type)) for field in schema])


def _with_texts(kind: pa.DataType) -> pa.DataType:
    return pa.string() if is_cut(kind) else rebuilt(kind, _with_texts)


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
