"""What waits to happen in a local job beside the steps of its tasks: letters, taken in any order.

The local manager posts and takes them; the deterministic simulation has a mailbox of its own, which loses, repeats and
delays some as a network does.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

Letter: TypeAlias = Callable[[], None]
"""What is to be done when it is taken."""


class LetterKind(enum.Enum):
    """What a letter is about."""

    TRIGGER = "trigger"
    """A subtask is told of a checkpoint."""
    WRITE = "write"
    """A subtask's background work: the oldest capture that waits becomes files."""
    ACKNOWLEDGE = "acknowledge"
    """A subtask's part of a checkpoint is there, or could not be made."""
    STORE = "store"
    """The manifest is written."""
    STORED = "stored"
    """The manager learns that it was."""
    COMPLETE = "complete"
    """A subtask is told that a checkpoint counts."""
    ABORT = "abort"
    """A subtask is told that a checkpoint is given up."""
    DELETE = "delete"
    """Files that nothing refers to are removed."""


@dataclass(frozen=True, slots=True)
class Posted:
    """A letter and what it is about."""

    kind: LetterKind
    letter: Letter


class Mailbox:
    """Letters in any order."""

    def __init__(self) -> None:
        self._posted: list[Posted] = []

    def __len__(self) -> int:
        return len(self._posted)

    def post(self, kind: LetterKind, letter: Letter) -> None:
        """Add a letter."""
        self._posted.append(Posted(kind, letter))

    def take(self, number: int) -> None:
        """Do what letter `number` (from 0) says."""
        self._posted.pop(number).letter()
