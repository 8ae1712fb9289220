"""What checkpoints consist of, by reference: which files hold the state of which operator and subtask.

Checkpoint writers make them, subtasks acknowledge with them, the coordinator gathers them, the manifest keeps them.
They are values without data, cheap to send, and name each file with its length and digest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from penstock.engine.elements import MIN_TIMESTAMP, CheckpointMode, SnapshotKind
from penstock.engine.graph.scale import Scale
from penstock.engine.state.capture import Expiry
from penstock.engine.state.snapshot import Redistribution


@dataclass(frozen=True, slots=True)
class FileHandle:
    """One immutable file.

    Args:
        path: relative to the job's folder (checkpoints) or the savepoint's; unique for ever, so that who deletes it
            cannot meet one who writes it again.
        length: bytes.
        digest: of its content: the algorithm, a colon, and hexadecimal digits.
    """

    path: str
    length: int
    digest: str


def distinct(files: Iterable[FileHandle]) -> list[FileHandle]:
    """Each file once, in order."""
    return list({file.path: file for file in files}.values())


class Size(NamedTuple):
    """Bytes of files: of all of them, and of those that no checkpoint before had."""

    total: int = 0
    new: int = 0

    def plus(self, other: Size) -> Size:
        """Both together."""
        return Size(self.total + other.total, self.new + other.new)


NOTHING: Final = Size()


@dataclass(frozen=True, slots=True)
class SegmentHandle:
    """Rows of one state in one Arrow file, or in two.

    Args:
        file: where.
        rows: how many.
        first_group, last_group: the lowest and the highest key group of the rows, of a keyed state; else -1.
        keys: where their first columns are (key group and identity), if those are in a file by themselves.
    """

    file: FileHandle
    rows: int
    first_group: int = -1
    last_group: int = -1
    keys: FileHandle | None = None


@dataclass(frozen=True, slots=True)
class TableHandle:
    """One state of an operator in one subtask: segments, of which later ones replace rows of earlier ones.

    Args:
        redistribution, identity, expiry: see `TableCapture`. Of keyed states, only rows whose key groups belonged to
            the subtask count: after a rescale several subtasks may refer to the same segment.
        segments: oldest first.
    """

    redistribution: Redistribution
    identity: tuple[str, ...]
    segments: tuple[SegmentHandle, ...]
    expiry: Expiry | None = None


@dataclass(frozen=True, slots=True)
class NativeHandle:
    """A backend's own files; see `NativeCapture`."""

    format: str
    files: Mapping[str, FileHandle]
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OperatorHandle:
    """All state of one operator in one subtask.

    Args:
        uid: the operator's id, stable over program versions (`OperatorPlan.uid`).
        name: its name, for people.
        tables, watermark, native: see `OperatorCapture`.
    """

    uid: str
    name: str
    tables: Mapping[str, TableHandle] = field(default_factory=dict)
    watermark: int = MIN_TIMESTAMP
    native: NativeHandle | None = None

    def files(self) -> Iterator[FileHandle]:
        """All files that it refers to (a file may come several times)."""
        for table in self.tables.values():
            yield from (segment.file for segment in table.segments)
            yield from (segment.keys for segment in table.segments if segment.keys is not None)
        if self.native is not None:
            yield from self.native.files.values()


@dataclass(frozen=True, slots=True)
class InFlightHandle:
    """Rows that were on their way on one exchange when an unaligned barrier overtook them.

    Args:
        exchange: which (`Exchange.uid`).
        file: Arrow IPC file or stream of the rows, in the order of each channel.
    """

    exchange: str
    file: FileHandle


@dataclass(frozen=True, slots=True)
class PartTimes:
    """How long a subtask's part of a checkpoint took, in ms; for people.

    Args:
        alignment_ms: how long the barriers of its channels were apart.
        sync_ms: how long data waited for the capture.
        async_ms: until its files were there, while data kept flowing.
    """

    alignment_ms: float
    sync_ms: float
    async_ms: float


@dataclass(frozen=True, slots=True)
class SubtaskHandle:
    """What one subtask acknowledges a checkpoint with.

    Args:
        task, subtask: of which.
        parallelism: how many subtasks the task had.
        operators: the source first, then the chain.
        in_flight: rows that the checkpoint caught on their way out of this subtask, or into it.
        finished: whether its input had ended and it had emitted all it had.
        times: how long that took, where it was measured; no manifest keeps it.
    """

    task: int
    subtask: int
    parallelism: int
    operators: tuple[OperatorHandle, ...]
    in_flight: tuple[InFlightHandle, ...] = ()
    finished: bool = False
    times: PartTimes | None = field(default=None, compare=False)

    def files(self) -> Iterator[FileHandle]:
        """All files that it refers to (a file may come several times)."""
        for operator in self.operators:
            yield from operator.files()
        yield from (rows.file for rows in self.in_flight)


@dataclass(frozen=True, slots=True)
class JobStory:
    """What has happened to a job so far, for people: who takes the job over tells it on. Nothing is decided by it.

    Args:
        completed, failed: how many checkpoints and savepoints had which outcome.
        checkpoints: the newest of them, oldest first (`CheckpointRecord.to_text`).
        restarts: how many failures it has got over.
        restart_records: the newest restarts, oldest first, as the runtime writes them.
    """

    completed: int = 0
    failed: int = 0
    checkpoints: tuple[str, ...] = ()
    restarts: int = 0
    restart_records: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CompletedCheckpoint:
    """A checkpoint or savepoint of which every subtask's part is there. What the manifest holds.

    Args:
        job_id, job_name: whose.
        checkpoint: its number.
        attempt: the execution of the job that took it.
        kind, mode: how.
        max_parallelism: number of key groups.
        triggered_ms, completed_ms: civil time, int64 ms UTC; for people, nothing depends on it.
        subtasks: one handle each.
        split_parallelism: for each source uid, the parallelism that its splits were made for.
        epoch: number of the manager that completed it (`Claim.epoch`); the store sets it.
        story: of the job, up to and with this; None: of a savepoint, which belongs to no job.
        scale: what the job is to have, of a job that runs smaller while there is no room; None: all others.
    """

    job_id: str
    job_name: str
    checkpoint: int
    attempt: int
    kind: SnapshotKind
    mode: CheckpointMode
    max_parallelism: int
    triggered_ms: int
    completed_ms: int
    subtasks: tuple[SubtaskHandle, ...]
    split_parallelism: Mapping[str, int] = field(default_factory=dict)
    epoch: int = 0
    story: JobStory | None = None
    scale: Scale | None = None

    def files(self) -> Iterator[FileHandle]:
        """All files that it refers to (a file may come several times)."""
        for subtask in self.subtasks:
            yield from subtask.files()
