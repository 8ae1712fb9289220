"""Checkpoints wait for storage that is away for a while, as long as their time-out allows; the job does not notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import DataGenSource, FileSink, JobStatus, Sequence, StreamEnvironment
from penstock.engine.clock import ManualClock
from penstock.engine.errors import CheckpointError
from penstock.recovery import checkpoints, no_restart
from penstock.savepoints.content import Data
from penstock.savepoints.storage import LocalBlobs, TransientStorageError

PUT, CREATE = LocalBlobs.put, LocalBlobs.create


class Outage:
    """Of the next `calls` writes into folders of checkpoints, none is answered."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        monkeypatch.setattr(LocalBlobs, "put", lambda blobs, path, data: self._write(PUT, blobs, path, data))
        monkeypatch.setattr(LocalBlobs, "create", lambda blobs, path, data: self._write(CREATE, blobs, path, data))

    def _write(self, write: object, blobs: LocalBlobs, path: str, data: Data) -> None:
        if self.calls and path.partition("/")[0] != "claims":
            self.calls -= 1
            raise TransientStorageError(f"{path}: the storage does not answer")
        write(blobs, path, data)  # type: ignore[operator]


@pytest.mark.parametrize(("calls", "survives"), [(7, True), (10**9, False)])
def test_a_job_without_restarts_survives_an_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int, survives: bool
) -> None:
    outage = Outage(monkeypatch)
    taken = checkpoints("100ms", str(tmp_path / "checkpoints"), timeout="400ms")
    env = StreamEnvironment(
        runtime="local", parallelism=1, clock=ManualClock(), checkpoints=taken, restart=no_restart()
    )
    env.from_source(DataGenSource({"n": Sequence()}, rows=100, rate=50)).sink_to(FileSink(tmp_path / "out", "csv"))
    job = env.submit("survivor")
    outage.calls = calls
    if survives:
        job.wait()
        assert job.status() is JobStatus.FINISHED
        assert not outage.calls
    else:
        with pytest.raises(Exception, match="does not answer") as failed:
            job.wait()
        assert isinstance(failed.value.__cause__, CheckpointError)
