"""Rows for the client, held back until no failure can take them back: `collect()` is exactly once.

Each runtime's handle puts what it fetched into a `HeldRows`. A row is final when a checkpoint whose barrier it went
before is complete; when the job is restored from an older checkpoint, the rows behind that one will come again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from penstock.engine.checkpointing.instructions import Place
from penstock.engine.elements import Barrier, Batch, Element, SnapshotKind


@dataclass(frozen=True, slots=True)
class _Held:
    """A batch, the results node that it is for, the checkpoint whose barrier it came behind, and who sent it."""

    result: int
    behind: int
    batch: Batch
    sender: Place | None


class EpochTagger:
    """Tags the rows of one channel to the client with the last checkpoint whose barrier went before them.

    Args:
        restored: the checkpoint that the attempt was restored from, 0 for none.
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
        self._held: deque[_Held] = deque()

    def hold(self, result: int, behind: int, batch: Batch, sender: Place | None = None) -> None:
        """Keep a batch of results node `result` that came behind the barrier of checkpoint `behind`, from `sender`."""
        self._held.append(_Held(result, behind, batch, sender))

    def release(self, completed: int) -> list[tuple[int, Batch]]:
        """Take the rows that belong to checkpoint `completed`, or to one before it."""
        return self._take(lambda behind: behind < completed)

    def release_all(self) -> list[tuple[int, Batch]]:
        """Take all rows: the job has finished, or takes no checkpoints."""
        return self._take(lambda _: True)

    def roll_back(self, restored: int, sender: Place | None = None) -> None:
        """Drop the rows that will come again, as `sender` is restored from checkpoint `restored`; None: as all are."""
        self._held = deque(
            held for held in self._held if held.behind < restored or (sender is not None and held.sender != sender)
        )

    def _take(self, is_final: Callable[[int], bool]) -> list[tuple[int, Batch]]:
        final = [(held.result, held.batch) for held in self._held if is_final(held.behind)]
        self._held = deque(held for held in self._held if not is_final(held.behind))
        return final
