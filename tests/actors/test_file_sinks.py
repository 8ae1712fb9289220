"""Files that a job on real processes writes: the rows of the input, each once, whatever was killed meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.csv as csv
import pytest

import penstock
from penstock import FileSink, JobStatus, StreamEnvironment
from penstock.actors.client import RayJob
from penstock.actors.registry import JobControl
from tests.actors.keyed_job import environment, kill, subtask_pids, until, until_checkpoint
from tests.actors.paced import Paced

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster", "no_leak")]


def _to_files(env: StreamEnvironment, folder: Path, numbers: Paced) -> StreamEnvironment:
    """Writes the numbers into files, through a shuffle."""
    source = env.from_source(numbers, "rows").uid("rows")
    source.rebalance().sink_to(FileSink(str(folder), "csv")).uid("files")
    return env


def _numbers(folder: Path) -> list[int]:
    """What is in the files, sorted."""
    return sorted(n for file in folder.glob("part-*.csv") for n in csv.read_csv(file)["n"].to_pylist())


@pytest.mark.long("the crash suites of file sinks; test_seeded.py kills processes")
def test_files_hold_every_row_once_though_processes_are_killed(tmp_path: Path) -> None:
    env = environment(tmp_path / "checkpoints")
    numbers = Paced(20_000, 500, tmp_path / "hurry")
    job = _to_files(env, tmp_path / "files", numbers).submit("files")
    assert isinstance(job, RayJob)
    for number, place in enumerate((0, 3), 1):
        kill(subtask_pids(until_checkpoint(job))[place])
        until(job, lambda info, wanted=number: info.restarts >= wanted and info.status is JobStatus.RUNNING)
    numbers.hurry.touch()
    job.wait()
    assert _numbers(tmp_path / "files") == list(range(20_000))


@pytest.mark.long("tests/console/test_jobs.py stops and resumes; the suites of sinks rescale them")
def test_a_detached_job_is_stopped_by_name_and_goes_on_at_another_parallelism(tmp_path: Path) -> None:
    rows, numbers = 20_000, Paced(20_000, 500, tmp_path / "hurry")
    env = environment(tmp_path / "checkpoints", 1)
    _to_files(env, tmp_path / "files", numbers).submit("detached files", detached=True)
    control = penstock.attach("detached files")
    _until(control, lambda info: info.checkpoints is not None and info.checkpoints.completed >= 2)
    savepoint = control.stop(f"file://{tmp_path}/savepoints")
    control.wait()
    assert control.status() is JobStatus.FINISHED
    assert control.metrics().operators
    control.leave()
    before = _numbers(tmp_path / "files")
    assert 0 < len(before) < rows
    assert len(set(before)) == len(before)
    numbers.hurry.touch()
    again = _to_files(environment(tmp_path / "checkpoints", 2), tmp_path / "files", numbers)
    again.submit("detached files", savepoint=savepoint).wait()
    assert _numbers(tmp_path / "files") == list(range(rows))


def _until(control: JobControl, condition: Callable[[dict[str, Any]], bool]) -> None:
    while not condition(control.info()):
        threading.Event().wait(0.2)
