"""The answers to fetches of a connection of aiokafka, read into memory in which they can stay.

`columnar` calls `read_frames` before it fetches. aiokafka 0.14 gathers an answer in a buffer that grows, copies it out
of there and copies each partition's batches out of that, each time into memory that is new. Here the operating system
writes it once, into Arrow's.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import pyarrow as pa

_SIZE_BYTES: Final = 4
_LARGE: Final = 64 << 10
"""Answers, and batches in them, that are smaller go aiokafka's way."""
_MOST_OF_FRAME: Final = 8
"""Batches that are less than this part of their answer are copied: else a partition that is not read would keep the
whole answer."""


def read_frames(connection: Any) -> None:
    """Have this module read what comes from the broker; nothing where that cannot be, or is so already.

    Args:
        connection: an `AIOKafkaConnection` that is connected. Left as it is with TLS, and while it waits for an answer.
    """
    transport, reader = connection._writer.transport, connection._reader
    busy = connection._requests or reader._buffer or not transport.is_reading()
    if busy or transport.get_extra_info("sslcontext") or isinstance(transport.get_protocol(), _Frames):
        return
    transport.set_protocol(_Frames(connection, transport.get_protocol()))


class _Frames(asyncio.BufferedProtocol):
    """Hands whole answers to the connection; all that is not data goes to the protocol before it.

    Args:
        connection: whose answers these are.
        before: aiokafka's protocol.
    """

    def __init__(self, connection: Any, before: Any) -> None:
        self._connection = connection
        self._before = before
        self._expect(memoryview(bytearray(_SIZE_BYTES)), is_size=True)

    def _expect(self, frame: memoryview, *, is_size: bool) -> None:
        self._frame, self._is_size, self._filled = frame, is_size, 0

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frame[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._filled < len(self._frame):
            return
        try:
            self._take(self._frame)
        except Exception as error:
            # As aiokafka does with what its own reading raises.
            from aiokafka.conn import CloseReason

            self._connection.close(reason=CloseReason.CONNECTION_BROKEN, exc=error)

    def _take(self, whole: memoryview) -> None:
        if self._is_size:
            size = int.from_bytes(whole, "big", signed=True)
            if size < _SIZE_BYTES:
                raise ConnectionError(f"a broker said that its answer has {size} bytes")
            self._expect(_room(size), is_size=False)
        else:
            self._expect(memoryview(bytearray(_SIZE_BYTES)), is_size=True)
            self._answer(whole)

    def _answer(self, whole: memoryview) -> None:
        from aiokafka.protocol.fetch import FetchResponse_v0

        number, request, future = self._connection._requests[0]
        if len(whole) < _LARGE or request is None or request.RESPONSE_TYPE.API_KEY != FetchResponse_v0.API_KEY:
            self._connection._handle_frame(bytes(whole))
            return
        answer = _Answer(whole)
        if request.parse_response_header(answer).correlation_id != number:
            # Which raises that.
            self._connection._handle_frame(bytes(whole))
            return
        if not future.done():
            future.set_result(request.RESPONSE_TYPE.decode(answer))
        self._connection._last_action = time.monotonic()
        self._connection._requests.popleft()

    def eof_received(self) -> bool | None:
        ended: bool | None = self._before.eof_received()
        return ended

    def connection_lost(self, exc: Exception | None) -> None:
        self._before.connection_lost(exc)

    def pause_writing(self) -> None:
        self._before.pause_writing()

    def resume_writing(self) -> None:
        self._before.resume_writing()


class _Answer:
    """An answer as aiokafka's types read one, whose large parts stay where they are."""

    def __init__(self, whole: memoryview) -> None:
        self._whole = whole
        self._at = 0

    def read(self, size: int) -> bytes | memoryview:
        part = self._whole[self._at : self._at + size]
        self._at += len(part)
        if size < _LARGE:
            return bytes(part)
        if size >= len(self._whole) // _MOST_OF_FRAME:
            return part
        room = _room(len(part))
        room[:] = part
        return room


def _room(size: int) -> memoryview:
    # A buffer of Arrow's has signed bytes.
    return memoryview(pa.allocate_buffer(size)).cast("B") if size >= _LARGE else memoryview(bytearray(size))
