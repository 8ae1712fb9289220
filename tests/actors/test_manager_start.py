"""Who bears the name of a job: a manager that has ended leaves, and one that does not is told of."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.exceptions import ActorAlreadyExistsError

from penstock.actors import job_manager, manager_start
from penstock.actors.client_view import JobReport
from penstock.actors.job_manager import JobManager
from penstock.engine.errors import ClusterError, JobError
from penstock.engine.job.info import JobInfo
from penstock.engine.job.status import JobStatus


class Taken:
    """The class of managers where one bears the name already."""

    def options(self, **options: Any) -> Taken:
        return self

    def remote(self, *arguments: Any) -> Any:
        raise ActorAlreadyExistsError("taken")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the manager that bears the name of `orders` was asked; nobody waits."""
    calls: list[str] = []
    monkeypatch.setattr(ray, "remote", lambda _: Taken())
    monkeypatch.setattr(manager_start, "head_node", lambda: None)
    monkeypatch.setattr(manager_start, "_LEAVE_SECONDS", 0.05)
    monkeypatch.setattr(manager_start, "_AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(ray, "get_actor", lambda *_: calls.append("found"))
    return calls


def with_job(monkeypatch: pytest.MonkeyPatch, calls: list[str], status: JobStatus) -> None:
    info = JobInfo("orders-1", "orders", status, manager_pid=77)
    control = SimpleNamespace(info=lambda: info, make_way=lambda: calls.append("make_way"))
    monkeypatch.setattr(manager_start, "JobControl", lambda *_: control)


def test_a_manager_that_does_not_leave_is_named(monkeypatch: pytest.MonkeyPatch, asked: list[str]) -> None:
    with_job(monkeypatch, asked, JobStatus.FAILED)
    with pytest.raises(ClusterError, match=r"its manager \(process 77\) keeps the name"):
        manager_start.create_manager("orders", "orders-2", b"", restarts=False, detached=False)
    assert "make_way" in asked


def test_a_job_that_runs_keeps_its_name(monkeypatch: pytest.MonkeyPatch, asked: list[str]) -> None:
    with_job(monkeypatch, asked, JobStatus.RUNNING)
    with pytest.raises(JobError, match="'orders' is running already, with id orders-1"):
        manager_start.create_manager("orders", "orders-2", b"", restarts=False, detached=False)
    assert "make_way" not in asked


def test_a_name_that_nobody_answers_for_is_told_as_that(monkeypatch: pytest.MonkeyPatch, asked: list[str]) -> None:
    def get_actor(*_: Any) -> Any:
        raise ValueError("Failed to look up actor")

    monkeypatch.setattr(ray, "get_actor", get_actor)
    with pytest.raises(ClusterError, match="the name of job 'orders' cannot be had"):
        manager_start.create_manager("orders", "orders-2", b"", restarts=False, detached=False)


def test_a_manager_leaves_although_the_end_of_its_job_cannot_be_written_down(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    killed: list[str] = []
    monkeypatch.setattr(ray, "kill", killed.append)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(current_actor="the manager"))
    monkeypatch.setattr(job_manager, "_LEAVE_SECONDS", 0.0)

    def refuse(*_: Any) -> None:
        raise OSError("no notes now")

    monkeypatch.setattr(job_manager, "note_end", refuse)

    async def main() -> None:
        manager = object.__new__(JobManager)
        report: asyncio.Future[JobReport] = asyncio.get_running_loop().create_future()
        report.set_result(JobReport(JobStatus.FINISHED, None, []))

        async def nothing() -> Any:
            return None

        async def ended() -> JobReport:
            return await report

        execution = SimpleNamespace(warm=SimpleNamespace(leave_as_many=nothing))
        manager._shell = SimpleNamespace(name="orders", report=report, run=ended, execution=execution)  # type: ignore[assignment]
        manager._detached, manager._id, manager._notes = True, "m1", None  # type: ignore[assignment]
        manager._is_in_the_way = asyncio.Event()
        monkeypatch.setattr(manager, "info", nothing)
        manager._running = asyncio.ensure_future(manager._run())
        await manager.make_way()

    asyncio.run(main())
    assert killed == ["the manager"]
    assert "how job 'orders' has ended could not be written down" in caplog.text
