"""How columns look in JSON lines, in both directions.

The JSON reader calls it to learn what to parse a column as and how to get the column's own type from that;
the JSON sink calls it to write what the reader reads. Times are ISO-8601 text, bytes base64, decimals text,
durations numbers in the column's unit, maps objects, and NaN and infinities null.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.json.maps import rows_of
from penstock.connectors.times import cut_moments, is_cut, timestamp_text
from penstock.engine.columns import rebuilt

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def wire_type(column: pa.DataType) -> pa.DataType:
    """The type that Arrow's JSON parser must give for a column of type `column`."""
    if pa.types.is_date(column) or pa.types.is_time(column) or _is_binary(column):
        return pa.string()
    if pa.types.is_duration(column):
        return pa.int64()
    if pa.types.is_dictionary(column):
        return wire_type(column.value_type)
    if pa.types.is_map(column):
        # `maps.py` writes them so.
        return pa.list_(pa.struct([("key", pa.string()), ("value", wire_type(column.item_type))]))
    return rebuilt(column, wire_type)


def from_wire(array: pa.Array, column: pa.DataType) -> pa.Array:
    """The parsed `array` as a column of type `column`.

    Raises:
        pyarrow.ArrowException, ValueError: a value does not fit.
    """
    if array.type.equals(column):
        return array
    if pa.types.is_dictionary(column):
        return from_wire(array, column.value_type).dictionary_encode().cast(column)
    if pa.types.is_date64(column):
        return array.cast(pa.date32()).cast(column)
    if pa.types.is_time(column):
        # Arrow parses no times of day, but timestamps.
        timestamps = pc.binary_join_element_wise("1970-01-01", array, "T")
        return timestamps.cast(pa.timestamp(column.unit)).cast(column)
    if is_cut(column):
        return cut_moments(array, column)
    if _is_binary(column):
        return pa.array([None if text is None else _decode(text) for text in array.to_pylist()], column)
    if pa.types.is_map(column):
        return _maps(array, column)
    if pa.types.is_struct(column):
        parts = [from_wire(part, field.type) for part, field in zip(array.flatten(), column, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=list(column), mask=array.is_null())
    if pa.types.is_list(column):
        return _lists(array, from_wire(array.flatten(), column.value_type)).cast(column)
    return array.cast(column)


def _lists(like: pa.Array, values: pa.Array) -> pa.ListArray:
    """Lists of `values` that are as long as those of `like`, and null where they are."""
    return pa.ListArray.from_arrays(_offsets(like), values, mask=like.is_null())


def _maps(entries: pa.Array, column: pa.DataType) -> pa.MapArray:
    """Maps of lists of entries; keys are texts in JSON, and may stand for whole numbers."""
    if not _has_json_keys(column):
        raise pa.ArrowNotImplementedError(f"keys of objects are texts, and no {column.key_type}")
    pairs = entries.flatten()
    keys, values = (pairs.field(name) for name in ("key", "value"))
    return pa.MapArray.from_arrays(
        _offsets(entries),
        keys.cast(column.key_type),
        from_wire(values, column.item_type),
        column,
        mask=entries.is_null(),
    )


def _offsets(like: pa.Array) -> pa.Array:
    ends = pc.cumulative_sum(pc.fill_null(pc.list_value_length(like), 0).cast(pa.int32()))
    return pa.concat_arrays([pa.array([0], pa.int32()), ends])


def _has_json_keys(column: pa.DataType) -> bool:
    key = column.key_type
    return bool(pa.types.is_string(key) or pa.types.is_large_string(key) or pa.types.is_integer(key))


def is_writable(column: pa.DataType) -> bool:
    """Whether values of type `column` have a form in JSON."""
    if pa.types.is_union(column) or pa.types.is_interval(column) or pa.types.is_run_end_encoded(column):
        return False
    if pa.types.is_dictionary(column):
        return is_writable(column.value_type)
    if pa.types.is_map(column) and not _has_json_keys(column):
        return False
    return all(is_writable(column.field(i).type) for i in range(column.num_fields))


def json_lines(batch: pa.RecordBatch) -> str:
    """The rows as JSON lines, each ended by a newline.

    Raises:
        pyarrow.ArrowInvalid: a time within a map that Python cannot hold, which knows microseconds.
    """
    columns = [_for_python(column) for column in batch.columns]
    rows = rows_of(pa.RecordBatch.from_arrays(columns, names=batch.schema.names))
    return "".join(f"{_encode(row)}\n" for row in rows)


def _encode(row: dict[str, object]) -> str:
    try:
        return _ENCODER.encode(row)
    except (TypeError, ValueError):  # a value inside a list or struct has no form of its own
        return _ENCODER.encode(plain_value(row))


def _for_python(array: pa.Array) -> pa.Array:
    """The column with a type whose Python values the encoder takes, so that the work is done in Arrow."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _for_python(array.cast(kind.value_type))
    if pa.types.is_timestamp(kind):
        return timestamp_text(array)
    if pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_decimal(kind):
        return array.cast(pa.string())
    if pa.types.is_duration(kind):
        return array.cast(pa.int64())
    if pa.types.is_floating(kind):
        wide = array.cast(pa.float64()) if pa.types.is_float16(kind) else array
        return pc.if_else(pc.is_finite(wide), wide, pa.scalar(None, wide.type))
    if pa.types.is_struct(kind) and kind.num_fields:
        parts = [_for_python(part) for part in array.flatten()]
        return pa.StructArray.from_arrays(parts, names=[field.name for field in kind], mask=array.is_null())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _lists(array, _for_python(array.flatten()))
    if pa.types.is_nested(kind):
        return array.cast(_microseconds(kind))
    return array


def _microseconds(kind: pa.DataType) -> pa.DataType:
    """The nested type with its timestamps and times in microseconds, the finest that Python's types hold."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=kind.tz and "UTC")
    if pa.types.is_time64(kind):
        return pa.time64("us")
    if pa.types.is_duration(kind):
        return pa.int64()
    return rebuilt(kind, _microseconds)


def plain_value(value: object) -> object:
    """A value of Python, or one that holds others, as what the encoder takes."""
    if isinstance(value, dict):
        return {name: plain_value(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_value(inner) for inner in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    return value


def _decode(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _is_binary(column: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(column)
        or pa.types.is_large_binary(column)
        or pa.types.is_fixed_size_binary(column)
        or pa.types.is_binary_view(column)
    )
