"""Jobs on Ray, as a user sees them: results, failures, cancelling, and nothing left behind."""

from __future__ import annotations

import importlib
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest
import ray

import penstock as ps
from penstock import DataGenSource, JobStatus, RandomInt, Sequence, StreamEnvironment, col
from penstock.actors.client import RayJob
from penstock.engine.connectors import ConnectorContext, Sink, SinkWriter
from penstock.engine.elements import Batch
from penstock.engine.errors import (
    ClusterError,
    JobCancelledError,
    JobFailedError,
    SerializationError,
    SubtaskError,
    UserCodeError,
    WorkerLostError,
)
from penstock.recovery import checkpoints

LONG = pytest.mark.long("smaller messages: test_rows_go_from_process_to_process_...; larger ones: test_channels.py")

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster", "no_leak")]


def numbers(env: StreamEnvironment, rows: int) -> ps.DataStream:
    return env.from_source(DataGenSource({"n": Sequence(), "k": RandomInt(0, 7)}, rows=rows))


@pytest.mark.long("tests/transcripts runs windows on Ray, test_savepoints running aggregates")
def test_running_and_windowed_aggregates_equal_those_of_the_local_runtime() -> None:
    def results(runtime: str) -> tuple[list[object], list[object]]:
        env = StreamEnvironment(parallelism=2, runtime=runtime, max_batch_rows=700)  # type: ignore[arg-type]
        stream = numbers(env, 10_000).assign_timestamps("n").key_by("k")
        windows = stream.window(ps.sliding("1s", "500ms")).aggregate(n=ps.count(), total=ps.sum("n")).collect()
        updates = stream.aggregate(n=ps.count(), largest=ps.max("n")).collect()
        env.execute("both")
        last = {row["k"]: row for row in updates}
        return sorted(map(str, windows)), sorted(map(str, last.values()))

    assert results("ray") == results("local")


@LONG
@pytest.mark.parametrize("batch_rows", [20_000, 100_000])
def test_rows_come_through_a_shuffle_however_large_their_messages_are(batch_rows: int) -> None:
    env = StreamEnvironment(parallelism=2, max_batch_rows=batch_rows)
    wanted = range(max(50_000, 2 * batch_rows))
    rows = numbers(env, len(wanted)).rebalance().filter(col("n") >= 0).collect()
    env.execute("large and small")
    assert sorted(rows.to_arrow().column("n").to_pylist()) == list(wanted)


@pytest.mark.long("tests/actors/test_channels.py")
def test_values_of_a_type_that_the_program_defines_come_through_a_shuffle() -> None:
    class Cents(pa.ExtensionType):
        def __init__(self) -> None:
            super().__init__(pa.int64(), "penstock.test.local_cents")

        def __arrow_ext_serialize__(self) -> bytes:
            return b""

        @classmethod
        def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> Cents:
            return cls()

    def priced(batch: pa.RecordBatch) -> pa.RecordBatch:
        price = pa.ExtensionArray.from_storage(Cents(), batch.column("n"))
        return pa.RecordBatch.from_arrays([batch.column("n"), price], ["n", "price"])

    env = StreamEnvironment(parallelism=2)
    rows = numbers(env, 1_000).map_batches(priced).rebalance().filter(col("n") >= 0).collect()
    env.execute("extension type")
    assert sorted(rows.to_arrow().column("price").to_pylist()) == list(range(1_000))


def test_a_failing_function_of_a_module_that_the_driver_alone_finds_ends_the_job_with_its_row_and_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "halves.py").write_text("def divide(row):\n    return {'x': 1 / (row['n'] - 500)}\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    divide = importlib.import_module("halves").divide
    monkeypatch.delitem(sys.modules, "halves")
    env = StreamEnvironment(parallelism=1)
    numbers(env, 1000).map(divide).name("divider").collect()
    with pytest.raises(JobFailedError, match=r"(?s)'divider', subtask \d.*'n': 500.*return \{'x': 1") as caught:
        env.execute("fails")
    assert isinstance(caught.value.__cause__, UserCodeError)
    assert caught.value.__cause__.error == "ZeroDivisionError: division by zero"


class _FullDisk(Sink):
    def open(self, context: ConnectorContext) -> SinkWriter:
        return _FullDiskWriter()

    def describe(self) -> str:
        return "full disk"


class _FullDiskWriter(SinkWriter):
    def write(self, batch: Batch) -> None:
        raise OSError(28, "No space left on device")


@pytest.mark.long("tests/engine/local/test_runtime.py; how an error ends a job on Ray: the test above")
def test_an_error_of_the_sink_names_the_task() -> None:
    env = StreamEnvironment(parallelism=1)
    numbers(env, 10).sink_to(_FullDisk())
    with pytest.raises(JobFailedError, match=r"full disk.*No space left on device") as caught:
        env.execute("disk")
    assert isinstance(caught.value.__cause__, SubtaskError)


@pytest.mark.long("test_job_manager.py cancels one")
def test_cancel_ends_an_endless_job() -> None:
    env = StreamEnvironment(parallelism=2)
    numbers_without_end = env.from_source(DataGenSource({"n": Sequence()}))
    numbers_without_end.key_by("n").aggregate(rows=ps.count()).filter(col("rows") > 1).collect()
    job = env.submit("endless")
    assert [operator.parallelism for operator in job.metrics().operators][:2] == [2, 2], "known before anything runs"
    while job.status() is not JobStatus.RUNNING:
        job.pump(0.1)
    job.cancel()
    assert job.status() is JobStatus.CANCELLED
    with pytest.raises(JobCancelledError):
        job.wait()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere every message is a call")
def test_rows_go_from_process_to_process_through_sockets_of_which_nothing_is_left() -> None:
    env = StreamEnvironment(parallelism=2, max_batch_rows=1_000)
    keyed = env.from_source(DataGenSource({"n": Sequence()})).key_by("n")
    rows = iter(keyed.aggregate(rows=ps.count()).collect())
    before, missing = sockets(), set(range(10_000))
    job = env.submit("sockets")
    while missing:
        row = next(rows)
        assert row["rows"] == 1
        missing.discard(row["n"])
    # Each of two sources sends to each of two counting subtasks.
    assert len(sockets() - before) >= 4
    job.cancel()
    assert not sockets() - before


def sockets() -> set[str]:
    """The connections to subtasks of this cluster, as the kernel has them; other clusters may be there, too."""
    listening = {f"@penstock-{actor}{kind}" for actor in ray._private.state.actors() for kind in ("", "-sparse")}
    lines = (line.split() for line in Path("/proc/net/unix").read_text().splitlines())
    return {line[6] for line in lines if line[-1] in listening and line[5] == "03"}


@pytest.mark.long("test_ray_blobs.py kills one; what a job does that may not restart: tests/engine/job/test_brain.py")
def test_a_killed_worker_ends_the_job_at_once() -> None:
    def die(row: dict[str, int]) -> dict[str, int]:
        import os
        import signal

        if row["n"] == 300:
            os.kill(os.getpid(), signal.SIGKILL)
        return row

    env = StreamEnvironment(parallelism=1)
    numbers(env, 1000).map(die).collect()
    with pytest.raises(JobFailedError, match="was killed, or has crashed") as caught:
        env.execute("killed")
    assert "class_name" not in str(caught.value)
    assert isinstance(caught.value.__cause__, WorkerLostError)


@pytest.mark.long("tests/engine/job/test_handle.py")
def test_a_caller_who_stops_reading_ends_the_job() -> None:
    env = StreamEnvironment(parallelism=1)
    rows = iter(env.from_source(DataGenSource({"n": Sequence()})).collect())
    assert next(rows) == {"n": 0}
    rows.close()  # type: ignore[attr-defined]


def test_what_cannot_travel_is_refused_before_anything_starts() -> None:
    lock = threading.Lock()
    env = StreamEnvironment(parallelism=1)
    env.from_collection([1]).filter(lambda row: not lock.locked()).name("guarded").collect()
    with pytest.raises(SerializationError, match=r"'guarded'.*lock"):
        env.submit("lock")


@pytest.mark.long("test_refused_jobs.py: a job that has no room beside another")
def test_a_job_that_does_not_fit_the_cluster_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    # One that this process had started itself could not grow, and would be refused at once.
    monkeypatch.setattr("penstock.actors.cluster.is_embedded", lambda: False)
    env = StreamEnvironment(parallelism=1, slot_cpus=1000, slot_timeout="500ms")
    env.from_collection([1]).collect()
    with pytest.raises(JobFailedError, match="it needs 1000 CPU; free in the cluster: ") as caught:
        env.execute("too large")
    assert isinstance(caught.value.__cause__, ClusterError)
    assert not any(name in str(caught.value) for name in ("bundle_", "node:", "accelerator_type:", "memory"))


def test_another_address_than_that_of_the_connected_cluster_is_refused() -> None:
    env = StreamEnvironment(parallelism=1, address="127.0.0.1:1")
    env.from_collection([1]).collect()
    with pytest.raises(ClusterError, match=r"not to '127\.0\.0\.1:1'"):
        env.submit("elsewhere")


@pytest.mark.long("test_client.py: they are reported, and fail their subtask; test_brain.py: what comes of that")
def test_rows_lost_on_their_way_to_the_client_fail_the_job() -> None:
    env = StreamEnvironment(parallelism=1)
    env.from_source(DataGenSource({"n": Sequence()}, rate=100)).collect()
    job = env.submit("lossy")
    assert isinstance(job, RayJob)
    while not job._fetches:
        job.pump(0.1)
    # A call that the actor refuses fails as a lost reply does: by an error other than the actor's death.
    (fetch,) = job._fetches.values()
    job._fetches = {fetch.source.actor.fetch.remote(fetch.source.attempt, 99, 0, 1.0): fetch}
    with pytest.raises(JobFailedError, match="rows for the client were lost"):
        job.wait()


def test_a_class_given_to_map_batches_lives_in_its_own_task_and_reserves_what_it_asks_for() -> None:
    class Double:
        def open(self, context: object) -> None:
            self.factor = 2

        def __call__(self, batch: pa.RecordBatch) -> dict[str, object]:
            return {"n": [self.factor * n for n in batch["n"].to_pylist()]}

    env = StreamEnvironment(parallelism=1)
    stream = numbers(env, 5).map_batches(Double, returns={"n": "int64"}, num_cpus=1)
    assert sorted(row["n"] for row in stream.collect()) == [0, 2, 4, 6, 8]


class FailingToClose(Sink):
    """Cannot write its last rows."""

    def open(self, context: ConnectorContext) -> SinkWriter:
        class Writer(SinkWriter):
            def write(self, batch: Batch) -> None:
                return

            def close(self) -> None:
                raise OSError("the disk is full")

        return Writer()

    def describe(self) -> str:
        return "failing to close"


@pytest.mark.parametrize("takes_checkpoints", [False, True])
def test_a_sink_that_cannot_be_closed_fails_the_job(tmp_path: Path, takes_checkpoints: bool) -> None:
    settings = checkpoints("60s", str(tmp_path)) if takes_checkpoints else None
    env = StreamEnvironment(parallelism=1, checkpoints=settings)
    env.from_collection([{"x": 1}]).sink_to(FailingToClose())
    with pytest.raises(JobFailedError, match="the disk is full"):
        env.execute("cannot be closed")
