"""Which process a fault means, and that no other process ever gets a signal."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from penstock.engine.errors import ClusterError
from penstock.engine.job.info import JobInfo, OperatorInfo, SubtaskInfo, TaskInfo
from penstock.engine.job.status import JobStatus
from penstock.testing.chaos import SubtaskChoice
from penstock.testing.chaos.faults import (
    choose,
    living,
    manager,
    standby,
    unmatched,
)
from penstock.testing.chaos.local_process import MANAGER, SUBTASK, JobProcess, LiveProcess

TASKS = (
    TaskInfo(1, "events", 2, (OperatorInfo("events", "src"),), (), (SubtaskInfo(0, pid=10), SubtaskInfo(1, pid=11))),
    TaskInfo(
        2,
        "count -> sink",
        2,
        (OperatorInfo("count", "alerts"), OperatorInfo("sink", "out")),
        (),
        (SubtaskInfo(0, pid=12), SubtaskInfo(1)),
    ),
)
INFO = JobInfo("orders-1", "orders", JobStatus.RUNNING, manager_pid=1, standby_pids=(20, 21), tasks=TASKS)


@pytest.mark.parametrize(
    ("choices", "pids"),
    [
        ([SubtaskChoice()], [10]),
        ([SubtaskChoice(draw=4)], [11]),
        ([SubtaskChoice("count")], [12]),
        ([SubtaskChoice("events", 1)], [11]),
        ([SubtaskChoice("count", 1)], []),
        ([SubtaskChoice("nothing")], []),
        ([SubtaskChoice("alerts")], [12]),
        ([SubtaskChoice("src", 1)], [11]),
        ([SubtaskChoice(draw=1), SubtaskChoice(draw=1)], [11, 12]),
        ([SubtaskChoice("count"), SubtaskChoice("count")], [12]),
    ],
)
def test_a_choice_means_a_subtask_with_a_process(choices: list[SubtaskChoice], pids: list[int]) -> None:
    assert [process.pid for process in choose(INFO, choices)] == pids


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (SubtaskChoice("alert"), "no operator 'alert'; the uids of its operators are 'src', 'alerts', 'out'"),
        (SubtaskChoice("alerts", 2), "no subtask 2 of 'alerts': its parallelism is 2"),
        (SubtaskChoice("alerts", 1), ""),
        (SubtaskChoice(), ""),
    ],
)
def test_a_choice_that_no_subtask_can_be_is_told(choice: SubtaskChoice, message: str) -> None:
    told = unmatched(INFO, [choice])
    assert message in told
    assert bool(message) is bool(told)


def test_the_manager_and_the_standbys_are_those_of_the_job() -> None:
    assert manager(INFO).pid == 1
    found = standby(INFO, 3)
    assert found is not None
    assert found.pid == 21
    assert standby(replace(INFO, standby_pids=()), 3) is None


def test_processes_that_have_died_are_left_out() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        dead.wait()
    alive = living(replace(INFO, standby_pids=(os.getpid(), dead.pid)))
    assert alive.standby_pids == (os.getpid(),)


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("actor", [SUBTASK, MANAGER])
def test_a_process_that_is_no_worker_of_the_cluster_gets_no_signal(actor: str) -> None:
    waiting = "import time; print('ready', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", waiting], stdout=subprocess.PIPE) as bystander:
        assert bystander.stdout is not None
        # Until it runs, /proc has no command line of it.
        bystander.stdout.readline()
        with pytest.raises(ClusterError, match=rf"not ray::{actor}.*no worker of the Ray cluster.*no signal is sent"):
            LiveProcess(JobProcess("subtask", actor, bystander.pid))
        assert bystander.poll() is None
        bystander.kill()
    with pytest.raises(ProcessLookupError):
        LiveProcess(JobProcess("subtask", actor, bystander.pid))
