"""The client of a job, with a manager and subtasks of this process: which rows are final, and how the job ends."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError, GetTimeoutError, RayActorError, RayError

from penstock.actors import client as module
from penstock.actors.client import RayJob, check_serializable
from penstock.actors.client_view import ClientChannel, ClientView, JobReport
from penstock.actors.job_manager import JobManager
from penstock.actors.results import Fetched
from penstock.engine.checkpoint_config import CheckpointConfig
from penstock.engine.checkpointing.store import JobFolder
from penstock.engine.elements import Batch
from penstock.engine.errors import (
    ConfigurationError,
    JobCancelledError,
    JobFailedError,
    RecordError,
    SerializationError,
)
from penstock.engine.job import events as ev
from penstock.engine.job.handle import CollectedRows
from penstock.engine.job.status import JobStatus
from tests.actors.fakes import program_of

RESULT, PLACE = 2, (1, 0)


class Ref:
    """A call whose answer is there once it is given."""

    def __init__(self, name: str, arguments: tuple[Any, ...]) -> None:
        self.name, self.arguments = name, arguments
        self.answers: list[Any] = []

    @staticmethod
    def future() -> Future[Any]:
        """Of a call whose answer nobody waits for."""
        return Future()


class Calls:
    """An actor: each call to it waits in `calls` for its answer."""

    def __init__(self) -> None:
        self.calls: list[Ref] = []

    def __getattr__(self, name: str) -> Any:
        def remote(*arguments: Any) -> Ref:
            self.calls.append(Ref(name, arguments))
            return self.calls[-1]

        return SimpleNamespace(remote=remote)

    def open(self, name: str) -> list[Ref]:
        return [call for call in self.calls if call.name == name and not call.answers]

    def answer(self, name: str, answer: Any) -> None:
        """Answer the newest call."""
        self.open(name)[-1].answers.append(answer)


class Client:
    """A job, seen by its client, with the calls to its manager and to the subtask of each attempt."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, checkpoints: bool = True, detached: bool = False) -> None:
        self.manager, self.killed = Calls(), []  # type: ignore[var-annotated]
        self.waits: list[float] = []
        self.rows = CollectedRows(None)
        here = SimpleNamespace(get_node_ip_address=lambda: "10.0.0.7")
        fake = SimpleNamespace(wait=self._wait, get=self._get, kill=self.killed.append, util=here)
        monkeypatch.setattr(module, "ray", fake)
        monkeypatch.setattr(module, "ObjectRef", Ref)
        monkeypatch.setattr(module, "create_manager", lambda *_: self.manager)
        monkeypatch.setattr(module, "remove_slots", self.killed.append)
        monkeypatch.setattr(module, "_AGAIN_SECONDS", 0.0)
        program = program_of(**({"checkpoints": CheckpointConfig(interval_ms=1_000)} if checkpoints else {}))
        folder = JobFolder(SimpleNamespace(), "numbers-1") if checkpoints else None  # type: ignore[arg-type]
        self.job = RayJob(program, {} if detached else {RESULT: self.rows}, folder, detached)

    @staticmethod
    def _wait(refs: Sequence[Ref], timeout: float | None = None, **_: Any) -> tuple[list[Ref], list[Ref]]:
        ready = [ref for ref in refs if ref.answers]
        return ready, [ref for ref in refs if not ref.answers]

    def _get(self, ref: Ref, timeout: float | None = None) -> Any:
        if not ref.answers:
            raise RayError("no answer in time")
        if isinstance(ref.answers[0], GetTimeoutError):
            self.waits.append(timeout or 0.0)
        if isinstance(ref.answers[0], Exception):
            raise ref.answers[0]
        return ref.answers[0]

    def follow(self, attempt: int, restored: int = 0, completed: int = 0) -> Calls:
        """The manager tells of an attempt; its subtask."""
        actor = Calls()
        channel = ClientChannel(RESULT, PLACE, 0, actor, attempt, restored)
        self.manager.answer("client_view", ClientView(attempt, restored, completed, [channel]))
        self.job.pump(0)
        return actor

    def came(self, actor: Calls, *rows: tuple[int, int], more: bool = True, completed: int = 0) -> list[int]:
        """The subtask gives rows, each behind a checkpoint; what is final then."""
        tagged = [(behind, Batch(pa.record_batch({"n": [number]}))) for behind, number in rows]
        actor.answer("fetch", Fetched(tagged, more, completed))
        self.job.pump(0)
        return self.final()

    def ended(self, status: JobStatus, error: Any = None, completed: int = 0) -> list[int]:
        """The manager tells that the job has ended; what is final then."""
        self.manager.answer("wait_for_end", JobReport(status, error, [], completed))
        for view in self.manager.open("client_view"):
            view.answers.append(None)
        with contextlib.suppress(JobFailedError):
            self.job.pump(0)
        return self.final()

    def final(self) -> list[int]:
        return [row["n"] for row in self.rows.take_rows()]


def test_rows_are_final_with_the_checkpoint_behind_them(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(monkeypatch)
    actor = client.follow(1)
    assert client.came(actor, (0, 10), (1, 11)) == []
    assert client.came(actor, (1, 12), completed=1) == [10]
    assert client.came(actor, (2, 13), completed=2) == [11, 12]
    assert [call.arguments for call in actor.calls] == [(1, 0, received, 1.0) for received in (0, 2, 3, 4)]
    assert client.came(actor, more=False) == []
    assert client.ended(JobStatus.FINISHED) == [13]
    client.job.wait()


def test_without_checkpoints_rows_are_final_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(monkeypatch, checkpoints=False)
    assert client.came(client.follow(1), (0, 10)) == [10]


def test_rows_that_a_restored_attempt_gives_again_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(monkeypatch)
    first = client.follow(1)
    client.came(first, (0, 10), (1, 11))
    second = client.follow(2, restored=1, completed=1)
    assert client.final() == [10]
    first.answer("fetch", Fetched([(1, Batch(pa.record_batch({"n": [99]})))], True, 0))
    assert client.came(second, (1, 11), (1, 12)) == [], "what the old attempt still says is nothing"
    assert client.came(second, completed=2) == [11, 12]


def test_the_rows_of_a_failed_job_that_no_checkpoint_holds_stay_away(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(monkeypatch)
    actor = client.follow(1)
    client.came(actor, (0, 10), (1, 11), more=False)
    assert client.ended(JobStatus.FAILED, RecordError("it broke"), completed=1) == [10]
    with pytest.raises(JobFailedError, match="it broke") as failed:
        client.job.wait()
    assert isinstance(failed.value.__cause__, RecordError)
    assert client.manager.open("leave"), "the manager may go"


def test_a_subtask_that_loses_rows_is_reported_and_one_that_died_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(monkeypatch)
    client.follow(1).answer("fetch", ActorDiedError())
    client.job.pump(0)
    assert client.manager.open("rows_lost") == []
    client.follow(2).answer("fetch", RayError("object lost"))
    client.job.pump(0)
    (lost,) = client.manager.open("rows_lost")
    assert lost.arguments == (PLACE, 2, "RayError: object lost")


def test_rows_that_never_come_are_waited_for_until_the_job_has_resumed_without_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Client(monkeypatch)
    actor = client.follow(1)
    actor.answer("fetch", GetTimeoutError("still not local"))
    client.job.pump(0)
    assert not client.manager.open("rows_lost")
    again = client.follow(2)
    assert client.came(again, (0, 10), completed=1) == [10]


def test_rows_that_are_under_way_for_a_minute_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(monkeypatch)
    client.follow(1).answer("fetch", GetTimeoutError("still not local"))
    for _ in range(10):
        client.job.pump(0)
    (lost,) = client.manager.open("rows_lost")
    assert lost.arguments[:2] == (PLACE, 1)
    assert "within 60 s" in lost.arguments[2]
    assert "reach it at 10.0.0.7" in lost.arguments[2], "the address that a user can check"
    assert sum(client.waits) == 60.0


def test_rows_that_are_reported_lost_fail_the_subtask_that_they_were_of() -> None:
    heard: list[ev.TaskFailed] = []
    manager: Any = SimpleNamespace(_shell=SimpleNamespace(handle=heard.append))
    asyncio.run(JobManager.rows_lost(manager, PLACE, 2, "RayError: object lost"))
    (failed,) = heard
    assert (failed.place, failed.attempt) == (PLACE, 2)
    assert "rows for the client were lost: RayError: object lost" in str(failed.error)


def test_a_manager_that_is_being_restarted_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(monkeypatch)
    client.manager.answer("wait_for_end", ActorUnavailableError("away", None))
    client.manager.answer("client_view", ActorUnavailableError("away", None))
    assert client.job.pump(0)
    assert len(client.manager.open("wait_for_end")) == len(client.manager.open("client_view")) == 1


NOT_LOADED = RayActorError(
    error_msg="raised in its creation task\n  File \"deaths.py\", line 80, in loaded_program\nKeyError: 'BROKERS'",
    actor_init_failed=True,
)


@pytest.mark.parametrize(
    ("why", "told"),
    [
        (RayError("it died"), r"submit the job again \(it died\)"),
        (
            NOT_LOADED,
            r"(?s)does not load on the cluster: .*'BROKERS'.*; .*modules on every machine .*environment variables",
        ),
    ],
)
def test_a_manager_that_is_lost_ends_the_job_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, why: RayError, told: str
) -> None:
    client = Client(monkeypatch)
    client.manager.answer("wait_for_end", why)
    client.manager.answer("client_view", None)
    with pytest.raises(JobFailedError, match=told):
        client.job.pump(0)
    with pytest.raises(JobFailedError, match=told):
        client.job.wait()
    assert client.killed == [client.manager, client.job.job_id], "its slots are given back"


def test_a_cancelled_job_ends_as_its_manager_says(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(monkeypatch)
    client.manager.answer("wait_for_end", JobReport(JobStatus.CANCELLED, None, []))
    client.job.cancel()
    assert client.manager.open("cancel")
    assert client.killed == []
    with pytest.raises(JobCancelledError):
        client.job.wait()


def test_a_manager_that_does_not_answer_a_cancel_has_to_go(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client(monkeypatch)
    monkeypatch.setattr(module, "_SILENT_SECONDS", 0.0)
    monkeypatch.setattr(module, "_CANCEL_SECONDS", 0.01)
    client.job.cancel()
    (said,) = [record.message for record in caplog.records]
    assert said.endswith("is being stopped; functions that are at work have some ten seconds to return")
    assert client.killed == [client.manager, client.job.job_id]
    assert client.job.status() is JobStatus.CANCELLED


def test_a_detached_job_has_no_rows_for_its_client(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Client(monkeypatch, detached=True).job.ended is False
    program = program_of()
    with pytest.raises(ConfigurationError, match=r"cannot be detached: it ends in collect\(\) or print\(\)"):
        RayJob(program, {RESULT: CollectedRows(None)}, None, True)


def test_what_cannot_be_sent_is_named_by_its_operator() -> None:
    graph = program_of().physical()
    (task,) = graph.tasks
    assert task.source is not None
    unsent = dataclasses.replace(task.source, name="with a lock", splits=[threading.Lock()])
    with pytest.raises(SerializationError, match="operator 'with a lock' cannot be sent to the cluster"):
        check_serializable(dataclasses.replace(graph, tasks=[dataclasses.replace(task, source=unsent)]))
    check_serializable(graph)


def test_what_is_asked_of_a_job_that_starts_waits_until_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(monkeypatch)
    statuses = ["created", "deploying", "running"]
    looks_at_a_process_that_starts = [True, True, False]

    def get(ref: Ref, timeout: float | None = None) -> Any:
        assert ref.name == "status"
        assert not client.manager.open("savepoint")
        if looks_at_a_process_that_starts:
            raise GetTimeoutError
        return statuses.pop(0)

    def wait(refs: Sequence[Ref], **options: Any) -> tuple[Sequence[Ref], Sequence[Ref]]:
        if refs[0].name == "status":
            is_silent = looks_at_a_process_that_starts.pop(0)
            return ([], refs) if is_silent else (refs, [])
        return (refs, []) if refs[0].name == "savepoint" else client._wait(refs)

    monkeypatch.setattr("penstock.actors.client.ray.get", get)
    monkeypatch.setattr("penstock.actors.client.ray.wait", wait)
    monkeypatch.setattr(module, "answer_of", lambda call, *_: call.arguments)
    assert client.job.savepoint("folder") == str(("folder",))
    assert statuses == []
