"""Rows of plain columns in bytes: Arrow's own messages, which take a tenth of pickle's time where rows are few.

Messages of channels and frames of live state are made of them. What both ends see again and again, the columns, is read
once. All that Arrow cannot send alone, such as dictionaries and types of the user's, is left to pickle.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, TypeAlias

import pyarrow as pa

from penstock.engine.elements import Batch, Element, Partials, Watermark
from penstock.engine.few_rows import FewRows, few_rows

PlainBatch: TypeAlias = tuple[bytes, bytes, bytes | None, bytes | None, str | None]
"""Columns, rows, timestamps, kinds and the mark of partial aggregates of a batch."""
PlainRows: TypeAlias = tuple[bytes, bytes, bool, str | None]
"""Columns, rows, whether these have timestamps, and the mark of partial aggregates of few rows."""
_PlainElement: TypeAlias = Element | PlainBatch | PlainRows | int
_EXTENSION: Final = b"ARROW:extension:name"
_KEPT: Final = 64
"""The columns of so many streams are known at once."""


class RowPacker:
    """Packs what travels on one channel, whose columns are mostly those of the batch before.

    Example:
        >>> unpacked_rows(RowPacker()(Watermark(5)))
        Watermark(timestamp=5, between_rows=False)
    """

    def __init__(self) -> None:
        self._schema = pa.schema(())
        self._columns = b""
        self._is_plain = False

    def __call__(self, element: Element) -> _PlainElement:
        """A batch of plain columns, or a watermark, as `unpacked_rows` takes it; anything else as it is."""
        if isinstance(element, FewRows):
            return element.layout.columns, element.rows, element.layout.timed, element.layout.mark
        if isinstance(element, Watermark) and not element.between_rows:
            return element.timestamp
        if not isinstance(element, Batch):
            return element
        schema = element.data.schema
        if not self._columns or not schema.equals(self._schema, check_metadata=True):
            self._schema, self._columns = schema, schema.serialize().to_pybytes()
            self._is_plain = _are_plain(self._columns)
        if not self._is_plain:
            return element
        partials = None if element.partials is None else element.partials.text()
        rows = element.data.serialize().to_pybytes()
        return self._columns, rows, _packed(element.timestamps), _packed(element.kinds), partials


def unpacked_rows(packed: _PlainElement) -> Element:
    """What a `RowPacker` was given."""
    if not isinstance(packed, tuple):
        return Watermark(packed) if isinstance(packed, int) else packed
    if len(packed) == 4:
        return few_rows(*packed)
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
    if not len(array):
        return b""
    width = array.type.bit_width // 8
    values: bytes = array.buffers()[1].slice(array.offset * width, len(array) * width).to_pybytes()
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
