"""A checkpoint that was asked for in the attempt that runs, and one under way: who has acknowledged it with what.

The coordinator makes a `PendingCheckpoint` at each trigger and moves it through its phases. It gives exactly one
outcome: a `CompletedCheckpoint`, which is another type, or an abort with a reason.

    PENDING ──all acknowledged, no other being stored──> STORING ──stored──> COMPLETED
       │                                                    │
       └──time-out, declined, subsumed, drained, attempt ended──┐    └──store failed──┐
                                                                └─────────────────────┴──> ABORTED
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from penstock.engine.checkpoint_config import CheckpointConfig
from penstock.engine.checkpointing.handles import NOTHING, Size, SubtaskHandle
from penstock.engine.checkpointing.history import CheckpointPart, CheckpointRecord
from penstock.engine.checkpointing.instructions import AbortReason, Acknowledgement, Place
from penstock.engine.elements import Barrier, CheckpointMode, SnapshotKind

NAMED_PLACES: Final = 3
"""How many missing subtasks a message names."""


class Phase(enum.Enum):
    """Where a checkpoint stands."""

    PENDING = "pending"
    """Subtasks have yet to acknowledge, or all have and the manifest of one before it is being written."""
    STORING = "storing"
    """Its manifest is being written: it may exist already, so only the storage decides now."""
    COMPLETED = "completed"
    ABORTED = "aborted"


TRANSITIONS: Final[Mapping[Phase, frozenset[Phase]]] = {
    Phase.PENDING: frozenset({Phase.STORING, Phase.ABORTED}),
    Phase.STORING: frozenset({Phase.COMPLETED, Phase.ABORTED}),
    Phase.COMPLETED: frozenset(),
    Phase.ABORTED: frozenset(),
}
"""The phases that may follow each phase."""


class Drain(enum.Enum):
    """How far an attempt has been drained."""

    NONE = enum.auto()
    BEGUN = enum.auto()
    """Sources end one after another: a checkpoint would have some of them finished, and others not."""
    ENDED = enum.auto()
    """All subtasks have finished: what is taken now has the whole input."""


@dataclass(slots=True)
class Attempt:
    """The attempt that runs.

    Args:
        number, places: which, and its subtasks.
        split_parallelism: as in `CompletedCheckpoint`.
        due: when the next periodic checkpoint is to be triggered, were there nothing against it; monotonic seconds,
            infinity where none is taken.
        failing: whether it is about to end, as too many checkpoints failed.
        drain: how far it has been drained.
    """

    number: int
    places: tuple[Place, ...]
    split_parallelism: Mapping[str, int]
    due: float
    failing: bool = False
    drain: Drain = Drain.NONE


@dataclass(frozen=True, slots=True)
class Request:
    """A checkpoint or savepoint that is to be triggered.

    Args:
        number, kind: which; whoever asked for it knows the number.
        directory: of a savepoint: where the user wants it.
        requested: when, monotonic seconds.
        replaced: as in `Barrier`.
    """

    number: int
    kind: SnapshotKind
    directory: str | None
    requested: float
    replaced: frozenset[int] = frozenset()


def barrier_of(request: Request, config: CheckpointConfig, base: int, now_ms: int) -> Barrier:
    """The barrier of a checkpoint that is triggered now (civil time); `base` as there."""
    aligned = Barrier(request.number, CheckpointMode.ALIGNED, request.kind, triggered_ms=now_ms)
    if request.kind is not SnapshotKind.CHECKPOINT:
        return aligned
    if request.replaced:
        return replace(aligned, base=base, replaced=request.replaced)
    mode, patience = config.mode, config.alignment_timeout_ms
    if patience is not None:
        # As in Flink, it begins aligned where there is a time-out to become unaligned by, unless that is 0.
        mode = CheckpointMode.ALIGNED if patience else CheckpointMode.UNALIGNED
    return replace(aligned, mode=mode, base=base, alignment_timeout_ms=patience)


@dataclass(slots=True, eq=False)
class PendingCheckpoint:
    """A checkpoint or savepoint that has been triggered and has no outcome yet.

    Args:
        barrier: its number, kind and mode.
        attempt: in which it was triggered; all its subtasks take part.
        pins: the completed checkpoints to whose files it may refer.
        triggered: monotonic seconds.
        triggered_ms: civil time.
        deadline: when it has taken too long, monotonic seconds.

    Attributes:
        acknowledged, acknowledged_ms: when a subtask did for the last time, monotonic seconds and civil time; 0: none
            has.
        size: of what they have acknowledged.
        phase: where it stands; `move` changes it.
    """

    barrier: Barrier
    attempt: Attempt
    pins: Sequence[int]
    triggered: float
    triggered_ms: int
    deadline: float
    acknowledged: float = field(default=0.0, init=False)
    acknowledged_ms: int = field(default=0, init=False)
    size: Size = field(default=NOTHING, init=False)
    phase: Phase = field(default=Phase.PENDING, init=False)
    _missing: set[Place] = field(init=False)
    _parts: dict[Place, CheckpointPart] = field(default_factory=dict, init=False)
    _handles: dict[Place, SubtaskHandle] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._missing = set(self.attempt.places)

    @property
    def number(self) -> int:
        return self.barrier.checkpoint

    @property
    def kind(self) -> SnapshotKind:
        return self.barrier.kind

    @property
    def is_open(self) -> bool:
        """Whether a subtask has yet to acknowledge it, so that barriers of it may be under way."""
        return bool(self._missing)

    @property
    def handles(self) -> tuple[SubtaskHandle, ...]:
        """What has been acknowledged, in the order of the subtasks."""
        return tuple(self._handles[place] for place in self.attempt.places if place in self._handles)

    def outcome_of(self, place: Place) -> Acknowledgement:
        """What the word of a subtask, that it has taken its part or cannot, means: SUCCESS if it counts."""
        if place in self._missing:
            return Acknowledgement.SUCCESS
        return Acknowledgement.DUPLICATE if place in self._handles else Acknowledgement.UNKNOWN

    def acknowledge(self, place: Place, handle: SubtaskHandle, size: Size, now: float, now_ms: int) -> None:
        """Take the part of a subtask whose word counts; its files have this size."""
        self._missing.remove(place)
        self._handles[place] = handle
        self._parts[place] = CheckpointPart(*place, now_ms, size, handle.times)
        self.size = self.size.plus(size)
        self.acknowledged, self.acknowledged_ms = now, now_ms

    @property
    def parts(self) -> tuple[CheckpointPart, ...]:
        """What each subtask has done for it, in the order of the subtasks."""
        return tuple(self._parts.get(place) or CheckpointPart(*place) for place in self.attempt.places)

    def move(self, phase: Phase) -> None:
        """Go on to `phase`.

        Raises:
            RuntimeError: it does not follow the one it is in: an outcome is never taken back.
        """
        if phase not in TRANSITIONS[self.phase]:
            raise RuntimeError(f"checkpoint {self.number} cannot go from {self.phase.name} to {phase.name}")
        self.phase = phase

    def progress(self) -> str:
        """How far it has come, in words.

        Example: `2 of 4 subtasks had acknowledged; missing: task 1 subtask 0, task 3 subtask 1`.
        """
        text = f"{len(self._handles)} of {len(self.attempt.places)} subtasks had acknowledged"
        if not self._missing:
            return text
        named = [f"task {task} subtask {index}" for task, index in sorted(self._missing)[:NAMED_PLACES]]
        more = ["..."] if len(self._missing) > NAMED_PLACES else []
        return f"{text}; missing: {', '.join(named + more)}"

    def record(self, now: float, reason: AbortReason | None = None, message: str = "") -> CheckpointRecord:
        """What is kept of it for people, when its outcome is there."""
        return CheckpointRecord(
            checkpoint=self.number,
            kind=self.kind,
            attempt=self.attempt.number,
            triggered_ms=self.triggered_ms,
            duration=now - self.triggered,
            acknowledged=len(self._handles),
            subtasks=len(self.attempt.places),
            size=self.size,
            reason=reason,
            message=message,
        )
