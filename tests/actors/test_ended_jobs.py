"""What is written down of jobs that have ended, and of commands that have not come to their manager."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.actors.ended_jobs import KEPT, end_of, ended_jobs, note_end
from penstock.actors.recorded_commands import forget, new_command, record, recorded
from penstock.actors.registry import JobControl, find_job, list_jobs
from penstock.engine.errors import (
    ConfigurationError,
    JobCancelledError,
    JobError,
    JobFailedError,
    NoAnswerError,
    WorkerLostError,
)
from penstock.engine.job.info import EventTimeWait, JobInfo, OperatorInfo, SubtaskInfo, TaskInfo
from penstock.engine.job.status import JobStatus
from tests.actors.notes import InMemory

FAILED = JobInfo(
    "orders-1",
    "orders",
    JobStatus.FAILED,
    since_ms=5_000,
    error="operator 'parse': ValueError: no number\n  called with: ...",
    tasks=(TaskInfo(1, "parse", 1, (OperatorInfo("parse", "p"),), (), (SubtaskInfo(0, 1, 77),)),),
    event_time=(EventTimeWait("windows", 0, "clicks", 1, 0, 5, 1_000),),
)


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> InMemory:
    """The table of a cluster on which no job runs."""
    table = InMemory()
    monkeypatch.setattr("penstock.actors.registry.ClusterNotes", lambda: table)
    monkeypatch.setattr("penstock.actors.registry.named_jobs", dict)
    return table


def test_a_job_that_has_ended_stays_listed_with_its_reason(notes: InMemory) -> None:
    note_end(notes, "m1", FAILED)
    note_end(notes, "m2", JobInfo("sales-1", "sales", JobStatus.CANCELLED, since_ms=9_000))
    assert [info.id for info in list_jobs()] == ["sales-1", "orders-1"]
    assert list_jobs()[1] == FAILED == end_of(notes, "m1")
    job = find_job("orders")
    assert (job.info(), job.metrics().operators, job.logs({})) == (FAILED, (), [])
    assert job.cancel() is False
    with pytest.raises(JobFailedError, match="job 'orders' failed: operator 'parse': ValueError: no number"):
        job.wait()
    with pytest.raises(JobCancelledError):
        find_job("sales-1").wait()
    for command in (job.savepoint, job.stop, job.checkpoint, lambda: job.rescale(2), lambda: job.state("totals", "n")):
        with pytest.raises(JobError, match=r"job 'orders' has ended \(failed\): there is nothing to"):
            command()


def test_an_error_whose_text_json_cannot_have_is_written_down_all_the_same(notes: InMemory) -> None:
    note_end(notes, "m1", replace(FAILED, error="no such row: \ud83d, \u00e9"))
    ended = end_of(notes, "m1")
    assert ended is not None
    assert ended.error == "no such row: \\ud83d, \u00e9"


def test_the_newest_are_kept_and_the_newest_of_a_name_is_meant(notes: InMemory) -> None:
    for number in range(KEPT + 3):
        note_end(notes, f"m{number}", JobInfo(f"job-{number}", "job", JobStatus.FINISHED, since_ms=number))
    assert [info.since_ms for info in ended_jobs(notes)] == list(range(KEPT + 2, 2, -1))
    assert find_job("job").info().id == f"job-{KEPT + 2}"
    assert end_of(notes, "m0") is None


def test_a_job_whose_manager_does_not_answer_is_listed_as_that(
    notes: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Silent(JobControl):
        def info(self) -> JobInfo:
            raise NoAnswerError("the manager of job 'orders' does not answer within 10 s")

    class Gone(JobControl):
        def info(self) -> JobInfo:
            raise WorkerLostError("it has ended since")

    class Broken(JobControl):
        def info(self) -> JobInfo:
            raise ConfigurationError("a package is not installed there")

    jobs = {"orders": Silent("orders", None), "other": Gone("other", None), "sales": Broken("sales", None)}
    monkeypatch.setattr("penstock.actors.registry.named_jobs", lambda: jobs)
    listed, broken = list_jobs()
    assert (listed.name, listed.answers, listed.waiting_for) == ("orders", False, "an answer of its manager")
    assert (broken.name, broken.waiting_for) == ("sales", "its manager: a package is not installed there")
    with pytest.raises(JobError, match="running: orders, other, sales"):
        find_job("nobody")


class Manager:
    """A handle on a manager's actor that answers nothing by itself."""

    class _actor_id:
        @staticmethod
        def hex() -> str:
            return "m1"


class Unreachable(JobControl):
    """A job whose manager raises this."""

    def __init__(self, error: Exception) -> None:
        super().__init__("orders", Manager())
        self.error = error

    def _ask(self, method: str, seconds: float | None, *arguments: object) -> object:
        raise self.error


def test_a_command_is_recorded_until_it_is_done_or_refused(notes: InMemory) -> None:
    with pytest.raises(NoAnswerError, match="the command 'stop' is recorded, and carried out as soon as it answers"):
        Unreachable(NoAnswerError("no answer")).stop("/savepoints")
    (command,) = recorded(notes, "m1")
    assert (command.method, command.directory, command.takes_savepoint) == ("stop", "/savepoints", True)
    assert list(recorded(notes, "m2")) == []
    forget(notes, "m1", command)
    assert list(recorded(notes, "m1")) == []


def test_a_command_to_a_manager_that_has_gone_is_not_kept_for_another(notes: InMemory) -> None:
    with pytest.raises(WorkerLostError):
        Unreachable(WorkerLostError("gone")).cancel()
    assert notes.texts == {}


def test_commands_come_back_as_they_were_given() -> None:
    table, given = InMemory(), [new_command("cancel"), new_command("drain", "s3://bucket/savepoints")]
    for command in given:
        record(table, "m1", command)
    assert sorted(recorded(table, "m1"), key=lambda one: one.method) == given
