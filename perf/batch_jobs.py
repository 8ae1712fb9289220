"""How a program of batch mode is measured: whole jobs from files to files, in turns with the same program elsewhere.

PySpark's runs on the same executors as ours, Flink's (`--peer flink`) on a cluster of its own. All are started once,
and each program runs some times uncounted. A job is timed from the first call of its program to its return, when all
files are there. What both wrote is read and compared before a time counts.
"""

from __future__ import annotations

import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.dataset as ds

from penstock import SparkOptions, StreamEnvironment, stop_spark
from perf.harness import BenchmarkError, ComparedResult, Options, Reading
from perf.peers import batch
from perf.peers.engines import Engine, PeerError, flink_batch
from perf.processes import ProcessTree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MEMORY: Final = "2g"
_MEGABYTE: Final = 2**20
_LOOK_SECONDS: Final = 0.25
_WARM_UPS: Final = 3
"""The JVM compiles what has run often: a first run takes several times as long as a third."""
INPUT_FILES: Final = 8


class BatchQuestion(ABC):
    """What is asked of both.

    Args:
        name, variant: as in the tables; a peer's program has the same name.
        row_bytes: about how large a row of the input is, before it is stored.
    """

    name: str
    variant: str
    row_bytes: int

    @abstractmethod
    def prepare(self, folder: Path, rows: int) -> None:
        """Write the input into `folder`, which is there and empty."""

    @abstractmethod
    def ours(self, env: StreamEnvironment, given: Path, output: Path) -> None:
        """Add the program to `env`; it writes a folder of Parquet files."""

    @abstractmethod
    def plain(self, session: SparkSession, given: Path, output: Path) -> None:
        """Run what somebody who knows Spark would write; it writes a folder of Parquet files."""

    @abstractmethod
    def check(self, given: Path, ours: Path, theirs: Path) -> None:
        """Compare what both have written.

        Raises:
            BenchmarkError: they differ.
        """


@dataclass(frozen=True, slots=True)
class _Other:
    """What ours is measured beside.

    Args:
        name: with its version.
        run: runs a question from folder to folder.
        process: the root of its processes; None: they are ours.
    """

    name: str
    run: Callable[[BatchQuestion, Path, Path], None]
    process: int | None = None


def in_turns(questions: Sequence[BatchQuestion], options: Options, wanted: str) -> Iterator[ComparedResult]:
    """Measure the questions whose variant contains `wanted`."""
    chosen = [question for question in questions if wanted in question.variant]
    spark = SparkOptions(executors=1, cores=options.parallelism, memory=_MEMORY)
    beside = _plain_spark(spark, options) if options.peer is None else _peer(options.peer, options)
    try:
        with beside as other:
            for question in chosen:
                yield _measured(question, options, spark, other)
    finally:
        stop_spark()


@contextmanager
def _plain_spark(spark: SparkOptions, options: Options) -> Iterator[_Other]:
    from pyspark import __version__

    def run(question: BatchQuestion, given: Path, output: Path) -> None:
        question.plain(_plain_session(spark, options.parallelism), given, output)

    yield _Other(f"pyspark {__version__}", run)


@contextmanager
def _peer(peer: Engine, options: Options) -> Iterator[_Other]:
    if not peer.batch_settings:
        raise BenchmarkError(f"{peer.name} has no programs that run from files to files: --peer flink has")
    try:
        with batch.started(flink_batch(options.parallelism)) as process:

            def run(question: BatchQuestion, given: Path, output: Path) -> None:
                process.run(question.name, given, output)

            yield _Other(f"{peer.name} {peer.version()}", run, process.pid)
    except PeerError as error:
        raise BenchmarkError(str(error)) from error


def _measured(question: BatchQuestion, options: Options, spark: SparkOptions, other: _Other) -> ComparedResult:
    rows = options.megabytes * _MEGABYTE // question.row_bytes
    with tempfile.TemporaryDirectory(prefix="penstock-batch-") as name:
        given = Path(name) / "input"
        given.mkdir()
        question.prepare(given, rows)
        runs = _Runs(question, options, spark, other, Path(name))
        for _ in range(_WARM_UPS):
            runs.ours()
            runs.theirs()
        question.check(given, runs.written("ours"), runs.written("theirs"))
        pairs = [
            (_reading(runs.ours, rows), _reading(runs.theirs, rows, other.process)) for _ in range(options.repetitions)
        ]
        question.check(given, runs.written("ours"), runs.written("theirs"))
    return ComparedResult.of_pairs(question.name, question.variant, other.name, pairs)


class _Runs:
    """The two programs, each time into a new folder."""

    def __init__(
        self, question: BatchQuestion, options: Options, spark: SparkOptions, other: _Other, folder: Path
    ) -> None:
        self._question, self._options, self._spark, self._other = question, options, spark, other
        self._folder = folder
        self._last: dict[str, Path] = {}

    def written(self, who: str) -> Path:
        """Where the last run of `who` has written."""
        return self._last[who]

    def ours(self) -> None:
        env = StreamEnvironment(
            parallelism=self._options.parallelism, max_batch_rows=self._options.batch_rows, spark=self._spark
        )
        self._question.ours(env, self._folder / "input", self._new("ours"))
        env.execute(self._question.name, mode="batch")

    def theirs(self) -> None:
        self._other.run(self._question, self._folder / "input", self._new("theirs"))

    def _new(self, who: str) -> Path:
        self._last[who] = Path(tempfile.mkdtemp(dir=self._folder, prefix=f"{who}-")) / "output"
        return self._last[who]


def _plain_session(spark: SparkOptions, parallelism: int) -> SparkSession:
    """A session on the same executors with Spark's own settings, and as many partitions as there are cores."""
    from penstock.actors.spark.session import spark_session

    session = spark_session(spark, None, 60.0, lambda text: None).newSession()
    for key in ("adaptive.enabled", "codegen.wholeStage", "codegen.factoryMode"):
        session.conf.unset(f"spark.sql.{key}")
    settings = {
        "adaptive.enabled": "true",
        "codegen.wholeStage": "true",
        "codegen.factoryMode": "FALLBACK",
        "execution.arrow.maxRecordsPerBatch": "10000",
        "inMemoryColumnarStorage.batchSize": "10000",
        "shuffle.partitions": str(parallelism),
        "parquet.compression.codec": "zstd",
    }
    for key, value in settings.items():
        session.conf.set(f"spark.sql.{key}", value)
    return session


def _reading(run: Callable[[], None], rows: int, process: int | None = None) -> Reading:
    tree, ended = ProcessTree(process), threading.Event()

    def look() -> None:
        # Processes that come and go in between would not be seen.
        while not ended.wait(_LOOK_SECONDS):
            tree.cpu_seconds()

    looking = threading.Thread(target=look)
    cpu, begun = tree.cpu_seconds(), time.monotonic()
    looking.start()
    try:
        run()
        seconds = time.monotonic() - begun
    finally:
        ended.set()
        looking.join()
    used = tree.cpu_seconds() - cpu
    return Reading(rows / seconds, rows / used if used > 0 else None)


def read_sorted(folder: Path, by: Sequence[str], columns: Sequence[str]) -> pa.Table:
    """The rows of a folder of Parquet files, in order."""
    table = ds.dataset(folder, format="parquet").to_table(columns=list(columns))
    return table.sort_by([(name, "ascending") for name in by])


def check_same(name: str, ours: pa.Table, theirs: pa.Table) -> None:
    """Compare rows that are in order.

    Raises:
        BenchmarkError: they differ.
    """
    if not ours.cast(theirs.schema).equals(theirs) or not theirs.num_rows:
        raise BenchmarkError(f"{name}: our {ours.num_rows} rows and their {theirs.num_rows} are not the same")
