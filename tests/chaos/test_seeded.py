"""Seeded schedules of `kill -9` and SIGSTOP against real processes: nothing is lost, and nothing counts twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import ray

from penstock.testing.chaos import JOBS, ChaosSchedule, chaos_environment, run_chaos_job

LONG = pytest.mark.long("test_the_command_line_reports_what_it_did shakes and checks a job; the simulation, thousands")

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]


@pytest.mark.usefixtures("no_leak")
@LONG
@pytest.mark.parametrize(("job", "seed"), [("sequence", 1), ("sequence", 2), ("bank", 3)])
def test_a_shaken_job_gives_what_an_undisturbed_one_does(job: str, seed: int, tmp_path: Path) -> None:
    run = run_chaos_job(JOBS[job], ChaosSchedule.random(seed, "4s"), chaos_environment(str(tmp_path)), "4s")
    assert not run.violations
    assert run.status == "finished"
    assert run.fired
    assert run.checkpoints > 0


def test_the_command_line_reports_what_it_did() -> None:
    address = ray.get_runtime_context().gcs_address
    command = [sys.executable, "-c", "from penstock.console.main import main; main()", "chaos", "run"]
    options = ["--seed", "3", "--duration", "3s", "--faults", "1", "-p", "1", "--address", address, "--json"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["violations"] == []
    assert document["checked"]["rows checked"] > 0
    assert document["runs"][0]["schedule"] == str(ChaosSchedule.random(3, "3s", 1)).splitlines()
