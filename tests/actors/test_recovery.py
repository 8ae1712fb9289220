"""How a job gets over the loss of a process: which parts restart, what takes its place, and when it must not go on."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock import JobStatus, StreamEnvironment, col
from penstock.actors.client import RayJob
from penstock.engine.connectors import Source
from penstock.engine.errors import FencedError, JobFailedError, WorkerLostError
from penstock.recovery import checkpoints, fixed_delay
from penstock.savepoints.store import FolderJobStore
from tests.actors.keyed_job import (
    KEYS,
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


def _counts(env: StreamEnvironment, uid: str, source: Source) -> ps.DataStream:
    """Counts the numbers of the source modulo KEYS."""
    numbers = env.from_source(source).uid(f"{uid} source")
    keyed = numbers.select(k=col("n") % KEYS).uid(f"{uid} key").key_by("k")
    return keyed.aggregate(n=ps.count()).uid(f"{uid} count")


@pytest.mark.long("the simulation loses processes under unaligned checkpoints")
def test_unaligned_checkpoints_of_a_job_with_a_slow_end_are_exact(tmp_path: Path) -> None:
    hurry = tmp_path / "hurry"

    def slowly(row: dict[str, Any]) -> dict[str, Any]:
        if not hurry.exists():
            threading.Event().wait(0.01)
        return row

    unaligned = checkpoints("300ms", str(tmp_path), mode="unaligned")
    env = environment(tmp_path, checkpoints=unaligned, channel_credits=2)
    updates = _counts(env, "slow", Paced(20_000, 1000, hurry)).map(slowly).uid("slowly").collect()
    job = env.submit("slow end")
    assert isinstance(job, RayJob)
    for number, place in enumerate((2, 1), 1):
        kill(subtask_pids(until_checkpoint(job))[place])
        until(job, lambda info, wanted=number: info.restarts >= wanted and info.status is JobStatus.RUNNING)
    hurry.touch()
    job.wait()
    assert_exact(updates, 20_000)


@pytest.mark.long(
    "regions: tests/engine/job/test_brain.py, engine/local/test_manager.py; who has died: test_ray_blobs.py"
)
def test_a_failure_restarts_only_the_part_of_the_job_that_is_connected_to_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    env = environment(tmp_path, parallelism=1)
    hurry = tmp_path / "hurry"
    one, other = (_counts(env, uid, Paced(10_000, 400, hurry)).collect() for uid in ("one", "other"))
    job = env.submit("two regions")
    assert isinstance(job, RayJob)
    before = until_checkpoint(job)
    kill(before.tasks[0].subtasks[0].pid)
    after = until(job, lambda info: info.restarts == 1 and info.status is JobStatus.RUNNING)
    attempts = [[task.subtasks[0].attempt for task in info.tasks] for info in (before, after)]
    restarted = [task.name for task, was, now in zip(before.tasks, *attempts, strict=True) if now > was]
    assert len(restarted) == 2, (attempts, restarted)
    assert after.restart_history[0].subtasks == 2
    hurry.touch()
    job.wait()
    assert_exact(one, 10_000)
    assert_exact(other, 10_000)
    (heard,) = replayed(tmp_path / job.job_id, capsys).values()
    assert heard.count("TaskFailed") == 1
    assert heard.count("Deployed") == 2


@pytest.mark.long("test_ray_blobs.py: standbys take the place of two processes, the second that of the first standby's")
def test_a_standby_takes_the_place_of_a_process_that_died_and_another_becomes_standby(tmp_path: Path) -> None:
    hurry = tmp_path / "hurry"
    env = environment(tmp_path, parallelism=1, standbys=1)
    job, updates = submit(env, "standby", rows=6_000, rate=75, hurry=hurry)
    until_checkpoint(job)
    (standby,) = until(job, lambda info: len(info.standby_pids) == 1).standby_pids
    kill(subtask_pids(until_checkpoint(job))[0])
    info = until(job, lambda info: info.restarts == 1 and info.status is JobStatus.RUNNING)
    assert subtask_pids(info)[0] == standby
    # Ray's report knows no more of it.
    assert "was killed, or has crashed" in info.restart_history[0].cause
    info = until(job, lambda info: len(info.standby_pids) == 1)
    assert info.standby_pids != [standby]
    hurry.touch()
    job.wait()
    assert_exact(updates, 6_000)


@pytest.mark.long("who is fenced: tests/engine/job/test_brain.py; subtasks whose manager is gone: test_job_manager.py")
def test_a_manager_that_was_replaced_stops_and_ends_its_processes(tmp_path: Path) -> None:
    job, _ = submit(environment(tmp_path, parallelism=1), "replaced", rows=100_000, rate=400)
    info = until_checkpoint(job)
    FolderJobStore(str(tmp_path), job.job_id, "replaced").claim()
    with pytest.raises(JobFailedError, match="has taken the job over") as failed:
        job.wait(timeout=120)
    assert isinstance(failed.value.__cause__, FencedError)
    deadline = time.monotonic() + 120
    while any(os.path.exists(f"/proc/{pid}") for pid in subtask_pids(info)):
        assert time.monotonic() < deadline, "subtasks have outlived their job manager"


@pytest.mark.long("tests/engine/job/test_brain.py")
@pytest.mark.parametrize("restart", [None, fixed_delay(3, "100ms")])
def test_a_job_without_checkpoints_is_lost_with_its_manager_unless_it_asks_for_restarts(
    tmp_path: Path, restart: Any
) -> None:
    storage = checkpoints(storage=str(tmp_path))
    env = environment(tmp_path, parallelism=1, checkpoints=storage, restart=restart)
    hurry = tmp_path / "hurry"
    job, updates = submit(env, "no checkpoints", rows=10_000, rate=400, hurry=hurry)
    info = until(job, lambda info: info.status is JobStatus.RUNNING)
    kill(info.manager_pid)
    hurry.touch()
    if restart is None:
        with pytest.raises(JobFailedError, match="job manager's process died") as failed:
            job.wait(timeout=120)
        assert isinstance(failed.value.__cause__, WorkerLostError)
    else:
        job.wait()
        assert job.status() is JobStatus.FINISHED
        assert max(row["n"] for row in updates) == 10_000 // KEYS
