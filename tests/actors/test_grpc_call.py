"""One call of gRPC by hand: what goes over the line, and what is made of what comes back."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from penstock.actors.grpc_call import Answer, bearer, call
from penstock.actors.raylet import idle_workers

SETTINGS = b"\0\0\0\4\0\0\0\0\0"
HEADERS = b"\0\0\1\1\4\0\0\0\1\x88"
DATA = b"\0\0\7\0\0\0\0\0\1" + b"\0\0\0\0\2ok"
STATUS = b"\0\0\x0f\1\5\0\0\0\1" + b"\0\x0bgrpc-status\x01"


class Server:
    """Takes one call, and answers it in pieces.

    Attributes:
        got: what came.
        pieces: what it says.
    """

    def __init__(self, listening: socket.socket) -> None:
        self.address: tuple[str, int] = listening.getsockname()
        self.got = b""
        self.pieces = [SETTINGS + HEADERS + DATA, STATUS + b"0"]
        self._listening = listening

    def serve(self) -> None:
        connection, _ = self._listening.accept()
        with connection:
            self.got = connection.recv(65_536)
            for piece in self.pieces:
                connection.sendall(piece)


@pytest.fixture
def server() -> Iterator[Server]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(120)
        answering = Server(listening)
        thread = threading.Thread(target=answering.serve)
        thread.start()
        yield answering
        thread.join()


def test_the_message_and_the_status_come_back(server: Server) -> None:
    assert call(server.address, "/a.B/C", b"request", {}, 5.0) == Answer(0, b"ok")
    assert server.got.endswith(b"\0\0\0\0\7request")
    assert b"\5:path\6/a.B/C" in server.got


def test_a_call_that_fails_has_no_message(server: Server) -> None:
    server.pieces = [SETTINGS, STATUS + b"7"]
    assert call(server.address, "/a.B/C", b"", {}, 5.0) == Answer(7, b"")


def test_a_raylet_that_answers_otherwise_does_not_know(server: Server) -> None:
    assert idle_workers(server.address) is None


def test_who_closes_the_connection_says_nothing(server: Server) -> None:
    server.pieces = [SETTINGS + DATA[:-1]]
    assert call(server.address, "/a.B/C", b"", {}, 5.0) == Answer(None, b"")


# RFC 7541, 5.1, with a prefix of seven bits.
@pytest.mark.parametrize(
    ("length", "coded"), [(126, b"\x7e"), (127, b"\x7f\x00"), (200, b"\x7f\x49"), (500, b"\x7f\xf5\x02")]
)
def test_tokens_may_be_long(server: Server, length: int, coded: bytes) -> None:
    call(server.address, "/a.B/C", b"", bearer("t" * (length - len("Bearer "))), 5.0)
    assert b"\x0dauthorization" + coded + b"Bearer ttt" in server.got
