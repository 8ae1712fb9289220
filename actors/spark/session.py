"""The Spark session of this process: started with the first batch job, used by those after it, ended by `stop_spark`.

RayDP has one Spark application a process, whose executors are actors in the Ray cluster that the process is connected
to. Whatever keeps it from starting is told before anything is started.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import logging
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import ray

from penstock.actors.cluster import connect
from penstock.actors.spark.java import JVM_OPTIONS, USABLE, check_java, lead_with_java
from penstock.actors.spark.options import SparkOptions
from penstock.actors.spark.quiet import LOG4J_FILE, hush, log4j_file, skip_lost_calls, skip_notes
from penstock.engine.errors import ClusterError, ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)
_LOOK_SECONDS: Final = 0.1
_END_SECONDS: Final = 10
_NAME: Final = "penstock"
_MASTER: Final = "_SPARK_MASTER"
"""What RayDP puts behind the name of an application to name the actor that is its master."""
_JAVA_OPTIONS: Final = (
    "spark.driver.extraJavaOptions",
    "spark.executor.extraJavaOptions",
    "spark.ray.raydp_app_master.extraJavaOptions",
)
_SETTINGS: Final = {
    # Partition i of a stage is subtask i: nobody may join or split partitions.
    "spark.sql.adaptive.enabled": "false",
    # Spark has few rows to work on, and to compile code for each plan takes longer than all of them.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Parcels come from everywhere: no executor is worth waiting for.
    "spark.locality.wait": "0s",
    # A row is a parcel of about a megabyte.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "4",
    "spark.sql.inMemoryColumnarStorage.batchSize": "4",
    # Who collects rows wants all of them.
    "spark.driver.maxResultSize": "0",
    "spark.ui.showConsoleProgress": "false",
}
_USERS_SETTINGS: Final = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.inMemoryColumnarStorage.batchSize": "10000",
    # Spark's own way, INT96, loses the time zone.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


@dataclass(frozen=True, slots=True)
class _Running:
    """The session, what it was started with, and the Ray cluster that it is in."""

    session: SparkSession
    options: SparkOptions
    cluster: str


class _Holder:
    """The session of the process, of which there can be one at a time."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.running: _Running | None = None
        self.users: SparkSession | None = None


_HOLDER: Final = _Holder()


def check_installed() -> None:
    """Make sure that batch mode can run here, before anything is started.

    Raises:
        ConfigurationError: a package or Java is missing; says how to install it.
    """
    missing = [name for name in ("pyspark", "raydp") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigurationError(
            f"batch mode needs {' and '.join(missing)}, which cannot be imported here: pip install 'penstock[spark]'"
        )
    check_java()


def spark_session(
    options: SparkOptions, address: str | None, patience: float, tell: Callable[[str], None]
) -> SparkSession:
    """The session of this process; started unless it runs.

    Args:
        options: its executors.
        address: of the Ray cluster, as for `connect`.
        patience: how long (seconds) to wait for the first executor.
        tell: gets lines for the user when Spark is started: with what, and where its pages are.

    Raises:
        ConfigurationError: something is missing here, or a session runs with other options.
        ClusterError: no node of the cluster has room for an executor, or a session runs on another cluster.
    """
    with _HOLDER.lock:
        running = _HOLDER.running
        if running is not None and not _is_alive(running):
            _LOG.warning(
                "the Spark session of this process has ended: its Ray cluster is gone, or somebody has stopped it. "
                "Another one is started; DataFrames and tables of the old one are lost"
            )
            stop_spark()
            running = None
        if running is not None:
            _check_lives(running.session)
            _check_same(running.options, options)
            # Refuses another cluster than that which this process, and so Spark, is connected to.
            connect(address, 0)
            return running.session
        session = _started(options, address, patience, tell)
        _HOLDER.running = _Running(session, options, _cluster())
        pages = session.sparkContext.uiWebUrl
        _LOG.info("Spark runs with %s; its pages: %s", options, pages)
        if pages is not None:
            tell(f"Spark's pages: {pages}")
        return session


def users_session(
    options: SparkOptions, address: str | None, patience: float, tell: Callable[[str], None]
) -> SparkSession:
    """A session of the same Spark for queries of the user's own, always the same one; arguments as `spark_session`.

    What batch jobs set for their plans of parcels is in it as Spark has it, or as the options say.
    """
    with _HOLDER.lock:
        session = spark_session(options, address, patience, tell)
        if _HOLDER.users is None:
            _HOLDER.users = session.newSession()
            for key, value in {**_USERS_SETTINGS, **options.configuration}.items():
                if key in _USERS_SETTINGS:
                    _HOLDER.users.conf.set(key, value)
        return _HOLDER.users


def stop_spark() -> None:
    """End the Spark session of this process, if there is one: its executors leave the Ray cluster, and its JVM ends.

    Call it before `ray.shutdown()`, or for other `SparkOptions`; the end of the process does it too.
    """
    with _HOLDER.lock:
        if _HOLDER.running is None:
            return
        _HOLDER.running = _HOLDER.users = None
        _stop()


def _stop() -> None:
    import raydp

    hush()
    # Where the cluster is gone already, there is nobody to say good-bye to.
    with contextlib.suppress(Exception):
        raydp.stop_spark()
    _forget_dead()
    _end_jvm()


def _forget_dead() -> None:
    """Forget the session of a JVM that has died: it could not say good-bye, and would stand for one that runs."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None and process.poll() is not None:
        SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = SparkSession._activeSession = None


def _end_jvm() -> None:
    """End the JVM behind the session: Spark keeps it for the next one, and it would keep the settings of this one."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    # Without a process it is that of a program which has started this one (spark-submit).
    if gateway is None or gateway.proc is None or SparkContext._active_spark_context is not None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    with contextlib.suppress(Exception):
        gateway.shutdown()
    # It ends with its standard input.
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()


def _cluster() -> str:
    return str(ray.get_runtime_context().gcs_address) if ray.is_initialized() else ""


def _is_alive(running: _Running) -> bool:
    """Whether its Ray cluster is there, and nobody has stopped the session behind our back."""
    return running.cluster == _cluster() and getattr(running.session.sparkContext, "_jsc", None) is not None


def _check_lives(session: SparkSession) -> None:
    """Make sure that Spark has not ended by itself: what the user has of it is lost then."""
    context: Any = session.sparkContext._jsc
    try:
        ended = bool(context.sc().isStopped())
    except Exception:
        # Its JVM is gone.
        ended = True
    if ended:
        raise ClusterError(
            "the Spark that this process had started has ended: its JVM or its application master died, perhaps for "
            "want of memory on the node of the driver; call penstock.stop_spark(), and the next batch job starts "
            "another one, without the DataFrames and tables of this one"
        )


def _check_same(running: SparkOptions, wanted: SparkOptions) -> None:
    if running != wanted:
        keys = sorted(
            key
            for key in {*running.configuration, *wanted.configuration}
            if running.configuration.get(key) != wanted.configuration.get(key)
        )
        others = f" (and another configuration: {', '.join(keys)})" if keys else ""
        raise ConfigurationError(
            f"Spark runs in this process with {running}, and the job wants {wanted}{others}; give the environment the "
            "same options, or call penstock.stop_spark() first"
        )


def _check_no_other() -> None:
    from pyspark import SparkContext

    other = SparkContext._active_spark_context
    if other is not None:
        raise ConfigurationError(
            f"Spark runs in this process already, as {other.appName!r} on {other.master}, which Penstock has not "
            "started; stop it (SparkSession.stop()) before the first batch job"
        )


def _check_room(options: SparkOptions, nodes: list[dict[str, Any]]) -> None:
    """Make sure that an executor fits a node: Ray would wait for one for ever."""
    resources = [node.get("Resources", {}) for node in nodes if node.get("Alive")]
    cpus = max((one.get("CPU", 0.0) for one in resources), default=0.0)
    memory = int(max((one.get("memory", 0.0) for one in resources), default=0.0))
    if memory < options.memory_bytes:
        raise ClusterError(
            f"no node of the Ray cluster has the memory of an executor, {options.memory}: the largest has "
            f"{memory / 2**30:.1f} GiB; lower memory= of SparkOptions"
        )
    if cpus < options.cores:
        raise ClusterError(
            f"no node of the Ray cluster has the {options.cores} CPUs of an executor: the largest has {cpus:g}; lower "
            "cores= of SparkOptions"
        )


def _started(options: SparkOptions, address: str | None, patience: float, tell: Callable[[str], None]) -> SparkSession:
    check_installed()
    _check_no_other()
    lead_with_java(os.environ)
    skip_notes()
    skip_lost_calls()
    was_connected = ray.is_initialized()
    # A cluster of this process has room for streaming jobs beside the executors, idle as these are between jobs.
    connect(address, (os.cpu_count() or 1) + options.executors * options.cores)
    try:
        nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
        _check_room(options, nodes)
    except BaseException:
        if not was_connected:
            ray.shutdown()
        raise
    executors = "1 executor" if options.executors == 1 else f"{options.executors} executors"
    tell(f"Starting Spark: {executors} of {options.cores} CPUs and {options.memory}")
    try:
        session = _init_spark(options)
        _await_executor(session, options, patience)
    except BaseException:
        # Also on Ctrl-C, which is likely while executors are waited for. Jobs of other threads may run on Ray by now.
        _stop()
        raise
    return session


def _init_spark(options: SparkOptions) -> SparkSession:
    import raydp

    # RayDP stops Spark at the end of the process, unless that was done before.
    atexit.unregister(hush)
    atexit.register(hush)
    # Actors of one name would be in each other's way, where programs share a namespace of the cluster.
    name = f"{_NAME}-{secrets.token_hex(4)}"
    # Spark starts the interpreter of this name on every node.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    try:
        with _own_interrupts():
            session: SparkSession = raydp.init_spark(
                name,
                options.executors,
                options.cores,
                f"{options.memory_bytes // 2**20}m",
                fault_tolerant_mode=False,
                configs=dict(spark_settings(options.configuration, sys.path)),
            )
    except Exception as error:
        with contextlib.suppress(Exception):
            # RayDP has forgotten it, and the error would keep it.
            ray.kill(ray.get_actor(f"{name}{_MASTER}"))
        # What Ray makes of an error in Spark's master is a page of tracebacks.
        cause = getattr(error, "cause", None) or error
        raise ClusterError(
            f"Spark could not be started in the Ray cluster: {type(cause).__name__}: {cause}; make sure that `java` on "
            f"the path that the cluster was started with is Java {' or '.join(map(str, USABLE))}, and that Spark knows "
            "the settings in configuration= of SparkOptions"
        ) from error
    return session


@contextlib.contextmanager
def _own_interrupts() -> Iterator[None]:
    """Keep the process's way with Ctrl-C: Spark would replace it by one that outlives Spark, and then fails."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def spark_settings(configuration: Mapping[str, str], path: list[str]) -> Mapping[str, str]:
    """All settings of Spark.

    Args:
        configuration: the user's.
        path: where this process imports from; functions of the program may need modules from there.
    """
    folders = [str(Path(entry or ".").absolute()) for entry in path if Path(entry or ".").is_dir()]
    settings = {**_SETTINGS, "spark.executorEnv.PYTHONPATH": os.pathsep.join(folders), **configuration}
    for name in _JAVA_OPTIONS:
        settings[name] = f"{JVM_OPTIONS} {configuration.get(name, '')}".strip()
    settings[LOG4J_FILE] = log4j_file(configuration)
    return settings


def _await_executor(session: SparkSession, options: SparkOptions, patience: float) -> None:
    """Return when an executor has come; Spark itself would wait for one for ever."""
    context: Any = session.sparkContext._jsc
    deadline = time.monotonic() + patience
    # The driver counts as one.
    while context.sc().getExecutorMemoryStatus().size() < 2:
        if time.monotonic() > deadline:
            raise ClusterError(
                f"no executor of {options.cores} CPUs and {options.memory} has started on the Ray cluster within "
                f"{patience:g} s: other jobs hold what it needs, or its machine has too much to do; end one, lower the "
                "SparkOptions, or raise slot.request.timeout"
            )
        time.sleep(_LOOK_SECONDS)
