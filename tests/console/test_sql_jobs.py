"""SHOW JOBS, DESCRIBE JOB and STOP JOB in `penstock sql`."""

from __future__ import annotations

import io
from typing import Any

import pytest

from penstock import StreamEnvironment
from penstock.console.output import Output
from penstock.console.sql import run_script
from penstock.engine.job.info import JobInfo
from penstock.engine.job.status import JobStatus


class _Job:
    """A job that keeps what is asked of it."""

    name = "clicks"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def info(self) -> JobInfo:
        status = JobStatus.CANCELLED if "cancel" in self.asked else JobStatus.RUNNING
        return JobInfo("ab12", self.name, status, started_ms=1_700_000_000_000)

    def cancel(self) -> bool:
        self.asked.append("cancel")
        return True

    def stop(self, folder: str | None) -> str:
        self.asked.append("stop")
        return "s3://lake/savepoint-1"

    def drain(self, folder: str | None) -> str:
        self.asked.append("drain")
        return "s3://lake/savepoint-2"


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> _Job:
    made = _Job()
    monkeypatch.setattr("penstock.console.sql_jobs.jobs_of", lambda *_: [made.info()])
    monkeypatch.setattr("penstock.console.sql_jobs.find", lambda name, *_: made if name == "ab12" else None)
    return made


def _rows(text: str) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    run_script(StreamEnvironment(runtime="local"), text, Output(io.StringIO(), as_json=True), results)
    return [dict(row) for result in results for row in result["rows"]]


def test_jobs_are_listed_and_described(job: _Job) -> None:
    listed, described = _rows("SHOW JOBS; DESCRIBE JOB 'ab12'")
    assert listed == described
    assert {name: listed[name] for name in ("job id", "job name", "status")} == {
        "job id": "ab12",
        "job name": "clicks",
        "status": "running",
    }


@pytest.mark.parametrize(
    ("statement", "asked", "rows"),
    [
        ("STOP JOB 'ab12'", "cancel", []),
        ("STOP JOB 'ab12' WITH SAVEPOINT", "stop", [{"savepoint path": "s3://lake/savepoint-1"}]),
        ("STOP JOB 'ab12' WITH SAVEPOINT WITH DRAIN", "drain", [{"savepoint path": "s3://lake/savepoint-2"}]),
    ],
)
def test_a_job_is_stopped(statement: str, asked: str, rows: list[dict[str, Any]], job: _Job) -> None:
    assert (_rows(statement), job.asked) == (rows, [asked])
