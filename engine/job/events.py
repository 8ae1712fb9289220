"""What can happen in the life of a job: the facts that a shell reports to the brain. Values, without logic.

A shell (the local manager, the job manager on Ray) makes them from what it sees, and each goes to `JobBrain.handle`
once. An event of an attempt names it, so that what is late means nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from penstock.engine.checkpointing.handles import SubtaskHandle
from penstock.engine.checkpointing.instructions import AbortReason, Place
from penstock.engine.checkpointing.store import Claim
from penstock.engine.errors import PenstockError
from penstock.engine.graph.scale import ParallelismRequest


@dataclass(frozen=True, slots=True)
class Moment:
    """When an event is handled.

    Args:
        monotonic: seconds of the shell's clock; only differences mean anything.
        ms: civil time, int64 ms UTC; for people.
    """

    monotonic: float
    ms: int


# The manager's process, storage


@dataclass(frozen=True, slots=True)
class Began:
    """The manager's process has begun to work for the job."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """The job's folder has been taken over."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class ClaimFailed:
    """The job's folder could not be taken over."""

    error: PenstockError


@dataclass(frozen=True, slots=True)
class Stored:
    """The manifest of a checkpoint or savepoint is there, at `url`."""

    checkpoint: int
    url: str


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """A manifest could not be written, or may have been; a `FencedError`: another manager has taken the job over."""

    checkpoint: int
    error: PenstockError


@dataclass(frozen=True, slots=True)
class EndWritten:
    """The job's end has been written down, or could not be: then `problem` says why."""

    problem: str = ""


# Subtasks


@dataclass(frozen=True, slots=True)
class Deployed:
    """All subtasks of `Deploy` are restored and open; or not all, and a `TaskFailed` names, or will name, the one."""

    attempt: int
    are_open: bool = True


@dataclass(frozen=True, slots=True)
class DeployFailed:
    """Some subtasks of `Deploy` could not even be asked: storage, room or a process was missing.

    Args:
        room: where room was missing: for how many slots there is some. None: it was not, or nobody knows.
    """

    attempt: int
    error: PenstockError
    room: int | None = None


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What `Cancel` number `number` named runs no more."""

    number: int


@dataclass(frozen=True, slots=True)
class RowsCame:
    """A subtask has emitted its first rows."""

    place: Place
    attempt: int


@dataclass(frozen=True, slots=True)
class TaskFinished:
    """A subtask has emitted everything, and the client has all that was for it."""

    place: Place
    attempt: int


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """A subtask has failed, its process has died, or does not answer; without a place, the job has as a whole.

    Args:
        is_explained: False: an `Explained` with more about the same error will follow.
    """

    place: Place | None
    attempt: int
    error: PenstockError
    is_explained: bool = True


@dataclass(frozen=True, slots=True)
class Explained:
    """More has become known of why a subtask failed."""

    place: Place
    attempt: int
    error: PenstockError


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A subtask has taken its part in a checkpoint, whose number no other has in any attempt."""

    checkpoint: int
    place: Place
    handle: SubtaskHandle


@dataclass(frozen=True, slots=True)
class Declined:
    """A subtask cannot take its part."""

    checkpoint: int
    place: Place
    message: str
    reason: AbortReason = AbortReason.DECLINED


@dataclass(frozen=True, slots=True)
class Committed:
    """What a subtask had prepared for a checkpoint is committed."""

    checkpoint: int
    place: Place
    attempt: int


@dataclass(frozen=True, slots=True)
class TakenDown:
    """No subtask of the job runs any more, and its slots are given back; `error`: one that could not be closed."""

    error: PenstockError | None = None


# Users


@dataclass(frozen=True, slots=True)
class TakeCheckpoint:
    """Answered by its URL."""


@dataclass(frozen=True, slots=True)
class TakeSavepoint:
    """Answered by its URL; `directory`: None is the configured one."""

    directory: str | None = None


@dataclass(frozen=True, slots=True)
class StopJob:
    """A savepoint, and the job ends behind it; answered by the URL when it has ended."""

    directory: str | None = None


@dataclass(frozen=True, slots=True)
class DrainJob:
    """The sources end as if their input had, and the job with a savepoint; answered by the URL when it has ended."""

    directory: str | None = None


@dataclass(frozen=True, slots=True)
class RescaleJob:
    """Another parallelism; answered by the seconds that what changes stood still, 0.0 where it runs so already."""

    parallelism: ParallelismRequest


@dataclass(frozen=True, slots=True)
class CancelJob:
    """The job ends now; answered when it has: True, or False where it was ending already.

    Args:
        retain: keep its checkpoints, whatever is configured.
    """

    retain: bool = False


Command: TypeAlias = TakeCheckpoint | TakeSavepoint | StopJob | DrainJob | RescaleJob | CancelJob
"""What users ask for."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Somebody asks for something; an `Answer` with this number will follow, exactly one."""

    request: int
    command: Command


@dataclass(frozen=True, slots=True)
class FolderChecked:
    """The folder for a savepoint is there, and can be written."""

    request: int
    folder: str


@dataclass(frozen=True, slots=True)
class FolderRefused:
    """There is no folder for a savepoint, or it cannot be written."""

    request: int
    error: PenstockError


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a rescale needs is there."""

    request: int


@dataclass(frozen=True, slots=True)
class PrepareFailed:
    """What a rescale needs is not to be had; nothing has changed."""

    request: int
    error: PenstockError


@dataclass(frozen=True, slots=True)
class Preloaded:
    """What `Preload` named has been taken in, as far as it could be."""

    request: int
    checkpoint: int


@dataclass(frozen=True, slots=True)
class Leaving:
    """The processes of these subtasks are on nodes that are about to leave; said again while it is so."""

    places: Sequence[Place]


@dataclass(frozen=True, slots=True)
class RoomFound:
    """There is room for what `AwaitRoom` named."""


@dataclass(frozen=True, slots=True)
class Ticked:
    """Time has passed: `JobBrain.deadline` has come, or may have."""


Event: TypeAlias = (
    Began
    | Claimed
    | ClaimFailed
    | Stored
    | StoreFailed
    | EndWritten
    | Deployed
    | DeployFailed
    | Cancelled
    | RowsCame
    | TaskFinished
    | TaskFailed
    | Explained
    | Acknowledged
    | Declined
    | Committed
    | TakenDown
    | Asked
    | FolderChecked
    | FolderRefused
    | Prepared
    | PrepareFailed
    | Preloaded
    | Leaving
    | RoomFound
    | Ticked
)
"""What the brain hears."""
