"""Columns of a stream as the parts of Kafka records: keys, topics, partitions, headers, times.

The sink's `outgoing` calls it, with empty columns to check a program and with full ones to write. A type that has no
one meaning in Kafka is refused rather than guessed.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.kafka.fetched import HEADER_TYPE, HEADERS_TYPE
from penstock.engine.errors import ColumnTypeError, RecordError

_TEXTS: Final = (pa.string(), pa.large_string())
_BYTES: Final = (*_TEXTS, pa.binary(), pa.large_binary())


def key_bytes(column: pa.Array, name: str) -> pa.LargeBinaryArray:
    """Bytes as they are, and text in UTF-8."""
    if column.type not in _BYTES:
        raise ColumnTypeError(
            f"kafka sink: the key column {name!r} is {column.type}; a key is bytes or text: cast the column, or give a "
            "format, such as key=JsonFormat({...})"
        )
    return column.cast(pa.large_binary())


def topics(column: pa.Array, name: str) -> pa.StringArray:
    """Names of topics; none may be null."""
    if column.type not in _TEXTS:
        raise ColumnTypeError(f"kafka sink: the topic column {name!r} is {column.type}; it must be a string")
    if column.null_count:
        raise RecordError(f"kafka sink: column {name!r}, row {_first_null(column)}: the topic is null")
    return column.cast(pa.string())


def partitions(column: pa.Array, name: str) -> pa.Int32Array:
    """Numbers of partitions; null leaves the choice to the partitioner."""
    if not pa.types.is_integer(column.type):
        raise ColumnTypeError(f"kafka sink: the partition column {name!r} is {column.type}; it must be an integer")
    try:
        return column.cast(pa.int32())
    except pa.ArrowInvalid as error:
        raise RecordError(f"kafka sink: column {name!r}: {error}") from error


def headers(column: pa.Array, name: str) -> pa.ListArray:
    """A map, or a list of structs of key and value, as lists of `HEADER_TYPE`; null is none."""
    parts = _header_parts(column)
    if parts is None:
        raise ColumnTypeError(
            f"kafka sink: the headers column {name!r} is {column.type}; it must be a map from string to binary or "
            "string, or a list of struct<key: string, value: binary>"
        )
    keys, values = parts
    if keys.null_count:
        raise RecordError(f"kafka sink: column {name!r}: the key of a header is null")
    entries = pa.StructArray.from_arrays([keys.cast(pa.string()), values.cast(pa.binary())], fields=list(HEADER_TYPE))
    # `flatten` and these lengths leave out what lies behind null lists and outside the slice.
    lengths = pc.fill_null(pc.list_value_length(_as_list(column)), 0)
    ends = pc.cumulative_sum(lengths.cast(pa.int32()))
    return pa.ListArray.from_arrays(pa.concat_arrays([pa.array([0], pa.int32()), ends]), entries).cast(HEADERS_TYPE)


def timestamps(column: pa.Array, name: str) -> pa.Int64Array:
    """Milliseconds since the epoch: of a timestamp (without a zone in UTC), or the integers as they are."""
    if pa.types.is_timestamp(column.type):
        return pc.floor_temporal(column, unit="millisecond").cast(pa.timestamp("ms", column.type.tz)).cast(pa.int64())
    if not pa.types.is_integer(column.type):
        raise ColumnTypeError(
            f"kafka sink: the timestamp column {name!r} is {column.type}; it must be a timestamp, or an integer of "
            "milliseconds since 1970"
        )
    return column.cast(pa.int64())


def _as_list(column: pa.Array) -> pa.Array:
    """A map as the list that it is."""
    if pa.types.is_map(column.type):
        return column.cast(pa.list_(pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])))
    return column


def _header_parts(column: pa.Array) -> tuple[pa.Array, pa.Array] | None:
    if not (pa.types.is_map(column.type) or pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        return None
    entries = _as_list(column).flatten()
    if not pa.types.is_struct(entries.type) or {field.name for field in entries.type} != {"key", "value"}:
        return None
    keys, values = pc.struct_field(entries, "key"), pc.struct_field(entries, "value")
    return (keys, values) if keys.type in _TEXTS and values.type in _BYTES else None


def _first_null(column: pa.Array) -> int:
    return int(pc.index(column.is_null(), True).as_py())
