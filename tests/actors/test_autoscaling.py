"""The autoscaler beside a job's manager: it asks for rescales, and gets over refusals. Without Ray."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from penstock.actors.autoscaling import Autoscaling
from penstock.engine.autoscaler.readings import JobReading
from penstock.engine.autoscaler_config import AutoscalerConfig
from penstock.engine.errors import ClusterError, NoRoomError
from tests.engine.autoscaler.workload import Stage, Workload


class Job:
    """A job that is too slow; refuses the first rescale.

    Args:
        refusal: by what.
    """

    def __init__(self, refusal: Exception | None = None) -> None:
        self.refusal = refusal or ClusterError("there is no room")
        self.workload = Workload([Stage("source", 50_000), Stage("window", 1000)], lambda at: 3500.0)
        self.asked: list[Mapping[str, int]] = []
        self.runs = True

    async def read(self) -> JobReading | None:
        self.workload._flow()
        return self.workload.reading() if self.runs else None

    async def rescale(self, wanted: Mapping[str, int]) -> float:
        self.asked.append(wanted)
        if len(self.asked) == 1:
            raise self.refusal
        return 0.5


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        (ClusterError("there is no room"), "there is no room"),
        (KeyError("a defect"), "'a defect'"),
        (OSError(), "OSError"),
    ],
)
def test_a_refused_rescale_is_asked_for_again_and_the_answer_is_kept(refusal: Exception, message: str) -> None:
    job = Job(refusal)
    autoscaling = Autoscaling(AutoscalerConfig(enabled=True), job.read, job.rescale)

    async def look() -> None:
        for _ in range(1000):
            await autoscaling.look()
            if len(job.asked) == 2:
                break

    asyncio.run(look())
    first, second = autoscaling.report().history
    assert (first.outcome, first.message) == ("refused", message)
    assert (second.outcome, second.seconds) == ("rescaled", 0.5)


def test_what_there_is_room_for_is_asked_for_at_the_next_look() -> None:
    job = Job(NoRoomError("there is room for 3 slots", 3))
    autoscaling = Autoscaling(AutoscalerConfig(enabled=True), job.read, job.rescale)

    async def look() -> None:
        while not job.asked:
            await autoscaling.look()
        await autoscaling.look()

    asyncio.run(look())
    assert job.asked[0]["window"] > 3
    assert job.asked[1] == {"window": 3}


def test_a_job_that_does_not_run_is_left_alone() -> None:
    job = Job()
    job.runs = False
    autoscaling = Autoscaling(AutoscalerConfig(enabled=True), job.read, job.rescale)
    asyncio.run(autoscaling.look())
    assert autoscaling.report().state == "waiting for the job to run"


def test_a_failure_to_look_is_no_end_of_looking() -> None:
    job = Job()
    failures = iter([RuntimeError("lost"), RuntimeError("lost")])

    async def run() -> None:
        looked = asyncio.Event()

        async def read() -> JobReading | None:
            for failure in failures:
                raise failure
            looked.set()
            return await job.read()

        watch = asyncio.ensure_future(Autoscaling(AutoscalerConfig(interval_ms=100), read, job.rescale).run())
        await asyncio.wait_for(looked.wait(), 30)
        watch.cancel()

    asyncio.run(run())
