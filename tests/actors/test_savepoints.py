"""Checkpoints and savepoints that users ask for, and rescaling, on real processes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import penstock as ps
from penstock import JobStatus
from penstock.actors.client import RayJob
from penstock.engine.errors import CheckpointError, JobError
from penstock.recovery import checkpoints
from penstock.savepoints.store import find_checkpoint
from tests.actors.keyed_job import KEYS, assert_exact, environment, submit, until, until_checkpoint
from tests.actors.paced import Paced
from tests.engine.api.test_bounded_savepoints import assert_in_mid_input, assert_whole, build, run_for

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster", "no_leak")]


@pytest.mark.long("tests/console/test_jobs.py asks for them on Ray, and stops; whether they are whole: the simulation")
def test_savepoints_are_whole_and_a_stopped_job_ends_behind_its_own(tmp_path: Path) -> None:
    job, updates = submit(environment(tmp_path, 1), "savepoints", rows=100_000, rate=500)
    # Asked for at once, it waits until the job runs.
    assert "chk-" in job.checkpoint()
    taken = find_checkpoint(job.savepoint(f"file://{tmp_path}/mine"))
    assert taken.checkpoint.job_name == "savepoints"
    stopped = find_checkpoint(job.stop())
    assert job.status() is JobStatus.FINISHED
    rows = list(updates)
    counted = sum(max(row["n"] for row in rows if row["k"] == key) for key in range(KEYS))
    assert_exact(rows, counted)
    assert stopped.checkpoint.checkpoint > taken.checkpoint.checkpoint


@pytest.mark.long("the simulation breaks jobs at such moments in each of its runs")
def test_savepoints_come_whenever_they_are_asked_for_between_checkpoints(tmp_path: Path) -> None:
    often = checkpoints("20ms", str(tmp_path), savepoints=f"{tmp_path}/savepoints")
    job, _ = submit(environment(tmp_path, 1, checkpoints=often), "between", rows=100_000, rate=500)
    until_checkpoint(job)
    urls = [job.savepoint() for _ in range(30)]
    numbers = [find_checkpoint(url).checkpoint.checkpoint for url in urls]
    assert numbers == sorted(set(numbers))
    assert job.info().checkpoints.completed > 1
    job.cancel()


@pytest.mark.long("tests/console/test_jobs.py drains on Ray; what comes out: the simulation, tests/engine/task")
def test_a_drained_job_ends_as_if_its_input_had(tmp_path: Path) -> None:
    job, updates = submit(environment(tmp_path, 1), "drained", rows=100_000, rate=500)
    until_checkpoint(job)
    find_checkpoint(job.drain(f"file://{tmp_path}/drained"))
    assert job.status() is JobStatus.FINISHED
    rows = list(updates)
    assert_exact(rows, sum(max(row["n"] for row in rows if row["k"] == key) for key in range(KEYS)))


@pytest.mark.long("tests/engine/api/test_bounded_savepoints.py")
def test_bounded_results_wait_in_a_savepoint_and_come_once_from_the_job_that_goes_on(tmp_path: Path) -> None:
    env = environment(tmp_path, 1, checkpoints=checkpoints(storage=str(tmp_path), savepoints=str(tmp_path)))
    totals, order, seen = build(env, 20_000, rate=2000)
    job = env.submit("bounded")
    _reading = run_for(200, seen)
    url = job.stop()
    assert job.status() is JobStatus.FINISHED
    assert [totals.take().num_rows, order.take().num_rows] == [0, 0]
    assert_in_mid_input(url, 20_000)
    env = environment(tmp_path, 2)
    totals, order, _ = build(env, 20_000)
    env.execute("bounded, to the end", savepoint=url)
    assert_whole(totals, order, 20_000)


def test_rescaling_keeps_the_output_exact_and_state_can_be_asked_for_on_both_sides(tmp_path: Path) -> None:
    hurry = tmp_path / "hurry"
    job, updates = submit(environment(tmp_path), "rescaled", rows=10_000, rate=100, hurry=hurry)
    until_checkpoint(job)
    live = ps.state("rescaled", "count", "accumulators")
    counted = 0
    for wanted, parallelism in (({"count": 1}, 2), ({"count": 2}, 2), (1, 1)):
        cut = ps.checkpointed_state("rescaled").operator("count").state("accumulators").to_arrow()
        rows = live.scan()
        assert sorted(rows.column("k").to_pylist()) == list(range(KEYS))
        now = sum(rows.column("count(*)").to_pylist())
        assert now >= max(counted, sum(cut.column("count(*)").to_pylist()))
        assert live.get(3)["count(*)"] >= dict(zip(*rows.to_pydict().values(), strict=True))[3]
        counted = now
        until_checkpoint(job)
        assert job.rescale(wanted) < 20
        info = until(job, lambda info: info.status is JobStatus.RUNNING)
        assert info.parallelism == parallelism
    assert sum(live.scan().column("count(*)").to_pylist()) >= counted
    assert [restart.cause for restart in info.restart_history] == [
        "rescale count to 1, live",
        "rescale count to 2, live",
        "rescale to 1, all at a checkpoint",
    ]
    hurry.touch()
    job.wait()
    assert_exact(updates, 10_000)
    with pytest.raises(JobError, match=r"no job|has ended"):
        ps.state("rescaled", "count", "accumulators").get(3)


@pytest.mark.long("tests/engine/job/test_brain.py::test_a_job_without_storage_says_so")
def test_without_storage_there_is_no_savepoint(tmp_path: Path) -> None:
    job, _ = submit(environment(tmp_path, 1, checkpoints=None), "no storage", rows=100_000)
    with pytest.raises(CheckpointError, match="no checkpoint storage"):
        job.savepoint(f"file://{tmp_path}")
    job.cancel()


@pytest.mark.long("test_rescaling_keeps_the_output_exact_...; what a rescale reserves: tests/engine/job")
def test_a_rescale_that_changes_slots_in_use_disturbs_nothing_before_the_job_has_stopped(tmp_path: Path) -> None:
    class Same:
        def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
            return batch

    env = environment(tmp_path, 1)
    numbers = env.from_source(Paced(20_000, 800, tmp_path / "hurry"))
    keyed = numbers.with_columns(k=ps.col("n") % KEYS).map_batches(Same, num_cpus=0.1).key_by("k")
    # The second slot reserves more than before once the function runs there too.
    updates = keyed.aggregate(n=ps.count()).set_parallelism(2).collect()
    job = env.submit("slots")
    assert isinstance(job, RayJob)
    until_checkpoint(job)
    job.rescale(2)
    info = until(job, lambda info: info.status is JobStatus.RUNNING)
    (rescale,) = info.restart_history
    assert rescale.cause.startswith("rescale to 2, by a restart: task 'map_batches(Same)' has resources of its own")
    assert info.restarts == 0
    (tmp_path / "hurry").touch()
    job.wait()
    assert_exact(updates, 20_000)
