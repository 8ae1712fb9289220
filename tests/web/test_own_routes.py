"""What the pages are given by Penstock's own paths."""

from __future__ import annotations

from starlette.testclient import TestClient

from penstock.web.app import make_app
from penstock.web.cluster import Reading
from penstock.web.observed import Observed
from penstock.web.security import Access, Role
from tests.web.fakes import ORDERS, TOKENS, FakeCluster, orders_metrics


def test_charts_are_of_all_tasks_or_of_those_with_the_busiest_subtasks(cluster: FakeCluster) -> None:
    observed = Observed()
    for second in (10, 20):
        observed.see(ORDERS, orders_metrics(second, busy=0.9, blocked=0.8), float(second), 1000 * second)
    cluster.readings = [Reading(ORDERS, orders_metrics(30, busy=0.9, blocked=0.8))]
    access = Access(TOKENS, Role.OPERATOR, ("localhost",))
    with TestClient(make_app(cluster, access, observed, every=3600), "http://localhost") as client:
        charts = "/v1/jobs/orders-1/charts"
        everything = client.get(charts).json()
        # The first task is blocked for most of its time.
        assert {*everything} == {"1", "2"}
        assert client.get(f"{charts}?busiest=1").json() == {"2": everything["2"]}
        assert client.get(f"{charts}?busiest=8").json() == everything
        assert client.get(f"{charts}?busiest=0").status_code == 400
        assert client.get(f"{charts}?busy=1").status_code == 400
