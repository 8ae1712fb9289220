"""Those who ask a job for its state, and those who watch it, do so as the programs that measure them say."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from penstock import tumbling
from perf import keyed, lookups, watched, window
from perf.harness import CountingSink, Options, Reading
from tests.web.fakes import FakeCluster
from tests.web.serving import Server

LOCAL = Options(runtime="local", seconds=0.1, warm_up=0.0, repetitions=1, parallelism=1)


class Known:
    """A live state that has all keys but one."""

    def __init__(self) -> None:
        self.asked = 0

    def get(self, key: int) -> object:
        self.asked += 1
        return None if self.asked == 7 else {"sum(v)": 1.0}


def test_keys_are_asked_for_until_the_measurement_is_over() -> None:
    state: Any = Known()
    with lookups._asking(state, lookups._one_by_one) as asked:
        deadline = time.monotonic() + 120
        while len(asked.seconds) < 10 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert len(asked.seconds) == state.asked >= 10
    assert asked.wrong == 1
    found = asked.reading(Reading(1_000.0, 500.0))
    assert found.latency_ms["p50"] is not None
    # Two cores less what those who ask have used.
    assert found.events_per_cpu_second == pytest.approx(1_000 / (2 - asked.cores))
    assert found.latency_ms["asker"] == pytest.approx(1000 * asked.cpu_seconds / len(asked.seconds))


def test_a_job_is_measured_asked_and_alone() -> None:
    state: Any = Known()
    state.asked = 7
    workload = lookups._named(keyed.workload(LOCAL, "uniform", 1_000, "coalesced"))
    env = LOCAL.environment()
    workload.stream(env).sink_to(CountingSink()).name("count")
    job = env.submit("asked")
    try:
        pair = lookups._pair(job, workload, LOCAL, (state, lookups._one_by_one), alone_first=True)
    finally:
        job.cancel()
    result = lookups._result("one by one", [pair])
    assert result.ours.latency_ms["p99"] is not None
    assert result.figures["rows a second when nobody asks"]["median"] > 0
    assert result.figures["less rows a second, in percent"]["readings"] == 1


def test_a_watched_job_has_latency_markers() -> None:
    env = LOCAL.environment()
    watched._marked(window.workload(LOCAL, "tumbling 10s", tumbling("10s"))).stream(env)
    assert env.config.latency_interval_ms == 1_000


def test_pages_flame_graphs_and_scrapes_ask_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, over, asked = FakeCluster(), threading.Event(), list[str]()
    server = Server(cluster)
    answer = watched._answer

    def noted(url: str) -> bytes | None:
        found = answer(url)
        asked.append(url.removeprefix(server.url) if found is not None else f"no answer: {url}")
        return found

    monkeypatch.setattr(watched, "_answer", noted)
    monkeypatch.setattr(watched, "_SCRAPE_SECONDS", 0.01)
    wanted = {"metrics", "v1/jobs/orders-1/view", "v1/jobs/orders-1/tasks/2/0/flame?seconds=3"}
    watchers: list[Callable[[str, threading.Event], None]] = [watched._scrape, watched._look, watched._take_flames]
    threads = [threading.Thread(target=one, args=(server.url, over), daemon=True) for one in watchers]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 120
    while not wanted <= set(asked) and time.monotonic() < deadline:
        time.sleep(0.01)
    over.set()
    for thread in threads:
        thread.join(30)
    server.stop()
    assert wanted <= set(asked)
    assert not [url for url in asked if url.startswith("no answer")]


def test_what_watching_takes_is_told_by_whose_cpu_it_is() -> None:
    alone = {"/usr/lib/raylet": 5.0, "ray::JobManager": 4.0, "ray::SubtaskActor:sums/0": 2.0, "python": 3.0}
    watched_by = {
        **alone,
        "ray::JobManager": 6.0,
        "ray::SubtaskActor:sums/1": 0.5,
        "ray::ConsoleActor": 7.0,
        "python": 4.0,
    }
    pairs = [(watched._by_owner(watched_by), watched._by_owner(alone))] * 3
    figures = watched._at_rest("at rest", pairs).figures
    found = {name.removeprefix("CPU ms/s, "): figure["median"] for name, figure in figures.items()}
    assert found == {
        "console": 7.0,
        "job manager": 2.0,
        "subtasks": 0.5,
        "GCS": 0.0,
        "raylet": 0.0,
        "who asks, and Ray's helpers": 1.0,
        "all": 10.5,
        "all but who asks and Ray's helpers": 9.5,
    }
