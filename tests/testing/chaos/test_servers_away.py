"""A job has its time to recover from when its servers are back: while one is away, nothing else can be expected."""

from __future__ import annotations

import threading
from typing import Any

from penstock.engine.job.info import JobInfo
from penstock.testing.chaos import (
    AfterSeconds,
    ChaosHarness,
    ChaosSchedule,
    RestartServer,
    ScheduledFault,
    TakeSavepoint,
)
from penstock.testing.chaos.report import DONE
from tests.testing.chaos.test_missed import Running

LOOKS = 12
"""Of twenty a second: for longer than the patience of these runs."""


class Waiting(Running):
    """A job whose savepoint needs the server, which is back when the job has been looked at so often."""

    def __init__(self) -> None:
        super().__init__()
        self.back = threading.Event()

    def info(self) -> JobInfo:
        if self.asked >= LOOKS:
            self.back.set()
        return super().info()

    def savepoint(self, directory: str | None = None, **_: Any) -> str:
        assert self.back.wait(60)
        return "file:///savepoint"


class Away:
    """A server that takes its time to restart."""

    def __init__(self, back: threading.Event) -> None:
        self._back = back

    def restart(self) -> None:
        assert self._back.wait(60)

    kill = start = pause = resume = restart


def test_the_patience_with_a_job_begins_when_its_servers_are_back(monkeypatch: Any) -> None:
    job = Waiting()
    monkeypatch.setattr("penstock.testing.chaos.harness.find_job", lambda name: job)
    monkeypatch.setattr("penstock.testing.chaos.harness.processes_elsewhere", dict)
    faults = [ScheduledFault(AfterSeconds(0), fault) for fault in (RestartServer("kafka"), TakeSavepoint())]
    run = ChaosHarness("payments", ChaosSchedule(faults), patience="400ms", servers={"kafka": Away(job.back)}).run()
    assert run.violations == []
    assert run.faults[1].outcome == DONE
