"""How a program of batch mode is measured: whole jobs from files to files, in turns with the same program in PySpark.

Both run on the same executors, started once, and each runs some times uncounted. A job is timed from the first call of
its program to its return, when all files are there. What both wrote is read and compared before a time counts.
"""

from __future__ import annotations

import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.dataset as ds

from penstock import SparkOptions, StreamEnvironment, stop_spark
from perf.harness import BenchmarkError, ComparedResult, Options, Reading
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
        name, variant: as in the tables.
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
    def check(self, given: Path, ours: Path, plain: Path) -> None:
        """Compare what both have written.

        Raises:
            BenchmarkError: they differ.
        """


def in_turns(questions: Sequence[BatchQuestion], options: Options, wanted: str) -> Iterator[ComparedResult]:
    """Measure the questions whose variant contains `wanted`."""
    chosen = [question for question in questions if wanted in question.variant]
    try:
        for question in chosen:
            yield _measured(question, options)
    finally:
        stop_spark()


def _measured(question: BatchQuestion, options: Options) -> ComparedResult:
    from pyspark import __version__

    rows = options.megabytes * _MEGABYTE // question.row_bytes
    with tempfile.TemporaryDirectory(prefix="penstock-batch-") as name:
        runs = _Runs(question, options, Path(name))
        given = Path(name) / "input"
        given.mkdir()
        question.prepare(given, rows)
        for _ in range(_WARM_UPS):
            runs.ours()
            runs.plain()
        question.check(given, runs.written("ours"), runs.written("plain"))
        pairs = [(_reading(runs.ours, rows), _reading(runs.plain, rows)) for _ in range(options.repetitions)]
        question.check(given, runs.written("ours"), runs.written("plain"))
    return ComparedResult.of_pairs(question.name, question.variant, f"pyspark {__version__}", pairs)


class _Runs:
    """The two programs, each time into a new folder."""

    def __init__(self, question: BatchQuestion, options: Options, folder: Path) -> None:
        self._question, self._options, self._folder = question, options, folder
        self._spark = SparkOptions(executors=1, cores=options.parallelism, memory=_MEMORY)
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

    def plain(self) -> None:
        self._question.plain(self._plain_session(), self._folder / "input", self._new("plain"))

    def _new(self, who: str) -> Path:
        self._last[who] = Path(tempfile.mkdtemp(dir=self._folder, prefix=f"{who}-")) / "output"
        return self._last[who]

    def _plain_session(self) -> SparkSession:
        """A session on the same executors with Spark's own settings, and as many partitions as there are cores."""
        from penstock.actors.spark.session import spark_session

        session = spark_session(self._spark, None, 60.0, lambda text: None).newSession()
        for key in ("adaptive.enabled", "codegen.wholeStage", "codegen.factoryMode"):
            session.conf.unset(f"spark.sql.{key}")
        settings = {
            "adaptive.enabled": "true",
            "codegen.wholeStage": "true",
            "codegen.factoryMode": "FALLBACK",
            "execution.arrow.maxRecordsPerBatch": "10000",
            "inMemoryColumnarStorage.batchSize": "10000",
            "shuffle.partitions": str(self._options.parallelism),
            "parquet.compression.codec": "zstd",
        }
        for key, value in settings.items():
            session.conf.set(f"spark.sql.{key}", value)
        return session


def _reading(run: Callable[[], None], rows: int) -> Reading:
    tree, ended = ProcessTree(), threading.Event()

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


def check_same(name: str, ours: pa.Table, plain: pa.Table) -> None:
    """Compare rows that are in order.

    Raises:
        BenchmarkError: they differ.
    """
    if not ours.cast(plain.schema).equals(plain) or not plain.num_rows:
        raise BenchmarkError(f"{name}: {ours.num_rows} rows, and plain Spark's {plain.num_rows} are others")
