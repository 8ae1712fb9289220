"""Ctrl-C of `penstock chaos run` in a terminal: the job, what was stopped and the cluster are gone with the command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.ray]

_START_SECONDS = 200.0
_END_SECONDS = 120.0
_COMMAND = [sys.executable, "-c", "from penstock.console.main import main; main()", "chaos", "run"]


@pytest.fixture
def command(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A run of several schedules, with a cluster of its own, and a process group as a terminal gives it."""
    child = subprocess.Popen(
        [
            *_COMMAND,
            "--schedules",
            "9",
            "--duration",
            "60s",
            "--faults",
            "9",
            "--during",
            "storm",
            "--kind",
            "pause",
            "-p",
            "1",
        ],
        # Ray's sockets are not to be there: their paths would be too long.
        env={**os.environ, "TMPDIR": str(tmp_path), "RAY_TMPDIR": "/tmp"},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    yield child
    if child.poll() is None:
        child.kill()
        child.communicate()


def test_ctrl_c_leaves_nothing_behind_and_exits_with_130(command: subprocess.Popen[str], tmp_path: Path) -> None:
    started = with_subtasks(command)
    os.killpg(command.pid, signal.SIGINT)
    _, err = command.communicate(timeout=_END_SECONDS)
    assert (command.returncode, err.strip().splitlines()[-1]) == (130, "error: interrupted")
    _, alive = psutil.wait_procs(started, timeout=_END_SECONDS)
    assert not alive
    assert not list(tmp_path.glob("penstock-chaos-*"))


def with_subtasks(command: subprocess.Popen[str]) -> list[psutil.Process]:
    """All processes that the command has started, once the job's are among them."""
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and command.poll() is None:
        started = psutil.Process(command.pid).children(recursive=True)
        if sum(is_subtask(process) for process in started) >= 2:
            return started
        # It says nothing until its first schedule is over.
        time.sleep(0.2)
    command.kill()
    raise AssertionError(f"the job does not run: {command.communicate()}")


def is_subtask(process: psutil.Process) -> bool:
    try:
        return "".join(process.cmdline()).startswith("ray::SubtaskActor")
    except psutil.Error:
        return False
