"""Where a submitted job keeps its checkpoints, and what it resumes from: decided before anything starts.

The environment asks for the folder of each job. A savepoint that the user names is found, read and compared with the
program here, so that a job that cannot resume from it does not begin.
"""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

from penstock.engine.checkpoint_config import CheckpointConfig
from penstock.engine.checkpointing.store import JobFolder, RestorePlan
from penstock.engine.connectors import TransactionalSink
from penstock.engine.errors import ConfigurationError, NoCheckpointError
from penstock.engine.graph.checkpointable import check_checkpointable
from penstock.engine.graph.physical import JobProgram, PhysicalGraph
from penstock.engine.job.handle import DEFAULT_NAME, JobHandle, new_job_id
from penstock.savepoints.restore import NonRestoredState, plan_restore, url_of
from penstock.savepoints.runs import (
    replace_newest_run,
    replaced_by_resuming,
    replaced_by_starting_from,
    state_to_resume,
)
from penstock.savepoints.storage import OpenBlobs, check_writable, open_blobs
from penstock.savepoints.store import FolderJobStore, find_checkpoint

DEFAULT_FOLDER: Final = Path("~/.penstock")
"""Where checkpoints and savepoints are kept by those who name no storage."""


@dataclass(frozen=True, slots=True)
class Start:
    """What a job begins with.

    Args:
        savepoint: URL of the savepoint or retained checkpoint that it resumes from; None: without state.
        non_restored: what becomes of state in it whose operator the program does not have.
        replaces_run: whether it is what the newest run of the job has left, whose place the job takes.
    """

    savepoint: str | None = None
    non_restored: NonRestoredState = NonRestoredState.REFUSED
    replaces_run: bool = False

    @staticmethod
    def of(savepoint: str | None, allow_non_restored_state: bool) -> Start:
        """As users say it."""
        return Start(savepoint, NonRestoredState.DROPPED if allow_non_restored_state else NonRestoredState.REFUSED)


FRESH: Final = Start()
_OF_TIMEOUT: Final = 0.8
"""For which part of a checkpoint's time-out its files are tried again, so that the reason is told before it is over."""
Resume: TypeAlias = Literal["latest", "if-any"]
_LOG = logging.getLogger(__name__)


def job_folder(program: JobProgram, start: Start, opened: OpenBlobs = open_blobs) -> JobFolder | None:
    """The folder of a new job, or None for a job without checkpoints.

    Args:
        program: the job.
        start: what it begins with.
        opened: makes a store of a URL.

    Raises:
        NoCheckpointError: as of `_in_place_of_newest_run`.
        GraphError: the program cannot be checkpointed; names the operator and the remedy.
        RestoreError, CheckpointCorruptError: the savepoint is not there, damaged, or does not fit the program.
        ConfigurationError: the storage cannot be used.
    """
    checkpoints = program.config.checkpoints
    if not (checkpoints.enabled or checkpoints.storage or start.savepoint):
        return None
    storage, savepoints = _folders(checkpoints)
    plan = _plan(program, start, opened)
    check_checkpointable(program.physical())
    check_writable(opened(storage))
    if start.replaces_run:
        plan = _in_place_of_newest_run(program, start, plan, opened)
    replaces = _replaced(program, start, plan, storage, opened)
    job_id = new_job_id(program.name)
    store = FolderJobStore(
        storage,
        job_id,
        program.name,
        savepoints,
        checkpoints.storage_overrides,
        opened,
        started_from=None if plan is None else url_of(plan),
        patience_s=_OF_TIMEOUT * checkpoints.timeout_ms / 1000,
        run=program.run,
        replaces=replaces,
    )
    return JobFolder(store, job_id, plan, replaces)


def resumed_start(name: str, checkpoints: CheckpointConfig, resume: Resume, allow_non_restored_state: bool) -> Start:
    """What the next run of a job begins with.

    Args:
        name: of the job.
        checkpoints: say where its runs keep their checkpoints.
        resume: what becomes of a job that no run has left anything of.
        allow_non_restored_state: as of `execute`.

    Raises:
        NoCheckpointError: no run has left anything to resume from, or the newest has not and an older one has.
        ConfigurationError: the job has no name of its own, or the storage is not there behind a run.
    """
    if resume not in get_args(Resume):
        raise ConfigurationError(f"resume takes {' or '.join(map(repr, get_args(Resume)))}, not {resume!r}")
    if name == DEFAULT_NAME:
        raise ConfigurationError("a job is resumed by its name: give it one, as in execute('orders', resume='latest')")
    storage, savepoints = _folders(checkpoints)
    if storage.startswith("ray://"):
        raise ConfigurationError(f"a job is resumed from storage that outlives its cluster, which {storage} does not")
    found = state_to_resume(name, storage, savepoints)
    if found is None and resume == "latest":
        raise NoCheckpointError(
            f"job {name!r} cannot be resumed: no run of it has left a checkpoint in {storage}; resume='if-any' "
            "(--resume-if-any) begins without state where there is none"
        )
    if found is None:
        _LOG.warning("job %r begins without state: no run of it has left a checkpoint in %s", name, storage)
    return dataclasses.replace(Start.of(found, allow_non_restored_state), replaces_run=True)


def replacing(program: JobProgram, folder: JobFolder | None) -> JobProgram:
    """The program, which knows the runs that it replaces."""
    return program if folder is None else dataclasses.replace(program, replaces=folder.replaces)


def noted(job: JobHandle, folder: JobFolder | None) -> JobHandle:
    """The handle, which says what the job began with, and what it does without."""
    if folder is not None and folder.start is not None:
        job.dropped_operators = tuple(folder.start.drop_operators)
        job.restored_from = url_of(folder.start)
        if all(subtask.finished for subtask in folder.start.checkpoint.subtasks):
            _LOG.warning(
                "job %r ends at once where its sources are those of %s: all had ended in it, by the end of their input "
                "or a drain; to resume a job later, end it by stop, without a drain",
                job.name,
                job.restored_from,
            )
    return job


def warn_of_idle_sinks(graph: PhysicalGraph) -> None:
    """Tell where rows would never be seen: sinks show them with checkpoints, or when the input ends."""
    endless = any(task.source is not None and not task.source.source.bounded for task in graph.tasks)
    waiting = [sink.describe() for sink in graph.sinks if isinstance(sink, TransactionalSink)]
    if endless and waiting and not graph.config.checkpoints.enabled:
        _LOG.warning(
            "job %r has an input without end and takes no checkpoints: %s may keep its rows for one for ever; begin it "
            "with -Dexecution.checkpointing.interval=10s, or in Python with checkpoints=checkpoints('10s', 'folder')",
            graph.name,
            ", ".join(waiting),
        )


def _folders(checkpoints: CheckpointConfig) -> tuple[str, str | None]:
    """URLs of the folders for checkpoints and, if there is one, for savepoints."""
    default = DEFAULT_FOLDER.expanduser().absolute()
    own = checkpoints.savepoint_storage or (None if checkpoints.storage else str(default / "savepoints"))
    return checkpoints.storage or str(default / "checkpoints"), own


def _in_place_of_newest_run(
    program: JobProgram, start: Start, plan: RestorePlan | None, opened: OpenBlobs
) -> RestorePlan | None:
    """What the job begins with once the newest run completes nothing more: that may have gone on until now.

    Raises:
        NoCheckpointError: it had taken no checkpoint before, and has now.
    """
    storage, savepoints = _folders(program.config.checkpoints)
    replace_newest_run(program.name, storage, opened)
    left = state_to_resume(program.name, storage, savepoints, opened)
    if left == start.savepoint:
        return plan
    if start.savepoint is None:
        raise NoCheckpointError(
            f"a run of job {program.name!r} was alive, and took its first checkpoint just now, {left}; it completes no "
            "more: start the job again, and it resumes from there"
        )
    return _plan(program, dataclasses.replace(start, savepoint=left), opened)


def _replaced(
    program: JobProgram, start: Start, plan: RestorePlan | None, storage: str, opened: OpenBlobs
) -> tuple[str, ...]:
    """The runs that the job replaces; see `JobProgram.replaces`."""
    if start.replaces_run:
        return replaced_by_resuming(program.name, None if plan is None else url_of(plan), storage, opened)
    return () if plan is None else replaced_by_starting_from(url_of(plan), plan.checkpoint.job_id, storage, opened)


def _plan(program: JobProgram, start: Start, opened: OpenBlobs) -> RestorePlan | None:
    if start.savepoint is None:
        return None
    storage = [url for _, url in program.config.checkpoints.storage_overrides]
    found = find_checkpoint(start.savepoint, opened, storage)
    graph = program.physical(found.checkpoint.split_parallelism)
    return plan_restore(graph, found.checkpoint, found.location, start.non_restored)
