"""A Redis server for tests and developers.

Started by the fixture `redis` and by `python -m penstock.testing.services`. It asks for a password and logs writes, so
that it comes back with them after `shut_down` and `kill`.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from penstock.testing.services.servers import HOST, Server, ask, find_program, free_port, write_private


class Redis(Server):
    """An empty Redis server.

    Args:
        settings: directives beside ours, by their names in redis.conf.

    Attributes:
        host, port, password: parts of `url`.
        url: of database 0, for redis-py and redis-cli.

    Example:
        >>> import redis
        >>> with Redis() as server, redis.Redis.from_url(server.url) as client:
        ...     client.ping()
        True
    """

    name: ClassVar[str] = "redis"

    def __init__(self, *, settings: Mapping[str, str] | None = None) -> None:
        self.host: Final = HOST
        self.port: Final = free_port(self)
        self.password: Final = secrets.token_hex(12)
        self.url: Final = f"redis://:{self.password}@{self.host}:{self.port}/0"
        self._settings = {
            "bind": HOST,
            "port": str(self.port),
            "requirepass": self.password,
            "save": '""',
            "appendonly": "yes",
            **(settings or {}),
        }

    def addresses(self) -> dict[str, str]:
        return {"url": self.url, "host": self.host, "port": str(self.port), "password": self.password}

    def check_installed(self) -> None:
        find_program("redis-server")

    def _prepare(self, folder: Path) -> None:
        # A file, because everybody can read the arguments of a process.
        lines = [f"{key} {value}\n" for key, value in {**self._settings, "dir": str(folder)}.items()]
        write_private(folder / "redis.conf", "".join(lines))

    def _command(self, folder: Path) -> Sequence[str]:
        return [str(find_program("redis-server")), str(folder / "redis.conf")]

    def _is_ready(self) -> bool:
        return ask(self.port, self._pongs)

    def _pongs(self, connection: socket.socket) -> bool:
        connection.sendall(f"AUTH {self.password}\r\nPING\r\n".encode())
        answer = b""
        while answer.count(b"\r\n") < 2:
            read = connection.recv(4096)
            if not read:
                return False
            answer += read
        return answer == b"+OK\r\n+PONG\r\n"  # -LOADING while it reads its log.
