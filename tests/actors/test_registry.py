"""How jobs of a cluster are listed, and what is said where none has the name."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError

from penstock.actors import registry
from penstock.actors.registry import JobControl, answer_of, find_job, list_jobs
from penstock.engine.errors import JobError, NoAnswerError, WorkerLostError
from penstock.engine.job.info import JobInfo
from penstock.engine.job.status import JobStatus


def jobs_are(monkeypatch: pytest.MonkeyPatch, *infos: JobInfo) -> None:
    jobs = {info.name: SimpleNamespace(info=lambda info=info: info) for info in infos}
    monkeypatch.setattr("penstock.actors.registry.named_jobs", lambda: jobs)
    monkeypatch.setattr("penstock.actors.registry.ended_jobs", lambda notes: [])
    monkeypatch.setattr("penstock.actors.registry.ClusterNotes", lambda: None)


def job(name: str, status: str, since_ms: int) -> JobInfo:
    return JobInfo(f"{name}-cd2a6a97", name, JobStatus(status), since_ms)


def test_jobs_that_have_not_ended_come_first_by_name_and_the_others_the_last_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs_are(
        monkeypatch,
        job("a", "cancelled", 5),
        job("d", "running", 9),
        job("b", "failed", 7),
        job("c", "restarting", 8),
        job("e", "running", 1),
    )
    assert [info.name for info in list_jobs()] == ["c", "d", "e", "b", "a"]


def test_who_mistypes_a_name_is_told_of_one_that_is_near_and_runs_and_never_of_an_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs_are(monkeypatch, job("orders", "running", 1), job("border", "finished", 2))
    with pytest.raises(JobError, match=r"no job 'order' \(did you mean 'orders'\?\); running: orders$"):
        find_job("order")
    with pytest.raises(JobError, match=r"no job 'cd2a6a97'; running: orders$"):
        find_job("cd2a6a97")
    with pytest.raises(JobError, match=r"no job 'x-cd2a6a97'; running: orders$"):
        find_job("x-cd2a6a97")


def test_a_manager_that_cannot_be_reached_is_told_without_words_of_grpc(monkeypatch: pytest.MonkeyPatch) -> None:
    def get(call: object, timeout: float | None = None) -> None:
        raise ActorUnavailableError("RpcError: RPC Error message: failed to connect to all addresses", None)

    monkeypatch.setattr(registry, "ray", SimpleNamespace(get=get))
    with pytest.raises(NoAnswerError, match=r"takes a few seconds where the job takes checkpoints$"):
        answer_of(None, "orders")


def test_a_command_to_a_manager_that_leaves_meanwhile_is_told_how_the_job_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def get(call: object, timeout: float | None = None) -> None:
        raise ActorDiedError()

    forgotten: list[object] = []
    monkeypatch.setattr(registry, "ray", SimpleNamespace(get=get))
    monkeypatch.setattr(registry, "ClusterNotes", lambda: None)
    monkeypatch.setattr(registry, "record", lambda notes, manager, command: None)
    monkeypatch.setattr(registry, "forget", lambda notes, manager, command: forgotten.append(command))
    monkeypatch.setattr(registry, "end_of", lambda notes, manager: job("orders", "cancelled", 5))
    manager = SimpleNamespace(_actor_id=b"", obey=SimpleNamespace(remote=lambda command: None))
    assert not JobControl("orders", manager).cancel()
    # Its savepoint may have been taken, and nobody has told where it is.
    with pytest.raises(WorkerLostError):
        JobControl("orders", manager).stop()
    assert len(forgotten) == 2
    monkeypatch.setattr(registry, "end_of", lambda notes, manager: None)
    with pytest.raises(WorkerLostError):
        JobControl("orders", manager).cancel()
