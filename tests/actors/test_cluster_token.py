"""Who has no token for a cluster, or a wrong one, is told so at once, and what to do about it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

from penstock.actors.cluster_token import token_problem

HERE = Path("~/.ray/auth_token").expanduser()
"""Where Ray keeps the token of the clusters that it starts."""


@pytest.fixture
def gcs(ray_cluster: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[str, int]:
    """Where a cluster that wants a token answers; this process has none."""
    host, _, port = ray.get_runtime_context().gcs_address.rpartition(":")
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    return host, int(port)


@pytest.fixture
def right() -> str:
    return HERE.read_text()


@pytest.mark.ray
class TestACluster:
    def test_without_a_token(self, gcs: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
        problem = token_problem(*gcs, is_local=False)
        assert problem is not None
        assert "there is none here" in problem
        assert problem.endswith("set RAY_AUTH_MODE=token")
        monkeypatch.setenv("RAY_AUTH_MODE", "token")
        problem = token_problem(*gcs, is_local=False)
        assert problem is not None
        assert "RAY_AUTH_MODE" not in problem

    def test_with_a_token_that_is_not_sent(
        self, right: str, gcs: tuple[str, int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("RAY_AUTH_TOKEN", right)
        problem = token_problem(*gcs, is_local=False)
        assert problem == "it wants an authentication token, which is not sent; set RAY_AUTH_MODE=token"
        # Ray sends it unasked to a cluster that it finds by itself.
        assert token_problem(*gcs, is_local=True) is None
        monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
        assert token_problem(*gcs, is_local=True) == problem

    def test_with_the_token_of_another(self, gcs: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RAY_AUTH_MODE", "token")
        monkeypatch.setenv("RAY_AUTH_TOKEN", "f" * 64)
        assert "is not its" in str(token_problem(*gcs, is_local=False))

    def test_with_its_token(
        self, right: str, gcs: tuple[str, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("RAY_AUTH_MODE", "token")
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "copied"))
        (tmp_path / "copied").write_text(right + "\n")
        assert token_problem(*gcs, is_local=False) is None


@pytest.fixture
def other() -> Iterator[tuple[str, int]]:
    """A server of something else, which answers one call with what no gRPC server says."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        yield server.getsockname()
        thread.join()


def test_what_is_no_cluster_is_left_to_ray(other: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "f" * 64)
    assert token_problem(*other, is_local=False) is None
    assert token_problem("127.0.0.1", 1, is_local=False) is None
