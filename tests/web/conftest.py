"""The server in this process, with a cluster that was made up."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from penstock import ValueStateDescriptor, savepoints
from penstock.web.app import make_app
from penstock.web.observed import Observed
from penstock.web.security import Access, Role
from tests.web.fakes import TOKENS, FakeCluster
from tests.web.serving import Server

Serve = Callable[..., TestClient]
CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: make install-services gets it")


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


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def serving(cluster: FakeCluster) -> Iterator[Callable[..., Server]]:
    """Starts servers."""
    running: list[Server] = []

    def start(open_to: Role, every: float = 0.2) -> Server:
        running.append(Server(cluster, open_to, every))
        return running[-1]

    yield start
    for server in running:
        server.stop()


@pytest.fixture(scope="module")
def tab(browser: Any) -> Any:
    """One for all tests: a renderer takes long to start, and it has compiled the scripts for those behind the first."""
    tab = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    tab.set_default_timeout(120_000)
    return tab


@pytest.fixture
def page(tab: Any, serving: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """A page that must not have said of an error when the test is over; it goes before the servers do."""
    problems: list[str] = []
    failed_before = request.session.testsfailed

    def note(error: Any) -> None:
        problems.append(str(error))

    tab.on("pageerror", note)
    yield tab
    if request.session.testsfailed > failed_before:
        tab.screenshot(path=tmp_path / "last.png", full_page=True)
    tab.goto("about:blank")
    tab.context.clear_cookies()
    tab.emulate_media(color_scheme="light")
    tab.remove_listener("pageerror", note)
    assert not problems


@pytest.fixture
def server(serving: Callable[..., Server]) -> Server:
    return serving(Role.OPERATOR)
