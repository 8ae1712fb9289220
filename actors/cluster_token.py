"""Whether a Ray cluster takes the authentication token of this process: told before Ray tries, and tries again.

`cluster.connect` asks. Ray itself says of a token that is missing or wrong only that it cannot connect, after 20 s and
as many warnings. Where the answer is in doubt nothing is refused: Ray then finds out by itself.
"""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path
from typing import Final

_MODE: Final = "RAY_AUTH_MODE"
_TOKEN_MODE: Final = "token"  # noqa: S105 - the name of a mode
_MODES: Final = ("", _TOKEN_MODE, "disabled")
_KUBERNETES: Final = "RAY_ENABLE_K8S_TOKEN_AUTH"
"""With it, Ray takes the token of the pod."""
_SECONDS: Final = 3.0
_MOST_BYTES: Final = 1 << 16
_METHOD: Final = "/ray.rpc.NodeInfoGcsService/GetClusterId"
"""The first thing that Ray itself asks."""
_STATUS: Final = b"grpc-status"
_UNAUTHENTICATED: Final = _STATUS + b"\x0216"
"""The status as a literal of two digits."""
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _SETTINGS = 0, 1, 4
_END_STREAM, _END_HEADERS = 1, 4


def token_problem(host: str, port: int, is_local: bool) -> str | None:
    """Why the cluster will not let this process in, and what to do; None: it will, or that is not known.

    Args:
        host, port: of the cluster's GCS, which answers there.
        is_local: whether the cluster was found on this machine, and not named: then Ray uses a token unasked.
    """
    mode = os.environ.get(_MODE, "").lower()
    if mode not in _MODES or _KUBERNETES in os.environ:
        return None
    uses_token = mode == _TOKEN_MODE if mode else is_local
    token = _token() if uses_token else None
    if not _is_refused(host, port, token):
        return None
    where = "RAY_AUTH_TOKEN, the file that RAY_AUTH_TOKEN_PATH names, or ~/.ray/auth_token"
    if token is not None:
        return f"it wants an authentication token, and the one that is here ({where}) is not its; copy its token here"
    if _token() is None:
        return f"it wants an authentication token, and there is none here; copy its token here ({where}){_then(mode)}"
    return f"it wants an authentication token, which is not sent{_then(mode)}"


def _then(mode: str) -> str:
    return "" if mode == _TOKEN_MODE else "; set RAY_AUTH_MODE=token"


def _token() -> str | None:
    """The token of this process, from the places that Ray documents, in its order."""
    if given := os.environ.get("RAY_AUTH_TOKEN"):
        return given.strip()
    path = os.environ.get("RAY_AUTH_TOKEN_PATH")
    try:
        return Path(path or "~/.ray/auth_token").expanduser().read_text(encoding="ascii").strip() or None
    except (OSError, RuntimeError, UnicodeDecodeError):
        return None


def _is_refused(host: str, port: int, token: str | None) -> bool:
    """Whether the answer to one gRPC call is that the token is wrong.

    Source: RFC 9113 for the frames, RFC 7541 for the headers.
    """
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": _METHOD,
        ":authority": f"{host}:{port}",
        "content-type": "application/grpc",
        "te": "trailers",
        **({"authorization": f"Bearer {token}"} if token is not None else {}),
    }
    try:
        request = b"".join(_header(name, value) for name, value in headers.items())
        no_message = b"\0" * 5
        with socket.create_connection((host, port), _SECONDS) as connection:
            connection.sendall(
                _PREFACE
                + _frame(_SETTINGS, 0, 0, b"")
                + _frame(_HEADERS, _END_HEADERS, 1, request)
                + _frame(_DATA, _END_STREAM, 1, no_message)
            )
            answer = b""
            while len(answer) < _MOST_BYTES and not _has_status(answer) and (more := connection.recv(_MOST_BYTES)):
                answer += more
            return _UNAUTHENTICATED in answer
    except (OSError, ValueError):
        return False


def _has_status(answer: bytes) -> bool:
    """Whether the status has come with its value, which has its length in front."""
    _, found, behind = answer.partition(_STATUS)
    return bool(found and behind) and len(behind) > behind[0]


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def _header(name: str, value: str) -> bytes:
    """A literal header field that is not indexed; ValueError where it is longer than 126 bytes."""
    parts = [name.encode("ascii"), value.encode("ascii")]
    if max(map(len, parts)) > 126:
        raise ValueError("too long for one byte of length")
    return b"\0" + b"".join(bytes((len(part),)) + part for part in parts)
