"""Connections between the processes of one node, by which small messages travel instead of actor calls.

A call of an actor costs some 1.4 ms of CPU at both ends, a message through a socket a fifth of that (docs/adr/0076). An
actor listens under its own id, in Linux's abstract namespace: nothing of it is in the file system, it ends with the
process, and who is on another machine finds nobody there and calls the actor. Both ends make sure that the other one
belongs to the same user, since frames are unpickled.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol, TypeAlias, TypeVar

from penstock.actors.fork_client import belongs_to_user
from penstock.actors.shared_segments import Placed, ReceiverSegments

_HEADER: Final = struct.Struct("<I")
_SHARED: Final = 1 << 31
"""Added to the length of a frame whose buffers lie in shared memory."""
_FILE: Final = struct.Struct("@i")
_FILES_BYTES: Final = 80
"""Of what is read beside the bytes: 16 open files at once."""
_CHUNK_BYTES: Final = 64 * 1024
"""Of what is read at once. From 128 KiB on glibc maps memory for each call, and unmaps it."""
_ANSWER_BYTES: Final = 4096
"""Of what is read first of an answer, of which most are smaller."""
_CONNECT_SECONDS: Final = 1.0
_BACKLOG: Final = 1024

_Answered = TypeVar("_Answered")
Receive: TypeAlias = Callable[[bytes], None]
"""Takes one frame, in the thread that `Readers` call back in."""
Reply: TypeAlias = Callable[[bytes], bool]
"""Sends one frame; see `Link.send`."""


class Readers(Protocol):
    """What calls back when something has come: an event loop, or `PolledReaders` in the thread that polls."""

    def add_reader(self, fd: socket.socket, callback: Callable[[], object], /) -> object:
        """Call back when there is something to read."""
        ...

    def remove_reader(self, fd: socket.socket, /) -> object:
        """Do so no more; any thread may call it."""
        ...


class Link:
    """One end of a connection between two processes: frames of bytes, each whole and in order.

    Args:
        connection: to the other process.
        loop: on which the link begins, ends and sends what did not fit.
        receive: takes each frame: on the loop, or with `readers` in the thread that these call back in.
        lost: called once, on the loop, when the other end has closed or died; not behind `close`.
        readers: watches for frames, and has them received; by default the loop.

    Example:
        ```python
        link = Link(connection, loop, frames.append, lambda: None)
        link.send(b"a frame")
        ```
    """

    def __init__(
        self,
        connection: socket.socket,
        loop: asyncio.AbstractEventLoop,
        receive: Receive,
        lost: Callable[[], None],
        readers: Readers | None = None,
    ) -> None:
        connection.setblocking(False)
        self._readers: Readers = readers or loop
        self._connection = connection
        self._loop = loop
        self._receive = receive
        self._lost = lost
        self._came = bytearray()
        self._files: deque[int] = deque()
        self._segments = ReceiverSegments()
        self._lock = threading.Lock()
        self._unsent: deque[tuple[memoryview, int | None]] = deque()
        self._closed = False
        loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        if not self._closed:
            self._readers.add_reader(self._connection, self._on_readable)

    def send(self, frame: bytes, placed: Placed | None = None) -> bool:
        """Send a frame; by any thread. It never waits for the other end: what does not fit goes when there is room.

        Args:
            frame: to be sent.
            placed: where its buffers lie, if it has any; the other end receives a `SharedFrame`.

        Returns:
            False: the connection has ended here. True says nothing of whether the frame arrives.
        """
        if placed is None:
            data, file = memoryview(_HEADER.pack(len(frame)) + frame), None
        else:
            frame, file = placed.head(frame), placed.file
            data = memoryview(_HEADER.pack(len(frame) | _SHARED) + frame)
        with self._lock:
            if self._closed:
                _close(file)
                return False
            if not self._unsent:
                written = self._written(data, file)
                if written == len(data):
                    return True
                data, file = data[written:], None if written else file
                self._loop.call_soon_threadsafe(self._await_room)
            self._unsent.append((data, file))
        return True

    def _written(self, data: memoryview, file: int | None) -> int:
        """How much of it is written; the file goes with its first byte, and is closed then."""
        try:
            if file is None:
                return self._connection.send(data)
            written = socket.send_fds(self._connection, [data], [file])
        except BlockingIOError:
            return 0
        except OSError:
            # The reading side learns of the end, behind what had come before it.
            written = len(data)
        _close(file)
        return written

    def _await_room(self) -> None:
        if not self._closed:
            self._loop.add_writer(self._connection, self._on_writable)

    def _on_writable(self) -> None:
        with self._lock:
            while self._unsent:
                data, file = self._unsent[0]
                written = self._written(data, file)
                if written < len(data):
                    self._unsent[0] = data[written:], None if written else file
                    return
                self._unsent.popleft()
        self._loop.remove_writer(self._connection)

    def _on_readable(self) -> None:
        try:
            chunk, beside, _, _ = self._connection.recvmsg(_CHUNK_BYTES, _FILES_BYTES, socket.MSG_CMSG_CLOEXEC)
            if beside:
                self._files.extend(_files_of(beside))
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk or not self._receive_frames(chunk):
            self._readers.remove_reader(self._connection)
            self._loop.call_soon_threadsafe(self._on_end)

    def _receive_frames(self, chunk: bytes) -> bool:
        """Give what is whole now; False: it cannot be received."""
        if not self._came and len(chunk) == _HEADER.size + int.from_bytes(chunk[: _HEADER.size], "little"):
            # One frame and nothing else, as messages mostly come.
            self._receive(chunk[_HEADER.size :])
            return True
        self._came += chunk
        start = 0
        while len(self._came) - start >= _HEADER.size:
            begin = start + _HEADER.size
            length = _HEADER.unpack_from(self._came, start)[0]
            end = begin + (length & ~_SHARED)
            if end > len(self._came):
                break
            data = bytes(memoryview(self._came)[begin:end])
            start = end
            if not length & _SHARED:
                self._receive(data)
                continue
            try:
                frame = self._segments.frame(memoryview(data), self._files)
            except OSError:
                return False
            self._receive(frame)
        del self._came[:start]
        return True

    def _on_end(self) -> None:
        if not self._closed:
            self.close()
            self._lost()

    def close(self) -> None:
        """End the connection, on the event loop; may be called again."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        for _, file in self._unsent:
            _close(file)
        while self._files:
            _close(self._files.popleft())
        # Links are in rings of references, and the memory shall not wait for the collector.
        self._segments = ReceiverSegments()
        self._readers.remove_reader(self._connection)
        self._loop.remove_writer(self._connection)
        self._connection.close()


def _files_of(beside: Iterable[tuple[int, int, bytes]]) -> Iterator[int]:
    for level, kind, files in beside:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            # The system may have cut the last one off.
            whole = len(files) - len(files) % _FILE.size
            yield from (file for (file,) in _FILE.iter_unpack(files[:whole]))


def _close(file: int | None) -> None:
    if file is not None:
        os.close(file)


class LinkServer:
    """Takes the connections to one actor.

    Args:
        actor_id: in hexadecimal digits; who has it finds this process.
        receive: takes a frame, and what sends one back to where it came from, which any thread may call. Called on the
            event loop, or with `readers` in the thread that these call back in: for questions, mostly that of the task.
        readers: watches for frames, and has them received; by default the event loop.
        prepare: called on the event loop for each connection, before any frame of it is received.
    """

    def __init__(
        self,
        actor_id: str,
        receive: Callable[[bytes, Reply], None],
        readers: Readers | None = None,
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        self._receive = receive
        self._readers = readers
        self._prepare = prepare
        self._loop = asyncio.get_running_loop()
        self._links: set[Link] = set()
        self._listening: socket.socket | None = None
        if not sys.platform.startswith("linux"):
            return
        # Where there are no sockets to be had, others call the actor.
        with contextlib.suppress(OSError):
            self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._listening.setblocking(False)
            self._listening.bind(_address(actor_id))
            self._listening.listen(_BACKLOG)
            self._loop.add_reader(self._listening, self._on_connection)

    def _on_connection(self) -> None:
        assert self._listening is not None
        try:
            connection, _ = self._listening.accept()
        except BlockingIOError:
            return
        except OSError:
            # This process has as many files open as it may: those who wait hear that their connections have ended.
            self._stop_listening()
            return
        if not belongs_to_user(connection):
            connection.close()
            return
        self._prepare()
        receive = self._receive
        link = Link(connection, self._loop, lambda frame: receive(frame, link.send), lambda: drop(link), self._readers)
        drop = self._links.discard
        self._links.add(link)

    def close(self) -> None:
        """End all connections, and take no more."""
        self._stop_listening()
        while self._links:
            self._links.pop().close()

    def _stop_listening(self) -> None:
        if self._listening is not None:
            self._loop.remove_reader(self._listening)
            self._listening.close()
            self._listening = None


class WaitingLink:
    """One end of a connection whose owner waits for each answer, without an event loop; used by one thread at a time.

    Args:
        connection: to the other process.

    Raises:
        OSError: of `send` and `receive`: the connection has ended, or `deadline` (by `time.monotonic`) is over.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        # Who asks forgets it, and closes nothing.
        weakref.finalize(self, connection.close)

    def send(self, frame: bytes, deadline: float) -> None:
        """Send a frame."""
        self._wait_until(deadline)
        self._connection.sendall(_HEADER.pack(len(frame)) + frame)

    def receive(self, deadline: float) -> bytearray:
        """Wait for the next frame."""
        came, end = bytearray(), _HEADER.size
        while len(came) < end:
            self._wait_until(deadline)
            chunk = self._connection.recv(min(max(end - len(came), _ANSWER_BYTES), _CHUNK_BYTES))
            if not chunk:
                raise ConnectionResetError("the other end has closed the connection")
            came += chunk
            if end == _HEADER.size and len(came) >= end:
                end += _HEADER.unpack_from(came)[0]
        del came[: _HEADER.size]
        return came

    def _wait_until(self, deadline: float) -> None:
        self._connection.settimeout(max(0.0, deadline - time.monotonic()))


def connected(actor_id: str) -> socket.socket | None:
    """A connection to an actor in another process of this machine and user; None: there is no such."""
    if not sys.platform.startswith("linux"):
        return None
    # Without a socket the actor is called.
    with contextlib.suppress(OSError), contextlib.ExitStack() as opened:
        connection = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        connection.settimeout(_CONNECT_SECONDS)
        connection.connect(_address(actor_id))
        if belongs_to_user(connection):
            opened.pop_all()
            return connection
    return None


def _address(actor_id: str) -> str:
    return f"\0penstock-{actor_id}"


def resolve(waiting: asyncio.Future[_Answered], answer: _Answered) -> None:
    """End a future that may have ended before; on its loop."""
    if not waiting.done():
        waiting.set_result(answer)
