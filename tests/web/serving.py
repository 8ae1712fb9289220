"""The server in a thread of this process, at a real port, for browsers and clients."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

from penstock.web.app import make_app
from penstock.web.observed import Observed
from penstock.web.security import Access, Role
from penstock.web.serve import web_server
from tests.web.fakes import TOKENS, FakeCluster


class Server:
    """The server in a thread, at a port that stays when it is started again."""

    def __init__(
        self, cluster: FakeCluster, open_to: Role = Role.OPERATOR, every: float = 0.2, proxies: tuple[str, ...] = ()
    ) -> None:
        access = Access(TOKENS, open_to, ("127.0.0.1",), proxies)
        self._app = make_app(cluster, access, Observed(), every=every)
        self._port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/"

    def start(self) -> None:
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", self._port))
        listening.listen()
        self._port = listening.getsockname()[1]
        self._server = web_server(self._app)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listening]}, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it, and the streams that it serves: what were cut off otherwise would be left open for later tests."""
        self._server.should_exit = True
        deadline = time.monotonic() + 120
        while self._thread.is_alive():
            assert time.monotonic() < deadline, "the server does not end"
            for connection in list(self._server.server_state.connections):
                with contextlib.suppress(RuntimeError):  # the loop has ended since
                    connection.loop.call_soon_threadsafe(connection.transport.close)
            self._thread.join(0.05)
