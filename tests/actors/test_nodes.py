"""The loss of a node: its subtasks go on elsewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def test_a_job_survives_the_loss_of_the_node_that_most_of_it_runs_on(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.actors.lost_node", str(tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert "OK" in ended.stdout, ended.stdout + ended.stderr
