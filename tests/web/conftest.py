"""The server in this process, with a cluster that was made up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from penstock import ValueStateDescriptor, savepoints
from penstock.web.app import make_app
from penstock.web.observed import Observed
from penstock.web.security import Access, Role, Tokens
from tests.web.fakes import FakeCluster

TOKENS = Tokens("viewers-0123456789", "operators-0123456789")
Serve = Callable[..., TestClient]


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def serve(cluster: FakeCluster) -> Iterator[Serve]:
    """Gives a client of the server: from this machine (nobody needs a token) or from elsewhere."""
    clients: list[TestClient] = []

    def serving(open_to: Role = Role.OPERATOR, **headers: str) -> TestClient:
        app = make_app(cluster, Access(TOKENS, open_to, ("localhost", "Console.Example")), Observed(), every=3600)
        client = TestClient(app, "http://localhost:8365", raise_server_exceptions=False, headers=headers)
        client.__enter__()
        clients.append(client)
        return client

    yield serving
    for client in clients:
        client.__exit__(None, None, None)


@pytest.fixture
def checkpointed(cluster: FakeCluster, tmp_path: Path) -> None:
    """The newest checkpoint has a counter by key."""
    take_checkpoint(cluster, tmp_path, "visits")


def take_checkpoint(cluster: FakeCluster, folder: Path, *states: str) -> None:
    """Make the newest checkpoint one that has these counters by key."""
    visits = pa.table({"user": ["ann", "bob", "cat"], "value": pa.array([1, 2, 3], pa.int64())})
    made = savepoints.bootstrap(folder / "s")
    for name in states:
        made = made.keyed_state("totals", keys=["user"], state=ValueStateDescriptor(name, "int64"), data=visits)
    cluster.checkpoint_urls = [made.write().path]
