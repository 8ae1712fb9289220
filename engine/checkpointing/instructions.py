"""What the checkpoint coordinator says, and what its answers mean: values, without logic.

The job brain (`engine/job/checkpoints.py`) makes its own instructions to the shells of them.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from penstock.engine.checkpointing.handles import CompletedCheckpoint, FileHandle
from penstock.engine.elements import Barrier

Place: TypeAlias = tuple[int, int]
"""A subtask: (task id, index)."""


class AbortReason(enum.Enum):
    """Why a checkpoint or savepoint did not complete."""

    TIMEOUT = "it took longer than the time-out"
    DECLINED = "a subtask could not take its part"
    SUBTASK_ENDED = "a subtask ended first"
    """Not counted: if it failed, its own error is why the job does."""
    STORE_FAILED = "the manifest could not be written"
    SUBSUMED = "a later one completed first"
    OVERTAKEN = "a subtask was asked for a later one first"
    DRAINED = "the job is drained"
    ATTEMPT_ENDED = "the job failed and is restored"
    JOB_ENDED = "the job ended"


class Acknowledgement(enum.Enum):
    """What became of an acknowledgement."""

    SUCCESS = "success"
    DUPLICATE = "duplicate"
    UNKNOWN = "unknown"
    """Of a checkpoint that is not known, or of a subtask that has no part in it."""
    DISCARDED = "discarded"
    """Of a checkpoint that has been aborted, completed, or belongs to another attempt: its new files may go."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """Tell `places` to take checkpoint `barrier.checkpoint`: sources inject the barrier, the others expect it."""

    barrier: Barrier
    places: Sequence[Place]
    directory: str | None = None
    """Of a savepoint: where the user wants it."""


@dataclass(frozen=True, slots=True)
class Store:
    """Write the manifest, then report `on_stored` or `on_store_failed`."""

    checkpoint: CompletedCheckpoint


@dataclass(frozen=True, slots=True)
class NotifyComplete:
    """Tell the subtasks that the checkpoint counts: sinks commit."""

    checkpoint: int
    places: Sequence[Place]


@dataclass(frozen=True, slots=True)
class NotifyAborted:
    """Notify the subtasks that it is aborted, and those who wait for it why.

    The attempt may have ended: subtasks that run no more are skipped, and those that run on must be told. No places:
    it was never triggered.
    """

    checkpoint: int
    reason: AbortReason
    message: str
    places: Sequence[Place]


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove manifests, then files, that nothing refers to. What is not there (any more) is no error.

    Args:
        checkpoints: whose manifests. Among them are those whose write was reported as failed, once a later checkpoint
            is complete: until then a manager that takes the job over may resume from them.
        files: in the job's folder, or in that of a savepoint.
        savepoint: number of the savepoint that did not complete, to whose folder the files are relative; 0: the job's.
    """

    checkpoints: Sequence[CompletedCheckpoint]
    files: Sequence[FileHandle]
    savepoint: int = 0


@dataclass(frozen=True, slots=True)
class FailJob:
    """More checkpoints have failed in a row than are tolerable."""

    message: str


Instruction: TypeAlias = Trigger | Store | NotifyComplete | NotifyAborted | Delete | FailJob
"""What the coordinator wants done."""
