"""Does what recorded commands say, once, however they come: by a call, or found when the job manager looks.

One for each job manager, in its event loop. Which commands there are, and where they are recorded, stands in
`recorded_commands`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any, Final

from penstock.actors.brain_shell import BrainShell
from penstock.actors.cluster_notes import Notes
from penstock.actors.recorded_commands import RecordedCommand, forget, recorded
from penstock.engine.errors import PenstockError
from penstock.engine.job import events as ev

_LOG = logging.getLogger(__name__)
_LOOK_SECONDS: Final = 5.0
"""How often it looks for commands whose call has not come to it."""


class CommandWatch:
    """The recorded commands to one job manager.

    Args:
        shell: of the job's brain.
        notes: where commands are recorded.
        manager: the id of the manager's actor.
    """

    def __init__(self, shell: BrainShell, notes: Notes, manager: str) -> None:
        self._shell = shell
        self._notes = notes
        self._manager = manager
        self._obeyed: dict[str, asyncio.Task[Any]] = {}
        self._late: dict[str, asyncio.Task[None]] = {}

    async def obey(self, command: RecordedCommand) -> Any:
        """Carry out a command once, however often it comes; then it is forgotten."""
        if command.token not in self._obeyed:
            self._obeyed[command.token] = asyncio.ensure_future(self._obey(command))
        return await asyncio.shield(self._obeyed[command.token])

    async def run(self) -> None:
        """Do what calls have asked for that have not come here, or came to the manager before, until the job ends."""
        while not self._shell.report.done():
            await asyncio.sleep(_LOOK_SECONDS)
            commands: list[RecordedCommand] = []
            # The head of the cluster may be away for a while: what Ray raises then is written nowhere.
            with contextlib.suppress(Exception):
                commands = await asyncio.to_thread(lambda: list(recorded(self._notes, self._manager)))
            for command in commands:
                if command.token not in self._obeyed and command.token not in self._late:
                    self._late[command.token] = asyncio.ensure_future(self._obey_late(command))

    async def _obey(self, command: RecordedCommand) -> Any:
        try:
            return await self._shell.ask(_asked(command))
        finally:
            await asyncio.to_thread(forget, self._notes, self._manager, command)

    async def _obey_late(self, command: RecordedCommand) -> None:
        # One that has just taken over would refuse a savepoint.
        while command.takes_savepoint and self._shell.brain.is_coming_back:
            await self._shell.change()
        try:
            await self.obey(command)
        except PenstockError as error:
            _LOG.warning("job %r: the recorded command %r was refused: %s", self._shell.name, command.method, error)


def _asked(command: RecordedCommand) -> ev.Command:
    match command.method:
        case "cancel":
            return ev.CancelJob()
        case "suspend":
            return ev.CancelJob(retain=True)
        case "stop":
            return ev.StopJob(command.directory)
        case "drain":
            return ev.DrainJob(command.directory)
