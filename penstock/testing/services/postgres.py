"""A PostgreSQL server for tests and developers.

Started by the fixture `postgres` and by `python -m penstock.testing.services`. It checks passwords and keeps committed
transactions over a kill of its processes, but not over a crash of the machine (fsync is off).
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from penstock.testing.services.servers import HOST, Server, ask, find_program, free_port, write_private

_PROTOCOL: Final = 3 << 16
"""Version 3.0 of the frontend/backend protocol, as start-up messages spell it."""
_ACCOUNTS: Final = ("postgres", "nobody")
"""Who runs the server where we are root, which it refuses: the account of the Debian package, or one that always is."""


class Postgres(Server):
    """A PostgreSQL server with an empty database and one superuser.

    Args:
        settings: server parameters beside ours, by their names in postgresql.conf.

    Attributes:
        host, port, user_name, password, database: parts of `dsn`.
        dsn: URL for psycopg, ADBC and psql.

    Example:
        >>> import psycopg
        >>> with Postgres() as postgres, psycopg.connect(postgres.dsn) as connection:
        ...     connection.execute("select 1").fetchone()
        (1,)
    """

    name: ClassVar[str] = "postgres"
    # Fast and immediate shutdown: the first rolls clients back, the second also frees shared memory.
    shutdown_signal: ClassVar[signal.Signals] = signal.SIGINT
    last_signal: ClassVar[signal.Signals] = signal.SIGQUIT

    def __init__(self, *, settings: Mapping[str, str] | None = None) -> None:
        self.host: Final = HOST
        self.port: Final = free_port(self)
        self.user_name: Final = "penstock"
        self.password: Final = secrets.token_hex(12)
        self.database: Final = "postgres"
        self.dsn: Final = f"postgresql://{self.user_name}:{self.password}@{self.host}:{self.port}/{self.database}"
        self.user = _account() if os.geteuid() == 0 else None
        self._settings = {
            "listen_addresses": HOST,
            "port": str(self.port),
            "unix_socket_directories": "",
            "fsync": "off",
            "max_connections": "100",
            **(settings or {}),
        }

    def addresses(self) -> dict[str, str]:
        return {
            "dsn": self.dsn,
            "host": self.host,
            "port": str(self.port),
            "user": self.user_name,
            "password": self.password,
            "database": self.database,
        }

    def check_installed(self) -> None:
        for program in ("initdb", "postgres"):
            _find(program)

    def _prepare(self, folder: Path) -> None:
        password_file = folder / "password"
        write_private(password_file, self.password)
        if self.user is not None:
            shutil.chown(password_file, self.user)
        options = ["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync"]
        data = ["--pgdata", str(folder / "data"), "--username", self.user_name, "--pwfile", str(password_file)]
        self._run([str(_find("initdb")), *options, *data])
        password_file.unlink()

    def _command(self, folder: Path) -> Sequence[str]:
        settings = [part for key, value in self._settings.items() for part in ("-c", f"{key}={value}")]
        return [str(_find("postgres")), "-D", str(folder / "data"), *settings]

    def _is_ready(self) -> bool:
        return ask(self.port, self._is_asked_for_a_password)

    def _is_asked_for_a_password(self, connection: socket.socket) -> bool:
        body = struct.pack("!i", _PROTOCOL)
        for text in ("user", self.user_name, "database", self.database, ""):
            body += text.encode() + b"\0"
        connection.sendall(struct.pack("!i", len(body) + 4) + body)
        # R is a request to authenticate; a server that still starts answers E.
        return connection.recv(1) == b"R"


def _account() -> str:
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in _ACCOUNTS if name in known), _ACCOUNTS[-1])


def _find(program: str) -> Path:
    # Debian keeps those of every version in a folder of its own, off PATH.
    folders = Path("/usr/lib/postgresql").glob("*/bin")
    newest_first = sorted(folders, key=lambda path: [int(part) for part in path.parent.name.split(".")], reverse=True)
    return find_program(program, *newest_first)
