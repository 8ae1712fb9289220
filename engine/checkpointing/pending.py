"""A checkpoint under way: which subtasks have acknowledged it with what, and which way it may still go.

The coordinator makes one at each trigger and moves it through its phases. It gives exactly one outcome: a
`CompletedCheckpoint`, which is another type, or an abort with a reason.

    PENDING ──all acknowledged, no other being stored──> STORING ──stored──> COMPLETED
       │                                                    │
       └──time-out, declined, subsumed, drained, attempt ended──┐    └──store failed──┐
                                                                └─────────────────────┴──> ABORTED
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock.engine.checkpointing.handles import PartTimes, SubtaskHandle
from penstock.engine.checkpointing.instructions import AbortReason, Acknowledgement, Place
from penstock.engine.checkpointing.shared_files import NOTHING, Size
from penstock.engine.elements import Barrier, SnapshotKind

LONGEST_MESSAGE: Final = 120
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


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """What became of a checkpoint or savepoint; for people.

    Args:
        checkpoint, kind, attempt: which.
        triggered_ms: civil time, int64 ms UTC.
        duration: seconds from the trigger to the outcome.
        acknowledged, subtasks: how many have acknowledged, of how many.
        size: bytes of the files that were acknowledged: all, and those written for it.
        reason: why it was aborted; None: it completed.
        message: more about it.
    """

    checkpoint: int
    kind: SnapshotKind
    attempt: int
    triggered_ms: int
    duration: float
    acknowledged: int
    subtasks: int
    size: Size
    reason: AbortReason | None = None
    message: str = ""

    def to_text(self) -> str:
        """In about 60 bytes, as it goes into a manifest; of the message no more than a line."""
        values = [
            self.checkpoint,
            self.kind.value,
            self.attempt,
            self.triggered_ms,
            round(self.duration, 4),
            self.acknowledged,
            self.subtasks,
            self.size.total,
            self.size.new,
        ]
        if self.reason is not None:
            values += [self.reason.name, self.message.partition("\n")[0][:LONGEST_MESSAGE]]
        return json.dumps(values, separators=(",", ":"))

    @staticmethod
    def from_text(text: str) -> CheckpointRecord | None:
        """The record that `to_text` has written; None: another version has."""
        try:
            number, kind, attempt, triggered_ms, duration, acknowledged, subtasks, total, new, *why = json.loads(text)
            reason, message = why or (None, "")
            return CheckpointRecord(
                int(number),
                SnapshotKind(kind),
                int(attempt),
                int(triggered_ms),
                float(duration),
                int(acknowledged),
                int(subtasks),
                Size(int(total), int(new)),
                None if reason is None else AbortReason[reason],
                str(message),
            )
        except (ValueError, TypeError, KeyError, OverflowError):
            return None


@dataclass(frozen=True, slots=True)
class CheckpointPart:
    """What one subtask has done for a checkpoint; for people.

    Args:
        task, subtask: which.
        acknowledged_ms: when it acknowledged, civil time; None: it has not.
        size: of its files: bytes in all, and bytes written for it.
        times: how long that took, where it was measured.
    """

    task: int
    subtask: int
    acknowledged_ms: int | None = None
    size: Size = NOTHING
    times: PartTimes | None = None


@dataclass(frozen=True, slots=True)
class CheckpointStatistics:
    """Checkpoints and savepoints so far; for people and metrics.

    Args:
        completed, failed: how many had which outcome.
        in_progress: how many have none yet.
        last_duration: seconds from trigger to outcome of the newest that completed; None: there is none.
        last_size: of its files: bytes in all, and bytes written for it.
    """

    completed: int = 0
    failed: int = 0
    in_progress: int = 0
    last_duration: float | None = None
    last_size: Size = NOTHING


class PendingCheckpoint:
    """A checkpoint or savepoint that has been triggered and has no outcome yet.

    Args:
        barrier: its number, kind and mode.
        attempt: in which it was triggered.
        places: the subtasks that take part, each once.
        split_parallelism: as in `CompletedCheckpoint`.
        pins: the completed checkpoints to whose files it may refer.
        triggered: monotonic seconds.
        triggered_ms: civil time.
        deadline: when it has taken too long, monotonic seconds.
    """

    def __init__(
        self,
        barrier: Barrier,
        attempt: int,
        places: Sequence[Place],
        split_parallelism: Mapping[str, int],
        pins: Sequence[int],
        triggered: float,
        triggered_ms: int,
        deadline: float,
    ) -> None:
        self.barrier = barrier
        self.attempt = attempt
        self.places = places
        self.split_parallelism = split_parallelism
        self.pins = pins
        self.triggered = triggered
        self.triggered_ms = triggered_ms
        self.deadline = deadline
        self.acknowledged_ms = triggered_ms
        self.size = NOTHING
        self._missing = set(places)
        self._parts: dict[Place, CheckpointPart] = {}
        self._handles: dict[Place, SubtaskHandle] = {}
        self._phase = Phase.PENDING

    @property
    def number(self) -> int:
        return self.barrier.checkpoint

    @property
    def kind(self) -> SnapshotKind:
        return self.barrier.kind

    @property
    def phase(self) -> Phase:
        return self._phase

    @property
    def is_open(self) -> bool:
        """Whether a subtask has yet to acknowledge it, so that barriers of it may be under way."""
        return bool(self._missing)

    @property
    def handles(self) -> tuple[SubtaskHandle, ...]:
        """What has been acknowledged, in the order of `places`."""
        return tuple(self._handles[place] for place in self.places if place in self._handles)

    def acknowledge(self, place: Place, handle: SubtaskHandle, now_ms: int) -> Acknowledgement:
        """Take the part of one subtask, unless it is there already."""
        if place in self._handles:
            return Acknowledgement.DUPLICATE
        if place not in self._missing:
            return Acknowledgement.UNKNOWN
        self._missing.remove(place)
        self._handles[place] = handle
        self.acknowledged_ms = now_ms
        return Acknowledgement.SUCCESS

    def note_part(self, place: Place, size: Size, now_ms: int) -> None:
        """The part that a subtask has acknowledged is so large."""
        self.size = self.size.plus(size)
        self._parts[place] = CheckpointPart(*place, now_ms, size, self._handles[place].times)

    @property
    def parts(self) -> tuple[CheckpointPart, ...]:
        """What each subtask has done for it, in the order of `places`."""
        return tuple(self._parts.get(place) or CheckpointPart(*place) for place in self.places)

    def decline(self, place: Place) -> Acknowledgement:
        """What a subtask's word that it cannot take its part means: SUCCESS if it ends the checkpoint."""
        if place in self._handles:
            return Acknowledgement.DUPLICATE
        return Acknowledgement.SUCCESS if place in self._missing else Acknowledgement.UNKNOWN

    def move(self, phase: Phase) -> None:
        """Go on to `phase`.

        Raises:
            RuntimeError: it does not follow the one it is in: an outcome is never taken back.
        """
        if phase not in TRANSITIONS[self._phase]:
            raise RuntimeError(f"checkpoint {self.number} cannot go from {self._phase.name} to {phase.name}")
        self._phase = phase

    def progress(self) -> str:
        """How far it has come, in words.

        Example: `2 of 4 subtasks had acknowledged; missing: task 1 subtask 0, task 3 subtask 1`.
        """
        text = f"{len(self._handles)} of {len(self.places)} subtasks had acknowledged"
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
            attempt=self.attempt,
            triggered_ms=self.triggered_ms,
            duration=now - self.triggered,
            acknowledged=len(self._handles),
            subtasks=len(self.places),
            size=self.size,
            reason=reason,
            message=message,
        )
