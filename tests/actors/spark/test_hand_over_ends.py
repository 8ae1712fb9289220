"""When a batch job takes the folder of its savepoint, and when it gives that up. Without Spark."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import penstock as ps
from penstock import FileSink, SparkOptions, StreamEnvironment
from penstock.actors.spark import batch_job, session
from penstock.actors.spark.batch_job import SparkJob
from penstock.actors.spark.hand_over import HandOver, Suspension
from penstock.batch import start_batch_job
from penstock.engine.errors import CheckpointError, ConfigurationError, JobFailedError, PenstockError
from penstock.engine.graph.physical import PhysicalGraph
from penstock.engine.job.handle import JobHandle
from penstock.engine.job.status import JobStatus
from tests.actors.spark.simulated import Gathered, run_job


def spark_session(*_: object) -> Any:
    """A session that only counts."""
    context = SimpleNamespace(accumulator=lambda *_: Gathered(), setJobGroup=lambda *_, **__: None)
    return SimpleNamespace(sparkContext=context)


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "check_installed", lambda: None)
    monkeypatch.setattr(session, "spark_session", spark_session)


def counted(sink: ps.Sink) -> PhysicalGraph:
    env = StreamEnvironment(parallelism=2, runtime="local")
    rows = env.from_collection([{"k": "ab"[n % 2], "n": n} for n in range(4)]).key_by("k").aggregate(n=ps.count())
    rows.sink_to(sink)
    return env.program().physical()


def old_rows(folder: Path) -> FileSink:
    """A sink whose folder has a file of an earlier job."""
    folder.mkdir()
    (folder / "part-old.csv").write_text("old")
    return FileSink(str(folder), "csv", mode="overwrite")


def started(graph: PhysicalGraph, url: str) -> JobHandle:
    return start_batch_job(graph, {}, SparkOptions(), None, url)


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_job_that_is_refused_for_its_folder_leaves_old_rows_alone(tmp_path: Path) -> None:
    graph = counted(old_rows(tmp_path / "rows"))
    url = (tmp_path / "savepoint").as_uri()
    HandOver.begun(url, "first", graph)
    with pytest.raises(CheckpointError, match="is there already, written by another"):
        started(graph, url)
    assert files_in(tmp_path / "rows") == {"part-old.csv"}


def test_a_job_whose_sinks_cannot_be_prepared_gives_its_folder_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: FileSink) -> None:
        raise ConfigurationError("no rows here")

    monkeypatch.setattr(FileSink, "prepare", refuse)
    with pytest.raises(ConfigurationError, match="no rows here"):
        started(counted(FileSink(str(tmp_path / "rows"), "csv")), (tmp_path / "savepoint").as_uri())
    assert not files_in(tmp_path)


def test_a_job_has_removed_its_files_when_it_says_that_it_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statuses, discard = [], HandOver.discard
    running: list[SparkJob] = []

    def fail(job: SparkJob, secret: str) -> Any:
        running.append(job)
        raise PenstockError("no luck")

    def observed(over: HandOver) -> None:
        statuses.append(running[0].status())
        discard(over)

    monkeypatch.setattr(SparkJob, "_parcels", fail)
    monkeypatch.setattr(HandOver, "discard", observed)
    job = started(counted(FileSink(str(tmp_path / "rows"), "csv")), (tmp_path / "savepoint").as_uri())
    with pytest.raises(JobFailedError, match="no luck"):
        job.wait()
    assert statuses == [JobStatus.RUNNING]
    assert not files_in(tmp_path)


def test_sinks_commit_only_when_the_state_of_every_subtask_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed: list[object] = []
    monkeypatch.setattr(SparkJob, "_parcels", lambda *_: [])
    monkeypatch.setattr(batch_job, "commit", lambda *given: committed.append(given))
    job = started(counted(FileSink(str(tmp_path / "rows"), "csv")), (tmp_path / "savepoint").as_uri())
    with pytest.raises(JobFailedError, match=r"would lack the state of subtask 0 of task '.*run the job again"):
        job.wait()
    assert not committed
    assert not files_in(tmp_path)


@pytest.mark.parametrize("damage", ["is not there", "has 3 bytes"])
def test_files_that_the_driver_does_not_see_as_they_were_written_are_named(tmp_path: Path, damage: str) -> None:
    graph, url, handles = (
        counted(FileSink(str(tmp_path / "rows"), "csv")),
        (tmp_path / "savepoint").as_uri(),
        Gathered(),
    )
    over = HandOver.begun(url, "first", graph)
    run_job(graph, Suspension(url, "first", cast(Any, handles)))
    over.check(graph, handles.value)
    file = next(file.path for handle in handles.value.values() for file in handle.files())
    (tmp_path / "savepoint" / file).unlink()
    if damage != "is not there":
        (tmp_path / "savepoint" / file).write_bytes(b"bad")
    with pytest.raises(JobFailedError, match=rf"{file} {damage} .*subtask \d of task '.*all nodes share"):
        over.check(graph, handles.value)
