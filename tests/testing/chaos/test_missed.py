"""A run whose schedule hits nothing must not look like one that the job has got over."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.actors.registry import JobControl
from penstock.engine.errors import WorkerLostError
from penstock.engine.job.info import JobInfo, OperatorInfo, SubtaskInfo, TaskInfo
from penstock.engine.job.status import JobStatus
from penstock.testing.chaos import (
    AfterFault,
    AfterSeconds,
    ChaosHarness,
    ChaosRun,
    ChaosSchedule,
    KillStandby,
    KillSubtask,
    ScheduledFault,
    SubtaskChoice,
    TakeSavepoint,
)
from penstock.testing.chaos.report import DONE
from penstock.testing.chaos.schedule import Fault

UID_THAT_NOBODY_HAS = KillSubtask((SubtaskChoice("frauds", 0),))


class Running(JobControl):
    """A job that runs without any process, and answers."""

    def __init__(self, status: JobStatus = JobStatus.RUNNING) -> None:
        self.name, self.status, self.asked = "payments", status, 0

    def info(self) -> JobInfo:
        self.asked += 1
        subtasks = (SubtaskInfo(0, attempt=1, status=JobStatus.RUNNING),)
        task = TaskInfo(1, "detect", 1, (OperatorInfo("detect", "fraud"),), subtasks=subtasks)
        return JobInfo("payments-1", "payments", self.status, 1, 1, manager_pid=1, tasks=(task,))


def run_of(*faults: ScheduledFault, monkeypatch: Any, seed: int | None = None, job: Running | None = None) -> ChaosRun:
    monkeypatch.setattr("penstock.testing.chaos.harness.find_job", lambda name: job or Running())
    monkeypatch.setattr("penstock.testing.chaos.harness.processes_elsewhere", dict)
    return ChaosHarness("payments", ChaosSchedule(faults, seed), patience="100ms").run()


def at_once(fault: Fault, optional: bool = False) -> ScheduledFault:
    return ScheduledFault(AfterSeconds(0), fault, optional)


def test_a_fault_that_names_no_operator_is_a_violation(monkeypatch: Any) -> None:
    run = run_of(at_once(UID_THAT_NOBODY_HAS), monkeypatch=monkeypatch)
    (violation,) = run.violations
    assert "kill subtask 0 of 'frauds' was not fired: the job has no operator 'frauds'" in violation
    assert "'fraud'" in violation
    assert f"NOT TESTED: {violation}" in str(run)


def test_a_fault_that_found_no_process_is_a_violation(monkeypatch: Any) -> None:
    run = run_of(at_once(KillSubtask((SubtaskChoice("fraud", 0),))), monkeypatch=monkeypatch)
    assert run.violations == ["kill subtask 0 of 'fraud' was not fired: the job has no such process"]


def test_optional_faults_may_miss_but_not_all_of_a_random_schedule(monkeypatch: Any) -> None:
    faults = (at_once(KillStandby(), optional=True), at_once(UID_THAT_NOBODY_HAS, optional=True))
    assert not run_of(*faults, monkeypatch=monkeypatch).violations
    run = run_of(*faults, monkeypatch=monkeypatch, seed=7)
    (violation,) = run.violations
    assert violation.startswith("no fault hit anything, so nothing was tested: kill a standby was not fired: ")
    assert "choose other faults" in violation
    run.faults[0].at_s = 0.0
    assert not run.missed


def test_a_schedule_that_names_no_fault_has_missed_none(monkeypatch: Any) -> None:
    assert not run_of(monkeypatch=monkeypatch).violations


def test_random_faults_are_optional() -> None:
    assert all(one.optional for one in ChaosSchedule.random(1).faults)
    assert not ScheduledFault(AfterFault(1), KillStandby()).optional


class Falling(Running):
    """A job that runs until a savepoint is taken, and never again."""

    def savepoint(self, directory: str | None = None) -> str:
        self.status = JobStatus.RESTARTING
        return "file:///savepoint"


class Vanishing(Running):
    """A job whose manager is not there any more when a savepoint was taken, and ran when it was asked last."""

    def savepoint(self, directory: str | None = None) -> str:
        self.status = JobStatus.FAILED
        return "file:///savepoint"

    def info(self) -> JobInfo:
        if self.status is JobStatus.FAILED:
            raise WorkerLostError("its manager has gone")
        return super().info()


@pytest.mark.parametrize(
    ("job", "violation"),
    [
        (Falling(), "the job is restarting, and has not come to run within 0.1 s"),
        (Vanishing(), "the job does not answer, and has not come to run within 0.1 s"),
    ],
)
def test_a_job_that_does_not_run_in_the_end_has_not_got_over_it(job: Running, violation: str, monkeypatch: Any) -> None:
    run = run_of(at_once(TakeSavepoint()), monkeypatch=monkeypatch, job=job)
    assert (run.faults[0].outcome, run.violations) == (DONE, [violation])
