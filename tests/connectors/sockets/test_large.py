"""Large records come whole, in the time that it takes to send them."""

from __future__ import annotations

from penstock.connectors.records.raw import RawFormat
from penstock.connectors.sockets import SocketTextSource, WebSocketSource
from tests.connectors.sockets import test_text, test_web_socket
from tests.connectors.sockets.reading import open_reader, read
from tests.large import LARGE


@LARGE
def test_a_large_line(large: int) -> None:
    with test_text.serving([b"x" * large, b"\nend"]) as port:
        found = read(open_reader(SocketTextSource("127.0.0.1", port)))
    assert [len(row["line"]) for row in found] == [large, 3]


@LARGE
def test_a_large_message(large: int) -> None:
    with test_web_socket.serving(lambda connection: [connection.send(b"x" * large), connection.send("end")][0]) as url:
        found = read(open_reader(WebSocketSource(url, format=RawFormat("v"))))
    assert [len(row["v"]) for row in found] == [large, 3]
