"""Tables for the tests of this folder, and a wire to the server that breaks when it is told to."""

from __future__ import annotations

import contextlib
import socket
import threading
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pyarrow as pa

from penstock.engine.clock import ManualClock
from penstock.engine.connectors import ConnectorContext
from penstock.engine.elements import Batch
from penstock.testing.services import Postgres


def context(subtask: int = 0, parallelism: int = 1, identity: str = "run/sink") -> ConnectorContext:
    return ConnectorContext("out", subtask, parallelism, ManualClock(), identity)


def rows(columns: dict[str, Any], kinds: Sequence[int] | None = None) -> Batch:
    return Batch(pa.record_batch(columns), None, None if kinds is None else pa.array(kinds, pa.int8()))


class Database:
    """The server, a connection to it, and tables that nobody else has."""

    def __init__(self, postgres: Postgres, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        self.postgres, self.connection = postgres, connection
        self.dsn = postgres.dsn

    def new_name(self, prefix: str = "t") -> str:
        return f"{prefix}_{uuid.uuid4().hex[:10]}"

    def create(self, columns: str) -> str:
        """A new table with these columns, as CREATE TABLE has them."""
        name = self.new_name()
        self.run(f"CREATE TABLE {name} ({columns})")
        return name

    def run(self, statement: str) -> None:
        self.connection.execute(statement)  # type: ignore[arg-type]

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(query).fetchall()  # type: ignore[arg-type]

    def dsn_at(self, port: int) -> str:
        """The dsn for a wire of `breaking_wire`."""
        return self.dsn.replace(f":{self.postgres.port}/", f":{port}/")


@contextlib.contextmanager
def breaking_wire(port: int, cuts: Sequence[int]) -> Iterator[int]:
    """A port that leads to the server; its connection number i breaks when cuts[i] bytes have gone to the server.

    What has gone there is worked off by the server, which may so commit what the client knows nothing of.
    """
    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            left = list(cuts)
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    limit = left.pop(0) if left else None
                    thread = threading.Thread(target=_carry, args=(client, port, limit))
                    threads.append(thread)
                    thread.start()

        threads.append(threading.Thread(target=accept))
        threads[0].start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()


def _carry(client: socket.socket, port: int, limit: int | None) -> None:
    with client, socket.create_connection(("127.0.0.1", port)) as server:
        broken = threading.Event()
        back = threading.Thread(target=_carry_back, args=(server, client, broken))
        back.start()
        sent = 0
        while data := _read(client):
            part = data if limit is None else data[: limit - sent]
            if limit is not None and sent + len(data) >= limit:
                broken.set()
            with contextlib.suppress(OSError):
                server.sendall(part)
            sent += len(part)
            if broken.is_set():
                break
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_WR)
        back.join()


def _carry_back(server: socket.socket, client: socket.socket, broken: threading.Event) -> None:
    while data := _read(server):
        if not broken.is_set():
            with contextlib.suppress(OSError):
                client.sendall(data)
    with contextlib.suppress(OSError):
        client.shutdown(socket.SHUT_RDWR)


def _read(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65_536)
    except OSError:
        return b""
