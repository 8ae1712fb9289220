"""Failures of subtasks on real processes: the job goes on, and its output is as if nothing had happened."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import JobStatus
from penstock.engine.errors import JobFailedError, UserCodeError
from penstock.recovery import fixed_delay
from tests.actors.keyed_job import assert_exact, environment, kill, submit, subtask_pids, until, until_checkpoint

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster", "no_leak")]


@pytest.mark.long("tests/chaos/test_seeded.py kills the subtasks of such jobs")
def test_each_subtask_is_killed_in_turn_and_no_row_is_lost_or_counted_twice(tmp_path: Path) -> None:
    hurry = tmp_path / "hurry"
    job, updates = submit(environment(tmp_path, standbys=1), "killed in turn", rows=30_000, rate=600, hurry=hurry)
    for place in range(4):
        info = until_checkpoint(job)
        kill(subtask_pids(info)[place])
        info = until(job, lambda info, wanted=place + 1: info.restarts >= wanted and info.status is JobStatus.RUNNING)
    hurry.touch()
    job.wait()
    assert job.status() is JobStatus.FINISHED
    assert_exact(updates, 30_000)
    assert "died" in info.restart_history[0].cause
    assert all(restart.restore_ms < 30_000 for restart in info.restart_history)
    # A job that has finished keeps no checkpoints.
    assert not list(tmp_path.glob("*/chk-*"))


@pytest.mark.long("the simulation fails functions; processes are replaced: test_ray_blobs.py")
def test_a_function_that_fails_once_is_run_again(tmp_path: Path) -> None:
    marker = tmp_path / "failed"

    def fail_once(n: int) -> int:
        if n == 1500 and not marker.exists():
            marker.touch()
            raise OSError("the service is away")
        return n

    job, updates = submit(environment(tmp_path / "checkpoints", 1), "fails once", rows=3000, each=fail_once)
    job.wait()
    assert_exact(updates, 3000)
    assert marker.exists()


@pytest.mark.long("tests/engine/job/test_brain.py; how an error ends a job on Ray: test_jobs.py")
def test_a_job_that_fails_more_often_than_its_restart_strategy_allows_ends_with_the_cause(tmp_path: Path) -> None:
    def fail(n: int) -> int:
        return n // (n - 300)

    env = environment(tmp_path, 1, restart=fixed_delay(attempts=2, delay="10ms"))
    job, _ = submit(env, "fails always", each=fail)
    with pytest.raises(JobFailedError, match="ZeroDivisionError") as caught:
        job.wait()
    assert isinstance(caught.value.__cause__, UserCodeError)
