"""What waits to happen in a local job beside the steps of its tasks: mails, taken in any order.

The local manager posts and takes them; the deterministic simulation has a mailbox of its own, which loses, repeats and
delays some as a network does.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

Mail: TypeAlias = Callable[[], None]
"""What is to be done when it is taken."""


class MailKind(enum.Enum):
    """What a mail is about."""

    # Work of the manager's own process, with the storage or with subtasks; each is done once.
    CLAIM = "claim"
    DEPLOY = "deploy"
    CANCEL = "cancel"
    PREPARE = "prepare"
    CHECK_FOLDER = "check folder"
    STORE = "store"
    DELETE = "delete"
    WRITE_END = "write end"
    REPORT = "report"
    """The brain hears what came of it."""

    # Calls between the manager and a subtask, which may get lost or come twice.
    TRIGGER = "trigger"
    """A subtask is asked for its part of a checkpoint."""
    COMMIT = "commit"
    """A subtask is notified that a checkpoint is complete."""
    ABORT = "abort"
    """A subtask is notified that a checkpoint is aborted."""
    END_INPUT = "end input"
    """A source is told to end."""
    ANSWER = "answer"
    """The brain hears what a subtask answers to these."""
    TELL = "tell"
    """A subtask reports by itself that it has finished, or failed."""

    # Work of a subtask's process.
    WRITE = "write"
    """The oldest capture that waits becomes files."""
    PRELOAD = "preload"
    """State is taken in for a subtask that is to be deployed."""


@dataclass(frozen=True, slots=True)
class Posted:
    """A mail and what it is about."""

    kind: MailKind
    mail: Mail


class Mailbox:
    """Mails in any order."""

    def __init__(self) -> None:
        self._posted: list[Posted] = []

    def __len__(self) -> int:
        return len(self._posted)

    @property
    def is_expecting(self) -> bool:
        """Whether a mail is on its way that cannot be taken yet."""
        return False

    def post(self, kind: MailKind, mail: Mail) -> None:
        """Add a mail."""
        self._posted.append(Posted(kind, mail))

    def take(self, number: int) -> None:
        """Deliver mail `number` (from 0)."""
        self._posted.pop(number).mail()
