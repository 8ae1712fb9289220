"""Sets of 32-bit numbers in the format of Roaring bitmaps, which other systems read and write.

The functions of bitmaps call it. Equal sets have equal bytes, which are those that Flink writes.

Source: the Roaring format specification (github.com/RoaringBitmap/RoaringFormatSpec).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.uint32]
"""Without repeats, in order."""
_COOKIE: Final = 12346
_COOKIE_WITH_RUNS: Final = 12347
_FEWEST_WITH_OFFSETS: Final = 4
_LARGEST_ARRAY: Final = 4096
_BITMAP_BYTES: Final = 8192
_SHOWN_CHARACTERS: Final = 0x80000
"""As in the library for Java."""


def bitmap_bytes(numbers: Numbers) -> bytes:
    """The bytes of a set: of the three forms of a container the smallest.

    Example:
        >>> bitmap_numbers(bitmap_bytes(np.array([1, 4294967295], np.uint32))).tolist()
        [1, 4294967295]
    """
    keys, starts = np.unique(numbers >> np.uint32(16), return_index=True)
    low = (numbers & np.uint32(0xFFFF)).astype("<u2")
    parts = np.split(low, starts[1:]) if len(keys) else []
    runs = [_as_runs(part) for part in parts]
    containers = [_container(part) if run is None else run for part, run in zip(parts, runs, strict=True)]
    counts = np.diff(np.append(starts, len(numbers)))
    described = np.column_stack([keys, counts - 1]).astype("<u2").tobytes()
    header = _header([run is not None for run in runs]) + described
    if header[0] == _COOKIE_WITH_RUNS & 0xFF and len(keys) < _FEWEST_WITH_OFFSETS:
        return header + b"".join(containers)
    first = len(header) + 4 * len(keys)
    offsets = first + np.cumsum([0, *map(len, containers)])[: len(keys)]
    return b"".join([header, offsets.astype("<u4").tobytes(), *containers])


def _header(are_runs: list[bool]) -> bytes:
    if not any(are_runs):
        return np.array([_COOKIE, len(are_runs)], "<u4").tobytes()
    cookie = _COOKIE_WITH_RUNS | (len(are_runs) - 1) << 16
    return cookie.to_bytes(4, "little") + np.packbits(are_runs, bitorder="little").tobytes()


def _as_runs(low: npt.NDArray[np.uint16]) -> bytes | None:
    """Pairs of a start and how many numbers follow it; None where another form is no larger."""
    ends = np.append(np.flatnonzero(np.diff(low.astype(np.int32)) != 1), len(low) - 1)
    if 2 + 4 * len(ends) >= min(2 * len(low), _BITMAP_BYTES):
        return None
    starts = np.append(0, ends[:-1] + 1)
    pairs = np.column_stack([low[starts], low[ends] - low[starts]]).astype("<u2")
    return len(ends).to_bytes(2, "little") + pairs.tobytes()


def _container(low: npt.NDArray[np.uint16]) -> bytes:
    if len(low) <= _LARGEST_ARRAY:
        return low.tobytes()
    bits = np.zeros(8 * _BITMAP_BYTES, np.uint8)
    bits[low] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def bitmap_numbers(data: bytes) -> Numbers:
    """The numbers of a set.

    Raises:
        ValueError: the bytes are none in this format.
    """
    try:
        return _numbers(_Bytes(data))
    except (IndexError, ValueError) as error:
        raise ValueError(f"these {len(data)} bytes are no Roaring bitmap of 32-bit numbers: {error}") from None


class _Bytes:
    """Bytes that are read from front to back."""

    def __init__(self, data: bytes) -> None:
        self._data, self._place = data, 0

    def take(self, count: int) -> bytes:
        part = self._data[self._place : self._place + count]
        if len(part) < count:
            raise ValueError("they end too early")
        self._place += count
        return part

    def numbers(self, count: int) -> npt.NDArray[np.uint16]:
        return np.frombuffer(self.take(2 * count), "<u2")

    def whole(self) -> int:
        return int.from_bytes(self.take(4), "little")


def _numbers(data: _Bytes) -> Numbers:
    cookie = data.whole()
    has_runs = cookie & 0xFFFF == _COOKIE_WITH_RUNS
    if not has_runs and cookie != _COOKIE:
        raise ValueError(f"they begin with {cookie}")
    size = (cookie >> 16) + 1 if has_runs else data.whole()
    flags = np.frombuffer(data.take((size + 7) // 8), np.uint8) if has_runs else np.zeros((size + 7) // 8, np.uint8)
    is_run = np.unpackbits(flags, bitorder="little")
    described = data.numbers(2 * size).reshape(size, 2)
    if not has_runs or size >= _FEWEST_WITH_OFFSETS:
        data.take(4 * size)
    parts = []
    for place, (key, last) in enumerate(described.tolist()):
        low = _runs(data) if is_run[place] else _listed(data, last + 1)
        parts.append((np.uint32(key) << np.uint32(16)) | low.astype(np.uint32))
    found = np.concatenate(parts) if parts else np.zeros(0, np.uint32)
    if np.any(found[1:] <= found[:-1]):
        raise ValueError("its numbers are not in order")
    return found


def _listed(data: _Bytes, count: int) -> npt.NDArray[np.generic]:
    if count <= _LARGEST_ARRAY:
        return data.numbers(count)
    bits = np.frombuffer(data.take(_BITMAP_BYTES), np.uint8)
    return np.flatnonzero(np.unpackbits(bits, bitorder="little"))


def _runs(data: _Bytes) -> npt.NDArray[np.generic]:
    pairs = data.numbers(2 * int(data.numbers(1)[0])).reshape(-1, 2).tolist()
    return np.concatenate([np.arange(start, start + length + 1) for start, length in pairs]) & 0xFFFF


def shown_bitmap(data: bytes) -> str:
    """The text of a set, cut where it is too long.

    Example:
        >>> shown_bitmap(bitmap_bytes(np.array([1, 2], np.uint32)))
        '{1,2}'
    """
    text = ",".join(map(str, bitmap_numbers(data).tolist()))
    cut = text.find(",", _SHOWN_CHARACTERS)
    return f"{{{text if cut < 0 else f'{text[:cut]},...'}}}"
