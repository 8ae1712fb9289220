"""What the runtimes need of checkpoint storage. `savepoints/` implements it; the engine knows no file and no bucket.

The manager of a job (job manager, local job) holds a `JobStore`; each subtask writes through a `SubtaskWriter` and
reads through `SubtaskReader`s. All calls block, and may raise `CheckpointError` after their own retries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.engine.checkpointing.handles import CompletedCheckpoint, FileHandle, SubtaskHandle
from penstock.engine.checkpointing.preload import Preloaded
from penstock.engine.checkpointing.restored import RestoredTask
from penstock.engine.checkpointing.task_capture import TaskCapture
from penstock.engine.graph.physical import PhysicalGraph


@dataclass(frozen=True, slots=True)
class Claim:
    """What a manager that has taken over a job's folder begins with.

    Args:
        epoch: number of managers so far, this one included; each claims a number that nobody had.
        next_checkpoint: a number that no checkpoint of the job has had, completed or not.
        retained: the completed checkpoints that count, oldest first; those of fenced managers do not.
        ended: how the job has ended under a manager before, if it has, as a value of `JobStatus`: nothing is left to be
            done here.
        message: what the user must know of that: why it failed, or which savepoint to start the job from, where one was
            complete and its sinks may not have committed what belongs to it.
        retains: whether the job that has ended keeps its checkpoints.
        has_savepoints: whether managers before this one have begun savepoints, which may hold what sinks had prepared.
    """

    epoch: int
    next_checkpoint: int
    retained: Sequence[CompletedCheckpoint] = ()
    ended: str | None = None
    message: str = ""
    retains: bool = False
    has_savepoints: bool = False


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """Which state each operator of a job resumes from, decided and checked before anything starts.

    Args:
        location: URL of the folder that the paths of the handles are relative to.
        checkpoint: what is restored.
        failover: whether it is the same program at the same parallelism, so that writers may refer to its files.
        drop_operators: uids in the checkpoint that the program does not have.
    """

    location: str
    checkpoint: CompletedCheckpoint
    failover: bool
    drop_operators: Sequence[str] = ()


class SubtaskWriter(Protocol):
    """Writes the captures of one subtask in one attempt. Used by one (background) thread."""

    def write(self, capture: TaskCapture) -> SubtaskHandle:
        """Make files of the capture and of what earlier ones have left to be written; returns when they are there.

        Every capture that the task made must come here, in order: changes build on each other. What `Barrier.base` and
        later captures hold is kept until it is in a completed checkpoint.

        Raises:
            CheckpointError: it cannot be written; the next capture holds what this one did.
        """
        ...

    def close(self) -> None:
        """Release what is held."""
        ...


class JobStore(Protocol):
    """The folder of one job. Picklable: subtasks get it with their deployment."""

    def claim(self) -> Claim:
        """Take the folder over: from now on, completions by managers before this one do not count.

        Raises:
            CheckpointCorruptError: the newest checkpoint that counts cannot be read; never an older one instead.
            FencedError: yet another manager has taken the folder over meanwhile.
        """
        ...

    def check_claim(self, epoch: int) -> None:
        """Look whether the folder is still the manager's, before it starts an attempt.

        Raises:
            FencedError: another manager has claimed it.
            CheckpointError: it cannot be read.
        """
        ...

    def complete(self, epoch: int, checkpoint: CompletedCheckpoint, target: str | None = None) -> str:
        """Write the manifest, last and create-only; returns the URL of the checkpoint or savepoint.

        Args:
            epoch: of the manager, from `claim`.
            checkpoint: what it consists of.
            target: URL of the savepoint's folder (see `savepoint_target`); None for a checkpoint.

        Raises:
            FencedError: another manager has claimed the folder; nothing that the checkpoint holds may be committed.
            CheckpointError: it cannot be written.
        """
        ...

    def savepoint_folder(self, directory: str | None) -> str:
        """The URL of the folder that holds savepoints: `directory` or the configured one. Looks whether it can be used.

        Raises:
            CheckpointError: there is no directory, or it cannot be written.
        """
        ...

    def savepoint_target(self, folder: str, checkpoint: int) -> str:
        """The URL of a new folder for savepoint number `checkpoint` in `folder`, which `savepoint_folder` gave."""
        ...

    def delete(
        self, checkpoints: Sequence[CompletedCheckpoint], files: Iterable[FileHandle], target: str | None = None
    ) -> None:
        """Remove the manifests of `checkpoints` first, then `files`. What is gone already is no error.

        No manifest that may have been written, as `complete` has raised something, unless a checkpoint with a higher
        number has been completed since: a new manager may have restored it.

        Args:
            target: URL of the savepoint's folder that both are in; None: the job's.
        """
        ...

    def finish(self, epoch: int, status: str, message: str = "", *, retains: bool = False) -> None:
        """Write down that the job has ended, so that no manager after this one begins it again.

        Args:
            epoch: of the manager, from `claim`.
            status: how, a value of `JobStatus`.
            message: why, where it failed.
            retains: whether its checkpoints are kept; whoever claims the folder later is told.

        Raises:
            FencedError: another manager has claimed the folder, and may resume from what is in it: leave that alone.
            CheckpointError: it cannot be written.
        """
        ...

    def discard(self) -> None:
        """Remove all checkpoints of the job, which has ended and keeps none. Only once `finish` has returned."""
        ...

    def write_log(self, epoch: int, part: int, data: bytes) -> None:
        """Write a part of the stimulus log of manager number `epoch`, in place of what it held before.

        Raises:
            CheckpointError: it cannot be written.
        """
        ...

    def drop_log(self, epoch: int, part: int) -> None:
        """Remove a part of it; errors as `write_log`."""
        ...

    def plan(self, graph: PhysicalGraph, checkpoint: CompletedCheckpoint) -> RestorePlan:
        """The plan for resuming from the job's own checkpoint after a failure.

        Raises:
            RestoreError: it does not fit.
        """
        ...

    def preload(
        self, graph: PhysicalGraph, plan: RestorePlan, task: int, subtask: int, before: Preloaded | None
    ) -> Preloaded:
        """Take in what one subtask will resume from, as of now, while others are that subtask. Called where it will be.

        Args:
            before: what was taken in already, of an older checkpoint; it is used up.

        Raises:
            CheckpointCorruptError, RestoreError: as for `load`; nothing is lost by it.
        """
        ...

    def load(
        self, graph: PhysicalGraph, plan: RestorePlan, task: int, subtask: int, preloaded: Preloaded | None = None
    ) -> RestoredTask:
        """Read what one subtask resumes from. Called in the subtask.

        Args:
            preloaded: what has been taken in already, of this checkpoint or an older one; it is used up.

        Raises:
            CheckpointCorruptError: names the file.
            RestoreError: the state does not fit the program.
        """
        ...

    def writer(
        self,
        graph: PhysicalGraph,
        task: int,
        subtask: int,
        attempt: int,
        plan: RestorePlan | None,
    ) -> SubtaskWriter:
        """The writer of one subtask. Called in the subtask.

        Args:
            attempt: part of the names of the files.
            plan: what the subtask was restored from; a failover plan lets it refer to its files.
        """
        ...


@dataclass(frozen=True, slots=True)
class JobFolder:
    """Where a job's checkpoints are, and whose they are.

    Args:
        store: the folder.
        job_id: names it.
        start: what a job without a checkpoint of its own resumes from: the user's savepoint.
        replaces: as in `JobProgram`.
    """

    store: JobStore
    job_id: str
    start: RestorePlan | None = None
    replaces: tuple[str, ...] = ()
