"""Rows of plain columns in bytes: Arrow's own messages, which take a tenth of pickle's time where rows are few.

Messages of channels and frames of live state are made of them. What both ends see again and again, the columns, is read
once. All that Arrow cannot send alone, such as dictionaries and types of the user's, is left to pickle.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, TypeAlias

import pyarrow as pa

from penstock.engine.elements import Batch, Element, Partials

PlainBatch: TypeAlias = tuple[bytes, bytes, bytes | None, bytes | None, str | None]
"""Columns, rows, timestamps, kinds and the mark of partial aggregates of a batch."""
_EXTENSION: Final = b"ARROW:extension:name"
_KEPT: Final = 64
"""The columns of so many streams are known at once."""


def packed_rows(element: Element) -> Element | PlainBatch:
    """A batch of plain columns as `unpacked_rows` takes it; anything else as it is."""
    if not isinstance(element, Batch):
        return element
    columns = element.data.schema.serialize().to_pybytes()
    if not _are_plain(columns):
        return element
    partials = None if element.partials is None else element.partials.text()
    rows = element.data.serialize().to_pybytes()
    return columns, rows, _packed(element.timestamps), _packed(element.kinds), partials


def unpacked_rows(packed: Element | PlainBatch) -> Element:
    """What `packed_rows` was given."""
    if not isinstance(packed, tuple):
        return packed
    columns, rows, timestamps, kinds, partials = packed
    data = read_rows(columns, rows)
    return Batch(
        data,
        _unpacked(pa.int64(), timestamps),
        _unpacked(pa.int8(), kinds),
        None if partials is None else _partials(partials),
    )


def read_rows(columns: bytes, rows: bytes) -> pa.RecordBatch:
    """The rows of a serialized schema and a serialized record batch."""
    return pa.ipc.read_record_batch(pa.py_buffer(rows), _schema(columns))


def is_plain(kind: pa.DataType) -> bool:
    """Whether Arrow sends values of a type without anything beside them."""
    types = pa.types
    plain = types.is_primitive(kind) or types.is_string(kind) or types.is_binary(kind) or types.is_decimal(kind)
    return bool(plain or types.is_null(kind))


def _packed(array: pa.Array | None) -> bytes | None:
    if array is None:
        return None
    values: bytes = array.to_numpy().tobytes()
    return values


def _unpacked(kind: pa.DataType, values: bytes | None) -> Any:
    if values is None:
        return None
    return pa.Array.from_buffers(kind, len(values) * 8 // kind.bit_width, [None, pa.py_buffer(values)])


@lru_cache(_KEPT)
def _schema(columns: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(columns))


@lru_cache(_KEPT)
def _are_plain(columns: bytes) -> bool:
    # What is read here is the storage of a type that the program has not registered.
    return _EXTENSION not in columns and all(map(is_plain, _schema(columns).types))


@lru_cache(_KEPT)
def _partials(text: str) -> Partials:
    return Partials.of_text(text)
