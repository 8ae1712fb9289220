"""Failures of the job manager, and second ones: the job is restored from storage, once."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv
import pytest

from penstock import DataGenSource, FileSink, JobStatus, Sequence, StreamEnvironment
from penstock.actors.registry import find_job, list_jobs
from penstock.engine.connectors import ConnectorContext, Position, Source, SourceReader, Split
from penstock.engine.errors import ConfigurationError, JobCancelledError, JobError
from tests.actors.keyed_job import (
    Paced,
    assert_exact,
    environment,
    kill,
    replayed,
    submit,
    subtask_pids,
    until,
    until_checkpoint,
)

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster", "no_leak")]


def test_a_killed_job_manager_is_restarted_and_resumes_from_the_newest_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hurry = tmp_path / "hurry"
    job, updates = submit(environment(tmp_path, 1), "manager killed", rows=6_000, rate=75, hurry=hurry)
    # It writes its log once a second.
    until(job, lambda _: any((tmp_path / job.job_id / "log").glob("*")))
    info = until_checkpoint(job)
    kill(info.manager_pid)
    deadline = time.monotonic() + 120
    while any(os.path.exists(f"/proc/{pid}") for pid in subtask_pids(info)):
        assert time.monotonic() < deadline, "subtasks have outlived their job manager"
        job.pump(0.05)
    after = until(job, lambda now: now.manager_pid != info.manager_pid and now.status is JobStatus.RUNNING)
    assert after.attempt > info.attempt
    hurry.touch()
    job.wait()
    assert job.status() is JobStatus.FINISHED
    assert_exact(updates, 6_000)
    first, second = replayed(tmp_path / job.job_id, capsys).values()
    # What the first had heard last died with it.
    assert first[:2] == second[:2] == ["Began", "Claimed"]
    assert {"Deployed", "Stored", "TaskFinished", "TakenDown"} <= set(second)


@pytest.mark.long("tests/engine/job/test_recovery.py reads back what was written")
def test_a_new_job_manager_tells_what_the_one_before_has_seen(tmp_path: Path) -> None:
    job, _ = submit(environment(tmp_path, 1), "remembered", rows=100_000)
    kill(subtask_pids(until_checkpoint(job, 6))[0])
    until(job, lambda now: now.restarts == 1 and now.status is JobStatus.RUNNING)
    before = until_checkpoint(job)
    kill(before.manager_pid)
    after = until(job, lambda now: now.manager_pid != before.manager_pid and now.status is JobStatus.RUNNING)
    assert after.restarts == 1
    restart, takeover = after.restart_history
    assert (restart.kind, "died" in restart.cause, restart.detected_monotonic) == ("failure", True, None)
    assert restart.restore_ms == before.restart_history[0].restore_ms
    assert (takeover.kind, "the one before died" in takeover.cause) == ("takeover", True)
    assert takeover.checkpoint >= before.checkpoints.completed
    assert takeover.restore_ms > 0
    assert after.checkpoints.completed >= before.checkpoints.completed
    known = {one.checkpoint: one.bytes_written for one in before.checkpoints.history}
    told = [one for one in after.checkpoints.history if one.checkpoint in known]
    assert len(told) >= 3
    assert all(one.bytes_written == known[one.checkpoint] for one in told)
    job.cancel()


@dataclass(frozen=True)
class WithServer(Source):
    """A source that asks a server for its splits: it answers unless there is the file `away`."""

    source: Source
    away: Path

    @property
    def schema(self) -> pa.Schema:
        return self.source.schema

    def splits(self, parallelism: int) -> SequenceOf[Split]:
        if self.away.exists():
            raise ConfigurationError("no server can be used")
        return self.source.splits(parallelism)

    def open(self, split: Split, context: ConnectorContext) -> SourceReader:
        return self.source.open(split, context)

    def open_at(self, split: Split, position: Position, context: ConnectorContext) -> SourceReader:
        return self.source.open_at(split, position, context)

    def describe(self) -> str:
        return self.source.describe()


@pytest.mark.long("test_a_killed_job_manager_is_restarted_and_resumes_from_the_newest_checkpoint")
def test_a_manager_that_is_restarted_does_not_ask_the_server_of_a_source_again(tmp_path: Path) -> None:
    away, hurry = tmp_path / "away", tmp_path / "hurry"
    env = environment(tmp_path / "checkpoints", 1)
    env.from_source(WithServer(Paced(10_000, 800, hurry), away)).sink_to(FileSink(tmp_path / "rows", "csv"))
    job = env.submit("server away")
    info = until_checkpoint(job)
    away.touch()
    kill(info.manager_pid)
    until(job, lambda now: now.manager_pid != info.manager_pid and now.status is JobStatus.RUNNING)
    hurry.touch()
    job.wait()
    rows = [n for path in (tmp_path / "rows").glob("part-*.csv") for n in csv.read_csv(path)["n"].to_pylist()]
    assert sorted(rows) == list(range(10_000))


@pytest.mark.long("tests/console/test_jobs.py cancels; requests before a take-over: tests/engine/job/test_brain.py")
def test_a_job_whose_manager_is_just_being_restarted_can_be_cancelled(tmp_path: Path) -> None:
    job, _ = submit(environment(tmp_path, 1), "cancelled while it restarts", rows=100_000)
    info = until_checkpoint(job)
    kill(info.manager_pid)
    job.cancel()
    assert job.status() is JobStatus.CANCELLED
    # Left is what keeps a manager that comes late from beginning the job again, and the stimulus log.
    assert {path.name for path in tmp_path.glob("*/*")} == {"claims", "log"}


def test_of_two_jobs_without_a_name_one_ends_and_one_that_is_cancelled_has_removed_its_checkpoints(
    tmp_path: Path,
) -> None:
    job, _ = submit(environment(tmp_path, 1), None, rows=100_000)
    until_checkpoint(job)
    assert list(StreamEnvironment(parallelism=1).from_collection([0, 1]).collect()) == [{"value": 0}, {"value": 1}]
    assert job.status() is JobStatus.RUNNING
    job.cancel()
    assert {path.name for path in tmp_path.glob("*/*")} == {"claims", "log"}
    assert list(tmp_path.glob("*/claims/*.ended"))
    assert job.status() is JobStatus.CANCELLED
    with pytest.raises(JobCancelledError):
        job.wait()


@pytest.mark.long("test_refused_jobs.py; how jobs are found and listed: test_registry.py, tests/console/test_jobs.py")
def test_a_second_job_of_the_same_name_is_refused_while_the_first_runs() -> None:
    def endless() -> StreamEnvironment:
        env = StreamEnvironment(parallelism=1)
        env.from_source(DataGenSource({"n": Sequence()}, rate=10)).collect()
        return env

    job = endless().submit("the only one")
    while job.status() is not JobStatus.RUNNING:
        job.pump(0.1)
    # There may be jobs of other tests, which have ended.
    (listed,) = [info for info in list_jobs() if info.name == "the only one"]
    with pytest.raises(JobError, match=f"'the only one' is running already, with id {listed.id}"):
        endless().submit("the only one")
    with pytest.raises(JobError, match=r"no job 'the only' \(did you mean 'the only one'\?\)"):
        find_job("the only")
    assert find_job(listed.id).info().status is JobStatus.RUNNING
    find_job("the only one").cancel()
    assert job.status() is JobStatus.CANCELLED
    with pytest.raises(JobError, match=r"no job 'the only'; no job is running on this cluster"):
        find_job("the only")
    assert find_job("the only one").info().status is JobStatus.CANCELLED
    again = endless().submit("the only one")
    again.cancel()
