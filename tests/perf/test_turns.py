"""Jobs that are compared in turns: one works while the other's processes are stopped, and both go on in the end."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perf.turns import TurnTaking


@dataclass
class TwoProcesses:
    """What `TurnTaking` asks of a job."""

    manager: int
    subtask: int

    def info(self) -> Mapping[str, Any]:
        return {"manager_pid": self.manager, "tasks": [{"subtasks": [{"pid": self.subtask}]}]}

    def wait_until_stopped(self) -> None:
        """A process stops some time after it was told to."""
        for pid in (self.manager, self.subtask):
            os.waitid(os.P_PID, pid, os.WSTOPPED)

    @property
    def works(self) -> bool:
        return "T" not in {_state(self.manager), _state(self.subtask)}


@pytest.fixture
def jobs() -> Iterator[list[TwoProcesses]]:
    waits = "import sys; sys.stdin.read()"
    started = [subprocess.Popen([sys.executable, "-c", waits], stdin=subprocess.PIPE) for _ in range(4)]
    try:
        yield [TwoProcesses(started[0].pid, started[1].pid), TwoProcesses(started[2].pid, started[3].pid)]
    finally:
        for process in started:
            # The end of its input ends one that has not been left stopped; what hangs here is a failure.
            process.communicate(timeout=20)


@pytest.mark.skipif(sys.platform != "linux", reason="states of processes are read from /proc")
def test_one_job_works_at_a_time_and_who_comes_first_changes(jobs: list[TwoProcesses]) -> None:
    order = []

    def measured(job: TwoProcesses) -> int:
        [other] = [each for each in jobs if each is not job]
        other.wait_until_stopped()
        assert job.works
        order.append(jobs.index(job))
        return jobs.index(job)

    with TurnTaking(*jobs) as turns:  # type: ignore[arg-type]
        assert list(turns.pairs(3, measured)) == [(0, 1)] * 3  # type: ignore[arg-type]
    assert order == [0, 1, 1, 0, 0, 1]
    assert all(job.works for job in jobs)


@pytest.mark.skipif(sys.platform != "linux", reason="states of processes are read from /proc")
def test_a_failure_leaves_no_job_stopped(jobs: list[TwoProcesses]) -> None:
    def fails(job: TwoProcesses) -> None:
        raise RuntimeError("the job failed")

    with pytest.raises(RuntimeError, match="the job failed"), TurnTaking(*jobs) as turns:  # type: ignore[arg-type]
        list(turns.pairs(1, fails))  # type: ignore[arg-type]
    assert all(job.works for job in jobs)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
