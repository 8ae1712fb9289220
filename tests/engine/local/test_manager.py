"""What a local job makes of checkpoints that are asked for at its end: none costs a row, none comes between."""

from __future__ import annotations

import json
import random
import shutil
from functools import partial
from pathlib import Path

import pytest

import penstock as ps
from penstock import DataGenSource, FileSink, Sequence
from penstock.engine.checkpointing.coordinator import AbortReason, Place
from penstock.engine.checkpointing.store import JobFolder
from penstock.engine.clock import ManualClock
from penstock.engine.elements import SnapshotKind
from penstock.engine.errors import CheckpointError
from penstock.engine.job.status import JobStatus
from penstock.engine.local.mail import LetterKind, Mailbox
from penstock.engine.local.manager import LocalManager
from penstock.recovery import checkpoints
from penstock.savepoints.store import FolderJobStore

ROWS = 40


class Mail(Mailbox):
    """A mailbox from which a test takes the letters that it wants to come first."""

    def triggers(self) -> list[tuple[int, Place]]:
        """The checkpoints that subtasks are yet to be told of, in the order in which they were asked for."""
        letters = [posted.letter for posted in self._posted if posted.kind is LetterKind.TRIGGER]
        told = [letter.args for letter in letters if isinstance(letter, partial)]
        return [(barrier.checkpoint, place) for _, place, barrier in told]

    def waits(self, kind: LetterKind) -> bool:
        """Whether a letter of the kind is on its way."""
        return any(posted.kind is kind for posted in self._posted)

    def tell(self, checkpoint: int, place: Place) -> None:
        """Tell a subtask of a checkpoint now."""
        wanted = self.triggers().index((checkpoint, place))
        positions = [number for number, posted in enumerate(self._posted) if posted.kind is LetterKind.TRIGGER]
        self.take(positions[wanted])


def manager_of(folder: Path, mail: Mail, rows: int | None, seed: int = 0, interval: str | None = None) -> LocalManager:
    """A job that writes the numbers from 0 as files, of which those show that a checkpoint has committed."""
    storage = checkpoints(interval, str(folder / "checkpoints"), savepoints=str(folder / "savepoints"))
    env = ps.StreamEnvironment(
        runtime="local", parallelism=2, clock=ManualClock(), buffer_timeout="0", max_batch_rows=4, checkpoints=storage
    )
    numbers = env.from_source(DataGenSource({"i": Sequence()}, rows=rows, rate=1000)).uid("numbers")
    numbers.rebalance().map(lambda row: row, returns={"i": "int64"}).uid("map").sink_to(
        FileSink(folder / "out", "json")
    ).uid("out")
    (folder / "out").mkdir()
    store = FolderJobStore(str(folder / "checkpoints"), "job", "job", str(folder / "savepoints"))
    manager = LocalManager(env.program("job"), ManualClock(), random.Random(seed), JobFolder(store, "job"), mail)
    manager.start()
    return manager


def written(folder: Path) -> list[int]:
    files = [path for path in (folder / "out").iterdir() if not path.name.startswith(".")]
    return sorted(json.loads(line)["i"] for path in files for line in path.read_text().splitlines())


@pytest.mark.parametrize("kind", [SnapshotKind.SAVEPOINT, SnapshotKind.CHECKPOINT])
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_while_a_job_is_drained_nothing_else_is_taken_to_its_end(
    tmp_path: Path, kind: SnapshotKind, fails: bool, seed: int
) -> None:
    manager = manager_of(tmp_path, Mail(), None, seed, "10ms")
    while manager.completed < 2:
        manager.step(1.0)
    manager.drain(None)
    if fails:
        shutil.rmtree(tmp_path / "savepoints", ignore_errors=True)
        (tmp_path / "savepoints").write_text("no folder any more")
    behind_the_savepoint = 0
    while not manager.status.ended:
        with pytest.raises(CheckpointError, match=r"is being (drained|stopped)"):
            manager.request(kind)
        behind_the_savepoint += manager.drained is not None
        manager.step(1.0)
    assert manager.status is JobStatus.FINISHED, manager.error
    assert behind_the_savepoint
    # Where the savepoint has failed, the job ends with a checkpoint, as any does that has come to its end.
    assert isinstance(manager.drained, CheckpointError if fails else str)
    newest = manager.coordinator.history[-1]
    assert (newest.kind, newest.reason) == (SnapshotKind.CHECKPOINT if fails else SnapshotKind.SUSPEND, None)
    rows = written(tmp_path)
    assert rows == list(range(len(rows)))


@pytest.mark.parametrize("asked", [SnapshotKind.CHECKPOINT, SnapshotKind.SAVEPOINT])
def test_a_last_checkpoint_that_a_later_one_overtakes_is_taken_again_and_no_row_is_lost(
    tmp_path: Path, asked: SnapshotKind
) -> None:
    mail = Mail()
    manager = manager_of(tmp_path, mail, ROWS, interval="5m")
    while not (manager.attempt.all_finished and mail.triggers()):
        manager.step(1.0)
    last = mail.triggers()[0][0]
    later = manager.request(asked)
    place = manager.attempt.places[-1]
    mail.tell(later, place)
    # Of this subtask, the later one has all that the last one was to commit.
    mail.tell(last, place)
    assert "a subtask was asked for a later one first" in str(manager.outcomes[last])
    (record,) = manager.coordinator.history
    assert (record.checkpoint, record.reason) == (last, AbortReason.OVERTAKEN)
    while not manager.status.ended:
        manager.step(1.0)
    assert manager.status is JobStatus.FINISHED, manager.error
    assert isinstance(manager.outcomes[later], str)
    assert written(tmp_path) == list(range(ROWS))


@pytest.mark.parametrize("waiting", [LetterKind.TRIGGER, LetterKind.STORE, LetterKind.STORED, LetterKind.COMPLETE])
@pytest.mark.parametrize("fails", [False, True])
def test_a_job_that_is_drained_while_its_last_checkpoint_is_taken_ends_with_its_rows(
    tmp_path: Path, waiting: LetterKind, fails: bool
) -> None:
    mail = Mail()
    manager = manager_of(tmp_path, mail, ROWS, interval="5m")
    while not (manager.attempt.all_finished and mail.waits(waiting)):
        manager.step(1.0)
    manager.drain(None)
    if fails:
        shutil.rmtree(tmp_path / "checkpoints")
    while not manager.status.ended:
        manager.step(1.0)
    if not fails or manager.status is JobStatus.FINISHED:
        assert manager.status is JobStatus.FINISHED, manager.error
        assert written(tmp_path) == list(range(ROWS))
    if isinstance(manager.drained, str):
        assert (Path(manager.drained.removeprefix("file://")) / "manifest.json").exists()
    else:
        assert isinstance(manager.drained, CheckpointError)
        assert waiting is not LetterKind.TRIGGER
