"""Those who look at threads for a minute keep nobody else waiting, and are so many at most."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.web.conftest import Serve
from tests.web.fakes import FakeCluster

AT_ONCE = 8
JOB = "/v1/jobs/orders-1"


def test_flame_graphs_keep_no_state_waiting_and_are_so_many_at_most(
    serve: Serve, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    release, under_way = threading.Event(), threading.Semaphore(0)
    stacks = cluster.stacks

    def looking(*arguments: Any) -> Any:
        under_way.release()
        release.wait(60)
        return stacks(*arguments)

    monkeypatch.setattr(cluster, "stacks", looking)
    client = serve()
    with ThreadPoolExecutor(AT_ONCE) as threads:
        flames = [threads.submit(client.get, f"{JOB}/tasks/2/0/flame") for _ in range(AT_ONCE)]
        try:
            for _ in flames:
                assert under_way.acquire(timeout=120)
            refused = client.get(f"{JOB}/vertices/2/flamegraph")
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            assert client.get(f"{JOB}/state/totals/accumulators?key=ann").status_code == 200
            assert client.get(f"{JOB}/logs").status_code == 200
            assert client.get("/metrics").status_code == 200
        finally:
            release.set()
    assert {flame.result().status_code for flame in flames} == {200}
    assert client.get(f"{JOB}/tasks/2/0/flame").status_code == 200


@pytest.mark.parametrize(
    ("query", "waits", "computes"), [("", 2, 3), ("type=FULL", 2, 3), ("type=ON_CPU", 0, 3), ("type=OFF_CPU", 2, 0)]
)
@pytest.mark.parametrize("path", ["vertices/2/flamegraph", "tasks/2/flame", "tasks/2/0/flame"])
def test_flame_graphs_show_what_computes_or_what_waits(
    serve: Serve, path: str, query: str, waits: int, computes: int
) -> None:
    found = serve().get(f"{JOB}/{path}?{query}").json()
    tree = found.get("data", found)
    (thread,) = tree["children"]
    assert tree["value"] == thread["value"] == waits + computes
    by_call = {child["name"].split()[0]: child["value"] for child in thread["children"]}
    assert by_call == {name: seen for name, seen in (("step", computes), ("wait", waits)) if seen}


@pytest.mark.parametrize(
    ("path", "subtask"),
    [
        ("vertices/2/flamegraph", None),
        ("vertices/2/flamegraph?subtaskindex=1", 1),
        ("tasks/2/flame", None),
        ("tasks/2/1/flame", 1),
    ],
)
def test_flame_graphs_are_of_one_subtask_or_of_all(
    serve: Serve, cluster: FakeCluster, path: str, subtask: int | None
) -> None:
    assert serve().get(f"{JOB}/{path}").status_code == 200
    assert cluster.asked == [("stacks", "orders-1", 2, subtask)]


def test_a_kind_of_samples_that_there_is_not_is_refused(serve: Serve) -> None:
    answer = serve().get(f"{JOB}/vertices/2/flamegraph?type=on_cpu")
    assert answer.status_code == 400
    assert "FULL, ON_CPU, OFF_CPU" in answer.text
