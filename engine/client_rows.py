"""Rows for the client, held back until no failure can take them back: `collect()` is exactly once.

Each runtime's handle puts what it fetched into a `HeldRows`. A row is final when a checkpoint whose barrier it went
before is complete; when the job is restored from an older checkpoint, the rows behind that one will come again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from penstock.engine.elements import Barrier, Batch, Element, SnapshotKind


class EpochTagger:
    """Tags the rows of one channel to the client with the last checkpoint whose barrier went before them.

    Args:
        restored: the checkpoint that the attempt resumes from, 0 for none.
    """

    def __init__(self, restored: int = 0) -> None:
        self._behind = restored

    def tag(self, element: Element) -> tuple[int, Batch] | None:
        """The batch with its tag; None for what is no batch."""
        if isinstance(element, Barrier) and element.kind is not SnapshotKind.SAVEPOINT:
            self._behind = max(self._behind, element.checkpoint)
        return (self._behind, element) if isinstance(element, Batch) else None


class HeldRows:
    """Rows of all results nodes, in order of arrival."""

    def __init__(self) -> None:
        self._held: deque[tuple[int, int, Batch]] = deque()

    def hold(self, result: int, behind: int, batch: Batch) -> None:
        """Keep a batch of results node `result` that came behind the barrier of checkpoint `behind`."""
        self._held.append((result, behind, batch))

    def release(self, completed: int) -> list[tuple[int, Batch]]:
        """Take the rows that belong to checkpoint `completed`, or to one before it."""
        return self._take(lambda behind: behind < completed)

    def release_all(self) -> list[tuple[int, Batch]]:
        """Take all rows: the job has finished, or takes no checkpoints."""
        return self._take(lambda _: True)

    def roll_back(self, restored: int) -> None:
        """Drop the rows that will come again, as the job resumes from checkpoint `restored`."""
        self._held = deque(entry for entry in self._held if entry[1] < restored)

    def _take(self, is_final: Callable[[int], bool]) -> list[tuple[int, Batch]]:
        final = [(result, batch) for result, behind, batch in self._held if is_final(behind)]
        self._held = deque(entry for entry in self._held if not is_final(entry[1]))
        return final
