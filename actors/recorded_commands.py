"""Commands that end a job, written down until they are done or refused: none is lost with a call that came to nobody.

Clients record them before they call the job's manager. A manager that was stopped, cut off or replaced finds them when
it looks, and does what they say, once.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Final, Literal, TypeAlias

from penstock.actors.cluster_notes import Notes

Ending: TypeAlias = Literal["cancel", "suspend", "stop", "drain"]
_PREFIX: Final = "command:"


@dataclass(frozen=True, slots=True)
class RecordedCommand:
    """One command.

    Args:
        token: tells it apart from all others.
        method: of the job manager.
        directory: of the savepoint, for `stop` and `drain`; None: the configured one.
    """

    token: str
    method: Ending
    directory: str | None = None

    @property
    def takes_savepoint(self) -> bool:
        """Whether a job that does not run refuses it."""
        return self.method in ("stop", "drain")


def new_command(method: Ending, directory: str | None = None) -> RecordedCommand:
    """A command that nobody has given before."""
    return RecordedCommand(secrets.token_hex(8), method, directory)


def record(notes: Notes, manager: str, command: RecordedCommand) -> None:
    """Write a command to a job manager (the id of its actor) down."""
    notes.put(_name(manager, command), json.dumps(asdict(command)))


def recorded(notes: Notes, manager: str) -> Iterator[RecordedCommand]:
    """The commands to a job manager that are neither done nor refused."""
    for name in notes.names(f"{_PREFIX}{manager}:"):
        text = notes.get(name)
        if text is not None:
            yield RecordedCommand(**json.loads(text))


def forget(notes: Notes, manager: str, command: RecordedCommand) -> None:
    """A command is done, or refused."""
    notes.remove(_name(manager, command))


def _name(manager: str, command: RecordedCommand) -> str:
    return f"{_PREFIX}{manager}:{command.token}"
