"""Messages of a WebSocket server as rows."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest
from websockets.sync.server import ServerConnection, serve

import penstock as ps
from penstock.connectors.records import JsonFormat
from penstock.connectors.sockets import WebSocketSource
from penstock.engine.errors import ConfigurationError
from tests.connectors.sockets.reading import open_reader, read

FORMAT = JsonFormat({"n": "int64"})


@contextlib.contextmanager
def serving(talk: Callable[[ServerConnection], None]) -> Iterator[str]:
    with serve(talk, "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"ws://127.0.0.1:{server.socket.getsockname()[1]}"
        finally:
            server.shutdown()
            thread.join()


def test_a_job_reads_the_messages_it_has_asked_for() -> None:
    asked: list[str | bytes] = []

    def talk(connection: ServerConnection) -> None:
        assert connection.request is not None
        asked.append(connection.request.headers["X-Token"])
        asked.append(connection.recv())
        for number in range(200):
            text = f'{{"n": {number}}}'
            connection.send(text if number % 2 else text.encode())

    with serving(talk) as url:
        source = WebSocketSource(
            f"{url}/trades?key=s3cret", format=FORMAT, subscribe=["all"], headers={"X-Token": "s3cret"}
        )
        env = ps.StreamEnvironment(runtime="local", parallelism=2)
        assert [row["n"] for row in env.from_source(source).collect()] == list(range(200))
        assert source.describe() == f"websocket({url}/trades)"
    assert asked == ["s3cret", "all"]


def test_a_connection_that_breaks_is_an_error_and_no_end() -> None:
    def talk(connection: ServerConnection) -> None:
        connection.send('{"n": 1}')
        connection.socket.shutdown(socket.SHUT_RDWR)

    with serving(talk) as url:
        reader = open_reader(WebSocketSource(url, format=FORMAT))
        with pytest.raises(ConnectionError, match=r"'read', subtask 0: .* the connection broke behind record 1"):
            read(reader)
        reader.close()


def test_a_reader_can_be_closed_while_the_server_is_silent() -> None:
    with serving(lambda connection: [connection.send('{"n": 1}'), connection.recv()][0]) as url:
        reader = open_reader(WebSocketSource(url, format=FORMAT))
        assert read(reader, most=1) == [{"n": 1}]
        reader.close()


def test_what_cannot_be_reached_or_is_no_url() -> None:
    with pytest.raises(ConnectionError, match=r"no connection: .*refused") as caught:
        open_reader(WebSocketSource("ws://127.0.0.1:1/x?key=s3cret", format=FORMAT))
    assert "s3cret" not in str(caught.value)
    for url in ("http://h/x", "ws://", "ws://a:s3cret@b@h", "ws://h:x"):
        with pytest.raises(ConfigurationError, match="the url cannot be read; give ws://") as wrong:
            WebSocketSource(url, format=FORMAT)
        assert "s3cret" not in str(wrong.value)


def test_importing_the_connectors_is_light() -> None:
    code = "import sys, penstock.connectors.sockets; print('websockets' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
