"""State over REST: what there is, single keys and scans, live and as of a checkpoint, for operators alone."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.web.security import Role
from penstock.web.state_routes import ARROW
from tests.web.conftest import TOKENS, Serve
from tests.web.fakes import FakeCluster

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


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("?isolation=dirty", 400),
        ("?limit=0", 400),
        ("?limit=10001", 400),
        ("?key=ann&key=bob", 409),
    ],
)
def test_what_makes_no_sense_is_refused(serve: Serve, query: str, status: int) -> None:
    assert serve().get(STATE + query).status_code == status


def test_values_are_for_operators(serve: Serve) -> None:
    client = serve(Role.NOBODY, authorization=f"Bearer {TOKENS.viewer}")
    assert client.get(f"{STATE}?key=ann").status_code == 403


def test_a_job_that_recovers_is_asked_again_later(serve: Serve, cluster: FakeCluster) -> None:
    client = serve()
    cluster.away = True
    answer = client.get(f"{STATE}?key=ann")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
