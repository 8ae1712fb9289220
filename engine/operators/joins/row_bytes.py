"""How many bytes rows have, one by one.

Joins ask it where one row may be in many results: how much they emit at once is bounded by bytes, and the bytes of a
whole batch do not tell those of its rows. It costs in proportion to the rows that are asked for.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_Int64s = npt.NDArray[np.int64]

_UNKNOWN_WIDTH: Final = 16
"""For types that joins do not take in, and nulls."""


def row_bytes(rows: pa.RecordBatch, indices: _Int64s) -> _Int64s:
    """About the bytes that each of these rows takes, a whole number for each index.

    Example:
        >>> row_bytes(pa.record_batch({"n": [1, 2], "text": ["", "abc"]}), np.array([0, 1, 1])).tolist()
        [12, 15, 15]
    """
    nbytes = np.zeros(len(indices), np.int64)
    for column in rows.columns:
        nbytes += _span_bytes(column, indices, indices + 1)
    return nbytes


def widest_row_bytes(rows: pa.RecordBatch) -> int:
    """No row has more bytes than this; costs in proportion to all rows, but much less for each than `row_bytes`."""
    if not rows.num_rows:
        return 0
    return sum(_widest(column) for column in rows.columns)


def _widest(array: pa.Array) -> int:
    width = _offset_width(array.type)
    if width:
        return int(np.diff(_offsets(array, width)).max()) + width
    if pa.types.is_nested(array.type) or isinstance(array, pa.ExtensionArray):
        begins = np.arange(len(array))
        return int(_span_bytes(array, begins, begins + 1).max())
    return _fixed_width(array.type)


def _span_bytes(array: pa.Array, begins: _Int64s, ends: _Int64s) -> _Int64s:
    """The bytes of the values from begins[i] to ends[i]."""
    kind, count = array.type, ends - begins
    if isinstance(array, pa.ExtensionArray):
        return _span_bytes(array.storage, begins, ends)
    if pa.types.is_struct(kind):
        nbytes = np.zeros(len(count), np.int64)
        for index in range(kind.num_fields):
            # As it is stored: a field knows nothing of the struct's offset.
            nbytes += _span_bytes(array.field(index), begins, ends)
        return nbytes
    if pa.types.is_fixed_size_list(kind):
        first = array.offset
        return _span_bytes(array.values, (begins + first) * kind.list_size, (ends + first) * kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_map(kind):
        offsets = array.offsets.to_numpy().astype(np.int64)
        begins, ends = offsets[begins], offsets[ends]
        nbytes = 4 * count
        for part in (array.keys, array.items) if pa.types.is_map(kind) else (array.values,):
            nbytes += _span_bytes(part, begins, ends)
        return nbytes
    width = _offset_width(kind)
    if width:
        if not len(array):
            return np.zeros(len(count), np.int64)
        offsets = _offsets(array, width)
        texts: _Int64s = (offsets[ends] - offsets[begins]).astype(np.int64)
        texts += width * count
        return texts
    return count * _fixed_width(kind)


def _offsets(array: pa.Array, width: int) -> npt.NDArray[Any]:
    """Where each text begins, and the last one ends."""
    offsets = np.frombuffer(array.buffers()[1], np.int32 if width == 4 else np.int64)
    own: npt.NDArray[Any] = offsets[array.offset : array.offset + len(array) + 1]
    return own


def _offset_width(kind: pa.DataType) -> int:
    """Bytes of an offset of texts and byte strings, else 0."""
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return 4
    return 8 if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) else 0


def _fixed_width(kind: pa.DataType) -> int:
    try:
        return (int(kind.bit_width) + 7) // 8
    except ValueError:
        return _UNKNOWN_WIDTH
