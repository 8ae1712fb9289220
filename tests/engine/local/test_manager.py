"""What a local job makes of drains, other managers and failed parts, with real files: each row is there once."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock as ps
from penstock import DataGenSource, FileSink, Sequence
from penstock.engine.checkpointing.store import JobFolder
from penstock.engine.clock import ManualClock
from penstock.engine.errors import CheckpointError, FencedError, WorkerLostError
from penstock.engine.job.events import CancelJob, Command, DrainJob, TakeCheckpoint, TakeSavepoint
from penstock.engine.job.status import JobStatus
from penstock.engine.local.execution import MailKind
from penstock.engine.local.manager import LocalManager
from penstock.recovery import checkpoints
from penstock.savepoints.store import FolderJobStore

ROWS = 40


def manager_of(
    folder: Path, rows: int | None, seed: int = 0, interval: str = "10ms", spread: bool = True
) -> LocalManager:
    """A job that writes the numbers from 0 as files, of which those show that a checkpoint has committed."""
    storage = checkpoints(interval, str(folder / "checkpoints"), savepoints=str(folder / "savepoints"))
    env = ps.StreamEnvironment(
        runtime="local", parallelism=2, clock=ManualClock(), buffer_timeout="0", max_batch_rows=4, checkpoints=storage
    )
    numbers = env.from_source(DataGenSource({"i": Sequence()}, rows=rows, rate=1000)).uid("numbers")
    stream = numbers.rebalance() if spread else numbers
    stream.map(lambda row: row, returns={"i": "int64"}).uid("map").sink_to(FileSink(folder / "out", "json")).uid("out")
    store = FolderJobStore(str(folder / "checkpoints"), "job", "job", str(folder / "savepoints"))
    return LocalManager(env.program("job"), ManualClock(), random.Random(seed), JobFolder(store, "job"))


def run_until(manager: LocalManager, reached: Callable[[], bool]) -> None:
    for _ in range(20_000):
        if reached():
            return
        manager.step(1.0)
    raise AssertionError(f"it does not come so far: {manager.brain.status}, {manager.brain.error}")


def outcome(manager: LocalManager, command: Command) -> object:
    request = manager.ask(command)
    run_until(manager, lambda: request in manager.answers)
    return manager.answers[request]


def written(folder: Path) -> list[int]:
    files = [path for path in (folder / "out").iterdir() if not path.name.startswith(".")]
    return sorted(json.loads(line)["i"] for path in files for line in path.read_text().splitlines())


@pytest.mark.parametrize("seed", range(5))
def test_a_drained_job_ends_with_its_savepoint_and_takes_nothing_else_before(tmp_path: Path, seed: int) -> None:
    manager = manager_of(tmp_path, None, seed)
    run_until(manager, lambda: manager.brain.completed >= 2)
    drain = manager.ask(DrainJob())
    run_until(manager, lambda: "is being drained" in str(outcome(manager, TakeSavepoint())))
    run_until(manager, lambda: manager.brain.ended)
    assert manager.brain.status is JobStatus.FINISHED, manager.brain.error
    url = manager.answers[drain]
    assert isinstance(url, str)
    assert (Path(url.removeprefix("file://")) / "manifest.json").exists()
    rows = written(tmp_path)
    assert rows == list(range(len(rows)))


def test_a_drain_whose_savepoint_cannot_be_written_has_not_happened(tmp_path: Path) -> None:
    manager = manager_of(tmp_path, None)
    run_until(manager, lambda: manager.brain.completed >= 2)
    drain = manager.ask(DrainJob())
    run_until(manager, lambda: "is being drained" in str(outcome(manager, TakeCheckpoint())))
    shutil.rmtree(tmp_path / "savepoints", ignore_errors=True)
    (tmp_path / "savepoints").write_text("no folder any more")
    run_until(manager, lambda: drain in manager.answers)
    assert isinstance(manager.answers[drain], CheckpointError)
    newest = manager.brain.completed
    run_until(manager, lambda: manager.brain.completed > newest + 1)
    outcome(manager, CancelJob())
    rows = written(tmp_path)
    assert rows == list(range(len(rows)))


def test_a_job_whose_folder_another_manager_has_taken_starts_nothing_again(tmp_path: Path) -> None:
    manager = manager_of(tmp_path, None, interval="5m")
    run_until(manager, lambda: manager.brain.status is JobStatus.RUNNING)
    other = manager_of(tmp_path, ROWS)
    run_until(other, lambda: other.brain.ended)
    manager.lose((1, 0), WorkerLostError("killed"))
    run_until(manager, lambda: manager.brain.ended)
    assert isinstance(manager.brain.error, FencedError)
    assert written(tmp_path) == list(range(ROWS))


@pytest.mark.parametrize("seed", range(3))
def test_what_no_channel_connects_restarts_by_itself(tmp_path: Path, seed: int) -> None:
    manager = manager_of(tmp_path, 200, seed, spread=False)
    run_until(manager, lambda: manager.brain.completed >= 1)
    first = manager.brain.attempts.number
    manager.lose((1, 1), WorkerLostError("killed"))
    run_until(manager, lambda: manager.brain.attempts.number > first)
    assert {place: attempt for place, (attempt, _) in manager.brain.attempts.deployed.items()} == {
        (1, 0): first,
        (1, 1): first + 1,
    }
    run_until(manager, lambda: manager.brain.ended)
    assert written(tmp_path) == list(range(200))


def test_a_stimulus_log_that_cannot_be_written_is_told_once_and_harms_nothing(tmp_path: Path) -> None:
    class Refusing(FolderJobStore):
        def write_log(self, epoch: int, part: int, data: bytes) -> None:
            raise CheckpointError("no space left for it")

    env = ps.StreamEnvironment(runtime="local", clock=ManualClock(), checkpoints=checkpoints("10ms", str(tmp_path)))
    env.from_source(DataGenSource({"i": Sequence()}, rows=ROWS, rate=1000)).uid("numbers").sink_to(
        FileSink(tmp_path / "out", "json")
    ).uid("out")
    told: list[str] = []
    store, clock = Refusing(str(tmp_path), "job", "job"), ManualClock()
    folder = JobFolder(store, "job")
    manager = LocalManager(env.program("job"), clock, random.Random(0), folder, warn=told.append, log_store=store)
    run_until(manager, lambda: manager.brain.completed >= 2)
    clock.advance(2.0)
    run_until(manager, lambda: manager.brain.ended)
    assert (manager.brain.status, written(tmp_path)) == (JobStatus.FINISHED, list(range(ROWS)))
    assert told == ["the stimulus log of the job could not be written: no space left for it"]


def test_a_job_that_is_cancelled_while_it_is_deployed_leaves_nothing_running(tmp_path: Path) -> None:
    manager = manager_of(tmp_path, None)
    while all(posted.kind is not MailKind.DEPLOY for posted in manager.mail._posted):
        manager.mail.take(0)
    manager.ask(CancelJob())
    while len(manager.mail):
        manager.mail.take(0)
    assert manager.brain.status is JobStatus.CANCELLED
    assert list(manager.execution.places) == []
