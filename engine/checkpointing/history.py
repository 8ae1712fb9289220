"""What became of the checkpoints and savepoints of a job: how many had which outcome, and the newest of them.

The coordinator notes each outcome, once; people and metrics read it. Nothing is decided by it.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from penstock.engine.checkpointing.pending import CheckpointRecord, CheckpointStatistics

KEPT: Final = 20
"""How many outcomes are kept for people."""


class CheckpointHistory:
    """The outcomes so far, under one coordinator.

    Example:
        >>> CheckpointHistory().statistics(in_progress=2)
        CheckpointStatistics(completed=0, failed=0, in_progress=2, last_duration=None, last_size=Size(total=0, new=0))
    """

    def __init__(self) -> None:
        self._completed = self._failed = 0
        self._last: CheckpointRecord | None = None
        self._records: deque[CheckpointRecord] = deque(maxlen=KEPT)

    @property
    def records(self) -> tuple[CheckpointRecord, ...]:
        """The last outcomes, oldest first."""
        return tuple(self._records)

    def on_completed(self, record: CheckpointRecord) -> None:
        """One counts."""
        self._completed += 1
        self._last = record
        self._records.append(record)

    def on_aborted(self, record: CheckpointRecord) -> None:
        """One that had been triggered never will count."""
        self._failed += 1
        self._records.append(record)

    def on_aborted_before_it_began(self) -> None:
        """One that was asked for never will be triggered: there is nothing to tell of it."""
        self._failed += 1

    def statistics(self, in_progress: int) -> CheckpointStatistics:
        """The figures now, given how many have no outcome yet."""
        if self._last is None:
            return CheckpointStatistics(self._completed, self._failed, in_progress)
        return CheckpointStatistics(self._completed, self._failed, in_progress, self._last.duration, self._last.size)
