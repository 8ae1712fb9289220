"""What holds for every server: keeps data and port, is told apart by readiness, says why it did not start."""

from __future__ import annotations

import random
import re
import socket
from pathlib import Path

import pytest
import redis as client_library

from penstock.testing.services import Kafka, Redis, ServiceNotInstalledError, ServiceStartError
from penstock.testing.services.servers import HOST, INSTALL, free_port


def test_a_server_that_does_not_start_says_why() -> None:
    server = Redis(settings={"no-such-directive": "1"})
    with pytest.raises(ServiceStartError, match="no-such-directive") as raised:
        server.start()
    assert "redis ended while it was starting" in str(raised.value)
    assert server.password not in str(raised.value)
    assert server.pid is None


def test_a_missing_program_names_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        ServiceNotInstalledError,
        match=rf"redis-server is not installed: run {re.escape(INSTALL)}",
    ):
        Redis().start()


def test_missing_jars_name_the_command_that_fetches_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "java").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ServiceNotInstalledError, match=f"run {re.escape(INSTALL)}"):
        Kafka().start()


def test_a_server_that_was_not_started_says_so() -> None:
    with pytest.raises(ServiceStartError, match="call start"):
        Redis().pause()


def test_a_running_server_is_not_started_again(redis: Redis) -> None:
    with pytest.raises(ServiceStartError, match="runs already"):
        redis.start()
    with client_library.Redis.from_url(redis.url) as client:
        assert client.ping()


def test_ports_are_none_of_those_that_clients_are_given_even_by_seeded_tests() -> None:
    first_of_clients = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    random.seed(1)
    owner = _Owner()
    before = [free_port(owner) for _ in range(20)]
    random.seed(1)
    after = [free_port(owner) for _ in range(20)]
    assert before != after
    assert max(before + after) < first_of_clients


def test_a_port_is_kept_for_its_server_while_that_is_there() -> None:
    owner = _Owner()
    port = free_port(owner)
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((HOST, port))
    with socket.create_server((HOST, port)), pytest.raises(OSError, match="in use"):
        socket.create_server((HOST, port))
    del owner
    with socket.socket() as other:
        other.bind((HOST, port))


class _Owner:
    """Somebody who has a port."""
