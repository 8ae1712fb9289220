"""A storm of rescales is not over because the job restarts, and faults that aim at rescales hit one under way."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from penstock.actors.registry import JobControl
from penstock.engine.errors import CheckpointError, GraphError, NoAnswerError
from penstock.engine.job.info import JobInfo, OperatorInfo, SubtaskInfo, TaskInfo
from penstock.engine.job.status import JobStatus
from penstock.testing.chaos import AfterSeconds, AmidRescale, ChaosHarness, ChaosReport, ChaosSchedule, KillSubtask
from penstock.testing.chaos.schedule import RescaleStorm, ScheduledFault
from penstock.testing.chaos.storm import Request, RescaleWatch, ask_in_turn

RESTARTING = CheckpointError("job 'orders' is restarting; try again once it runs")


class Answers:
    """A job that gives these answers in turn."""

    def __init__(self, *answers: float | Exception) -> None:
        self.left = list(answers)

    def rescale(self, wanted: Mapping[str, int]) -> float:
        answer = self.left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def told(answers: Answers, *requests: Request, running: Sequence[bool] = (), seconds: float = 60.0) -> str:
    status = list(running)
    return ask_in_turn(
        requests,
        answers.rescale,
        lambda: status.pop(0) if status else True,
        lambda: not answers.left,
        lambda pause: None,
        seconds,
    )


def test_what_is_refused_while_the_job_restarts_is_asked_again() -> None:
    answers = Answers(RESTARTING, NoAnswerError("its manager is being restarted"), 0.25, 0.5)
    assert told(answers, Request("window", 3), Request("sums", 1)) == (
        "2 of 2 rescales done; window to 3: 0.25 s (asked 3 times); sums to 1: 0.50 s"
    )


def test_a_job_that_does_not_run_is_not_asked() -> None:
    assert "window to 3: 0.25 s" in told(Answers(0.25), Request("window", 3), running=[False, False, True])


def test_what_can_never_be_is_asked_for_once() -> None:
    answers = Answers(GraphError("it has a loop"), 0.5)
    assert told(answers, Request("window", 3), Request("sums", 1)) == (
        "1 of 2 rescales done; window to 3: it has a loop; sums to 1: 0.50 s"
    )


def test_nothing_is_asked_of_a_job_that_has_ended_or_refuses_for_too_long() -> None:
    ended = told(Answers(), Request("window", 3))
    assert ended.startswith("0 of 1 rescales done; window to 3: not asked, as the job had ended")
    assert told(Answers(0.25), Request("window", 3), seconds=-1.0) == ended


def seen(watch: RescaleWatch, now: float, changing: str | None) -> None:
    watch.see(JobInfo("orders-1", "orders", JobStatus.RUNNING, changing=changing), now)


def test_a_fault_is_due_so_long_after_a_rescale_began_or_the_fault_before_hit_it() -> None:
    watch = RescaleWatch()
    assert not watch.is_due(0.0, 9.0)
    seen(watch, 10.0, "rescale window to 3")
    seen(watch, 10.3, "rescale window to 3")
    assert not watch.is_due(0.5, 10.4)
    assert watch.is_due(0.5, 10.5)
    assert watch.on_fault(10.5) == "rescale window to 3, 0.50 s after it began"
    assert not watch.is_due(0.5, 10.9)
    assert watch.is_due(0.5, 11.0)


def test_rescales_that_are_over_too_soon_bring_the_moment_forward() -> None:
    watch = RescaleWatch()
    for began in (10.0, 11.0):
        seen(watch, began, "rescale window to 3")
        assert not watch.is_due(0.4, began + 0.05)
        seen(watch, began + 0.1, None)
        assert not watch.is_due(0.0, began + 0.2)
    seen(watch, 12.0, "rescale window to 3")
    assert watch.is_due(0.4, 12.1)


def test_a_rescale_ends_with_the_manager_that_does_not_answer() -> None:
    watch = RescaleWatch()
    seen(watch, 10.0, "rescale window to 3")
    watch.lose()
    assert not watch.is_due(0.0, 11.0)
    assert watch.on_fault(11.0) == ""


class Rescaled(JobControl):
    """A job that is being rescaled until one of its processes is killed, and refuses the first request."""

    def __init__(self) -> None:
        self.name, self.asked = "orders", 0
        self.changing: str | None = None
        self.killed = threading.Event()

    def info(self) -> JobInfo:
        subtasks = (SubtaskInfo(0, attempt=1, pid=os.getpid(), status=JobStatus.RUNNING),)
        task = TaskInfo(1, "window", 1, (OperatorInfo("window", "window"),), subtasks=subtasks)
        return JobInfo("orders-1", "orders", JobStatus.RUNNING, changing=self.changing, manager_pid=1, tasks=(task,))

    def rescale(self, wanted: Any, tell: Any = None) -> float:
        self.asked += 1
        if self.asked == 1:
            raise RESTARTING
        self.changing = f"rescale {wanted}"
        assert self.killed.wait(30)
        self.changing = None
        return 0.25


class Victim:
    def __init__(self, job: Rescaled) -> None:
        self._job = job

    def kill(self) -> None:
        self._job.killed.set()

    def close(self) -> None:
        pass


def test_a_run_says_which_faults_were_amid_a_rescale(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Rescaled()
    monkeypatch.setattr("penstock.testing.chaos.harness.find_job", lambda name: job)
    monkeypatch.setattr("penstock.testing.chaos.harness.processes_elsewhere", dict)
    monkeypatch.setattr("penstock.testing.chaos.faults.hold", lambda process, elsewhere: Victim(job))
    faults = [
        ScheduledFault(AfterSeconds(0), RescaleStorm((3,))),
        ScheduledFault(AmidRescale(0.0), KillSubtask()),
        ScheduledFault(AmidRescale(0.5), KillSubtask()),
    ]
    run = ChaosHarness("orders", ChaosSchedule(faults), patience="1s").run()
    storm, amid, behind = run.faults
    assert storm.note == "1 of 1 rescales done; window to 3: 0.25 s (asked 2 times)"
    assert amid.amid.startswith("rescale {'window': 3}, ")
    assert behind.amid == ""
    assert run.amid_rescales == 1
    assert "1 of 3 faults amid rescales" in str(run)
    assert f"amid {amid.amid}" in str(run)
    document = ChaosReport([run]).to_dict()
    assert document["faults_amid_rescales"] == document["runs"][0]["faults_amid_rescales"] == 1
    assert document["runs"][0]["faults"][1]["amid"] == amid.amid


def test_a_storm_that_is_never_answered_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Rescaled()
    monkeypatch.setattr("penstock.testing.chaos.harness.find_job", lambda name: job)
    monkeypatch.setattr("penstock.testing.chaos.harness.processes_elsewhere", dict)
    schedule = ChaosSchedule([ScheduledFault(AfterSeconds(0), RescaleStorm((3,)))])
    run = ChaosHarness("orders", schedule, patience="200ms").run()
    job.killed.set()
    assert run.violations == ["rescale one operator after the other to 3: the job has not answered within 0.2 s"]
