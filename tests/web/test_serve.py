"""The server on a real cluster: it shows a job that runs, survives its own death, and ends when it is told to."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyarrow import flight

import penstock as ps
from penstock import StreamEnvironment, checkpoints
from penstock.actors.cluster_notes import cluster_id
from penstock.actors.console_address import tell_console, tell_console_of
from penstock.engine.errors import ConfigurationError
from penstock.engine.job.info import JobInfo
from penstock.engine.job.status import JobStatus
from penstock.web.export.options import ExportOptions
from penstock.web.observed import ENDED_KEPT
from penstock.web.serve import (
    Address,
    EndedJobs,
    Served,
    ServerOptions,
    check_server,
    find_server,
    start_server,
    stop_server,
)
from tests.web.fakes import ORDERS, FakeCluster


def until(url: str, path: str, condition: Any) -> Any:
    """What a path answers, as soon as it is as wanted."""
    deadline = time.monotonic() + 120
    while True:
        try:
            answer = httpx.get(url + path, timeout=60)
            if answer.status_code == 200 and condition(answer.json()):
                return answer.json()
        except httpx.TransportError:
            pass
        assert time.monotonic() < deadline, f"{path} is not as wanted"
        time.sleep(0.1)


def over_flight(server: Address, key: int) -> list[Any]:
    """The rows of a key of the job, by Flight."""
    ticket = json.dumps({"job": "watched", "uid": "counts", "state": "accumulators", "keys": [key]})
    with flight.connect(server.flight) as client:
        found: list[Any] = client.do_get(flight.Ticket(ticket)).read_all().to_pylist()
    return found


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_a_job_is_shown_steered_and_does_not_notice_when_the_server_dies(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    env = StreamEnvironment(
        runtime="ray",
        parallelism=1,
        standbys=0,
        checkpoints=checkpoints(storage=str(tmp_path / "c"), savepoints=str(tmp_path / "s")),
    )
    env.from_source(ps.DataGenSource({"n": ps.Sequence()}, rate=1000)).key_by("n").aggregate(n2=ps.count()).uid(
        "counts"
    ).print()
    server = start_server(ServerOptions(port=0, folder=str(tmp_path / "console"), flight=0))
    # Tests before this one may have submitted jobs to the cluster, without a console.
    tell_console_of.cache_clear()
    job: Any = env.submit("watched")
    try:
        told, said = f"web console: {server.url}\n", ""
        deadline = time.monotonic() + 120
        while told not in said:
            said += capfd.readouterr().err
            assert time.monotonic() < deadline
        # What later jobs do.
        tell_console()
        assert start_server(ServerOptions(port=0)) == server, "one for the cluster"

        def mine(found: Any) -> bool:
            return any(one["name"] == "watched" and one["state"] == "RUNNING" for one in found["jobs"])

        found = until(server.url, "jobs/overview", mine)
        job_id = next(one["jid"] for one in found["jobs"] if one["name"] == "watched")
        rows = "vertices/1/subtasks/metrics?get=numRecordsOut"
        until(server.url, f"jobs/{job_id}/{rows}", lambda found: found and found[0]["sum"] > 0)
        assert httpx.get(f"{server.url}v1/jobs/{job_id}/tasks/1/0/stack").text.startswith("thread")
        (channel,) = httpx.get(f"{server.url}v1/jobs/{job_id}/tasks/1/0/channels").json()["channels"]
        assert ((channel["task"], channel["subtask"]), channel["rows"] > 0) == ((2, 0), True)
        asked = f"{server.url}v1/jobs/{job_id}/state/counts/accumulators?key=7"
        assert httpx.get(asked).json() == {"found": True, "value": {"count(*)": 1}}
        assert over_flight(server, 7) == [{"n": 7, "count(*)": 1}]
        os.kill(server.pid, signal.SIGKILL)
        until(server.url, "jobs/overview", mine)
        again = find_server()
        assert again is not None
        assert (again.url, again.pid != server.pid) == (server.url, True)
        assert over_flight(server, 7) == [{"n": 7, "count(*)": 1}]
        assert job.info().restarts == 0
        headers = {"X-Penstock-Request": "1"}
        trigger = httpx.post(f"{server.url}jobs/{job_id}/savepoints", headers=headers, json={}).json()["request-id"]
        done = until(
            server.url, f"jobs/{job_id}/savepoints/{trigger}", lambda found: found["status"]["id"] == "COMPLETED"
        )
        assert done["operation"]["location"].startswith((tmp_path / "s").as_uri())
        job.cancel()
        until(server.url, f"jobs/{job_id}", lambda found: found["state"] == "CANCELED")
    finally:
        job.cancel()
        assert stop_server()
    assert told not in "".join(capfd.readouterr()), "the first job says it, on standard error, and no other"
    # Other jobs may have ended on this cluster before.
    assert [one.name for one in EndedJobs(tmp_path / "console" / "ended-jobs.jsonl").read()].count("watched") == 1


def test_ended_jobs_are_written_once_and_read_again(tmp_path: Path) -> None:
    file = tmp_path / "ended.jsonl"
    ended, failed = EndedJobs(file), replace(ORDERS, status=JobStatus.FAILED, error="boom")
    for info in (ORDERS, failed, failed):
        ended.write(info)
    with file.open("a") as stream:
        stream.write('{"from": "another version"}\n')
    assert EndedJobs(file).read() == [failed]
    assert file.stat().st_mode & 0o777 == 0o600


class TableOfNotes(dict[str, str]):
    """A cluster's notes."""

    def put(self, name: str, text: str) -> None:
        self[name] = text

    def names(self, prefix: str) -> list[str]:
        return sorted(name for name in self if name.startswith(prefix))

    def remove(self, name: str) -> None:
        del self[name]


def test_a_console_lists_the_jobs_that_have_ended_on_its_own_cluster(tmp_path: Path) -> None:
    one, other = TableOfNotes(), TableOfNotes()
    file, options = tmp_path / "ended-jobs.jsonl", ServerOptions(folder=str(tmp_path))
    file.touch(0o644)
    tmp_path.chmod(0o755)

    def console(notes: TableOfNotes, ended: Sequence[JobInfo] = ()) -> list[str]:
        served = Served(options, FakeCluster(), ended, cluster_id(notes))
        for info in ended:
            served._observed.see(info, [], 0.0, 0)
        return [view.info.id for view in served._observed.jobs()]

    assert console(one, [replace(ORDERS, id="first", status=JobStatus.FAILED)]) == ["first"]
    assert console(other, [replace(ORDERS, id="second", status=JobStatus.FINISHED)]) == ["second"]
    assert (console(one), console(other)) == (["first"], ["second"])
    assert (file.stat().st_mode & 0o777, tmp_path.stat().st_mode & 0o777) == (0o600, 0o700)


def test_the_log_of_ended_jobs_does_not_grow_for_ever_and_a_full_disk_hides_no_job(tmp_path: Path) -> None:
    file = tmp_path / "ended.jsonl"
    ended = EndedJobs(file)
    for number in range(2 * ENDED_KEPT + 1):
        ended.write(replace(ORDERS, id=f"orders-{number}", status=JobStatus.FINISHED))
    assert len(file.read_text(encoding="utf-8").splitlines()) == ENDED_KEPT, "it has grown while the server lived"
    assert len(EndedJobs(file).read()) == ENDED_KEPT
    assert len(file.read_text(encoding="utf-8").splitlines()) == ENDED_KEPT
    EndedJobs(tmp_path / "no folder" / "ended.jsonl").write(replace(ORDERS, status=JobStatus.FAILED))


def test_a_server_that_does_something_else_is_not_taken_for_one_that_does_what_is_wanted() -> None:
    found = Address("http://127.0.0.1:8365/", "", 1, "n", ("http://collector:4318", None))
    check_server(found, ServerOptions())
    check_server(found, ServerOptions(export=ExportOptions(otlp="http://collector:4318")))
    with pytest.raises(ConfigurationError, match="sends nothing where --openlineage says http://marquez:5000"):
        check_server(found, ServerOptions(export=ExportOptions(openlineage="http://marquez:5000")))
    with pytest.raises(ConfigurationError, match="sends to http://collector:4318 where --otlp"):
        check_server(found, ServerOptions(export=ExportOptions(otlp="http://other:4318")))
    with pytest.raises(ConfigurationError, match="gives state by REST alone where --flight says 8366"):
        check_server(found, ServerOptions(flight=8366))
    check_server(found, ServerOptions(port=0))
    with pytest.raises(ConfigurationError, match=r"runs already, at http://127.0.0.1:8365/, where --port says 365"):
        check_server(found, ServerOptions(port=365))
    check_server(found, ServerOptions("127.0.0.1"))
    with pytest.raises(ConfigurationError, match=r"runs already, with --host 127.0.0.1, not 0.0.0.0; end it with"):
        check_server(found, ServerOptions("0.0.0.0"))
    open_to_all = replace(found, host="0.0.0.0", names=("ops.example",))
    check_server(open_to_all, ServerOptions("0.0.0.0", names=("ops.example",)))
    with pytest.raises(ConfigurationError, match=r"with --trust-proxy none, not 10.0.0.1, 10.0.0.2"):
        check_server(open_to_all, ServerOptions(proxies=("10.0.0.1", "10.0.0.2")))
    flying = replace(found, flight="grpc://127.0.0.1:8366")
    check_server(flying, ServerOptions(flight=0))
    with pytest.raises(ConfigurationError, match=r"gives state at grpc://127.0.0.1:8366 where --flight says 9"):
        check_server(flying, ServerOptions(flight=9))
