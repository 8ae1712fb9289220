"""What the brain of a job says: what a shell must do, in this order. Values, without logic.

A shell carries them out and reports what came of each by the event that is named here. It decides nothing: whatever
fails is reported, not repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from penstock.engine.checkpointing.handles import CompletedCheckpoint, FileHandle
from penstock.engine.checkpointing.instructions import Place
from penstock.engine.elements import Barrier
from penstock.engine.errors import PenstockError
from penstock.engine.job.layout import Layout
from penstock.engine.job.status import JobStatus


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Claim the job's folder: `Claimed` or `ClaimFailed`."""


@dataclass(frozen=True, slots=True)
class Deploy:
    """Start subtasks as a new attempt: `Deployed` or `DeployFailed`.

    Where some of the subtasks that run on have channels to or from these, both ends get to know each other: nothing is
    under way on what they replace, and the senders keep their rows back until then.

    First of all the claim is checked: another manager may have taken the job over, and its subtasks may be why these
    must start anew.

    Args:
        attempt: its number.
        layout: of the whole job.
        places: what to start; the others run on.
        checkpoint: what is restored; None: what the job began with, if anything.
        epoch: of this manager.
        prepares_sinks: whether the sinks are to be made ready first, as the job begins: only now, with its name,
            storage and slots, it may touch them.
    """

    attempt: int
    layout: Layout
    places: Sequence[Place]
    checkpoint: CompletedCheckpoint | None
    epoch: int
    prepares_sinks: bool


@dataclass(frozen=True, slots=True)
class FillStandbys:
    """The job runs: have as many warm processes as are configured."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """End what these subtasks run: `Cancelled`, once none of them does anything any more."""

    number: int
    places: Sequence[Place]


@dataclass(frozen=True, slots=True)
class EndInput:
    """Have the sources end as if their input had."""


@dataclass(frozen=True, slots=True)
class Inject:
    """Have subtasks take part in a checkpoint: `Acknowledged` or `Declined` of each.

    Args:
        barrier: what sources inject and others expect.
        places: all subtasks of the job.
        directory: of a savepoint: the folder in which it gets one of its own.
    """

    barrier: Barrier
    places: Sequence[Place]
    directory: str | None


@dataclass(frozen=True, slots=True)
class WriteManifest:
    """Write the manifest of a checkpoint or savepoint: `Stored` or `StoreFailed`."""

    checkpoint: CompletedCheckpoint
    epoch: int


@dataclass(frozen=True, slots=True)
class Commit:
    """Tell subtasks that a checkpoint counts: `Committed` of each."""

    checkpoint: int
    places: Sequence[Place]


@dataclass(frozen=True, slots=True)
class AbortCheckpoint:
    """Tell subtasks, as far as they still run, to expect a checkpoint no more."""

    checkpoint: int
    places: Sequence[Place]


@dataclass(frozen=True, slots=True)
class DeleteFiles:
    """Remove manifests, then files; what cannot be removed stays, and costs storage. See `checkpointing.Delete`."""

    checkpoints: Sequence[CompletedCheckpoint]
    files: Sequence[FileHandle]
    savepoint: int


@dataclass(frozen=True, slots=True)
class CheckFolder:
    """See whether savepoints can be written to `directory`: `FolderChecked`, `FolderRefused`. None: as configured."""

    request: int
    directory: str | None


@dataclass(frozen=True, slots=True)
class AwaitRoom:
    """Wait beside the job, until it is deployed again, for the room that `layout` needs: `RoomFound`.

    Behind a pause, though there be room at once: a job that cannot be widened although there is room asks again.
    """

    layout: Layout


@dataclass(frozen=True, slots=True)
class Prepare:
    """Check that `checkpoint` fits `layout`, and make what it needs meanwhile: `Prepared` or `PrepareFailed`.

    Args:
        request: to be reported with it.
        layout: that is to be deployed.
        checkpoint: None: there is none yet.
        moved: the subtasks that get other processes, on nodes that stay; from their next `Deploy` on.
    """

    request: int
    layout: Layout
    checkpoint: CompletedCheckpoint | None
    moved: Sequence[Place] = ()


@dataclass(frozen=True, slots=True)
class Preload:
    """Have the processes that `Prepare` made or left take in what these subtasks will resume from: `Preloaded`.

    Meanwhile the job runs. Each uses it at its next `Deploy`, as far as that restores the same files; whoever could not
    reads everything then.

    Args:
        request: to be reported with it.
        layout: that is to be deployed.
        places: the subtasks of it.
        checkpoint: what there is to take in now.
    """

    request: int
    layout: Layout
    places: Sequence[Place]
    checkpoint: CompletedCheckpoint


@dataclass(frozen=True, slots=True)
class Answer:
    """Tell who asked: what came of it, or the error."""

    request: int
    outcome: str | float | bool | PenstockError


@dataclass(frozen=True, slots=True)
class Warn:
    """Write to the log."""

    message: str


@dataclass(frozen=True, slots=True)
class TakeDown:
    """End all subtasks and whatever is under way for them: `TakenDown`.

    Args:
        at_once: without waiting for anything, as another manager's do the same work.
    """

    at_once: bool


@dataclass(frozen=True, slots=True)
class WriteEnd:
    """Write down that the job has ended, then remove what is not kept: `EndWritten`.

    Args:
        epoch, status, message: how it ended.
        discards: whether its checkpoints go.
        discards_rows: whether what its sinks have prepared and nobody commits goes, too.
    """

    epoch: int
    status: JobStatus
    message: str
    discards: bool
    discards_rows: bool = False


@dataclass(frozen=True, slots=True)
class End:
    """The job has ended; nothing follows but answers."""

    status: JobStatus
    error: PenstockError | None


CheckpointInstruction: TypeAlias = (
    TakeOver | Inject | WriteManifest | Commit | AbortCheckpoint | DeleteFiles | CheckFolder
)
"""What is for the part of a shell that has the job's folder: only a job with one is told any of it."""

JobInstruction: TypeAlias = (
    Deploy
    | FillStandbys
    | Cancel
    | EndInput
    | AwaitRoom
    | Prepare
    | Preload
    | Answer
    | Warn
    | TakeDown
    | WriteEnd
    | End
)
"""What is for the shell itself."""

Instruction: TypeAlias = CheckpointInstruction | JobInstruction
"""What the brain wants done."""
