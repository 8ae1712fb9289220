"""A coordinator under a test's hand: short calls, a clock that the test moves, and handles made of file names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from penstock.engine.checkpoint_config import CheckpointConfig
from penstock.engine.checkpointing.coordinator import CheckpointCoordinator
from penstock.engine.checkpointing.handles import (
    CompletedCheckpoint,
    FileHandle,
    OperatorHandle,
    SegmentHandle,
    SubtaskHandle,
    TableHandle,
)
from penstock.engine.checkpointing.instructions import Acknowledgement, Delete, Instruction, Place, Store, Trigger
from penstock.engine.elements import CheckpointMode, SnapshotKind
from penstock.engine.state.snapshot import Redistribution

PLACES: Sequence[Place] = ((1, 0), (1, 1), (2, 0))
BYTES = 100
CHECKPOINT, SAVEPOINT, SUSPEND = SnapshotKind.CHECKPOINT, SnapshotKind.SAVEPOINT, SnapshotKind.SUSPEND

T = TypeVar("T")


def handle_of(place: Place, paths: Iterable[str] = ()) -> SubtaskHandle:
    """What the subtask acknowledges with: one table with a segment in each file, of `BYTES` bytes."""
    segments = tuple(SegmentHandle(FileHandle(path, BYTES, ""), 1) for path in paths)
    table = TableHandle(Redistribution.KEYED, ("k",), segments)
    return SubtaskHandle(*place, 2, (OperatorHandle("uid", "op", {"t": table}),))


def completed_of(number: int, *paths: str) -> CompletedCheckpoint:
    """A checkpoint that counts already, with these files in its first subtask."""
    handles = tuple(handle_of(place, paths if place == PLACES[0] else ()) for place in PLACES)
    return CompletedCheckpoint("job", "Job", number, 1, CHECKPOINT, CheckpointMode.ALIGNED, 128, 0, 0, handles)


def paths_of(files: Iterable[FileHandle]) -> set[str]:
    return {file.path for file in files}


def of(kind: type[T], instructions: Iterable[Instruction]) -> list[T]:
    """The instructions of one type."""
    return [instruction for instruction in instructions if isinstance(instruction, kind)]


def deleted(instructions: Iterable[Instruction]) -> set[str]:
    """The paths of the files to be deleted."""
    return {file.path for delete in of(Delete, instructions) for file in delete.files}


class Driver:
    """A coordinator with its clock. Runs attempt 1 at time 0 unless told otherwise; all files are named by the test."""

    def __init__(self, completed: Sequence[CompletedCheckpoint] = (), next_checkpoint: int = 1, **config: Any) -> None:
        settings: Mapping[str, Any] = {"interval_ms": 1000, "timeout_ms": 10_000, **config}
        self.now = 0.0
        self.attempt = 0
        self.coordinator = CheckpointCoordinator(
            CheckpointConfig(**settings), "job", "Job", 128, next_checkpoint, completed
        )

    @property
    def now_ms(self) -> int:
        return int(self.now * 1000)

    def start(self, places: Sequence[Place] = PLACES) -> list[Instruction]:
        self.attempt += 1
        return self.coordinator.start_attempt(self.attempt, places, {"source": 2}, self.now)

    def at(self, now: float) -> list[Instruction]:
        """The time is `now`: what the tick says."""
        self.now = now
        return self.coordinator.tick(self.now, self.now_ms)

    def trigger(self, now: float) -> Trigger:
        """The one checkpoint that is triggered at `now`."""
        (trigger,) = of(Trigger, self.at(now))
        return trigger

    def request(self, kind: SnapshotKind = SAVEPOINT, directory: str | None = None) -> tuple[int, list[Instruction]]:
        return self.coordinator.request(kind, self.now, self.now_ms, directory)

    def ack(self, number: int, place: Place, *paths: str) -> tuple[Acknowledgement, list[Instruction]]:
        return self.coordinator.acknowledge(number, place, handle_of(place, paths), self.now, self.now_ms)

    def ack_all(self, number: int, *paths: str, places: Sequence[Place] = PLACES) -> list[Instruction]:
        """All subtasks acknowledge, the first with these files."""
        answer: list[Instruction] = []
        for place in places:
            answer += self.ack(number, place, *(paths if place == places[0] else ()))[1]
        return answer

    def stored(self, number: int) -> list[Instruction]:
        return self.coordinator.on_stored(number, self.now)

    def complete(self, number: int, *paths: str) -> list[Instruction]:
        """All subtasks acknowledge and the manifest is written; what is said then."""
        assert of(Store, self.ack_all(number, *paths)), f"checkpoint {number} is not to be stored"
        return self.stored(number)
