"""The environment that a program is written and run in.

It gives the streams their sources, holds the settings, plans the job and hands it to a runtime: `ray` or `local`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from penstock.actors.pandas_later import load_pandas_later
from penstock.actors.spark.options import SparkOptions
from penstock.batch import (
    Mode,
    check_batch_start,
    check_mode,
    checked_target,
    explained_batch,
    own_session,
    runs_in_batch,
    start_batch_job,
)
from penstock.connectors.collection import CollectionSource, RowSchema
from penstock.engine.api.program import Program
from penstock.engine.api.streams import DataStream
from penstock.engine.checkpoint_config import CheckpointConfig, FailoverConfig, RestartStrategy
from penstock.engine.clock import Clock, SystemClock
from penstock.engine.config import (
    DEFAULTS,
    LARGEST_MAX_PARALLELISM,
    SPELLED_AS_IN_FLINK,
    JobConfig,
    check_parallelism,
    check_text,
)
from penstock.engine.connectors import Source
from penstock.engine.durations import Duration, parse_duration
from penstock.engine.errors import ConfigurationError, GraphError, nearest
from penstock.engine.graph.explain import explain_logical, explain_physical
from penstock.engine.graph.logical import LogicalGraph, live_part, resumed
from penstock.engine.graph.physical import JobProgram, Parallelism, PhysicalGraph, plan
from penstock.engine.job.handle import DEFAULT_NAME, CollectResult, JobHandle
from penstock.engine.operators.timestamp_assigners import check_assigner
from penstock.engine.schemas import SchemaLike
from penstock.engine.windows.watermarks import WatermarkStrategy
from penstock.error_report import show_errors_briefly
from penstock.forgotten import reminding_program
from penstock.job_folders import Resume, Start, job_folder, noted, replacing, resumed_start, warn_of_idle_sinks
from penstock.problems import Problems
from penstock.session_settings import JobSettings, Runtime, SessionSettings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.connectors.files.source import FilePath
    from penstock.tables.environment import TableEnvironment
    from penstock.tables.table import Table

StateBackend = Literal["heap", "hashmap", "rocksdb"]
_RUNTIMES = ("ray", "local")
_SYSTEM_PARALLELISM = "PENSTOCK_PARALLELISM"


class StreamEnvironment:
    """Where a program begins and is run.

    Args:
        parallelism: subtasks of each operator that sets no number itself. The first of these that is given counts:
            the operator's, this, that of `execute`, the variable PENSTOCK_PARALLELISM, the number of CPUs here
            (at most `max_parallelism`).
        runtime: `"ray"`: one Ray actor a subtask; `"local"`: all in this process, for tests and debugging.
        max_parallelism: number of key groups, the largest parallelism that keyed operators can ever have.
        buffer_timeout: the longest time that rows wait for a batch to fill, and that a task rests behind few rows; 0
            is fastest for a single row.
        buffer_debloat_target: what waits before an operator should be worth so much of its time; 0: any.
        max_batch_rows, max_batch_bytes: limits of a batch.
        channel_credits: how many batches may be under way between two subtasks.
        auto_watermark_interval: how often watermark generators and ingestion time are asked where no row comes; 0: no.
        slot_cpus: CPUs that each slot reserves (Ray); a slot holds one subtask of each task.
        slot_timeout: how long a job waits for room on the cluster before that is a failure (Ray).
        state_backend: of process functions and general windows: `"heap"` or, as in Flink, `"hashmap"` (memory), or
            `"rocksdb"` (disk, for more).
        state_directory: folder for `"rocksdb"`; None means the system's temporary folder.
        checkpoints: when and where checkpoints are taken, from `checkpoints(...)`; None takes none.
        restart: what happens after a failure, from `fixed_delay(...)`, `exponential_delay(...)`, `failure_rate(...)` or
            `no_restart()`. None restarts with a growing delay where checkpoints are taken, and never otherwise.
        standbys: processes kept warm to replace those that die (Ray, with checkpoints).
        local_recovery: whether each process also keeps what it wrote last on its own disk, to be restored from (Ray).
        address: of a running Ray cluster (`"auto"` finds one on this machine); None uses the one that this process is
            connected to, else that of RAY_ADDRESS, or else embeds one.
        spark: the executors of batch jobs; None: one, of the default size.
        seed, clock: local runtime: order of the steps, and time (`ManualClock` never waits).

    Raises:
        ConfigurationError: names every setting that cannot be used.

    Example:
        >>> env = StreamEnvironment(runtime="local")
        >>> env.from_collection([{"word": "to"}, {"word": "be"}]).key_by("word").aggregate(n=count()).print()
        >>> job = env.execute("word count")
    """

    def __init__(
        self,
        parallelism: int | None = None,
        runtime: Runtime = "ray",
        max_parallelism: int = DEFAULTS.max_parallelism,
        buffer_timeout: Duration = "100ms",
        buffer_debloat_target: Duration = "100ms",
        max_batch_rows: int = DEFAULTS.max_batch_rows,
        max_batch_bytes: int = DEFAULTS.max_batch_bytes,
        channel_credits: int = DEFAULTS.channel_credits,
        auto_watermark_interval: Duration = "200ms",
        slot_cpus: float = DEFAULTS.slot_cpus,
        slot_timeout: Duration = "60s",
        state_backend: StateBackend = "heap",
        state_directory: str | None = None,
        checkpoints: CheckpointConfig | None = None,
        restart: RestartStrategy | None = None,
        standbys: int = 1,
        local_recovery: bool = False,
        address: str | None = None,
        spark: SparkOptions | None = None,
        seed: int = 0,
        clock: Clock | None = None,
    ) -> None:
        load_pandas_later()
        problems = Problems()
        problems.check(lambda: _check_runtime(runtime), None)
        buffer_ms = problems.check(lambda: parse_duration(buffer_timeout, "buffer_timeout"), DEFAULTS.buffer_timeout_ms)
        target_ms = problems.check(lambda: parse_duration(buffer_debloat_target, "buffer_debloat_target"), 0)
        slot_ms = problems.check(lambda: parse_duration(slot_timeout, "slot_timeout"), DEFAULTS.slot_timeout_ms)
        watermark_ms = problems.check(
            lambda: parse_duration(auto_watermark_interval, "auto_watermark_interval"),
            DEFAULTS.auto_watermark_interval_ms,
        )
        config = problems.check(
            lambda: JobConfig(
                max_parallelism=max_parallelism,
                buffer_timeout_ms=buffer_ms,
                buffer_debloat_target_ms=target_ms,
                max_batch_rows=max_batch_rows,
                max_batch_bytes=max_batch_bytes,
                channel_credits=channel_credits,
                auto_watermark_interval_ms=watermark_ms,
                slot_cpus=slot_cpus,
                slot_timeout_ms=slot_ms,
                state_backend=SPELLED_AS_IN_FLINK.get(state_backend, state_backend),
                state_directory=state_directory,
                checkpoints=checkpoints or CheckpointConfig(),
                failover=FailoverConfig(restart, standbys, local_recovery),
            ),
            DEFAULTS,
        )
        if parallelism is not None:
            # A maximum that cannot be used was reported already, and says nothing about the parallelism.
            usable = isinstance(max_parallelism, int) and max_parallelism >= 1
            most = max_parallelism if usable else LARGEST_MAX_PARALLELISM
            problems.check(lambda: check_parallelism(parallelism, most, "StreamEnvironment"), 1)
        problems.raise_all()
        self._settings = SessionSettings(JobSettings(config, parallelism, runtime, address, spark or SparkOptions()))
        self._seed = seed
        self._clock = clock
        self._program = reminding_program(self._submit)
        self._jobs: list[JobHandle] = []
        self._tables: TableEnvironment | None = None

    @classmethod
    def from_configuration(cls, values: Mapping[str, object]) -> StreamEnvironment:
        """An environment with the settings of configuration keys; arguments and errors as for `configure`.

        Example:
            >>> env = StreamEnvironment.from_configuration({"penstock.runtime": "local", "parallelism.default": 2})
        """
        env = cls()
        env.configure(values)
        return env

    def configure(self, values: Mapping[str, object]) -> None:
        """Set what configuration keys say, over what was set before; other settings stay.

        Args:
            values: by key, flat or nested as in a file; docs/configuration.md lists the keys.

        Raises:
            ConfigurationError: names every key and value that cannot be used; nothing was changed.

        Example:
            >>> env.configure({"execution.checkpointing.interval": "10s"})
        """
        self._settings.configure(values)

    @property
    def _now(self) -> JobSettings:
        return self._settings.now

    @property
    def config(self) -> JobConfig:
        """The settings of its jobs."""
        return self._now.config

    @property
    def address(self) -> str | None:
        """Of the Ray cluster that its jobs run on, if one is named."""
        return self._now.address

    @property
    def runtime(self) -> Runtime:
        """Where its jobs run."""
        return self._now.runtime

    # Sources

    def from_source(
        self, source: Source, name: str | None = None, watermarks: WatermarkStrategy | None = None
    ) -> DataStream:
        """A stream of the rows of any `Source`.

        Args:
            source: where the rows come from.
            name: for `explain()`, the live view and messages.
            watermarks: takes event time from the rows, for each split by itself: partitions of a log may be apart,
                each in order. It needs a timestamp assigner. Files, which a subtask reads one after another, may hold
                rows of any time, so there is no watermark before the last one is read; where files follow each other in
                time, use `assign_timestamps` instead, and windows are emitted as they fill.

        Raises:
            GraphError: no source or strategy, one that does not say where timestamps are, or a column without time.

        Example:
            >>> in_order = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("at")
            >>> env.from_source(DataGenSource({"at": EventTime()}, rows=1000), watermarks=in_order)
        """
        if not isinstance(source, Source):
            raise GraphError(f"from_source takes a Source, not {source!r}")
        if watermarks is not None:
            _check_watermarks(watermarks, source)
        node = self._program.graph.add(
            check_text(name or source.describe(), "from_source: name"),
            source,
            schema=source.schema,
            timed=watermarks is not None,
            watermarks=watermarks,
        )
        return DataStream.of_node(self._program, node)

    def from_collection(self, data: object, schema: RowSchema = None) -> DataStream:
        """A stream of rows that are here: dicts, tuples, single values, a pandas DataFrame, or Arrow data.

        Read by one subtask, so the rows keep their order.

        Args:
            data: the rows; they travel with the job.
            schema: names, or names and types; needed where there are no rows.

        Raises:
            ConfigurationError: the rows do not make one table; names the row.

        Example:
            >>> env.from_collection([("AA", 5), ("UA", 7)], schema=["carrier", "delay"])
        """
        return self.from_source(CollectionSource.of(data, schema))

    def from_files(
        self,
        paths: FilePath | Sequence[FilePath],
        format: Literal["parquet", "csv", "json", "avro"] | None = None,  # noqa: A002 - the word users look for
        schema: SchemaLike | None = None,
        null_values: Sequence[str] = ("",),
        monitor: Duration | None = None,
        bad_records: Literal["fail", "keep"] = "fail",
        *,
        delimiter: str = ",",
        header: bool = True,
    ) -> DataStream:
        """A stream of the rows of files: Parquet, CSV, JSON lines or Avro, compressed or not.

        Args:
            paths: files, folders or glob patterns, also as URLs of buckets (`s3://bucket/folder/*.csv`).
            format: None tells it from the suffixes, such as `.csv.gz`.
            schema: names and types of the columns to read; None infers them from the beginning.
            null_values: CSV only: the texts that mean null.
            monitor: how often to look for new files, without end; None reads those that are there. A file is read once,
                when two looks have found it the same: write it under a hidden name, and rename it when it is whole.
            bad_records: CSV and JSON lines with `schema` only: `"keep"` gives a row that does not fit as one of nulls,
                with what is wrong in the column `error` and its text in `raw`; `"fail"` ends the job there.
            delimiter: CSV only: the character between fields, such as `";"` or `"\\t"`.
            header: CSV only: whether the first line names the columns; if not, `schema` does, in their order.

        Raises:
            ConfigurationError: no such file, or no way to tell the format.

        Example: `env.from_files("flights/*.csv.gz", schema={"carrier": "string", "delay": "int64"})`
        """
        # Readers of all formats come with it.
        from penstock.connectors.files.source import FileSource

        of_files = partial(
            FileSource.of,
            paths,
            format,
            schema,
            null_values,
            bad_records=bad_records,
            delimiter=delimiter,
            header=header,
        )
        return self.from_source(of_files() if monitor is None else of_files(monitor=monitor))

    def from_spark(self, frame: DataFrame, folder: str | None = None) -> DataStream:
        """A stream of the rows of a Spark DataFrame, which is run now; it ends with the last row.

        Args:
            frame: of `spark_session()`.
            folder: where to write the rows as Parquet, into a new folder that stays: a path that Spark's executors and
                the job reach. Its files are read in parallel. None: the rows come to this process and travel with the
                job, up to 64 MiB.

        Raises:
            ConfigurationError: no DataFrame, too many rows without a folder, or Spark could not run it.

        Example: `env.from_spark(env.spark_session().table("flights").where("delay > 0"))`
        """
        from penstock.spark_exchange import source_of_frame

        return self.from_source(source_of_frame(frame, folder), "spark")

    def register_cached_file(self, path: FilePath, name: str) -> None:
        """Have a file or folder copied once to each node whose functions read it: `context.cached_file(name)`.

        Args:
            path: that every node can read, or a URL of a bucket; it should not change while jobs run.
            name: what functions call it.

        Raises:
            ConfigurationError: the name is taken, or the URL cannot be used.

        Example: `env.register_cached_file("s3://models/fraud.onnx", "model")`
        """
        from penstock.connectors.files.node_copy import NodeCopy

        if any(file.name == name for file in self._now.config.cached_files):
            raise ConfigurationError(f"register_cached_file: {name!r} is the name of another file already")
        self._settings.cache(NodeCopy.of(path, name))

    # Tables

    @property
    def tables(self) -> TableEnvironment:
        """Tables, views and options of SQL: for what `sql` has no word."""
        if self._tables is None:
            from penstock.table_environment import tables_of

            self._tables = tables_of(
                self.from_source,
                self.from_collection,
                lambda rows: StreamEnvironment(parallelism=1, runtime="local").from_collection(rows),
                self._settings,
                lambda: self._program.graph,
            )
        return self._tables

    def sql(self, statement: str) -> Table | None:
        """Run a statement of SQL (docs/sql): a query gives a `Table`; INSERT INTO adds a sink for `execute()`.

        Raises:
            SqlError: the statement cannot be run; says line, column and why.
        """
        return self.tables.sql(statement)

    # Spark

    def spark_session(self) -> SparkSession:
        """The Spark session of this process, for queries of your own beside batch jobs; started if it does not run.

        Raises:
            ConfigurationError, ClusterError: Spark cannot be had here, or runs with other options.
        """
        return own_session(self._now.spark, self._now.address, self._now.config.slot_timeout_ms)

    def to_spark(self, rows: CollectResult | pa.Table) -> DataFrame:
        """Rows that are here as a Spark DataFrame of `spark_session()`: what `collect()` returned, or an Arrow table.

        They travel through this process. More than that: write them with a `FileSink` of Parquet, and read its folder
        with Spark.

        Raises:
            ConfigurationError: Spark cannot be had here, or has no type for a column (names it).
            JobFailedError: the job that makes the rows failed.

        Example: `env.to_spark(stream.collect()).createOrReplaceTempView("delays")`
        """
        from penstock.spark_exchange import frame_of_rows

        return frame_of_rows(self.spark_session, rows)

    # Running

    def execute(
        self,
        name: str | None = None,
        parallelism: int | None = None,
        savepoint: str | None = None,
        allow_non_restored_state: bool = False,
        mode: Mode | None = None,
        savepoint_to: str | None = None,
        resume: Resume | None = None,
    ) -> JobHandle:
        """Run the program and return when it has finished. In a terminal or a
        notebook, shows the job at work.

        Where this is interrupted (Ctrl-C), the job is cancelled. SIGTERM suspends it: its newest checkpoint stays, the
        process ends with code 143, and `resume="latest"` resumes from there.

        Args:
            name: the job's name; None: the configured one, or "penstock job".
            parallelism: for operators that set none, where the environment sets none either.
            savepoint: path or URL of the savepoint or retained checkpoint to resume from; None: the configured one.
            allow_non_restored_state: whether to start although operators in it are not in the program any more; the
                handle's `dropped_operators` names them.
            mode: `"streaming"`; `"batch"`, on Spark in the same cluster, where all sources end: docs/batch-mode.md;
                `"automatic"`, batch where they do. None: the configured one, or streaming.
            savepoint_to: batch mode only: path or URL of a new folder, for the savepoint that the job ends with: event
                time stays where the input ends, windows and timers behind it do not fire, and a streaming job with
                `savepoint=` resumes from there.

        Raises:
            GraphError, ConfigurationError: the program cannot run; nothing was started.
            RestoreError, CheckpointCorruptError: it cannot resume from the savepoint; nothing was started.
            CheckpointError: something is at `savepoint_to` already.
            JobFailedError: the job failed; on Ray also where a sink could not be made ready, which is done last.
        """
        job = self.submit(name, parallelism, savepoint, allow_non_restored_state, False, mode, savepoint_to, resume)
        # An attached job does not outlive the call that runs it.
        with job.attached():
            if sys.stderr.isatty() or "IPython" in sys.modules:
                from penstock.live_view import wait_showing

                wait_showing(job)
            else:
                job.wait()
        return job

    def submit(
        self,
        name: str | None = None,
        parallelism: int | None = None,
        savepoint: str | None = None,
        allow_non_restored_state: bool = False,
        detached: bool = False,
        mode: Mode | None = None,
        savepoint_to: str | None = None,
        resume: Resume | None = None,
    ) -> JobHandle:
        """Start the program and return its handle; arguments and errors as for `execute`.

        The environment is then empty again, for the next program; a program that could not be started stays, to be
        mended and submitted again, until `clear`. A local job moves only while someone waits for it. Where a web
        console runs in the cluster, the first job that a process submits there says its address on standard error.

        Args:
            detached: whether the job outlives this process (Ray, in a cluster that does, without rows for the client).
        """
        self._program.begin()
        start = None if savepoint is None else Start.of(savepoint, allow_non_restored_state)
        if resume is not None:
            if savepoint is not None:
                raise ConfigurationError("a job resumes from a savepoint or from its newest run; leave one of them out")
            start = resumed_start(
                name or self._now.name, self._now.config.checkpoints, resume, allow_non_restored_state
            )
        return self._submit(self._program, name, parallelism, start, detached, mode, savepoint_to)

    def clear(self) -> None:
        """Forget the program under construction, such as one that cannot run as it is."""
        self._program.asked_for()
        self._program = reminding_program(self._submit)

    def explain(self, parallelism: int | None = None, mode: Mode | None = None) -> str:
        """The program and its plan, as stable text; in batch mode also the stages of the Spark plan."""
        self._program.asked_for()
        logical = explain_logical(live_part(self._program.graph.build()))
        graph = self._plan("explain", parallelism).physical()
        text = f"== Program ==\n{logical}\n\n== Plan ==\n{explain_physical(graph)}\n"
        if runs_in_batch(check_mode(mode or self._now.mode), graph, self._now.runtime):
            return f"{text}\n== Spark ==\n{explained_batch(graph)}\n"
        return text

    def program(self, name: str = DEFAULT_NAME, parallelism: int | None = None) -> JobProgram:
        """The program as `submit` would hand it to a runtime: checked, and nothing started.

        Raises:
            GraphError, ConfigurationError: the program cannot run.
        """
        self._program.asked_for()
        return self._plan(name, parallelism)

    def _submit(
        self,
        program: Program,
        name: str | None = None,
        parallelism: int | None = None,
        start: Start | None = None,
        detached: bool = False,
        mode: Mode | None = None,
        savepoint_to: str | None = None,
    ) -> JobHandle:
        program.begin()
        mode = check_mode(mode or self._now.mode)
        built = program.graph.build()
        name, start = name or self._now.name, start or self._settings.start_of(built)
        logical = built if start.savepoint is None else resumed(built)
        job_program = self._plan(name, parallelism, logical)
        graph = job_program.physical()
        in_batch = runs_in_batch(mode, graph, self._now.runtime)
        target = None if savepoint_to is None else checked_target(savepoint_to, in_batch)
        if in_batch:
            check_batch_start(graph, start, detached)
            job = start_batch_job(graph, program.consumers, self._now.spark, self._now.address, target)
        else:
            job = self._start(graph, job_program, program, start, detached)
            # Only the error counts of a job that could not be started.
            warn_of_idle_sinks(graph)
        program.job = job
        if program is self._program:
            self._program = reminding_program(self._submit)
        # A job ends with its handle, and callers need not keep theirs.
        self._jobs = [*(other for other in self._jobs if not other.ended), job]
        if self._now.runtime == "ray":
            from penstock.actors.console_address import tell_console

            # It asks the cluster and may be interrupted, so it stands behind what keeps the job.
            tell_console()
        return job

    def _plan(self, name: str, parallelism: int | None, logical: LogicalGraph | None = None) -> JobProgram:
        if parallelism is not None:
            check_parallelism(parallelism, self._now.config.max_parallelism, "execute")
        check_text(name, "execute: name")
        return plan(name, logical or self._program.graph.build(), self._chosen(parallelism), self._now.config)

    def _chosen(self, parallelism: int | None) -> Parallelism:
        return Parallelism(self._now.parallelism, parallelism, _system_parallelism(self._now.config.max_parallelism))

    def _start(
        self, graph: PhysicalGraph, job_program: JobProgram, program: Program, start: Start, detached: bool
    ) -> JobHandle:
        if self._now.runtime == "local":
            if detached:
                raise ConfigurationError("a local job lives in this process and cannot be detached from it; use Ray")
            # On Ray, neither the program nor the processes of its job need these fifty modules.
            from penstock.engine.local.runtime import LocalJob

            folder = job_folder(job_program, start)
            clock, replaced = self._clock or SystemClock(), replacing(job_program, folder)
            return noted(LocalJob(replaced, program.consumers, clock, self._seed, folder), folder)
        # Ray takes a second to import, and the local runtime does without it.
        from penstock.actors.client import RayJob, check_serializable
        from penstock.actors.cluster import connect
        from penstock.actors.deployment import slot_bundles
        from penstock.actors.manager_start import check_not_running
        from penstock.actors.ray_blobs import open_blobs

        show_errors_briefly()
        check_serializable(graph)
        connect(self._now.address, sum(bundle["CPU"] for bundle in slot_bundles(graph)))
        check_not_running(job_program.name)
        folder = job_folder(job_program, start, open_blobs)
        return noted(RayJob(replacing(job_program, folder), program.consumers, folder, detached), folder)


def _check_runtime(runtime: str) -> None:
    if runtime not in _RUNTIMES:
        raise ConfigurationError(f"runtime must be one of {', '.join(_RUNTIMES)}{nearest(str(runtime), _RUNTIMES)}")


def _check_watermarks(strategy: WatermarkStrategy, source: Source) -> None:
    if not isinstance(strategy, WatermarkStrategy):
        raise GraphError(f"from_source: watermarks takes a WatermarkStrategy, not {strategy!r}")
    if not strategy.has_timestamps:
        raise GraphError(
            "from_source: the strategy does not say where event time is; "
            'add .with_timestamp_assigner("at"), with the name of a column or a function of a row'
        )
    check_assigner(strategy, source.schema, "from_source")


def _system_parallelism(max_parallelism: int) -> int:
    text = os.environ.get(_SYSTEM_PARALLELISM)
    if text is None:
        return min(os.cpu_count() or 1, max_parallelism)
    if not text.isdigit():
        raise ConfigurationError(f"{_SYSTEM_PARALLELISM} must be a whole number of 1 or more, not {text!r}")
    return check_parallelism(int(text), sys.maxsize, _SYSTEM_PARALLELISM)
