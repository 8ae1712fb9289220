"""Where a submitted job keeps its checkpoints, and what it goes on from: decided before anything starts.

The environment asks for the folder of each job. A savepoint that the user names is found, read and compared with the
program here, so that a job that cannot go on from it does not begin.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.engine.checkpointing.store import JobFolder, RestorePlan
from penstock.engine.graph.checkpointable import check_checkpointable
from penstock.engine.graph.physical import JobProgram
from penstock.engine.job.handle import new_job_id
from penstock.savepoints.restore import NonRestoredState, plan_restore
from penstock.savepoints.storage import OpenBlobs, check_writable, open_blobs
from penstock.savepoints.store import FolderJobStore, find_checkpoint

DEFAULT_FOLDER: Final = Path("~/.penstock")
"""Where checkpoints and savepoints are kept by those who name no storage."""


@dataclass(frozen=True, slots=True)
class Start:
    """What a job begins with.

    Args:
        savepoint: URL of the savepoint or retained checkpoint that it goes on from; None: without state.
        non_restored: what becomes of state in it whose operator the program does not have.
    """

    savepoint: str | None = None
    non_restored: NonRestoredState = NonRestoredState.REFUSED


FRESH: Final = Start()


def job_folder(program: JobProgram, start: Start, opened: OpenBlobs = open_blobs) -> JobFolder | None:
    """The folder of a new job, or None for a job without checkpoints.

    Args:
        program: the job.
        start: what it begins with.
        opened: makes a store of a URL.

    Raises:
        GraphError: the program cannot be checkpointed; names the operator and the remedy.
        RestoreError, CheckpointCorruptError: the savepoint is not there, damaged, or does not fit the program.
        ConfigurationError: the storage cannot be used.
    """
    checkpoints = program.config.checkpoints
    if not (checkpoints.enabled or checkpoints.storage or start.savepoint):
        return None
    default = DEFAULT_FOLDER.expanduser().absolute()
    storage = checkpoints.storage or str(default / "checkpoints")
    job_id = new_job_id(program.name)
    store = FolderJobStore(
        storage,
        job_id,
        program.name,
        checkpoints.savepoint_storage or (None if checkpoints.storage else str(default / "savepoints")),
        checkpoints.storage_overrides,
        opened,
    )
    check_checkpointable(program.physical())
    check_writable(opened(storage))
    return JobFolder(store, job_id, _plan(program, start, opened))


def _plan(program: JobProgram, start: Start, opened: OpenBlobs) -> RestorePlan | None:
    if start.savepoint is None:
        return None
    storage = [url for _, url in program.config.checkpoints.storage_overrides]
    found = find_checkpoint(start.savepoint, opened, storage)
    graph = program.physical(found.checkpoint.split_parallelism)
    return plan_restore(graph, found.checkpoint, found.location, start.non_restored)
