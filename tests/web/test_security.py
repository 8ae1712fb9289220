"""One test for each line of what the server promises: docs/console.md, "Security"."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient

from penstock.actors.info import shown_settings
from penstock.engine.checkpoint_config import CheckpointConfig
from penstock.engine.config import JobConfig
from penstock.web.app import make_app
from penstock.web.cluster import Reading
from penstock.web.observed import Observed
from penstock.web.security import COOKIE, LONGEST_BODY, LONGEST_QUERY, REQUEST_HEADER, Access, Role, tokens_in
from penstock.web.serve import ServerOptions
from tests.web.conftest import Serve
from tests.web.fakes import ORDERS, TOKENS, FakeCluster
from tests.web.serving import Server

VIEWER = {"Authorization": f"Bearer {TOKENS.viewer}"}
OPERATOR = {"Authorization": f"Bearer {TOKENS.operator}"}
CANCEL = "/jobs/orders-1?mode=cancel"


@pytest.mark.parametrize(
    ("host", "is_local"), [("127.0.0.1", True), ("::1", True), ("0.0.0.0", False), ("10.1.2.3", False)]
)
def test_only_a_loopback_address_is_open_to_who_brings_no_token(host: str, is_local: bool) -> None:
    assert ServerOptions(host).is_local is bool(is_local)
    assert ServerOptions().is_local


@pytest.mark.parametrize("path", ["/jobs", "/v1/jobs/orders-1/view", "/metrics", "/v1/events", "/v1/openapi.json"])
def test_elsewhere_nothing_is_told_without_a_token(serve: Serve, path: str) -> None:
    client = serve(Role.NOBODY)
    assert client.get(path).status_code == 401
    assert client.get(path, headers={"Authorization": "Bearer guessed"}).status_code == 401
    if path != "/v1/events":
        assert client.get(path, headers=VIEWER).status_code == 200


def test_the_tokens_are_made_once_and_nobody_else_can_read_them(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    os.umask(os.umask(0))
    made = tokens_in(file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert tokens_in(file) == made
    assert len(made.operator) >= 40
    file.chmod(0o644)
    with pytest.raises(PermissionError, match="can be read by others"):
        tokens_in(file)


def test_a_viewer_reads_and_changes_nothing(serve: Serve, cluster: FakeCluster) -> None:
    client = serve(Role.NOBODY)
    assert client.patch(CANCEL, headers=VIEWER).status_code == 403
    for told in (
        "tasks/2/0/stack",
        "tasks/2/0/flame",
        "logs",
        "vertices/2/flamegraph",
        "state/totals/accumulators",
        "tail/totals",
    ):
        assert client.get(f"/v1/jobs/orders-1/{told}", headers=VIEWER).status_code == 403
    assert not cluster.asked
    assert client.patch(CANCEL, headers=OPERATOR).status_code == 202
    assert client.get("/v1/jobs/orders-1/tasks/2/0/stack", headers=OPERATOR).status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PURGE"])
def test_no_page_of_another_site_can_change_anything(serve: Serve, cluster: FakeCluster, method: str) -> None:
    client = serve()
    assert client.request(method, CANCEL, headers={"Origin": "https://evil.example"}).status_code == 403
    assert not cluster.asked
    assert client.patch(CANCEL, headers={REQUEST_HEADER: "1"}).status_code == 202


def test_a_browser_keeps_its_token_where_no_script_and_no_other_site_gets_it(serve: Serve) -> None:
    client = serve(Role.NOBODY)
    answer = client.post("/v1/session", headers=OPERATOR)
    assert answer.json() == {"role": "operator"}
    cookie = answer.headers["set-cookie"].lower()
    assert all(word in cookie for word in (COOKIE, "httponly", "samesite=strict", "path=/"))
    assert client.get("/jobs").status_code == 200
    assert client.patch(CANCEL).status_code == 403, "a cookie alone, which the browser sends by itself"
    assert client.patch(CANCEL, headers={REQUEST_HEADER: "1"}).status_code == 202
    client.delete("/v1/session", headers={REQUEST_HEADER: "1"})
    assert client.get("/jobs").status_code == 401


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "10.0.0.1:8365", ""])
def test_a_name_that_is_not_the_servers_gets_nothing(serve: Serve, host: str) -> None:
    assert serve().get("/jobs", headers={"Host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost", "localhost:1", "console.example:443", "CONSOLE.example"])
def test_its_own_names_are_served(serve: Serve, host: str) -> None:
    assert serve().get("/jobs", headers={"Host": host, **VIEWER}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "console.example"},
        {"X-Forwarded-For": "203.0.113.9"},
        {"X-Forwarded-Proto": "https"},
        {"Forwarded": "for=203.0.113.9"},
        {"Via": "1.1 proxy"},
        {"X-Forwarded-User": "ann"},
    ],
)
def test_who_comes_by_a_proxy_on_this_machine_is_not_on_this_machine(serve: Serve, headers: dict[str, str]) -> None:
    client = serve()
    assert client.get("/jobs").status_code == 200
    assert client.get("/jobs", headers=headers).status_code == 401
    assert client.get("/jobs", headers={**headers, **VIEWER}).status_code == 200


@pytest.mark.parametrize(
    ("proxy", "user", "groups", "role"),
    [
        ("10.0.0.9", "ann", "staff, sre", Role.OPERATOR),
        ("10.0.0.9", "ann", "staff", Role.VIEWER),
        ("10.0.0.9", "ann", "", Role.VIEWER),
        ("10.0.0.9", "", "sre", Role.NOBODY),
        ("10.0.0.10", "ann", "sre", Role.NOBODY),
    ],
)
def test_a_proxy_that_is_trusted_says_who_comes(
    cluster: FakeCluster, proxy: str, user: str, groups: str, role: Role
) -> None:
    access = Access(TOKENS, Role.OPERATOR, ("localhost", "console.example"), ("10.0.0.9",), ("sre", "admins"))
    headers = {"Host": "console.example", "X-Forwarded-User": user, "X-Forwarded-Groups": groups}
    app = make_app(cluster, access, Observed(), every=3600)
    with TestClient(app, headers=headers, client=(proxy, 50_000)) as client:
        assert client.get("/v1/session").json() == {"role": role.name.lower()}
        assert client.get("/jobs").status_code == (401 if role is Role.NOBODY else 200)
        assert client.patch(CANCEL).status_code == 403, "a browser that is logged in sends its cookies by itself"
        cancelled = client.patch(CANCEL, headers={REQUEST_HEADER: "1"}).status_code
        assert cancelled == {Role.NOBODY: 401, Role.VIEWER: 403, Role.OPERATOR: 202}[role]


def test_what_a_request_says_of_its_way_is_not_taken_for_where_it_comes_from(cluster: FakeCluster) -> None:
    server = Server(cluster, Role.NOBODY, proxies=("10.0.0.9",))
    try:
        claimed = {"X-Forwarded-For": "10.0.0.9", "X-Forwarded-User": "ann"}
        assert httpx.get(f"{server.url}jobs", headers=claimed).status_code == 401
    finally:
        server.stop()


@pytest.mark.parametrize("path", ["/", "/jobs", "/nothing", "/pages/app.js"])
def test_every_answer_tells_the_browser_what_it_may(serve: Serve, path: str) -> None:
    headers = serve().get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert "access-control-allow-origin" not in headers


def test_what_is_too_long_is_refused(serve: Serve, cluster: FakeCluster) -> None:
    client = serve(**{REQUEST_HEADER: "1"})
    assert client.post("/jobs/orders-1/savepoints", content=b"x" * (LONGEST_BODY + 1)).status_code == 413
    assert client.post("/jobs/orders-1/savepoints", content=iter([b"x" * LONGEST_BODY, b"x"])).status_code == 413
    assert client.get(f"/jobs?x={'x' * LONGEST_QUERY}").status_code == 414
    assert not cluster.asked


def test_so_many_listeners_and_operations_there_are_at_most(
    serve: Serve, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = serve(**{REQUEST_HEADER: "1"})
    monkeypatch.setattr("penstock.web.own_routes.MOST_LISTENERS", 0)
    monkeypatch.setattr("penstock.web.operations.MOST_AT_ONCE", 0)
    assert client.get("/v1/events").status_code == 503
    assert client.post("/jobs/orders-1/savepoints").status_code == 429
    assert not cluster.asked


def test_so_many_connections_there_are_at_most(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.web.serve._MOST_CONNECTIONS", 2)
    server = Server(cluster)
    try:
        with httpx.Client(base_url=server.url) as one, httpx.Client(base_url=server.url) as two:
            assert [one.get("jobs").status_code, two.get("jobs").status_code] == [200, 503]
            one.close()
            while two.get("jobs").status_code != 200:
                pass
    finally:
        server.stop()


def test_configuration_is_shown_without_secrets(serve: Serve, cluster: FakeCluster) -> None:
    storage = "s3://user:hidden-1@bucket/c?key=hidden-2"
    config = JobConfig(checkpoints=CheckpointConfig(storage=storage, storage_overrides=(("uid", storage),)))
    cluster.readings = [Reading(replace(ORDERS, settings=tuple(shown_settings(config))), [])]
    client = serve()
    for path in ("/jobs/orders-1/config", "/jobs/orders-1/checkpoints/config", "/v1/jobs/orders-1/view"):
        answer = client.get(path).text
        assert "bucket/c" in answer
        assert "hidden" not in answer


@pytest.mark.parametrize(
    "path", ["/pages/../serve.py", "/pages/%2e%2e/serve.py", "/pages/..%2fserve.py", "/pages//etc/passwd"]
)
def test_files_are_those_of_the_pages_and_no_others(serve: Serve, path: str) -> None:
    assert serve().get(f"/pages{path}").status_code in (404, 405)


def test_an_error_of_the_server_tells_nothing_of_it(
    serve: Serve, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(cluster, "stacks", broken)
    answer = serve().get("/v1/jobs/orders-1/tasks/2/0/stack")
    assert answer.status_code == 500
    assert "secret" not in answer.text
