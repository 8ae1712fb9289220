"""The server without a cluster: what files tell of jobs, their state, and that nothing can be changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

import penstock as ps
from penstock import savepoints
from penstock.engine.job.status import JobStatus
from penstock.web.app import make_app
from penstock.web.observed import Observed
from penstock.web.offline import OfflineCluster, jobs_in
from penstock.web.security import Access, Role
from penstock.web.serve import ENDED_JOBS, EndedJobs, Served, ServerOptions
from tests.engine.helpers import local_environment
from tests.web.fakes import ORDERS, TOKENS


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A job with checkpoints that was cancelled, a savepoint, a damaged folder, and the log of a console."""
    env = local_environment(1, checkpoints=ps.checkpoints("1min", str(tmp_path / "checkpoints"), retain_on_cancel=True))
    rows = env.from_collection([{"user": "ann"}, {"user": "bob"}, {"user": "ann"}])
    rows.key_by("user").aggregate(n=ps.count()).uid("totals").print()
    job = env.submit("visits")
    job.checkpoint()
    job.cancel()
    visits = pa.table({"user": ["ann"], "value": pa.array([1], pa.int64())})
    savepoints.bootstrap(tmp_path / "savepoints" / "kept").keyed_state(
        "totals", keys=["user"], state=ps.ValueStateDescriptor("visits", "int64"), data=visits
    ).write()
    (tmp_path / "savepoints" / "damaged").mkdir()
    EndedJobs(tmp_path / ENDED_JOBS, "here").write(replace(ORDERS, status=JobStatus.FAILED, error="boom"))
    return tmp_path


@pytest.fixture
def client(folder: Path) -> Iterator[TestClient]:
    app = make_app(OfflineCluster(), Access(TOKENS, Role.OPERATOR, ("localhost",)), Observed(jobs_in(folder)), 3600)
    with TestClient(app, "http://localhost", headers={"X-Penstock-Request": "1"}) as client:
        yield client


def test_jobs_and_savepoints_are_listed_with_how_they_ended(client: TestClient) -> None:
    jobs = {one["name"]: one["state"] for one in client.get("/jobs/overview").json()["jobs"]}
    assert jobs == {"visits": "CANCELED", "bootstrap (kept)": "FINISHED", "orders": "FAILED"}
    assert client.get("/jobs/orders-1/exceptions").json()["root-exception"] == "boom"


def test_their_state_is_read_from_the_files(client: TestClient) -> None:
    (operator,) = client.get("/v1/jobs/kept/state").json()["operators"]
    assert (operator["uid"], operator["states"][0]["name"]) == ("totals", "visits")
    kept = client.get("/v1/jobs/kept/state/totals/visits?isolation=checkpoint&key=ann").json()
    assert kept == {"found": True, "value": 1}
    assert client.get("/v1/jobs/kept/state/totals/visits?key=ann").status_code == 409


def test_nothing_can_be_changed(client: TestClient) -> None:
    assert client.post("/jobs/orders-1/savepoints", json={}).status_code == 409
    assert client.patch("/jobs/orders-1").status_code == 409


def test_logs_of_a_job_that_has_ended_are_said_to_be_in_rays_files(client: TestClient) -> None:
    found = client.get("/v1/jobs/orders-1/logs")
    assert found.json()["lines"] == []
    assert "ray/session_*/logs/worker-*" in found.json()["remark"]


def _cancelled(folder: Path) -> str:
    """A job of which only what its manager wrote down is left; its id."""
    env = local_environment(1, checkpoints=ps.checkpoints("1min", str(folder)))
    env.from_collection([{"user": "ann"}]).print()
    job = env.submit("gone")
    job.checkpoint()
    job.cancel()
    (left,) = [path for path in folder.iterdir() if path.name.startswith("gone")]
    assert sorted(path.name for path in left.iterdir()) == ["claims", "log"]
    return left.name


def test_a_job_of_which_no_checkpoint_is_left_is_listed(tmp_path: Path) -> None:
    job_id = _cancelled(tmp_path / "checkpoints")
    for folder in (tmp_path, tmp_path / "checkpoints"):
        (info,) = jobs_in(folder)
        assert (info.id, info.name, info.status) == (job_id, "gone", JobStatus.CANCELLED)
        assert 0 < info.started_ms <= info.since_ms
        assert info.checkpoints is None


def test_a_server_that_begins_lists_the_jobs_that_had_ended_before(folder: Path) -> None:
    _cancelled(folder / "checkpoints")
    options = ServerOptions(folder=str(folder), storage=str(folder / "checkpoints"))
    noted = replace(ORDERS, id="noted-1", name="noted", status=JobStatus.FINISHED)
    app = Served(options, OfflineCluster(), [noted], "here").application()
    with TestClient(app, "http://localhost") as client:
        jobs = {one["name"]: one["state"] for one in client.get("/jobs/overview").json()["jobs"]}
        listed = {"visits": "CANCELED", "gone": "CANCELED", "noted": "FINISHED", "orders": "FAILED"}
        assert jobs == listed
        gone = next(one for one in client.get("/jobs/overview").json()["jobs"] if one["name"] == "gone")
        assert client.get(f"/jobs/{gone['jid']}").status_code == 200
