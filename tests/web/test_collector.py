"""A cluster that does not answer, or answers oddly, ends no watching."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock.web.cluster import Reading
from penstock.web.collector import Collector
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
