"""One call of gRPC to a process of Ray's, for what Ray has no Python interface to; it needs no package of its own.

`cluster_token` asks so whether a token is right, `warm_processes` has processes started. Without encryption: a cluster
that wants TLS (`RAY_USE_TLS`) closes the connection.

Source: RFC 9113 for the frames, RFC 7541 for the headers, and gRPC's own page on HTTP/2.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

_MOST_BYTES: Final = 1 << 16
"""Of an answer: a server waits for leave before it sends more."""
_STATUS: Final = b"grpc-status"
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS = 0, 1, 4
_END_STREAM, _END_HEADERS = 1, 4
_FRAME_HEAD: Final = 9
_MESSAGE_HEAD: Final = 5
_ONE_BYTE: Final = 127
"""A length from here on takes several bytes."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back.

    Args:
        code: gRPC's status code; 0 is good, None: none came.
        message: the reply, which a call that has failed has none of.
    """

    code: int | None
    message: bytes


def bearer(token: str | None) -> Mapping[str, str]:
    """The header by which Ray gets its token; None sends none."""
    return {} if token is None else {"authorization": f"Bearer {token}"}


def call(address: tuple[str, int], method: str, message: bytes, headers: Mapping[str, str], seconds: float) -> Answer:
    """Call a method.

    Args:
        address: host and port of the server.
        method: as `/package.Service/Method`.
        message: the request, serialised.
        headers: beside those that every call has.
        seconds: how long to wait for the connection, and then for each part of the answer.

    Raises:
        OSError: nobody answers there, or not in time.
    """
    host, port = address
    every = {
        ":method": "POST",
        ":scheme": "http",
        ":path": method,
        ":authority": f"{host}:{port}",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    block = b"".join(_header(name, value) for name, value in {**every, **headers}.items())
    body = b"\0" + struct.pack(">I", len(message)) + message
    with socket.create_connection(address, seconds) as connection:
        connection.sendall(
            _PREFACE
            + _frame(_SETTINGS, 0, 0, b"")
            + _frame(_HEADERS, _END_HEADERS, 1, block)
            + _frame(_DATA, _END_STREAM, 1, body)
        )
        answer = b""
        while len(answer) < _MOST_BYTES and _status(answer) is None and (more := connection.recv(_MOST_BYTES)):
            answer += more
    received = b"".join(payload for kind, payload in _frames(answer) if kind == _DATA)
    return Answer(_status(answer), received[_MESSAGE_HEAD:])


def _status(answer: bytes) -> int | None:
    """The status, once it has come: a literal, behind its name and its length."""
    _, found, behind = answer.partition(_STATUS)
    if not found or not behind or len(behind) <= behind[0]:
        return None
    digits = behind[1 : 1 + behind[0]]
    return int(digits) if digits.isdigit() else None


def _frames(answer: bytes) -> Iterator[tuple[int, bytes]]:
    """Kind and content of each frame that is whole."""
    at = 0
    while len(answer) - at >= _FRAME_HEAD:
        end = at + _FRAME_HEAD + int.from_bytes(answer[at : at + 3], "big")
        if end > len(answer):
            return
        yield answer[at + 3], answer[at + _FRAME_HEAD : end]
        at = end


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def _header(name: str, value: str) -> bytes:
    """A literal header field that is not indexed."""
    parts = (name.encode("ascii"), value.encode("ascii"))
    return b"\0" + b"".join(_length(len(part)) + part for part in parts)


def _length(length: int) -> bytes:
    """A number of seven bits, or those and what is over, seven bits at a time."""
    if length < _ONE_BYTE:
        return bytes((length,))
    rest, digits = length - _ONE_BYTE, [_ONE_BYTE]
    while rest >= 1 << 7:
        digits.append(rest % (1 << 7) | 1 << 7)
        rest >>= 7
    return bytes((*digits, rest))
