"""Batch mode as the environment offers it: which mode a job runs in, what batch mode refuses, and how it starts."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal, get_args

from penstock.actors.spark.options import SparkOptions
from penstock.engine.errors import ConfigurationError, nearest
from penstock.engine.graph.physical import PhysicalGraph
from penstock.engine.job.handle import JobHandle, ResultConsumer, new_job_id
from penstock.job_folders import Start
from penstock.savepoints.storage import check_writable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Mode = Literal["streaming", "batch", "automatic"]
"""How a job runs: as it comes, each stage when the one before has ended, or in batch where it can."""
_MODES: Final = get_args(Mode)
_LOG = logging.getLogger(__name__)


def check_mode(mode: Mode) -> Mode:
    """The mode itself, if there is such a one.

    Raises:
        ConfigurationError: there is not.
    """
    if mode not in _MODES:
        raise ConfigurationError(f"mode must be one of {', '.join(_MODES)}, not {mode!r}{nearest(str(mode), _MODES)}")
    return mode


def runs_in_batch(mode: Mode, graph: PhysicalGraph, runtime: str) -> bool:
    """Whether the job runs in batch mode. Automatically it does wherever it can, but for local jobs.

    Args:
        mode: what the user asked for.
        graph: the job.
        runtime: where it would run otherwise.

    Raises:
        ConfigurationError: a local job cannot.
        GraphError: a source has no end, or an operator cannot run so.
    """
    if mode == "streaming" or (mode == "automatic" and runtime == "local"):
        return False
    # Imported here: it loads all operators that Spark runs by itself, which other jobs do without.
    from penstock.actors.spark.checks import check_translatable, untranslatable

    if mode == "automatic":
        return not untranslatable(graph)
    if runtime == "local":
        raise ConfigurationError(
            "batch mode runs Spark on Ray, and this environment is local: leave out runtime='local', or mode='batch' "
            "(a bounded program gives the same rows in streaming mode)"
        )
    check_translatable(graph)
    return True


def check_batch_start(graph: PhysicalGraph, start: Start, detached: bool) -> None:
    """Make sure that nothing was asked for that batch mode does not have.

    Raises:
        ConfigurationError: a start from a savepoint, or a detached job.
    """
    if start.savepoint is not None:
        raise ConfigurationError(
            f"a batch job cannot resume from a savepoint ({start.savepoint}): it reads its input from the beginning; "
            "leave it out, or run in streaming mode"
        )
    if detached:
        raise ConfigurationError(
            "a batch job is driven by this process and cannot be detached from it: leave out "
            "detached=True (--detach), or run in streaming mode"
        )
    if graph.config.checkpoints.enabled:
        _LOG.info("job %r takes no checkpoints: in batch mode Spark runs again what is lost", graph.name)


def checked_target(savepoint_to: str, in_batch: bool) -> str:
    """The URL of the folder of the savepoint that a batch job is to end with: new, and writable.

    Args:
        savepoint_to: what the user named.
        in_batch: whether the job runs in batch mode.

    Raises:
        ConfigurationError: it does not, or the folder cannot be used.
        CheckpointError: something is there already.
    """
    if not in_batch:
        raise ConfigurationError(
            f"savepoint_to={savepoint_to!r} is for batch jobs, which end with a savepoint when their input does: set "
            "mode='batch', or take a savepoint of the streaming job with stop() or savepoint() of its handle"
        )
    from penstock.savepoints.savepoint_files import new_folder, savepoint_url

    url = savepoint_url(str(savepoint_to))
    if url.startswith("memory://"):
        raise ConfigurationError(f"{url}: the executors of a batch job cannot write to the memory of this process")
    check_writable(new_folder(url))
    return url


def start_batch_job(
    graph: PhysicalGraph,
    consumers: Mapping[int, ResultConsumer],
    options: SparkOptions,
    address: str | None,
    savepoint_to: str | None,
) -> JobHandle:
    """Start the job, and Spark if it does not run.

    Args:
        graph: the job, which has been checked.
        consumers: takes the rows of each results node.
        options: Spark's executors.
        address: of the Ray cluster.
        savepoint_to: URL of the folder of the savepoint that it ends with, from `checked_target`; None: with none.

    Raises:
        ConfigurationError, ClusterError: Spark cannot be had here.
        SerializationError: a part of the job cannot be sent to the executors.
        CheckpointError: another job has taken the folder of the savepoint.
    """
    from penstock.actors.spark.session import check_installed, spark_session

    check_installed()
    # Ray and Spark take seconds to import, and other jobs do without them.
    from penstock.actors.client import check_serializable
    from penstock.actors.spark.batch_job import SparkJob
    from penstock.actors.spark.hand_over import HandOver
    from penstock.live_view import tell

    check_serializable(graph)
    session = spark_session(options, address, graph.config.slot_timeout_ms / 1000, tell)
    # Before the sinks: a job that is refused for its folder leaves their old rows alone.
    over = None if savepoint_to is None else HandOver.begun(savepoint_to, new_job_id(graph.name), graph)
    try:
        graph.prepare_sinks()
        return SparkJob(graph, consumers, session, over)
    except BaseException:
        if over is not None:
            over.discard()
        raise


def own_session(options: SparkOptions, address: str | None, patience_ms: int) -> SparkSession:
    """The Spark session for the user's own queries; arguments and errors as for `start_batch_job`."""
    from penstock.actors.spark.session import check_installed, users_session

    check_installed()
    from penstock.live_view import tell

    return users_session(options, address, patience_ms / 1000, tell)


def explained_batch(graph: PhysicalGraph) -> str:
    """The job's Spark plan, as stable text.

    Raises:
        GraphError: it cannot run in batch mode.
    """
    from penstock.actors.spark.checks import check_translatable, explain_stages

    check_translatable(graph)
    return explain_stages(graph)
