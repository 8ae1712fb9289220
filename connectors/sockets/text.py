"""The socket source: lines of text from a TCP server, for demonstrations such as `nc -lk 9999`.

Programs build a `SocketTextSource`; one subtask connects and reads.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Final

from penstock.connectors.live import CONNECT_SECONDS, LiveSource, Records, Restore
from penstock.connectors.records.format import RecordFormat
from penstock.connectors.records.raw import RawFormat
from penstock.engine.connectors import ConnectorContext
from penstock.engine.errors import ConfigurationError

_CHUNK: Final = 65_536
_MOST_BYTES: Final = 64 * 1024**2
"""The longest record: behind it the delimiter is taken to be wrong."""


class SocketTextSource(LiveSource):
    """Connects to a TCP server and reads records that are ended by a delimiter; ends when the server closes.

    Guarantee: none over a failure, because the server sends each line once. So a job with checkpoints refuses it,
    unless `restore="skip"` says that what is sent between a failure and the next connection may be lost (at most once;
    lines that were read behind the last checkpoint are lost too). One subtask reads.

    Args:
        host, port: of the server; it must run when the job starts.
        delimiter: ends a record; a carriage return before a newline is part of the end.
        format: how a record becomes a row; None makes one text column `line` (UTF-8).
        restore: "refuse" or "skip".

    Raises:
        ConfigurationError: no such port, or an empty delimiter.

    Example:
        >>> SocketTextSource("localhost", 9999).schema.names
        ['line']
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        delimiter: str = "\n",
        format: RecordFormat | None = None,  # noqa: A002 - the word users look for
        restore: Restore = "refuse",
    ) -> None:
        if not isinstance(port, int) or not 0 < port < 65_536:
            raise ConfigurationError(f"socket: port must be a number from 1 to 65535, not {port!r}")
        if not delimiter:
            raise ConfigurationError("socket: delimiter must have a character at least")
        self._address = (host, port)
        self._delimiter = delimiter.encode("utf-8")
        chosen = RawFormat("line", "string") if format is None else format
        super().__init__(chosen, restore, f"socket {host}:{port}")

    def connect(self, context: ConnectorContext) -> Records:
        connection = socket.create_connection(self._address, CONNECT_SECONDS)
        connection.settimeout(None)
        return _Lines(connection, self._delimiter)

    def describe(self) -> str:
        host, port = self._address
        return f"socket({host}:{port})"


class _Lines:
    """The records of a connection."""

    def __init__(self, connection: socket.socket, delimiter: bytes) -> None:
        self._connection, self._delimiter = connection, delimiter

    def __iter__(self) -> Iterator[bytes]:
        rest = bytearray()
        while data := self._connection.recv(_CHUNK):
            # A delimiter may come in two parts; what is before that was looked through when it came.
            unseen = max(0, len(rest) - len(self._delimiter) + 1)
            rest += data
            if rest.find(self._delimiter, unseen) >= 0:
                *records, last = bytes(rest).split(self._delimiter)
                rest = bytearray(last)
                for record in records:
                    yield self._without_return(record)
            if len(rest) > _MOST_BYTES:
                raise ConnectionError(f"a record has more than {_MOST_BYTES} bytes; check the delimiter")
        if rest:
            yield self._without_return(bytes(rest))

    def _without_return(self, record: bytes) -> bytes:
        return record.removesuffix(b"\r") if self._delimiter == b"\n" else record

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
