"""A cluster that does not answer, or answers oddly, ends no watching."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from penstock.engine.job.info import JobInfo
from penstock.engine.job.status import JobStatus
from penstock.web.cluster import Node, Reading
from penstock.web.collector import EVERY_SECONDS, SOON_SECONDS, Collector
from penstock.web.observed import Observed
from tests.web.fakes import ORDERS, FakeCluster


def test_a_reading_that_fails_is_told_and_the_next_one_counts() -> None:
    cluster = FakeCluster()
    collector = Collector(cluster, Observed())

    async def readings() -> list[Any]:
        told = []
        for away, metrics in ((False, []), (True, []), (False, [None]), (False, [])):
            cluster.away, cluster.readings = away, [Reading(ORDERS, metrics)]  # type: ignore[arg-type]
            await collector.read()
            told.append(collector.problem)
        return told

    fine, away, odd, again = asyncio.run(readings())
    assert (fine, again) == (None, None)
    assert away == "ConnectionError: the cluster is away"
    assert odd.startswith("AttributeError")
    assert collector.observed.jobs()[0].answers


def test_who_listens_hears_of_each_reading_and_is_forgotten_when_it_goes() -> None:
    collector = Collector(FakeCluster(), Observed())

    async def listening() -> list[bool]:
        impatient, patient = collector.news(0.0), collector.news(60.0)
        heard = [await anext(impatient)]
        waiting = asyncio.ensure_future(anext(patient))
        await asyncio.sleep(0)
        await collector.read()
        heard.append(await waiting)
        assert collector.listeners == 2
        for news in (impatient, patient):
            await news.aclose()
        return heard

    assert asyncio.run(listening()) == [False, True]
    assert collector.listeners == 0


def test_threads_that_wait_for_something_else_do_not_keep_readings_waiting() -> None:
    collector, release = Collector(FakeCluster(), Observed()), threading.Event()

    async def reading() -> None:
        profiles = [asyncio.ensure_future(asyncio.to_thread(release.wait)) for _ in range(64)]
        try:
            await asyncio.wait_for(collector.read(), 10)
        finally:
            release.set()
            await asyncio.gather(*profiles)

    asyncio.run(reading())
    assert collector.problem is None


def test_a_job_that_has_not_answered_yet_is_not_said_to_be_away() -> None:
    cluster = FakeCluster()
    collector = Collector(cluster, Observed())

    async def answers() -> list[bool]:
        told = []
        for readings, slow in ((cluster.readings, ()), ([], ("orders-1",)), ([], ())):
            cluster.readings, cluster.slow = readings, slow
            await collector.read()
            told.append(collector.observed.jobs()[0].answers)
        return told

    assert asyncio.run(answers()) == [True, True, False]


def test_a_reading_is_worked_out_beside_those_who_ask() -> None:
    observed, threads = Observed(), []
    see = observed.see

    def seen(*arguments: Any) -> Any:
        threads.append(threading.current_thread())
        return see(*arguments)

    observed.see = seen  # type: ignore[method-assign]
    asyncio.run(Collector(FakeCluster(), observed).read())
    assert threads
    assert threading.main_thread() not in threads


class Paused(Exception):
    """The collector is about to wait."""


# The tests may begin long behind their import.
JUST_NOW = replace(ORDERS, since_ms=time.time_ns() // 1_000_000 + 3_600_000)


@pytest.mark.parametrize(
    ("then", "slow", "pause"),
    [
        (ORDERS, (), EVERY_SECONDS),
        (replace(JUST_NOW, status=JobStatus.RESTARTING), (), SOON_SECONDS),
        (replace(JUST_NOW, status=JobStatus.DEPLOYING), (), SOON_SECONDS),
        (replace(ORDERS, status=JobStatus.RESTARTING), (), EVERY_SECONDS),
        (replace(JUST_NOW, status=JobStatus.FAILED), (), EVERY_SECONDS),
        (None, ("orders-1",), SOON_SECONDS),
        (None, (), SOON_SECONDS),
    ],
    ids=["runs", "restarts", "begins", "has waited for long", "has failed", "is awaited", "is away"],
)
def test_a_job_that_may_be_back_at_any_moment_is_looked_at_more_often(
    then: JobInfo | None, slow: Sequence[str], pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, pauses = FakeCluster(), []
    collector = Collector(cluster, Observed())

    async def paused(seconds: float) -> None:
        pauses.append(seconds)
        raise Paused

    async def watching() -> None:
        await collector.read()
        cluster.readings, cluster.slow = [] if then is None else [Reading(then, [])], slow
        await collector.read()
        monkeypatch.setattr(asyncio, "sleep", paused)
        await collector.run()

    with pytest.raises(Paused):
        asyncio.run(watching())
    # A reading that took work puts the next one off.
    assert pauses[0] == pytest.approx(pause, abs=0.2)


def test_nodes_are_read_when_somebody_asks_and_shown_as_they_are_then() -> None:
    cluster, now = FakeCluster(), FakeCluster().nodes()
    asked: list[Sequence[Node]] = []

    def nodes() -> Sequence[Node]:
        if cluster.away:
            raise ConnectionError("the cluster is away")
        asked.append(now)
        return now

    cluster.nodes = nodes  # type: ignore[method-assign]
    seldom, at_once = Collector(cluster, Observed()), Collector(cluster, Observed(), every=0.0)

    async def look() -> list[bool]:
        nonlocal now
        for collector in (seldom, at_once):
            await collector.read()
        assert not asked, "nobody has asked yet"
        alive = [(await collector.nodes())[0].alive for collector in (seldom, at_once)]
        now = [replace(node, alive=False) for node in now]
        alive += [(await collector.nodes())[0].alive for collector in (at_once, seldom)]
        cluster.away = True
        return [*alive, (await at_once.nodes())[0].alive]

    assert asyncio.run(look()) == [True, True, False, True, False]
    assert len(asked) == 3
