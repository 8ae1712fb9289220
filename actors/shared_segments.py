"""Memory that two processes of a machine share: the large messages of a link lie there, and are read without a copy.

A link's sender has some segments, memory files without a name, which it passes on with the first message in each; both
map them as long as the link lasts, so that a message costs one copy and no memory that is new (docs/adr/0099). The
first byte of a segment says whose it is: the sender's, or lent until the receiver has let go of all that lies there.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

_BEGIN: Final = 64
"""Where the buffers of a message begin. Behind each, too, the next multiple of it."""
_FREE, _LENT = 0, 1
_SMALLEST: Final = 128 * 1024
_MOST_SEGMENTS: Final = 8
"""Of a link: the messages under way, and those at work in the receiver."""
_MOST_BYTES: Final = 256 * 2**20
_MOST_OF_ALL: Final = 32
"""Of a sender: both ends have a descriptor for each, and a wide exchange has many links to a process."""
_HEAD: Final = struct.Struct("<III")
_LENGTH: Final = struct.Struct("<Q")


class SegmentBudget:
    """How many segments one sender may have, and of how many bytes together.

    Args:
        most: these bytes.
    """

    def __init__(self, most: int = _MOST_BYTES) -> None:
        self._left = most
        self._count = 0
        # A link is closed by another thread than the one that sends by the others.
        self._lock = threading.Lock()

    def change(self, freed: Sequence[int], wanted: Sequence[int]) -> bool:
        """Give back segments of so many bytes and take others; False: there is no room, and nothing has changed."""
        with self._lock:
            left, count = self._left + sum(freed) - sum(wanted), self._count + len(wanted) - len(freed)
            if wanted and (left < 0 or count > _MOST_OF_ALL):
                return False
            self._left, self._count = left, count
        return True


@dataclass(frozen=True, slots=True)
class Placed:
    """Where the buffers of a message lie.

    Args:
        number: of the segment.
        lengths: of the buffers.
        file: of a segment that the receiver does not have yet, to be closed when it has gone.
    """

    number: int
    lengths: Sequence[int]
    file: int | None

    def head(self, frame: bytes) -> bytes:
        """The frame with what `ReceiverSegments.frame` has to know before it."""
        lengths = b"".join(map(_LENGTH.pack, self.lengths))
        return _HEAD.pack(self.number, self.file is not None, len(self.lengths)) + lengths + frame


class SenderSegments:
    """The segments of one link, where it begins. All methods but `close` are for one thread.

    Args:
        budget: what they share with those of other links.
    """

    def __init__(self, budget: SegmentBudget) -> None:
        self._budget = budget
        self._segments: list[mmap.mmap] = []

    def place(self, buffers: Sequence[memoryview]) -> Placed | None:
        """Copy the buffers of a message into a segment; None: there is none, so it has to go by another way."""
        lengths = [buffer.nbytes for buffer in buffers]
        number, file = self._free(_end(lengths))
        if number is None:
            return None
        segment = self._segments[number]
        segment[0] = _LENT
        for start, buffer in zip(_starts(lengths), buffers, strict=True):
            segment[start : start + buffer.nbytes] = buffer
        return Placed(number, lengths, file)

    def _free(self, size: int) -> tuple[int | None, int | None]:
        """The number of a segment of so many bytes at least, and its file where the receiver does not know it."""
        free = [number for number, segment in enumerate(self._segments) if segment[0] == _FREE]
        for number in free:
            # The first one: what was used last lies in the processor's cache.
            if len(self._segments[number]) >= size:
                return number, None
        if len(self._segments) < _MOST_SEGMENTS:
            number, freed = len(self._segments), list[int]()
        elif free:
            number, freed = free[0], [len(self._segments[free[0]])]
        else:
            return None, None
        wanted = max(_SMALLEST, 1 << (size - 1).bit_length())
        if not self._budget.change(freed, [wanted]):
            return None, None
        made = _made(wanted)
        if made is None:
            self._budget.change([wanted], freed)
            return None, None
        file, segment = made
        self._segments[number : number + 1] = [segment]
        return number, file

    def close(self) -> None:
        """Give back the budget, behind the last message; the memory is freed when the receiver needs it no more."""
        segments, self._segments = self._segments, []
        self._budget.change([len(segment) for segment in segments], [])


def _made(size: int) -> tuple[int, mmap.mmap] | None:
    """A new memory file, and its memory; None where the system has none to give."""
    if not hasattr(os, "memfd_create"):
        return None
    try:
        file = os.memfd_create("penstock")
    except OSError:
        return None
    try:
        os.ftruncate(file, size)
        return file, mmap.mmap(file, size)
    except OSError:
        os.close(file)
        return None


class SharedFrame(bytes):
    """A frame beside which buffers came through shared memory.

    Attributes:
        buffers: these, to be read only; their memory is lent as long as one of them is held.
    """

    buffers: Sequence[pa.Buffer] = ()


class ReceiverSegments:
    """The segments of one link, where it ends; for one thread."""

    def __init__(self) -> None:
        self._segments: dict[int, mmap.mmap] = {}

    def frame(self, data: memoryview, files: deque[int]) -> SharedFrame:
        """The frame of `Placed.head`.

        Args:
            data: what that gave.
            files: those that came with it, in order.

        Raises:
            OSError: the segment cannot be mapped, or its file did not come, as this process has too many.
        """
        number, is_new, count = _HEAD.unpack_from(data)
        begin = _HEAD.size + count * _LENGTH.size
        lengths = [length for (length,) in _LENGTH.iter_unpack(data[_HEAD.size : begin])]
        if is_new:
            self._segments[number] = _mapped(files)
        elif number not in self._segments:
            raise OSError("a segment is not known")
        frame = SharedFrame(data[begin:])
        frame.buffers = _buffers(self._segments[number], lengths)
        return frame


def _mapped(files: deque[int]) -> mmap.mmap:
    if not files:
        raise OSError("a segment has come without its file")
    file = files.popleft()
    try:
        return mmap.mmap(file, os.fstat(file).st_size)
    finally:
        os.close(file)


def _buffers(segment: mmap.mmap, lengths: Sequence[int]) -> list[pa.Buffer]:
    lease, address = _Lease(segment), pa.py_buffer(segment).address
    return [
        pa.foreign_buffer(address + start, length, lease)
        for start, length in zip(_starts(lengths), lengths, strict=True)
    ]


class _Lease:
    """Held by all buffers of one message: without it the segment is free."""

    def __init__(self, segment: mmap.mmap) -> None:
        self._segment = segment
        self._owner = os.getpid()

    def __del__(self) -> None:
        # A process that the user's function has forked holds copies of the buffers, and not the memory.
        if os.getpid() == self._owner:
            self._segment[0] = _FREE


def _starts(lengths: Sequence[int]) -> list[int]:
    starts, end = [], _BEGIN
    for length in lengths:
        starts.append(end)
        end += -(-length // _BEGIN) * _BEGIN
    return starts


def _end(lengths: Sequence[int]) -> int:
    return _BEGIN + sum(-(-length // _BEGIN) * _BEGIN for length in lengths)
