"""The client asks a real server, and gives what `penstock.attach` would; the command line uses it for `--url`."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from urllib.request import OpenerDirector

import pytest

from penstock.client import Cluster
from penstock.console.command_line import run_command
from penstock.engine.errors import ClusterError, ConfigurationError, JobError, JobFailedError, StateNotReadyError
from penstock.engine.job.status import JobStatus
from penstock.web.cluster import Reading
from penstock.web.security import Role
from tests.web.fakes import ORDERS, TOKENS, FakeCluster
from tests.web.serving import Server


@pytest.fixture
def server(cluster: FakeCluster) -> Iterator[Server]:
    running = Server(cluster)
    yield running
    running.stop()


def test_jobs_are_found_and_steered(server: Server, cluster: FakeCluster) -> None:
    found = Cluster(server.url)
    assert found.jobs() == [ORDERS]
    job = found.job("orders")
    assert (job.id, job.info(), job.status()) == ("orders-1", ORDERS, JobStatus.RUNNING)
    assert job.checkpoint() == "file:///c/chk-00000010"
    assert job.savepoint("s3://b/s") == "file:///s/savepoint-10"
    assert (job.stop(), job.drain(), job.rescale(4)) == ("file:///s/savepoint-11", "file:///s/savepoint-12", 0.5)
    asked = ["checkpoint", "savepoint", "stop", "drain", "rescale"]
    assert [one[0] for one in cluster.asked] == asked
    assert [line.text for line in job.logs({})] == ["no such user"]
    assert job.logs({(2, 1): 1}) == []
    assert job.why_slow().kind
    assert job.explain().startswith("task 1")
    cluster.refuses = "no disk"
    with pytest.raises(JobError, match="no disk"):
        job.savepoint()


def test_a_job_that_ends_is_waited_for(server: Server, cluster: FakeCluster) -> None:
    job = Cluster(server.url).job("orders-1")
    with pytest.raises(TimeoutError):
        job.wait(0)
    cluster.readings = [Reading(replace(ORDERS, status=JobStatus.FAILED, error="boom"), [])]
    with pytest.raises(JobFailedError, match="boom"):
        job.wait()
    assert job.cancel() is False


def test_the_last_rows_of_a_stream_are_looked_at(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    found = Cluster(server.url).job("orders").tail("totals", rows=1)
    assert (found.rows.to_pylist(), found.seen) == ([{"subtask": 0, "amount": 5, "token": "***"}], 12)
    assert run_command(["tail", "orders", "totals", "--url", server.url]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["subtask", "amount", "token"],
        ["0", "5", "***"],
        ["1", "7", "***"],
    ]


def test_a_long_look_is_waited_for(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(opener: OpenerDirector, request: Any, data: None = None, timeout: float = 0.0) -> Any:
        waits.append(timeout)
        return opens(opener, request, data, timeout)

    waits: list[float] = []
    opens = OpenerDirector.open
    monkeypatch.setattr(OpenerDirector, "open", opened)
    Cluster(server.url).job("orders").tail("totals", seconds=60)
    assert waits[-1] > 60


def test_state_is_asked_for(server: Server, cluster: FakeCluster) -> None:
    state = Cluster(server.url).job("orders").state("totals", "accumulators")
    assert state.get("ann") == {"count(*)": 1}
    assert state.get("nobody") is None
    assert sorted(state.scan().column("user").to_pylist()) == ["ann", "bob"]
    cluster.away = True
    with pytest.raises(StateNotReadyError):
        state.get("ann")


def test_what_is_not_there_is_said(server: Server) -> None:
    with pytest.raises(JobError, match=r"no job 'oders'.*did you mean 'orders'"):
        Cluster(server.url).job("oders")
    with pytest.raises(ConfigurationError, match="no address of a web console"):
        Cluster("cluster:6379")
    with pytest.raises(ClusterError, match="does not answer"):
        Cluster("http://127.0.0.1:1").jobs()
    with pytest.raises(ClusterError, match=r"at .*/x is no web console of Penstock \(Not Found\): give the address"):
        Cluster(f"{server.url}/x").jobs()


def test_a_job_whose_manager_does_not_answer_is_listed_as_that(server: Server, cluster: FakeCluster) -> None:
    job = Cluster(server.url).job("orders")
    cluster.readings = []
    while (info := job.info()).answers:
        pass
    assert replace(info, answers=True) == ORDERS


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}", "does not answer"),
        (b"SSH-2.0-other\r\n", "does not answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>", "no web console of Penstock: give"),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"job":1}', "no web console of Penstock: give"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 6\r\n\r\n<html>", r"no web console of Penstock \(status 404\)"),
    ],
)
def test_what_is_no_answer_of_a_console_is_said_to_be_none(answer: bytes, told: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor(1) as threads:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        serving = threads.submit(serve)
        with pytest.raises(ClusterError, match=told):
            Cluster(f"http://127.0.0.1:{listening.getsockname()[1]}").jobs()
        serving.result()


def test_a_token_is_brought_where_one_is_asked_for(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(cluster, Role.NOBODY)
    try:
        with pytest.raises(ClusterError, match="bring a token"):
            Cluster(server.url).jobs()
        with pytest.raises(ClusterError, match="needs the operator"):
            Cluster(server.url, TOKENS.viewer).job("orders").savepoint()
        monkeypatch.setenv("PENSTOCK_TOKEN", TOKENS.operator)
        assert Cluster(server.url).job("orders").savepoint()
    finally:
        server.stop()


def test_commands_ask_a_web_console(server: Server, cluster: FakeCluster, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*arguments: str) -> object:
        assert run_command([*arguments, "--url", server.url, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    assert [one["id"] for one in said("list")] == ["orders-1"]  # type: ignore[attr-defined]
    assert said("savepoint", "orders", "s3://b/s") == {"name": "orders", "savepoint": "file:///s/savepoint-10"}
    assert said("rescale", "orders", "-p", "4")["seconds"] == 0.5  # type: ignore[index]
    assert said("rescale", "orders", "count=2", "sink=3")["seconds"] == 0.5  # type: ignore[index]
    assert cluster.asked[-1] == ("rescale", "orders-1", {"count": 2, "sink": 3})
    previews = said("preview-rescale", "orders", "count=2..3", "sink=3")
    assert [one["wanted"] for one in previews] == ["count to 2", "count to 3", "sink to 3"]  # type: ignore[attr-defined]
    assert run_command(["preview-rescale", "orders", "-p", "3..4", "--url", server.url]) == 0
    shown = capsys.readouterr().out
    assert [line.split()[:2] for line in shown.splitlines()[1:]] == [["to", "3"], ["to", "4"]]
    assert "count -> sink: 0.60" in shown
    assert run_command(["preview-rescale", "orders", "count=3..2", "--url", server.url]) == 2
    capsys.readouterr()
    assert said("logs", "orders")[0]["text"] == "no such user"  # type: ignore[index]
    assert said("why", "orders")["kind"]  # type: ignore[index]
    assert said("info", "orders")["name"] == "orders"  # type: ignore[index]
