"""What a driver leaves behind when it is interrupted or killed: nothing; when told to end, its job's state."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow.csv as csv
import pytest
import ray

from tests.actors.evicted import ROWS, run
from tests.actors.keyed_job import environment

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster", "no_leak")]


@pytest.mark.parametrize(
    "ending", [pytest.param(signal.SIGINT, marks=pytest.mark.long("tests/console/test_run.py")), signal.SIGKILL]
)
def test_a_job_ends_with_its_driver(ending: signal.Signals) -> None:
    address = ray.get_runtime_context().gcs_address
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "tests.actors.endless", address],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "RAY_AUTH_MODE": "token"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "{'n': 0, 'rows': 1}\n"
        driver.send_signal(ending)
        assert driver.wait(timeout=120) != 0


def test_a_driver_that_is_told_to_end_leaves_what_its_job_is_resumed_from(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.actors.evicted", ray.get_runtime_context().gcs_address, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "RAY_AUTH_MODE": "token"},
        stderr=subprocess.PIPE,
        text=True,
    ) as driver:
        while not list(tmp_path.glob("out/part-*.csv")):
            assert driver.poll() is None
            threading.Event().wait(0.1)
        driver.send_signal(signal.SIGTERM)
        assert driver.wait(timeout=120) == 143
        assert driver.stderr is not None
        assert "SIGTERM received at" not in driver.stderr.read()
    shown = _numbers(tmp_path / "out")
    assert 0 < len(shown) < ROWS
    assert list(tmp_path.glob("checkpoints/*/chk-*/manifest.json"))
    (tmp_path / "hurry").touch()
    run(environment(tmp_path / "checkpoints", 1, runtime="local"), tmp_path, resume="latest")
    assert _numbers(tmp_path / "out") == list(range(ROWS))


def _numbers(folder: Path) -> list[int]:
    return sorted(n for file in folder.glob("part-*.csv") for n in csv.read_csv(file)["n"].to_pylist())
