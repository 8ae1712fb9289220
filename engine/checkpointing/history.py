"""What became of the checkpoints and savepoints of a job: how many had which outcome, and the newest of them.

The coordinator notes each outcome, once; people and metrics read it. Nothing is decided by it.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from typing import Final

from penstock.engine.checkpointing.handles import NOTHING, JobStory, PartTimes, Size
from penstock.engine.checkpointing.instructions import AbortReason
from penstock.engine.elements import SnapshotKind

KEPT: Final = 20
"""How many outcomes are kept for people."""
PARTS_KEPT: Final = 3
"""Of so many of them, what each subtask has done is kept: there may be ten thousand."""
STORED: Final = 5
"""How many of them go into each manifest, and how many restarts."""


LONGEST_MESSAGE: Final = 120


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
        values = [self.checkpoint, self.kind.value, self.attempt, self.triggered_ms, round(self.duration, 4)]
        values += [self.acknowledged, self.subtasks, *self.size]
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


class CheckpointHistory:
    """The outcomes so far.

    Args:
        story: what the coordinator before had to tell; None: there was none.

    Example:
        >>> CheckpointHistory().statistics(in_progress=2)
        CheckpointStatistics(completed=0, failed=0, in_progress=2, last_duration=None, last_size=Size(total=0, new=0))
    """

    def __init__(self, story: JobStory | None = None) -> None:
        story = story or JobStory()
        self._completed, self._failed = story.completed, story.failed
        told = (CheckpointRecord.from_text(text) for text in story.checkpoints)
        self._records: deque[CheckpointRecord] = deque((one for one in told if one is not None), maxlen=KEPT)
        self._parts: deque[tuple[int, tuple[CheckpointPart, ...]]] = deque(maxlen=PARTS_KEPT)
        completed = [record for record in self._records if record.reason is None]
        self._last: CheckpointRecord | None = completed[-1] if completed else None

    @property
    def records(self) -> tuple[CheckpointRecord, ...]:
        """The last outcomes, oldest first."""
        return tuple(self._records)

    def parts(self, checkpoint: int) -> tuple[CheckpointPart, ...]:
        """What each subtask has done for one of the newest; of others nothing is known."""
        return next((parts for number, parts in self._parts if number == checkpoint), ())

    def on_completed(self, record: CheckpointRecord, parts: tuple[CheckpointPart, ...]) -> None:
        """One counts; `parts` is what its subtasks have done."""
        self._completed += 1
        self._parts.append((record.checkpoint, parts))
        self._last = record
        self._records.append(record)

    def on_aborted(self, record: CheckpointRecord, parts: tuple[CheckpointPart, ...]) -> None:
        """One that had been triggered never will count; `parts` is what its subtasks have done.

        Those that the end of the job came before have not failed.
        """
        self._failed += record.reason not in (AbortReason.JOB_ENDED, AbortReason.DRAINED)
        self._parts.append((record.checkpoint, parts))
        self._records.append(record)

    def on_aborted_before_it_began(self) -> None:
        """One that was asked for never will be triggered: there is nothing to tell of it."""
        self._failed += 1

    def story_with(self, record: CheckpointRecord) -> JobStory:
        """What the manifest of this one says of all so far: a manager that takes over resumes from it."""
        newest = [*self._records, record][-STORED:]
        return JobStory(self._completed + 1, self._failed, tuple(one.to_text() for one in newest))

    def statistics(self, in_progress: int) -> CheckpointStatistics:
        """The figures now, given how many have no outcome yet."""
        if self._last is None:
            return CheckpointStatistics(self._completed, self._failed, in_progress)
        return CheckpointStatistics(self._completed, self._failed, in_progress, self._last.duration, self._last.size)
