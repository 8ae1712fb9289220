"""How large an Arrow file is when it has been read, told from its metadata alone, before memory is taken for it.

`segments` asks it for files of checkpoints and savepoints, which may come from anywhere: columns that are compressed
may be thousands of times as large as their file. Layout: Arrow's "IPC file format", and Flatbuffers' "internals".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

_MAGIC: Final = b"ARROW1"
_CONTINUATION: Final = 0xFFFFFFFF
_RECORD_BATCH: Final = 3
_DICTIONARY_BATCH: Final = 2
_BLOCK_BYTES: Final = 24
_BUFFER_BYTES: Final = 16
_PLAIN: Final = -1
"""What a compressed batch says of a buffer that is not."""


class _Table:
    """A table of Flatbuffers: its members by their places in the schema."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data, self._at = data, at
        self._members = at - _signed(data, at)

    def _place(self, member: int) -> int | None:
        entry = 4 + 2 * member
        if entry + 2 > _short(self._data, self._members):
            return None
        offset = _short(self._data, self._members + entry)
        return self._at + offset if offset else None

    def byte(self, member: int) -> int:
        place = self._place(member)
        return 0 if place is None else self._data[place]

    def long(self, member: int) -> int:
        place = self._place(member)
        return 0 if place is None else _long(self._data, place)

    def table(self, member: int) -> _Table | None:
        place = self._place(member)
        return None if place is None else _Table(self._data, place + _whole(self._data, place))

    def structs(self, member: int, size: int) -> Iterator[int]:
        """Where each of the structures of a vector begins, which have `size` bytes."""
        place = self._place(member)
        if place is not None:
            begin = place + _whole(self._data, place)
            for number in range(_whole(self._data, begin)):
                yield begin + 4 + number * size


def rows_and_bytes(data: pa.Buffer) -> tuple[int, int]:
    """The rows of an Arrow IPC file, and the bytes that they take in memory.

    Raises:
        ValueError: it is no such file, or its parts lie outside of it.
    """
    view = memoryview(data)
    try:
        return _sized_file(view)
    except (struct.error, IndexError) as error:
        raise ValueError(f"its metadata leads out of the file ({error})") from None


def bytes_of_stream(data: pa.Buffer) -> int:
    """The bytes that the batches of Arrow IPC streams, one behind the other, take in memory.

    Raises:
        ValueError: its parts lie outside of it.
        pyarrow.ArrowException: it is no such stream.
    """
    source = pa.BufferReader(data)
    size = 0
    try:
        while source.tell() < source.size():
            for message in pa.ipc.MessageReader.open_stream(source):
                if message.type == "record batch" and message.body is not None:
                    size += _sized_message(memoryview(message.metadata), memoryview(message.body), 0)[1]
    except (struct.error, IndexError) as error:
        raise ValueError(f"its metadata leads out of it ({error})") from None
    return size


def _sized_file(view: memoryview) -> tuple[int, int]:
    if len(view) < 2 * len(_MAGIC) + 4 or bytes(view[-len(_MAGIC) :]) != _MAGIC or bytes(view[: len(_MAGIC)]) != _MAGIC:
        raise ValueError("it does not begin and end as one")
    end = len(view) - len(_MAGIC) - 4
    footer_at = end - _whole(view, end)
    if not 0 <= footer_at < end:
        raise ValueError("its footer is not in it")
    footer = _Table(view, footer_at + _whole(view, footer_at))
    rows = size = 0
    for member in (2, 3):
        for block in footer.structs(member, _BLOCK_BYTES):
            batch_rows, batch_bytes = _sized_block(view, _long(view, block), _signed(view, block + 8))
            rows += batch_rows if member == 3 else 0
            size += batch_bytes
    return rows, size


def _sized_block(view: memoryview, at: int, metadata_bytes: int) -> tuple[int, int]:
    """Rows and bytes of the message at a place in the file."""
    prefix = 8 if _whole(view, at) == _CONTINUATION else 4
    return _sized_message(view[at + prefix :], view, at + metadata_bytes)


def _sized_message(metadata: memoryview, body: memoryview, begin: int) -> tuple[int, int]:
    """Rows and bytes of the message whose buffers begin at a place in `body`."""
    message = _Table(metadata, _whole(metadata, 0))
    kind, header = message.byte(1), message.table(2)
    batch = header.table(1) if header is not None and kind == _DICTIONARY_BATCH else header
    if batch is None or kind not in (_DICTIONARY_BATCH, _RECORD_BATCH):
        raise ValueError("a block of it is no batch")
    is_compressed = batch.table(3) is not None
    return batch.long(0), sum(
        _sized_buffer(body, begin + _long(metadata, buffer), _long(metadata, buffer + 8), is_compressed)
        for buffer in batch.structs(2, _BUFFER_BYTES)
    )


def _sized_buffer(view: memoryview, at: int, length: int, is_compressed: bool) -> int:
    if length == 0:
        return 0
    if length < 0 or not 0 <= at <= len(view) - length:
        raise ValueError("a buffer of it lies outside")
    if not is_compressed:
        return length
    said = _long(view, at)
    if said < _PLAIN:
        raise ValueError("a buffer of it has less than no bytes")
    return length - 8 if said == _PLAIN else said


def _short(data: memoryview, at: int) -> int:
    return int(struct.unpack_from("<H", data, _within(at))[0])


def _whole(data: memoryview, at: int) -> int:
    return int(struct.unpack_from("<I", data, _within(at))[0])


def _signed(data: memoryview, at: int) -> int:
    return int(struct.unpack_from("<i", data, _within(at))[0])


def _long(data: memoryview, at: int) -> int:
    return int(struct.unpack_from("<q", data, _within(at))[0])


def _within(at: int) -> int:
    if at < 0:
        raise IndexError("before its beginning")
    return at
