"""Rows as the text form of PostgreSQL's COPY, made from whole columns.

The sink's commit calls it with columns that `types.fit_column` has made. Source: PostgreSQL's documentation, "COPY",
section "Text Format", and "Arrays", section "Array Input and Output Syntax".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_ROWS_AT_ONCE: Final = 16_384
_NULL: Final = "\\N"
_ESCAPES: Final = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))


def copy_text(rows: pa.Table) -> Iterator[bytes]:
    """The rows, some thousand at once; each row ends with a newline.

    Example:
        >>> list(copy_text(pa.table({"id": [1, 2], "name": ["a", None]})))
        [b'1\\ta\\n2\\t\\\\N\\n']
    """
    for batch in rows.to_batches(_ROWS_AT_ONCE):
        if batch.num_rows:
            yield _lines(batch)


def _lines(batch: pa.RecordBatch) -> bytes:
    columns = [_escape(as_text(column), column.type) for column in batch.columns]
    separator, nothing = (pa.scalar(text, pa.large_string()) for text in ("\t", ""))
    rows = pc.binary_join_element_wise(*columns, separator, null_handling="replace", null_replacement=_NULL)
    lines = pc.binary_join_element_wise(rows, pa.scalar("\n", pa.large_string()), nothing)
    # The lines lie behind one another in the buffer of their array.
    _, places, text = lines.buffers()
    first, *_, last = np.frombuffer(places, np.int64)[lines.offset : lines.offset + len(lines) + 1]
    return text.slice(first, last - first).to_pybytes()  # type: ignore[no-any-return]


def as_text(array: pa.Array) -> pa.Array:
    """The values as the server reads them, as large strings; nulls stay."""
    kind = array.type
    if pa.types.is_list(kind):
        return _array_literals(array)
    if pa.types.is_binary(kind):
        return pa.array([None if value is None else "\\x" + value.hex() for value in array.to_pylist()], _TEXT)
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        naive = array.cast(pa.timestamp(kind.unit, tz="UTC")).cast(pa.timestamp(kind.unit))
        return pc.binary_join_element_wise(naive.cast(_TEXT), pa.scalar("+00", _TEXT), pa.scalar("", _TEXT))
    return array.cast(_TEXT)


_TEXT: Final = pa.large_string()


def _escape(text: pa.Array, kind: pa.DataType) -> pa.Array:
    if not (pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_list(kind)):
        return text
    for character, escaped in _ESCAPES:
        text = pc.replace_substring(text, character, escaped)
    return text


def _array_literals(array: pa.Array) -> pa.Array:
    """Each list as `{"a",NULL,"b"}`."""
    values = as_text(array.flatten())
    for character in ("\\", '"'):
        values = pc.replace_substring(values, character, "\\" + character)
    quote, nothing, comma = (pa.scalar(text, _TEXT) for text in ('"', "", ","))
    quoted = pc.binary_join_element_wise(quote, values, quote, nothing).fill_null("NULL")
    lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64())
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(lengths)])
    lists = pa.LargeListArray.from_arrays(offsets, quoted)
    joined = pc.binary_join_element_wise(
        pa.scalar("{", _TEXT), pc.binary_join(lists, comma), pa.scalar("}", _TEXT), nothing
    )
    return pc.if_else(pc.is_null(array), pa.scalar(None, _TEXT), joined)
