"""Few rows as bytes, row by row: so they travel, and wait for company, without being columns in between.

An exchange by key makes them where each value is a word of eight bytes, the gate of the receiver joins those of all its
channels, and the task behind it makes columns of them, once (docs/adr/0104). Whatever else looks at them finds a batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.engine.elements import Batch, Partials, concat_batches

_WORD: Final = 8
_TIME: Final = pa.int64()
_KEPT: Final = 64
"""So many layouts are known at once."""
_SHARED_ROWS: Final = 64
"""Columns of no more rows are parts of one buffer."""
_EXTENSION: Final = b"ARROW:extension:name"


@dataclass(frozen=True, slots=True, eq=False)
class RowLayout:
    """What stands in the bytes of a row: its values in the order of the columns, and its timestamp. One for each kind.

    Args:
        columns: the serialized schema.
        schema: of words, and of nulls, which take no bytes.
        kinds: the types of its columns, and which word of a row each is; None for nulls.
        timed: whether rows have timestamps.
        mark: of partial aggregates, as text.
        partials: the same.
        width: bytes of a row.
    """

    columns: bytes
    schema: pa.Schema
    kinds: Sequence[tuple[pa.DataType, int] | None]
    timed: bool
    mark: str | None
    partials: Partials | None
    width: int


@lru_cache(_KEPT)
def row_layout(columns: bytes, timed: bool, mark: str | None) -> RowLayout | None:
    """How rows of a serialized schema are laid out; None where they are not words alone."""
    schema = pa.ipc.read_schema(pa.py_buffer(columns))
    words = [kind for kind in schema.types if not pa.types.is_null(kind)]
    places = itertools.count()
    kinds = [None if pa.types.is_null(kind) else (kind, next(places)) for kind in schema.types]
    width = _WORD * (len(words) + timed)
    # What is read here is the storage of a type that the program has not registered.
    if not width or _EXTENSION in columns or not all(map(_is_word, words)):
        return None
    return RowLayout(columns, schema, kinds, timed, mark, None if mark is None else Partials.of_text(mark), width)


def _is_word(kind: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(kind)) and kind.bit_width == 8 * _WORD


class FewRows(Batch):
    """A batch of so few rows that to make columns of them takes longer than to copy them.

    Args:
        layout: of each row.
        rows: their bytes.

    Example:
        >>> batch = Batch(pa.record_batch({"k": [7, 8]}))
        >>> FewRowsWriter()(batch, [1, 0]).columns().data.to_pydict()
        {'k': [8, 7]}
    """

    __slots__ = ("_columns", "_count", "layout", "rows")

    # What a frozen dataclass has in its place costs as much as the rest of `__init__`.
    __setattr__ = object.__setattr__

    def __init__(self, layout: RowLayout, rows: bytes) -> None:
        self.layout = layout
        self.rows = rows
        self._count = len(rows) // layout.width
        self._columns: Batch | None = None

    def columns(self) -> Batch:
        """The same as columns; made once."""
        if self._columns is None:
            self._columns = _as_columns(self.layout, self.rows, self._count)
        return self._columns

    @property
    def data(self) -> pa.RecordBatch:
        return self.columns().data

    @property
    def timestamps(self) -> pa.Int64Array | None:
        return self.columns().timestamps

    @property
    def kinds(self) -> None:
        return None

    @property
    def partials(self) -> Partials | None:
        return self.layout.partials

    @property
    def num_rows(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        return len(self.rows)

    @property
    def held_bytes(self) -> int:
        return len(self.rows)

    @property
    def is_compact(self) -> bool:
        return True

    def slice(self, offset: int, length: int | None = None) -> FewRows:
        """A copy of `length` rows from `offset`."""
        width = self.layout.width
        end = None if length is None else (offset + length) * width
        return FewRows(self.layout, self.rows[offset * width : end])

    def __reduce__(self) -> tuple[type[Batch], tuple[Any, ...]]:
        return Batch, (self.data, self.timestamps, None, self.partials)


def _as_columns(layout: RowLayout, rows: bytes, count: int) -> Batch:
    # One row is a column of each value already.
    words = rows if count == 1 else np.frombuffer(rows, np.int64).reshape(count, layout.width // _WORD).T.copy()
    buffer, last, nulls, make = pa.py_buffer(words), layout.width // _WORD - 1, pa.nulls(count), pa.Array.from_buffers
    parts, step = [[None, buffer]] * (last + 1), count
    if count > _SHARED_ROWS:
        # Where they are pickled, all of its buffer goes with each column.
        size, step = _WORD * count, 0
        parts = [[None, buffer.slice(place * size, size)] for place in range(last + 1)]
    arrays = [
        nulls if kind is None else make(kind[0], count, parts[kind[1]], 0, kind[1] * step) for kind in layout.kinds
    ]
    timestamps = make(_TIME, count, parts[last], 0, last * step) if layout.timed else None
    return Batch(pa.RecordBatch.from_arrays(arrays, schema=layout.schema), timestamps, None, layout.partials)


def few_rows(columns: bytes, rows: bytes, timed: bool, mark: str | None) -> FewRows:
    """What was sent, by what its layout is known by."""
    layout = row_layout(columns, timed, mark)
    assert layout is not None, "who sent them had one"
    return FewRows(layout, rows)


class FewRowsWriter:
    """Makes few rows of batches, whose columns are mostly those of the batch before."""

    def __init__(self) -> None:
        self._schema = pa.schema(())
        self._beside: tuple[bool, bool, Partials | None] | None = None
        self._layout: RowLayout | None = None

    def __call__(self, batch: Batch, order: Sequence[int]) -> FewRows | None:
        """The rows at these places, in this order; None where they are not words alone."""
        layout = self._layout_of(batch)
        if layout is None:
            return None
        arrays = [array for array, kind in zip(batch.data.columns, layout.kinds, strict=True) if kind is not None]
        if batch.timestamps is not None:
            arrays.append(batch.timestamps)
        for array in arrays:
            if array.null_count:
                return None
        count = batch.data.num_rows
        words = b"".join([memoryview(one.buffers()[1])[one.offset * _WORD :][: count * _WORD] for one in arrays])
        if count > 1:
            words = np.frombuffer(words, np.int64).reshape(len(arrays), count).T[order].tobytes()
        return FewRows(layout, words)

    def _layout_of(self, batch: Batch) -> RowLayout | None:
        schema, beside = batch.data.schema, (batch.timestamps is not None, batch.kinds is not None, batch.partials)
        if beside != self._beside or not schema.equals(self._schema, check_metadata=True):
            self._schema, self._beside, self._layout = schema, beside, None
            if batch.kinds is None:
                mark = None if batch.partials is None else batch.partials.text()
                self._layout = row_layout(schema.serialize().to_pybytes(), batch.timestamps is not None, mark)
        return self._layout


def are_rows_alike(one: Batch, other: Batch) -> bool:
    """Whether both are few rows of one layout."""
    return isinstance(one, FewRows) and isinstance(other, FewRows) and one.layout is other.layout


def joined(batches: Sequence[Batch]) -> Batch:
    """All of them as one, in order, as `concat_batches` makes it; bytes where all are few rows of one layout."""
    first = batches[0]
    if len(batches) == 1:
        return first
    if not isinstance(first, FewRows):
        return concat_batches(batches)
    rows = [one.rows for one in batches if isinstance(one, FewRows) and one.layout is first.layout]
    return FewRows(first.layout, b"".join(rows)) if len(rows) == len(batches) else concat_batches(batches)
