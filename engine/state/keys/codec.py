"""Keys as words of 64 bits or as byte strings, and back: what `KeyIndex` compares and keeps.

A single column of integers, booleans, dates or times is words; a single text column its own bytes; any other key is
packed row by row. Two keys of the same types have the same bytes exactly if they are equal.
"""

from __future__ import annotations

import itertools
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.columns import numpy_type
from penstock.engine.large_pages import in_large_pages

Words: TypeAlias = "npt.NDArray[np.uint64]"
Ints: TypeAlias = "npt.NDArray[np.int64]"
Bytes: TypeAlias = "npt.NDArray[np.uint8]"

_A = TypeVar("_A", bound=np.generic)

_WORD_BYTES: Final = 8
_LENGTH_BYTES: Final = 4
_LARGE_BYTES: Final = 1 << 22
"""NumPy's own arrays have larger pages from so many bytes on, too."""
_KEPT: Final = 64
"""What is known of so many types is remembered."""
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)
"""Multiplied by it, numbers that differ by little are far apart (2^64 by the golden ratio)."""
_TEXT: Final = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
)


@dataclass(frozen=True, slots=True)
class Packed:
    """Byte strings: that of a row is `data[offsets[row]:offsets[row + 1]]`."""

    data: Bytes
    offsets: Ints

    @property
    def lengths(self) -> Ints:
        """The length of each row's."""
        return np.diff(self.offsets)


def is_word(kind: pa.DataType) -> bool:
    """Whether values of a type are words of at most 64 bits."""
    return bool(pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_temporal(kind)) and (
        not pa.types.is_interval(kind)
    )


def words_of(column: pa.Array) -> Words:
    """The values of a word column; anything at nulls."""
    kind = column.type
    if len(column) == 0:
        return np.empty(0, np.uint64)
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif not pa.types.is_integer(kind):
        column = column.view(_integer(kind))
    values = np.frombuffer(column.buffers()[1], numpy_type(column.type))
    return values[column.offset : column.offset + len(column)].astype(np.int64, copy=False).view(np.uint64)


def perhaps_alike(columns: Sequence[pa.Array], rows: int) -> Ints:
    """The rows, ascending, of which another may have the same values; each of the others differs from all.

    They are told apart by a number that is made of their words.

    Example:
        >>> perhaps_alike([pa.array([1, 1, 2, 1]), pa.array(["a", "b", "a", "a"])], 4).tolist()
        [0, 1, 3]
    """
    words = [words_of(column) for column in columns if is_word(column.type) and not column.null_count]
    if not words:
        return np.arange(rows)
    mixed = np.zeros(rows, np.uint64)
    for column in words:
        mixed *= _ODD
        mixed += column
    ordered = np.sort(mixed)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(twice):
        return np.empty(0, np.int64)
    found = np.searchsorted(twice, mixed).clip(max=len(twice) - 1)
    return np.flatnonzero(twice[found] == mixed)


def from_words(words: Words, valid: npt.NDArray[np.bool_] | None, kind: pa.DataType) -> pa.Array:
    """The column of which `words_of` made these words, which must not change; null where it is not `valid`."""
    mask = None if valid is None else mask_of(valid)
    if pa.types.is_boolean(kind):
        return pa.array(words != 0, mask=mask)
    width = kind if pa.types.is_integer(kind) else _integer(kind)
    integers = pa.array(words.view(np.int64).astype(numpy_type(width), copy=False), width, mask=mask)
    return integers if width == kind else integers.view(kind)


def mask_of(valid: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_] | None:
    """What `pa.array` takes as the mask of values of which some may not be valid."""
    return None if valid.all() else ~valid


def _integer(kind: pa.DataType) -> pa.DataType:
    return pa.int32() if kind.bit_width == 32 else pa.int64()


def is_text(kind: pa.DataType) -> bool:
    """Whether values of a type are byte strings of any length."""
    return any(is_kind(kind) for is_kind in _TEXT)


def comparable(column: pa.Array) -> pa.Array:
    """The column as values of which Python tells all apart: its times have no nanoseconds, and dates are dear."""
    kind = comparable_type(column.type)
    return column if kind == column.type else column.cast(kind)


@lru_cache(_KEPT)
def comparable_type(kind: pa.DataType) -> pa.DataType:
    """The type of `comparable` columns."""
    is_long_time = pa.types.is_timestamp(kind) or pa.types.is_time64(kind) or pa.types.is_duration(kind)
    if pa.types.is_date32(kind):
        return pa.int32()
    return pa.int64() if is_long_time else kind


def pack(columns: Sequence[pa.Array]) -> Packed:
    """Each row of key columns as a byte string; anything where the only column is null.

    Several columns lie behind one another: a byte that says whether there is a value, the length of a text, the value.
    """
    if len(columns) == 1 and is_text(columns[0].type):
        return _texts(columns[0])
    if all(is_word(column.type) and not column.null_count for column in columns):
        return _packed_words(columns)
    parts = [_Part.of(column) for column in columns]
    offsets = np.zeros(len(columns[0]) + 1, np.int64)
    np.cumsum(sum(part.total for part in parts), out=offsets[1:])
    data = np.zeros(int(offsets[-1]), np.uint8)
    cursor = offsets[:-1].copy()
    for part in parts:
        part.write(data, cursor)
    return Packed(data, offsets)


def _words_type(count: int) -> np.dtype[np.void]:
    """A row of so many words as `pack` has it where none is null."""
    return np.dtype([field for place in range(count) for field in ((f"valid{place}", "u1"), (f"word{place}", "<u8"))])


def _packed_words(columns: Sequence[pa.Array]) -> Packed:
    rows = np.empty(len(columns[0]), _words_type(len(columns)))
    for place, column in enumerate(columns):
        rows[f"valid{place}"] = 1
        rows[f"word{place}"] = words_of(column)
    return Packed(rows.view(np.uint8), np.arange(len(rows) + 1, dtype=np.int64) * rows.itemsize)


def unpack(
    arena: Bytes, starts: Ints, lengths: Ints, types: Sequence[pa.DataType], places: Sequence[int]
) -> list[pa.Array]:
    """The columns at `places` of those of which `pack` made the byte strings that lie at `starts` in `arena`."""
    if len(types) == 1 and is_text(types[0]):
        return [_text_column(arena, starts, lengths, None, types[0]) for _ in places]
    width = (1 + _WORD_BYTES) * len(types)
    if all(map(is_word, types)) and (lengths == width).all():
        rows = _gather(arena, starts, lengths, width).view(_words_type(len(types)))
        return [from_words(rows[f"word{place}"].copy(), None, types[place]) for place in places]
    cursor = starts.copy()
    values = [_Values.at(arena, cursor, kind) for kind in types[: max(places, default=-1) + 1]]
    return [values[place].column(arena, types[place]) for place in places]


@dataclass(frozen=True, slots=True)
class _Part:
    """One column's share of packed rows; lengths are 0 at nulls."""

    valid: npt.NDArray[np.bool_]
    data: Bytes
    starts: Ints
    lengths: Ints
    has_length: bool

    @classmethod
    def of(cls, column: pa.Array) -> _Part:
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        if is_text(column.type):
            texts = _texts(column)
            return cls(valid, texts.data, texts.offsets[:-1], texts.lengths * valid, True)
        data, width = _fixed(column)
        return cls(valid, data, np.arange(len(column), dtype=np.int64) * width, valid * np.int64(width), False)

    @property
    def total(self) -> Ints:
        """Bytes of each row, with what is before the value."""
        return 1 + self.lengths + (self.valid * np.int64(_LENGTH_BYTES) if self.has_length else 0)

    def write(self, target: Bytes, cursor: Ints) -> None:
        """Write each row at its cursor, and move that behind it."""
        target[cursor] = self.valid
        cursor += 1
        if self.has_length:
            header = self.lengths.astype("<u4").view(np.uint8)
            sizes = self.valid * np.int64(_LENGTH_BYTES)
            _copy(header, np.arange(len(cursor), dtype=np.int64) * _LENGTH_BYTES, sizes, target, cursor)
            cursor += sizes
        _copy(self.data, self.starts, self.lengths, target, cursor)
        cursor += self.lengths


@dataclass(frozen=True, slots=True)
class _Values:
    """Where one column's values lie in an arena of packed rows; lengths are 0 at nulls."""

    valid: npt.NDArray[np.bool_]
    starts: Ints
    lengths: Ints

    @classmethod
    def at(cls, arena: Bytes, cursor: Ints, kind: pa.DataType) -> _Values:
        """The values at the cursors, which move behind them."""
        valid = arena[cursor] == 1
        cursor += 1
        if is_text(kind):
            sizes = valid * np.int64(_LENGTH_BYTES)
            lengths = _gather(arena, cursor, sizes, _LENGTH_BYTES).view("<u4").astype(np.int64)
            cursor += sizes
        else:
            lengths = valid * np.int64(_width(kind))
        starts = cursor.copy()
        cursor += lengths
        return cls(valid, starts, lengths)

    def column(self, arena: Bytes, kind: pa.DataType) -> pa.Array:
        """The column of them."""
        if is_text(kind):
            return _text_column(arena, self.starts, self.lengths, self.valid, kind)
        if pa.types.is_null(kind):
            return pa.nulls(len(self.starts))
        values = _gather(arena, self.starts, self.lengths, _width(kind))
        if is_word(kind):
            return from_words(values.view(np.uint64), self.valid, kind)
        return pa.Array.from_buffers(kind, len(self.starts), [_bitmap(self.valid), pa.py_buffer(values)])


def _width(kind: pa.DataType) -> int:
    """The bytes that a value of fixed width takes in packed rows."""
    if pa.types.is_null(kind):
        return 0
    return _WORD_BYTES if is_word(kind) else int(kind.bit_width) // 8


def _gather(arena: Bytes, starts: Ints, sizes: Ints, width: int) -> Bytes:
    """Values of `width` bytes behind one another; zeros where the size is 0."""
    values = np.zeros(len(starts) * width, np.uint8)
    _copy(arena, starts, sizes, values, np.arange(len(starts), dtype=np.int64) * width)
    return values


def _text_column(
    arena: Bytes, starts: Ints, lengths: Ints, valid: npt.NDArray[np.bool_] | None, kind: pa.DataType
) -> pa.Array:
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    data = np.zeros(int(offsets[-1]), np.uint8)
    _copy(arena, starts, lengths, data, offsets[:-1])
    buffers = [None if valid is None else _bitmap(valid), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(starts), buffers).cast(kind)


def _bitmap(valid: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.array(valid).buffers()[1]


def _texts(column: pa.Array) -> Packed:
    packed = column.cast(pa.large_binary())
    if len(packed) == 0:
        return Packed(np.empty(0, np.uint8), np.zeros(1, np.int64))
    _, offsets, data = packed.buffers()
    positions = np.frombuffer(offsets, np.int64)[packed.offset : packed.offset + len(packed) + 1]
    return Packed(np.frombuffer(b"" if data is None else data, np.uint8), positions)


def _fixed(column: pa.Array) -> tuple[Bytes, int]:
    """The values of a column of fixed width behind one another, and their width in bytes."""
    if pa.types.is_null(column.type) or len(column) == 0:
        return np.empty(0, np.uint8), 0
    if is_word(column.type):
        return words_of(column).view(np.uint8), _WORD_BYTES
    width = column.type.bit_width // 8
    values = np.frombuffer(column.buffers()[1], np.uint8)
    return values[column.offset * width : (column.offset + len(column)) * width], width


def _copy(source: Bytes, starts: Ints, lengths: Ints, target: Bytes, to: Ints) -> None:
    from penstock.engine.state.keys.index_kernel import copy_ranges

    copy_ranges(read_only(source), read_only(starts), lengths, target, read_only(to))


def read_only(array: npt.NDArray[_A]) -> npt.NDArray[_A]:
    """A view that cannot be written to: some Arrow buffers can, and numba would compile once more for those."""
    view: npt.NDArray[_A] = array.view()
    view.flags.writeable = False
    return view


def pooled_empty(length: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An array of numbers in memory of Arrow's pool, which keeps what was freed for the next checkpoint."""
    memory = pa.allocate_buffer(length * np.dtype(dtype).itemsize)
    return np.frombuffer(memory if memory.size < _LARGE_BYTES else in_large_pages(memory), dtype)


def pooled_copy(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A copy of numbers, as `pooled_empty`."""
    copy = pooled_empty(len(array), array.dtype)
    copy[:] = array
    return copy


def pooled_copies(arrays: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """Copies of numbers, as `pooled_empty`, behind one another from a page on, as columns lie in a large Arrow file."""
    starts = list(itertools.accumulate((-(-array.nbytes // _WORD_BYTES) * _WORD_BYTES for array in arrays), initial=0))
    memory = pooled_empty(starts[-1] + mmap.PAGESIZE, np.uint8)
    memory = memory[-memory.ctypes.data % mmap.PAGESIZE :]
    copies = [memory[start:][: array.nbytes].view(array.dtype) for start, array in zip(starts, arrays, strict=False)]
    for copy, array in zip(copies, arrays, strict=True):
        copy[:] = array
    return copies


def grown(array: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """The array with room for `size` values at least; the new ones are 0."""
    if size <= len(array):
        return array
    bigger = np.zeros((max(size, 2 * len(array)), *array.shape[1:]), array.dtype)
    bigger[: len(array)] = array
    return bigger
