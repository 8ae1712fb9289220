"""State over REST: what there is, single keys and scans, live and as of a checkpoint, for operators alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pytest

from penstock.engine.errors import PenstockError, RecordError, UnknownStateError
from penstock.engine.job.status import JobStatus
from penstock.web.cluster import Reading
from penstock.web.security import Role
from penstock.web.state_routes import ARROW
from tests.web.conftest import Serve, take_checkpoint
from tests.web.fakes import ORDERS, TOKENS, FakeCluster

STATE = "/v1/jobs/orders-1/state/totals/accumulators"


def test_a_key_is_answered_by_the_job(serve: Serve, cluster: FakeCluster) -> None:
    client = serve()
    assert client.get(f"{STATE}?key=ann").json() == {"found": True, "value": {"count(*)": 1}}
    assert client.get(f"{STATE}?key=nobody").json() == {"found": False, "value": None}
    assert cluster.asked[-1] == ("state", "orders-1", "totals", "accumulators")


def test_a_scan_gives_some_rows_and_says_where_there_are_more(serve: Serve) -> None:
    found = serve().get(f"{STATE}?limit=1").json()
    assert found["columns"] == [{"name": "user", "type": "string"}, {"name": "count(*)", "type": "int64"}]
    assert (len(found["rows"]), found["more"]) == (1, True)
    assert serve().get(STATE).json()["more"] is False


def test_many_rows_come_as_arrow(serve: Serve) -> None:
    answer = serve().get(STATE, headers={"accept": ARROW})
    table = pa.ipc.open_stream(answer.content).read_all()
    assert sorted(table.column("user").to_pylist()) == ["ann", "bob"]


@pytest.mark.usefixtures("checkpointed")
def test_a_checkpoint_is_read_from_its_files(serve: Serve) -> None:
    client = serve()
    (operator,) = client.get("/v1/jobs/orders-1/state").json()["operators"]
    assert (operator["uid"], [one["name"] for one in operator["states"]]) == ("totals", ["visits"])
    assert operator["states"][0]["stored-rows"] == 3
    assert operator["bytes"] > 0
    visits = "/v1/jobs/orders-1/state/totals/visits?isolation=checkpoint"
    assert client.get(f"{visits}&key=bob").json() == {"found": True, "value": 2}
    assert len(client.get(visits).json()["rows"]) == 3


@pytest.mark.parametrize("place", ["state/totals/visits", "tail/totals", "tasks/2/0/stack", "tasks/2/0/channels"])
def test_what_only_processes_tell_is_refused_once_the_job_has_ended(
    serve: Serve, cluster: FakeCluster, place: str
) -> None:
    cluster.readings = [Reading(replace(ORDERS, status=JobStatus.FINISHED), [])]
    answer = serve().get(f"/v1/jobs/orders-1/{place}")
    assert (answer.status_code, "the job has ended: it is finished" in answer.text) == (409, True)


@pytest.mark.usefixtures("checkpointed")
def test_a_checkpoint_whose_files_have_gone_meanwhile_is_asked_for_anew(serve: Serve, cluster: FakeCluster) -> None:
    gone, (there,) = "file:///nowhere/chk-6", cluster.checkpoint_urls
    for place in ("", "/totals/visits?isolation=checkpoint", "/totals/visits?isolation=checkpoint&key=bob"):
        cluster.checkpoint_urls = [gone, there]
        assert serve().get(f"/v1/jobs/orders-1/state{place}").status_code == 200


@pytest.mark.usefixtures("checkpointed")
def test_the_keys_that_the_job_holds_now_are_told_where_they_are_counted(serve: Serve, cluster: FakeCluster) -> None:
    def keys() -> int | None:
        (operator,) = serve().get("/v1/jobs/orders-1/state").json()["operators"]
        found: int | None = operator["states"][0]["keys"]
        return found

    assert keys() is None
    for one in cluster.readings[0].metrics[1:]:
        one.operators[0][1].count_keys("visits", cluster, lambda _, subtask=one.subtask: 4 + subtask)
    assert keys() == 9


def test_keys_of_states_with_names_alike_are_told_apart(serve: Serve, cluster: FakeCluster, tmp_path: Path) -> None:
    # Fall together in the characters of Prometheus.
    names = ("余额", "订单", "a-b", "a_b")
    take_checkpoint(cluster, tmp_path, *names)
    for one in cluster.readings[0].metrics[1:]:
        for count, name in enumerate(names):
            one.operators[0][1].count_keys(name, cluster, lambda _, count=count: count)
    (operator,) = serve().get("/v1/jobs/orders-1/state").json()["operators"]
    assert {one["name"]: one["keys"] for one in operator["states"]} == dict(zip(names, (0, 2, 4, 6), strict=True))


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("?isolation=dirty", 400),
        ("?limit=0", 400),
        ("?limit=10001", 400),
        ("?key=ann&key=bob", 409),
        ("?keyy=ann", 400),
    ],
)
def test_what_makes_no_sense_is_refused(serve: Serve, query: str, status: int) -> None:
    assert serve().get(STATE + query).status_code == status


@pytest.mark.usefixtures("checkpointed")
@pytest.mark.parametrize("place", ["nobody/visits", "totals/nothing"])
def test_what_a_checkpoint_does_not_have_is_not_there(serve: Serve, place: str) -> None:
    answer = serve().get(f"/v1/jobs/orders-1/state/{place}?isolation=checkpoint&key=ann")
    assert (answer.status_code, "has no" in answer.json()["errors"][0]) == (404, True)


@pytest.mark.parametrize(
    ("error", "status"), [(UnknownStateError("no such"), 404), (RecordError("'x' is no number"), 400)]
)
def test_what_is_asked_for_wrongly_is_no_conflict(
    serve: Serve, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, error: PenstockError, status: int
) -> None:
    def refuse(*asked: str) -> NoReturn:
        raise error

    monkeypatch.setattr(cluster, "live_state", refuse)
    assert serve().get(f"{STATE}?key=ann").status_code == status


def test_values_are_for_operators(serve: Serve) -> None:
    client = serve(Role.NOBODY, authorization=f"Bearer {TOKENS.viewer}")
    assert client.get(f"{STATE}?key=ann").status_code == 403


def test_a_job_that_recovers_is_asked_again_later(serve: Serve, cluster: FakeCluster) -> None:
    client = serve()
    cluster.away = True
    answer = client.get(f"{STATE}?key=ann")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


def test_the_last_rows_of_a_stream_are_looked_at(serve: Serve, cluster: FakeCluster) -> None:
    client = serve()
    found = client.get("/v1/jobs/orders-1/tail/totals?rows=1&seconds=2&side=late").json()
    assert found["rows"] == [{"subtask": 0, "amount": 5, "token": "***"}]
    assert (found["seen"], [one["name"] for one in found["columns"]]) == (12, ["subtask", "amount", "token"])
    assert cluster.asked == [("tail", "orders-1", "totals", "late", 1, 2.0)]


@pytest.mark.parametrize("query", ["rows=0", "rows=1001", "rows=x", "seconds=0", "seconds=61"])
def test_nobody_looks_for_too_long_or_at_too_much(serve: Serve, cluster: FakeCluster, query: str) -> None:
    assert serve().get(f"/v1/jobs/orders-1/tail/totals?{query}").status_code == 400
    assert not cluster.asked
