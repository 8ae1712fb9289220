"""Who has no token for a cluster, or a wrong one, is told so at once, and what to do about it."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
import ray

from penstock.actors import cluster_token as module
from penstock.actors.cluster import ON_THIS_MACHINE, connect
from penstock.actors.cluster_token import is_open, make_token, token_file, token_problem
from penstock.actors.grpc_call import Answer

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


class TestAClusterWithoutAToken:
    """One that `ray start` began before there was a token here."""

    @pytest.fixture(autouse=True)
    def gcs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "call", lambda *_: Answer(0, b""))
        monkeypatch.setenv("RAY_AUTH_TOKEN", "f" * 64)
        monkeypatch.delenv("RAY_AUTH_MODE", raising=False)

    def test_takes_whoever_sends_none(self) -> None:
        assert token_problem("127.0.0.1", 6379, is_local=True) is None
        assert is_open("127.0.0.1", 6379)

    def test_is_not_known_to_be_one_where_it_does_not_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def call(*_: object) -> Answer:
            raise TimeoutError

        monkeypatch.setattr(module, "call", call)
        assert not is_open("127.0.0.1", 6379)

    def test_cannot_be_used_by_a_process_that_wants_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RAY_AUTH_MODE", "token")
        assert "set RAY_AUTH_MODE=disabled" in str(token_problem("127.0.0.1", 6379, is_local=True))

    def test_is_connected_to_without_the_token_that_is_here(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Else this process would refuse the calls of the cluster, which then takes its job manager for orphaned."""
        connected: list[tuple[str, str | None]] = []

        def init(address: str, **options: object) -> None:
            connected.append((address, os.environ.get("RAY_AUTH_MODE")))

        with socket.create_server(("127.0.0.1", 0)) as server, patch.dict("os.environ"):
            here = f"127.0.0.1:{server.getsockname()[1]}"
            monkeypatch.delenv("RAY_ADDRESS", raising=False)
            monkeypatch.setattr("ray.is_initialized", lambda: False)
            monkeypatch.setattr("ray.init", init)
            monkeypatch.setattr("ray._private.services.find_bootstrap_address", lambda folder: here)
            connect(ON_THIS_MACHINE, 1)
        assert connected == [(here, None)]


class TestTheTokenOfANewCluster:
    @pytest.fixture(autouse=True)
    def home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("HOME", str(tmp_path))
        for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
            monkeypatch.delenv(name, raising=False)
        return tmp_path

    def test_is_for_its_user_alone_and_stays(self, home: Path) -> None:
        make_token()
        file = token_file()
        assert file == home / ".ray" / "auth_token"
        assert (file.stat().st_mode & 0o777, len(file.read_text())) == (0o600, 64)
        token = file.read_text()
        make_token()
        assert file.read_text() == token
        assert list(file.parent.iterdir()) == [file]

    def test_of_one_that_begins_at_the_same_time_is_kept(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def begin_at_the_same_time(_: int) -> str:
            token_file().write_text("theirs")
            return "ours"

        monkeypatch.setattr(module.secrets, "token_hex", begin_at_the_same_time)
        make_token()
        assert token_file().read_text() == "theirs"

    @pytest.mark.parametrize(
        ("name", "value"),
        [("RAY_AUTH_MODE", "disabled"), ("RAY_AUTH_TOKEN", "f" * 64), ("RAY_AUTH_TOKEN_PATH", "elsewhere")],
    )
    def test_is_not_made_where_none_is_wanted_or_there_is_another(
        self, home: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str
    ) -> None:
        monkeypatch.setenv(name, value)
        make_token()
        assert list(home.iterdir()) == []

    def test_is_left_to_ray_where_it_cannot_be_written(self, home: Path) -> None:
        (home / ".ray").write_text("no folder")
        make_token()
        assert (home / ".ray").read_text() == "no folder"


@pytest.fixture
def other() -> Iterator[tuple[str, int]]:
    """A server of something else, which answers one call with what no gRPC server says."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(120)

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
