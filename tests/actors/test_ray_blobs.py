"""Checkpoints in the cluster's object store: a blob store like the others, as long as the cluster lives."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

from penstock.actors.ray_blobs import RayBlobs, open_blobs
from penstock.engine.errors import CheckpointCorruptError, CheckpointError, ConfigurationError
from penstock.engine.job.status import JobStatus
from penstock.recovery import checkpoints
from penstock.savepoints.storage import BlobExistsError
from tests.actors.keyed_job import assert_exact, environment, submit, subtask_pids, until, until_checkpoint


@pytest.fixture
def blobs() -> Iterator[RayBlobs]:
    store = open_blobs("ray://tests/one/job")
    assert isinstance(store, RayBlobs)
    yield store
    ray.kill(ray.get_actor("penstock-blobs:tests", "penstock"))


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_blobs_are_kept_listed_created_once_and_removed(blobs: RayBlobs) -> None:
    large = bytes(range(256)) * 4096
    blobs.create("shared/a.arrow", large)
    blobs.put("chk-1/manifest.json", b"{}")
    assert blobs.get("shared/a.arrow").to_pybytes() == large
    assert open_blobs("ray://tests/one").list("job/shared") == [("job/shared/a.arrow", len(large))]
    assert blobs.list() == [("chk-1/manifest.json", 2), ("shared/a.arrow", len(large))]
    blobs.create("shared/a.arrow", large)
    with pytest.raises(BlobExistsError, match=r"a\.arrow"):
        blobs.create("shared/a.arrow", b"other")
    blobs.delete(["shared/a.arrow", "never/there"])
    with pytest.raises(CheckpointCorruptError, match=r"ray://tests/one/job/shared/a\.arrow is missing"):
        blobs.get("shared/a.arrow")


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster", "no_leak", "blobs")
def test_standbys_take_the_place_of_a_process_that_died_and_of_one_that_is_stuck_from_the_object_store(
    tmp_path: Path,
) -> None:
    hurry = tmp_path / "hurry"
    env = environment("unused", 1, standbys=1, checkpoints=checkpoints("200ms", "ray://tests/jobs"))
    env.configure({"heartbeat.timeout": "2s"})
    job, updates = submit(env, "in the object store", rows=6_000, rate=60, hurry=hurry)
    # Ray's report knows no more of one that was killed.
    faults = [(signal.SIGKILL, "was killed, or has crashed"), (signal.SIGSTOP, "has not answered")]
    for number, (fault, cause) in enumerate(faults):
        (standby,) = until(job, lambda info: len(info.standby_pids) == 1).standby_pids
        os.kill(subtask_pids(until_checkpoint(job))[number], fault)
        info = until(job, lambda info, wanted=number + 1: info.restarts == wanted and info.status is JobStatus.RUNNING)
        assert subtask_pids(info)[number] == standby
        assert cause in info.restart_history[number].cause
    hurry.touch()
    job.wait()
    assert_exact(updates, 6_000)


def test_other_urls_are_those_of_lasting_storage(tmp_path: Path) -> None:
    assert open_blobs(f"file://{tmp_path}").url == f"file://{tmp_path}"
    for wrong in ("ray://", "ray://name?secret=1"):
        with pytest.raises(ConfigurationError, match="ray://"):
            open_blobs(wrong)
    with pytest.raises(CheckpointError):
        open_blobs("ray://name/../other")
    with pytest.raises(ConfigurationError, match="memory://tests is the memory of one process"):
        open_blobs("memory://tests")
