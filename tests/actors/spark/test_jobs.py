"""A batch job as its user meets it: metrics, sinks that show all or nothing, errors, refusals, lost executors."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.csv as csv
import pytest

from penstock import DataGenSource, FileSink, JobStatus, Sequence, SparkOptions, StreamEnvironment, col
from penstock.actors.spark.batch_job import SparkJob
from penstock.engine.connectors import (
    Committable,
    ConnectorContext,
    Sink,
    SinkWriter,
    TransactionalSink,
    TransactionalWriter,
)
from penstock.engine.elements import Batch
from penstock.engine.errors import (
    CheckpointError,
    ConfigurationError,
    JobCancelledError,
    JobFailedError,
    UserCodeError,
)
from penstock.engine.job.handle import JobHandle
from tests.actors.spark.conftest import Environment, on_spark
from tests.actors.spark.leftovers import nothing_left

pytestmark = on_spark


def rows_of_files(folder: Path) -> list[int]:
    return sorted(n for file in folder.rglob("part-*.csv") for n in csv.read_csv(file)["n"].to_pylist())


class Lines(Sink):
    """A plain sink: one file a subtask, written when its input ends."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, context: ConnectorContext) -> SinkWriter:
        return LinesWriter(self.folder / f"{context.subtask}.txt")

    def describe(self) -> str:
        return "lines"


class LinesWriter(SinkWriter):
    def __init__(self, file: Path) -> None:
        self.file = file
        self.rows = 0

    def write(self, batch: Batch) -> None:
        self.rows += batch.num_rows

    def finish(self) -> None:
        self.file.write_text(str(self.rows))


def telling(file: Path) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A function that notes in a file which rows it gets."""

    def tell(row: dict[str, Any]) -> dict[str, Any]:
        with file.open("a") as told:
            told.write(f"{row['n']}\n")
        return row

    return tell


def test_sinks_show_all_rows_at_the_end_and_operators_run_once_and_count_them(
    spark: Environment, tmp_path: Path
) -> None:
    env = spark()
    told = tmp_path / "told"
    source = env.from_source(DataGenSource({"n": Sequence()}, rows=1000), "rows").map(telling(told), {"n": "int64"})
    few = source.global_().filter(col("n") < 9).collect()
    even = source.filter(col("n") % 2 == 0).name("even")
    even.sink_to(FileSink(str(tmp_path / "files"), "csv"))
    even.rebalance().sink_to(FileSink(str(tmp_path / "again"), "csv"))
    (tmp_path / "lines").mkdir()
    source.sink_to(Lines(tmp_path / "lines"))
    job = env.execute("sinks", mode="batch")
    assert rows_of_files(tmp_path / "files") == rows_of_files(tmp_path / "again") == list(range(0, 1000, 2))
    assert sum(int(file.read_text()) for file in (tmp_path / "lines").iterdir()) == 1000
    assert job.status() is JobStatus.FINISHED
    counted = {operator.name: (operator.rows_in, operator.rows_out) for operator in job.metrics().operators}
    assert counted["rows"] == (0, 1000)
    assert counted["even"] == (1000, 500)
    assert {rows_out for name, (_, rows_out) in counted.items() if name.startswith(("files", "lines"))} == {0}
    # Spark keeps what it was told for as long as the process lives.
    assert isinstance(job, SparkJob)
    assert few.to_arrow().num_rows == 9
    # What several stages read has run once.
    assert sorted(map(int, told.read_text().split())) == list(range(1000))
    assert job._counters.value == job._dealt.value == {}


def fail_at_900(row: dict[str, Any]) -> dict[str, Any]:
    if row["n"] == 900:
        raise ValueError("nine hundred")
    return row


def test_a_failed_job_shows_no_files_and_names_operator_and_row(spark: Environment, tmp_path: Path) -> None:
    env = spark()
    source = env.from_source(DataGenSource({"n": Sequence()}, rows=1000), "rows")
    source.rebalance().sink_to(FileSink(str(tmp_path), "csv"))
    source.rebalance().map(fail_at_900).name("checked").collect()
    with pytest.raises(JobFailedError, match=r"operator 'checked'.*ValueError: nine hundred") as raised:
        env.execute("fails", mode="batch")
    assert isinstance(raised.value.__cause__, UserCodeError)
    assert "{'n': 900}" in str(raised.value)
    assert "fail_at_900" in str(raised.value)
    assert rows_of_files(tmp_path) == []


class Refusing(TransactionalSink):
    """A sink that writes nothing and cannot commit."""

    def open(self, context: ConnectorContext) -> TransactionalWriter:
        return RefusingWriter()

    def commit(self, committables: Iterable[Committable], context: ConnectorContext) -> None:
        raise OSError("the server is gone")

    def describe(self) -> str:
        return "refusing"


class RefusingWriter(TransactionalWriter):
    def write(self, batch: Batch) -> None:
        """Nothing is written."""

    def prepare(self, checkpoint: int) -> list[Committable]:
        return [Committable("w", checkpoint, pa.table({"n": [1]}))]


@pytest.mark.long("test_terminals.py: what is done of sinks where one cannot commit; the test above has a failed job")
def test_files_that_a_failed_job_had_prepared_are_removed(
    spark: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.actors.spark.terminals._COMMIT_SECONDS", 0.0)
    env = spark()
    source = env.from_source(DataGenSource({"n": Sequence()}, rows=10), "rows")
    source.sink_to(Refusing())
    source.sink_to(FileSink(str(tmp_path), "csv"))
    with pytest.raises(JobFailedError, match=r"\(refusing\) could not commit .*no other sink had committed before"):
        env.execute("fails", mode="batch")
    assert not list(tmp_path.iterdir())


def test_a_cancelled_job_shows_no_files(spark: Environment, tmp_path: Path) -> None:
    env = spark()
    gate = tmp_path / "gate"
    source = env.from_source(DataGenSource({"n": Sequence()}, rows=20), "rows")
    source.map(lambda row: run_once(gate, row)).sink_to(FileSink(str(tmp_path / "files"), "csv"))
    job = env.submit("cancelled", mode="batch")
    await_gate(gate, job)
    # Spark tells a task a moment after it has begun.
    while not (stages := job.progress()) or not stages[0].active:
        threading.Event().wait(0.05)
    assert [stage.tasks for stage in stages] == [2]
    job.cancel()
    assert job.status() is JobStatus.CANCELLED
    assert not job.progress()
    with pytest.raises(JobCancelledError):
        job.wait()
    assert rows_of_files(tmp_path / "files") == []


def run_once(gate: Path, row: dict[str, Any]) -> dict[str, Any]:
    """Tells who runs it by a file, and waits until somebody ends the process or the job; in the next attempt passes."""
    if row["n"] == 0 and not gate.exists():
        gate.with_suffix(".new").write_text(str(os.getpid()))
        gate.with_suffix(".new").rename(gate)
        threading.Event().wait(60)
    return row


def await_gate(gate: Path, job: JobHandle) -> int:
    for _ in range(2400):
        if gate.exists():
            return int(gate.read_text())
        assert job.pump(0.05), "the job ended before its first row"
    raise AssertionError("the job has not come to its first row")


@pytest.mark.parametrize(
    "process", ["worker", pytest.param("executor", marks=pytest.mark.long("a worker; the loss of an executor, none"))]
)
def test_every_row_comes_once_though_a_process_is_killed(spark: Environment, tmp_path: Path, process: str) -> None:
    env = spark()
    gate = tmp_path / "gate"
    source = env.from_source(DataGenSource({"n": Sequence()}, rows=2000), "rows")
    source.rebalance().map(lambda row: run_once(gate, row), returns={"n": "int64"}).sink_to(
        FileSink(str(tmp_path / "files"), "csv")
    )
    job = env.submit("killed", mode="batch")
    worker = psutil.Process(await_gate(gate, job))
    killed = worker if process == "worker" else worker.parent().parent()
    assert ("java" in killed.name()) is (process == "executor")
    killed.kill()
    job.wait()
    assert rows_of_files(tmp_path / "files") == list(range(2000))


@pytest.fixture(scope="module")
def ended(spark: Environment) -> JobHandle:
    """A job that has ended; Spark runs on."""
    env = spark()
    env.from_collection([{"n": 1}]).collect()
    return env.execute("ended", mode="batch")


def test_what_a_batch_job_does_not_have_is_refused(ended: JobHandle) -> None:
    for action in (ended.checkpoint, ended.savepoint, ended.stop, ended.drain, lambda: ended.rescale(3)):
        with pytest.raises(CheckpointError, match="is a batch job, which"):
            action()


@pytest.mark.usefixtures("ended")
def test_other_options_are_refused_while_spark_runs() -> None:
    other = StreamEnvironment(spark=SparkOptions(memory="600m"))
    other.from_collection([{"n": 1}]).collect()
    with nothing_left(), pytest.raises(ConfigurationError, match=r"memory='512m'.*memory='600m'.*stop_spark"):
        other.execute("other", mode="batch")


@pytest.mark.usefixtures("ended")
def test_ctrl_c_is_as_it_was_before_spark_started() -> None:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("ended")
def test_settings_of_spark_are_not_shown_as_there_may_be_secrets_among_them() -> None:
    secret = {"spark.hadoop.fs.s3a.secret.key": "hush"}
    other = StreamEnvironment(spark=SparkOptions(memory="512m", configuration=secret))
    other.from_collection([{"n": 1}]).collect()
    with pytest.raises(ConfigurationError, match=r"another configuration: spark.hadoop.fs.s3a.secret.key") as caught:
        other.execute("other", mode="batch")
    assert "hush" not in str(caught.value)
