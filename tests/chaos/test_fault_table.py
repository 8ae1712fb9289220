"""The rows of the table of faults that are not shown elsewhere, on real processes: each recovers, or is fenced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray

import penstock.savepoints as savepoints
from penstock import DataGenSource, FileSink, Sequence, count
from penstock.actors.client import RayJob
from penstock.actors.manager_start import create_manager
from penstock.actors.registry import JobControl, find_job
from penstock.engine.errors import JobError, JobFailedError
from penstock.engine.job.status import JobStatus
from penstock.testing.chaos import (
    JOBS,
    AfterCheckpoints,
    AfterFault,
    ChaosRun,
    ChaosSchedule,
    KillManager,
    KillStandby,
    KillSubtask,
    PauseManager,
    PauseSubtask,
    Rescale,
    ScheduledFault,
    SubtaskChoice,
    TakeSavepoint,
    chaos_environment,
    run_chaos_job,
)
from penstock.testing.chaos.report import DONE, HARMLESS, NOT_FIRED, RECOVERED
from tests.actors.keyed_job import environment, until_checkpoint

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster", "no_leak")]

EVENTS, SESSIONS = SubtaskChoice("events", 0), SubtaskChoice("sessions", 1)


def shaken(folder: Path, *faults: ScheduledFault, parallelism: int = 2) -> ChaosRun:
    """The run of the sequence job with these faults; nothing may be wrong with its output."""
    env = chaos_environment(str(folder), parallelism)
    run = run_chaos_job(JOBS["sequence"], ChaosSchedule(faults), env, "5s")
    assert not run.violations, run
    assert run.status == "finished"
    return run


@pytest.mark.long("the simulation breaks jobs at such moments in each of its runs")
def test_two_processes_at_once_and_a_third_while_they_are_replaced(tmp_path: Path) -> None:
    run = shaken(
        tmp_path,
        ScheduledFault(AfterCheckpoints(1), KillSubtask((EVENTS, SESSIONS))),
        ScheduledFault(AfterFault(0.3), KillSubtask((SubtaskChoice("sessions", 0),))),
    )
    assert [record.outcome for record in run.faults] == [RECOVERED, RECOVERED]
    detected = run.faults[0].detect_ms
    assert detected is not None
    assert detected < 2000


@pytest.mark.long("the simulation breaks jobs at such moments in each of its runs")
def test_the_job_manager_is_killed_again_and_again(tmp_path: Path) -> None:
    run = shaken(
        tmp_path,
        *(ScheduledFault(AfterCheckpoints(completed), KillManager()) for completed in (1, 3)),
        # With its manager, everything of the job dies and begins anew.
        ScheduledFault(AfterFault(0.1), KillSubtask()),
        parallelism=1,
    )
    assert [record.outcome for record in run.faults[:2]] == [RECOVERED, RECOVERED]
    assert run.managers == 3


@pytest.mark.long("tests/actors/test_ray_blobs.py; zombies: the simulation")
def test_a_stuck_subtask_is_replaced_and_does_no_harm_when_it_goes_on(tmp_path: Path) -> None:
    run = shaken(tmp_path, ScheduledFault(AfterCheckpoints(1), PauseSubtask(3.0, SESSIONS)))
    (record,) = run.faults
    assert record.outcome == RECOVERED
    assert record.detect_ms is not None
    # It is taken for dead only after the heartbeat time-out, which is 1 s here.
    assert record.detect_ms >= 900


@pytest.mark.long("who is fenced: tests/engine/job/test_brain.py; zombies: the simulation")
def test_a_stuck_job_manager_that_goes_on_has_lost_nothing(tmp_path: Path) -> None:
    run = shaken(tmp_path, ScheduledFault(AfterCheckpoints(1), PauseManager(2.0)), parallelism=1)
    assert run.faults[0].outcome == HARMLESS
    assert run.managers == 1


@pytest.mark.long("tests/actors/test_ray_blobs.py tests standbys")
def test_a_standby_that_dies_is_replaced(tmp_path: Path) -> None:
    run = shaken(
        tmp_path,
        ScheduledFault(AfterCheckpoints(2), KillStandby(), optional=True),
        ScheduledFault(AfterFault(0.2), KillSubtask((EVENTS,))),
        parallelism=1,
    )
    # A loaded machine may have no standby warm so early.
    assert run.faults[0].outcome in (DONE, NOT_FIRED)
    assert run.faults[1].outcome == RECOVERED


@pytest.mark.long("the simulation breaks jobs at such moments in each of its runs")
def test_a_rescale_during_which_a_process_dies_leaves_the_output_exact(tmp_path: Path) -> None:
    run = shaken(
        tmp_path,
        ScheduledFault(AfterCheckpoints(1), Rescale(3)),
        ScheduledFault(AfterFault(0.05), KillSubtask((SESSIONS,))),
    )
    assert run.faults[0].at_s is not None
    assert run.faults[1].outcome == RECOVERED


@pytest.mark.long("the simulation breaks jobs at such moments in each of its runs")
def test_a_savepoint_during_which_a_process_dies_is_whole_or_absent(tmp_path: Path) -> None:
    target = tmp_path / "wanted"
    run = shaken(
        tmp_path / "checkpoints",
        ScheduledFault(AfterCheckpoints(1), TakeSavepoint(str(target))),
        ScheduledFault(AfterFault(0.0), KillSubtask((SESSIONS,))),
        ScheduledFault(AfterCheckpoints(4), TakeSavepoint(str(target))),
    )
    whole = [manifest.parent for manifest in target.rglob("manifest.json")]
    taken = [record for record in run.faults if record.outcome == DONE]
    assert len(whole) == len(taken) >= 1
    for folder in whole:
        assert savepoints.read(str(folder)).operator("sessions")


@pytest.mark.long("who is fenced: tests/engine/job/test_brain.py; zombies: the simulation")
def test_a_job_manager_that_was_replaced_while_it_was_away_gives_up_and_leaves_the_job_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[tuple[str, bytes]] = []

    def remembering(name: str, job_id: str, content: bytes, restarts: bool, detached: bool) -> Any:
        began.append((job_id, content))
        return create_manager(name, job_id, content, restarts, detached)

    monkeypatch.setattr("penstock.actors.client.create_manager", remembering)
    env = environment(tmp_path / "checkpoints", parallelism=1, slot_timeout="2s")
    rows = env.from_source(DataGenSource({"n": Sequence()}, rate=500))
    rows.key_by("n").aggregate(rows=count()).sink_to(FileSink(tmp_path / "rows", "csv"))
    zombie = env.submit("zombie")
    assert isinstance(zombie, RayJob)
    until_checkpoint(zombie)
    ((job_id, content),) = began
    # As if the machine of the first one had been out of reach, and Ray had started it elsewhere.
    successor = JobControl("successor", create_manager("successor", job_id, content, False, False))
    with pytest.raises(JobFailedError, match="has taken the job over"):
        zombie.wait(120)
    assert wait_until(lambda: successor.info().status is JobStatus.RUNNING)
    before = successor.info().checkpoints.completed
    assert wait_until(lambda: successor.info().checkpoints.completed >= before + 2)
    assert successor.info().restarts == 0
    successor.cancel()
    successor.leave()


def test_a_detached_job_does_not_notice_that_its_driver_was_killed(tmp_path: Path) -> None:
    address = ray.get_runtime_context().gcs_address
    driver = subprocess.run(
        [sys.executable, "-m", "tests.chaos.detached", address, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "RAY_AUTH_MODE": "token"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=120,
    )
    assert driver.returncode == -signal.SIGKILL, driver.stderr
    job = find_job("outlives its driver")
    assert wait_until(lambda: job.info().status is JobStatus.RUNNING)
    before = job.info()
    assert wait_until(lambda: job.info().checkpoints.completed >= before.checkpoints.completed + 3)
    after = job.info()
    assert (after.restarts, after.manager_pid) == (0, before.manager_pid)
    job.cancel()
    job.leave()


def wait_until(condition: Callable[[], bool], seconds: float = 120) -> bool:
    """Whether it came true in time; a manager that does not answer yet is asked again."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if condition():
                return True
        except (JobError, TypeError):
            pass
        time.sleep(0.1)
    return False
