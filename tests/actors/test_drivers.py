"""What a driver leaves behind when it is interrupted or killed: nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import ray

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster", "no_leak")]


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
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
        assert driver.wait(timeout=60) != 0
