"""The text of one field of CSV, also of lists and structs, whose parts stand in it with a text between them.

The CSV format calls it, and tables whose files have such columns.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

from penstock.connectors.records.batches import held_decimals
from penstock.connectors.times import parsed, timestamp_text

Convert = Callable[[pa.Array, pa.DataType], pa.Array]
"""Gives a column of texts as one of another type; its errors are those of pyarrow, and `ValueError`."""


def has_parts(kind: pa.DataType) -> bool:
    """Whether values of a type are more than Arrow's parser of CSV takes: lists, structs and bytes."""
    return bool(pa.types.is_list(kind) or pa.types.is_struct(kind) or pa.types.is_binary(kind))


def field_values(text: pa.Array, kind: pa.DataType) -> pa.Array:
    """Texts as values of a type without parts, as the parser of CSV reads them.

    Raises:
        pyarrow.ArrowException, ValueError: a text is no such value.

    Example:
        >>> field_values(pa.array(["1", None]), pa.int64()).to_pylist()
        [1, None]
    """
    if pa.types.is_binary(kind):
        return pa.array(
            [None if one is None else base64.b64decode(one, validate=True) for one in text.to_pylist()], kind
        )
    if kind.equals(text.type):
        return text
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return text.cast(kind)
    if not len(text):
        return pa.nulls(0, kind)
    quoted = pc.binary_join_element_wise('"', pc.replace_substring(text.cast(pa.string()), '"', '""'), '"\n', "")
    # What is null stands bare; an empty text is none of these values.
    body = "".join(quoted.fill_null("\n").to_pylist()).encode()
    rows = parsed(partial(_read, body), pa.schema([("x", kind)]))
    return held_decimals(rows).column(0)


def _read(body: bytes, types: pa.Schema) -> pa.Table:
    return pv.read_csv(
        pa.BufferReader(body),
        read_options=pv.ReadOptions(use_threads=False, column_names=types.names, block_size=len(body) + 1),
        parse_options=pv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=pv.ConvertOptions(column_types=types, null_values=[""], quoted_strings_can_be_null=False),
    )


def in_parts(text: pa.Array, kind: pa.DataType, between: str, convert: Convert, null: str = "") -> pa.Array:
    """Texts as values of a type that may have parts.

    Args:
        text: the fields.
        kind: what they are to be; the parts of its parts stand in no text.
        between: the text between parts.
        convert: gives the parts, and values without parts.
        null: the text of a part that is null.

    Raises:
        pyarrow.ArrowException, ValueError: what `convert` raises; a struct has more or fewer parts than fields.

    Example:
        >>> in_parts(pa.array(["1;2", ""]), pa.list_(pa.int64()), ";", field_values).to_pylist()
        [[1, 2], []]
    """
    if not pa.types.is_list(kind) and not pa.types.is_struct(kind):
        return convert(text, kind)
    text = text.cast(pa.string())
    parts = pc.if_else(pc.equal(text, ""), pa.scalar([], pa.list_(pa.string())), pc.split_pattern(text, between))
    if pa.types.is_list(kind):
        values = _converted(parts.flatten(), kind.value_type, convert, null)
        counts = pc.list_value_length(parts).fill_null(0)
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(counts).cast(pa.int32())])
        return pa.ListArray.from_arrays(offsets, values, type=kind, mask=parts.is_null())
    wrong = pc.not_equal(pc.list_value_length(parts), kind.num_fields)
    if pc.any(wrong).as_py():
        raise ValueError(f"{parts.filter(wrong)[0].as_py()} are not {kind.num_fields} fields")
    columns = [_converted(pc.list_element(parts, place), field.type, convert, null) for place, field in enumerate(kind)]
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=text.is_null())


def _converted(parts: pa.Array, kind: pa.DataType, convert: Convert, null: str) -> pa.Array:
    """Parts as values: one without text is null where it is not to be text."""
    if null:
        parts = pc.if_else(pc.equal(parts, null), pa.scalar(None, parts.type), parts)
    if not pa.types.is_string(kind) and not pa.types.is_large_string(kind):
        parts = pc.if_else(pc.equal(parts, ""), pa.scalar(None, parts.type), parts)
    return convert(parts, kind)


def field_text(column: pa.Array, between: str) -> pa.Array:
    """Values as the texts of fields.

    Args:
        column: the values.
        between: the text between the parts of lists and structs; a part that is null is no text.

    Raises:
        pyarrow.ArrowException: the type has no text.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
    if pa.types.is_list(kind):
        texts = field_text(column.flatten(), between).fill_null("")
        counts = pc.list_value_length(column).fill_null(0)
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(counts).cast(pa.int32())])
        lists = pa.ListArray.from_arrays(offsets, texts.cast(pa.string()), mask=column.is_null())
        return pc.binary_join(lists, between).cast(pa.large_string())
    if pa.types.is_struct(kind):
        texts = [field_text(part, between).fill_null("") for part in column.flatten()]
        joined = pc.binary_join_element_wise(*texts, pa.scalar(between, pa.large_string()))
        return pc.if_else(column.is_valid(), joined, pa.scalar(None, joined.type))
    if pa.types.is_binary(kind):
        plain = [None if one is None else base64.b64encode(one).decode() for one in column.to_pylist()]
        return pa.array(plain, pa.large_string())
    if pa.types.is_timestamp(kind):
        column = timestamp_text(column)
    elif pa.types.is_duration(kind):
        column = column.cast(pa.int64())
    return column.cast(pa.large_string())
