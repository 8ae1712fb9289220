"""A job that is refused has touched nothing: neither its sinks' old rows, nor those of the job that runs already."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import ray

from penstock import DataGenSource, FileSink, JobStatus, Sequence, StreamEnvironment
from penstock.actors.client import RayJob
from penstock.engine.checkpointing.store import Claim
from penstock.engine.connectors import ConnectorContext, Sink, SinkWriter
from penstock.engine.elements import Batch
from penstock.engine.errors import CheckpointError, ClusterError, ConfigurationError, JobError, JobFailedError
from penstock.engine.local.manager import JobFolder
from penstock.job_folders import FRESH, job_folder
from penstock.savepoints.store import FolderJobStore
from tests.actors.keyed_job import environment, until_checkpoint

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster", "no_leak")]


class _NoWriter(SinkWriter):
    def write(self, batch: Batch) -> None:
        return


class Noting(Sink):
    """Any sink: leaves a file where its target is made ready, and refuses if `message` says why."""

    def __init__(self, touched: Path, message: str = "") -> None:
        self.touched, self.message = touched, message

    def prepare(self) -> None:
        self.touched.touch()
        if self.message:
            raise ConfigurationError(self.message)

    def open(self, context: ConnectorContext) -> SinkWriter:
        return _NoWriter()

    def describe(self) -> str:
        return "noting"


class Taken(FolderJobStore):
    """A folder that another manager keeps for itself."""

    def claim(self) -> Claim:
        raise CheckpointError("the folder is another manager's")


def _filled(env: StreamEnvironment, *sinks: Sink) -> StreamEnvironment:
    numbers = env.from_source(DataGenSource({"n": Sequence()}, rate=500)).uid("numbers")
    for position, sink in enumerate(sinks):
        numbers.sink_to(sink).uid(f"sink-{position}")
    return env


def _rows(folder: Path) -> int:
    return sum(len(path.read_text().splitlines()) - 1 for path in folder.glob("part-*.csv"))


def _same_name(env: StreamEnvironment) -> None:
    env.configure({"execution.checkpointing.dir": "ray://refused"})
    with pytest.raises(JobError, match="'orders' is running already"):
        env.submit("orders")
    # The storage in the cluster's memory is a process of its own.
    assert not [one for one in ray.util.list_named_actors(all_namespaces=True) if one["name"].endswith(":refused")]


def _no_room(env: StreamEnvironment) -> None:
    job = env.submit("crowded")
    with pytest.raises(JobFailedError, match=r"no room .* it needs 8 CPU; free in the cluster: ") as caught:
        job.wait()
    assert isinstance(caught.value.__cause__, ClusterError)
    assert not any(name in str(caught.value) for name in ("bundle_", "node:", "accelerator_type:", "memory"))


def _no_storage(env: StreamEnvironment) -> None:
    program = env.program("unlucky")
    folder = job_folder(program, FRESH)
    assert folder is not None
    assert isinstance(folder.store, FolderJobStore)
    taken = Taken(**{name: getattr(folder.store, name) for name in ("root_url", "job_id", "job_name")})
    job = RayJob(program, {}, JobFolder(taken, folder.job_id))
    with pytest.raises(JobFailedError, match="another manager's"):
        job.wait()


def test_a_job_that_is_refused_leaves_the_rows_of_the_one_that_runs(tmp_path: Path) -> None:
    files = FileSink(tmp_path / "files", "csv", mode="overwrite")
    job = _filled(environment(tmp_path / "checkpoints", 1), files).submit("orders")
    assert isinstance(job, RayJob)
    until_checkpoint(job, 2)
    ways: list[Callable[[StreamEnvironment], None]] = [_same_name, _no_room, _no_storage]
    for way in ways:
        before, touched = _rows(tmp_path / "files"), tmp_path / way.__name__
        # One slot of all CPUs has no room beside a job, and needs no more processes than one of a single CPU.
        slots = {"slot_cpus": 8} if way is _no_room else {}
        refused = environment(tmp_path / "checkpoints", 1, slot_timeout="1s", **slots)
        way(_filled(refused, files, Noting(touched)))
        assert not touched.exists(), way
        assert _rows(tmp_path / "files") >= before > 0
    assert job.status() is JobStatus.RUNNING
    job.cancel()


@pytest.mark.long("test_brain_shell.py: what a manager does then")
def test_a_sink_that_cannot_be_made_ready_ends_the_job_at_once(tmp_path: Path) -> None:
    env = _filled(environment(tmp_path, 1), Noting(tmp_path / "touched", "the table is locked"))
    with pytest.raises(JobFailedError, match="the table is locked"):
        env.execute("locked")
    assert (tmp_path / "touched").exists()
