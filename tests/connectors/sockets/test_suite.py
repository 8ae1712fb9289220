"""The socket and WebSocket sources keep the rules of sources that cannot be rewound."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.sync.server import ServerConnection

from penstock.connectors.records import JsonFormat
from penstock.connectors.sockets import SocketTextSource, WebSocketSource
from penstock.engine.connectors import Source
from penstock.testing.connector_suite import LiveSourceSuite
from tests.connectors.sockets.test_web_socket import serving

COUNT = 30
FORMAT = JsonFormat({"n": "int64"})


class _Lines(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.sendall(b"".join(b'{"n": %d}\n' % number for number in range(COUNT)))


class TestSocketText(LiveSourceSuite):
    @pytest.fixture(autouse=True, params=["skip", "refuse"])
    def _server(self, request: pytest.FixtureRequest) -> Iterator[None]:
        self.restore = request.param
        with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Lines) as server:
            self.port = server.server_address[1]
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            yield
            server.shutdown()
            thread.join()

    def source(self) -> Source:
        return SocketTextSource("127.0.0.1", self.port, format=FORMAT, restore=self.restore)

    def expected(self) -> list[dict[str, Any]]:
        return [{"n": number} for number in range(COUNT)]


class TestWebSocket(LiveSourceSuite):
    seeds = (1, 2)

    @pytest.fixture(autouse=True)
    def _server(self) -> Iterator[None]:
        def talk(connection: ServerConnection) -> None:
            for number in range(COUNT):
                connection.send(f'{{"n": {number}}}')

        with serving(talk) as self.url:
            yield

    def source(self) -> Source:
        return WebSocketSource(self.url, format=FORMAT, restore="skip")

    def expected(self) -> list[dict[str, Any]]:
        return [{"n": number} for number in range(COUNT)]
