"""What the server asks of job managers: all at once, none twice, and what becomes of those that do not answer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError

from penstock.actors.client_view import JobReport
from penstock.engine.errors import JobError, WorkerLostError
from penstock.engine.job.info import JobInfo
from penstock.engine.job.status import JobStatus
from penstock.web import cluster as web_cluster
from penstock.web.cluster import RayCluster
from tests.web.fakes import ORDERS

SALES = replace(ORDERS, id="sales-1", name="sales")


@dataclass(eq=False)
class Call:
    """A call to an actor; None: there is no answer yet."""

    answer: Any = None


@dataclass(eq=False)
class Control:
    """A job whose manager says what it is told to."""

    now: JobInfo
    answers: bool = True
    error: Exception | None = None
    asked: list[Call] = field(default_factory=list)
    ends: list[Call] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.now.name

    @property
    def manager_id(self) -> str:
        return f"manager of {self.now.id}"

    def reading(self) -> Call:
        if isinstance(self.error, AttributeError):
            raise self.error
        said = self.error or (self.now, ())
        self.asked.append(Call(said if self.answers else None))
        return self.asked[-1]

    def end(self) -> Call:
        self.ends.append(Call())
        return self.ends[-1]

    def info(self) -> JobInfo:
        raise WorkerLostError("gone")


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> dict[str, Control]:
    """The jobs by name; calls to them are not Ray's."""
    there = {"orders": Control(ORDERS), "sales": Control(SALES)}

    def wait(calls: list[Call], num_returns: int = 1, timeout: float = 0) -> tuple[list[Call], list[Call]]:
        return [one for one in calls if one.answer is not None], [one for one in calls if one.answer is None]

    def get(call: Call, timeout: float | None = None) -> Any:
        if isinstance(call.answer, Exception):
            raise call.answer
        return call.answer

    monkeypatch.setattr(ray, "wait", wait)
    monkeypatch.setattr(ray, "get", get)
    monkeypatch.setattr("penstock.actors.registry.named_jobs", lambda: there)
    return there


def test_a_manager_that_is_stopped_keeps_no_other_waiting_and_is_asked_once(
    jobs: dict[str, Control], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = RayCluster()
    assert {reading.info.id for reading in cluster.read()} == {"orders-1", "sales-1"}
    jobs["orders"].answers = False
    asked = len(jobs["orders"].asked)
    for _ in range(5):
        assert [reading.info.id for reading in cluster.read()] == ["sales-1"]
    assert len(jobs["orders"].asked) == asked + 1, "questions gather where nobody answers"
    assert list(cluster.awaited()) == ["orders-1"]
    monkeypatch.setattr(web_cluster, "_SILENT_SECONDS", 0.0)
    assert list(cluster.awaited()) == []
    jobs["orders"].answers = True
    jobs["orders"].asked[-1].answer = (ORDERS, ())
    assert {reading.info.id for reading in cluster.read()} == {"orders-1", "sales-1"}


def test_a_manager_that_fails_to_answer_hides_no_other_job(jobs: dict[str, Control]) -> None:
    jobs["orders"].error = JobError("odd")
    assert [reading.info.id for reading in RayCluster().read()] == ["sales-1"]
    jobs["orders"].error = AttributeError("it is of another version")
    assert [reading.info.id for reading in RayCluster().read()] == ["sales-1"]
    jobs["orders"].error = ActorUnavailableError("it is being restarted", b"0" * 16)
    cluster = RayCluster()
    assert [reading.info.id for reading in cluster.read()] == ["sales-1"]
    jobs["orders"].ends[-1].answer = jobs["orders"].error
    assert [reading.info.id for reading in cluster.read()] == ["sales-1"]
    jobs["orders"].error = None
    assert {reading.info.id for reading in cluster.read()} == {"orders-1", "sales-1"}


@pytest.mark.parametrize("lost", [False, True])
def test_how_a_job_has_ended_is_told_once_when_its_manager_has_left(jobs: dict[str, Control], lost: bool) -> None:
    cluster = RayCluster()
    cluster.read()
    gone = jobs.pop("orders")
    gone.ends[-1].answer = ActorDiedError() if lost else JobReport(JobStatus.CANCELLED, None, [])
    sales, ended = sorted(cluster.read(), key=lambda one: one.info.status.ended)
    assert ended.info.id == "orders-1"
    assert ended.info.status is (JobStatus.FAILED if lost else JobStatus.CANCELLED)
    assert ("the job manager's process died" in (ended.info.error or "")) is lost
    assert [reading.info.id for reading in cluster.read()] == [sales.info.id]


def test_a_job_whose_end_its_manager_has_told_is_not_told_again(jobs: dict[str, Control]) -> None:
    cluster = RayCluster()
    jobs["orders"].now = replace(ORDERS, status=JobStatus.FINISHED)
    assert len(cluster.read()) == 2
    jobs["orders"].ends[-1].answer = JobReport(JobStatus.FINISHED, None, [])
    del jobs["orders"]
    assert [reading.info.id for reading in cluster.read()] == ["sales-1"]
