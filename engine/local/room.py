"""Room for the subtasks of a local job: as much as is wanted, unless a simulation has nodes, which it loses.

The local manager asks for it where the job manager on Ray asks for slots and processes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from penstock.engine.job.layout import Layout


class Room(Protocol):
    """Where subtasks run."""

    def provide(self, layout: Layout) -> None:
        """Have a process for each subtask: those that live are kept, others are replaced.

        Raises:
            NoRoomError: there is no room.
            WorkerLostError: a process was lost meanwhile.
        """
        ...

    def prepare(self, layout: Layout) -> None:
        """Make what `layout` needs beside what runs; errors as for `provide`, and then nothing has changed."""
        ...

    def fill_standbys(self) -> None:
        """Have as many warm processes as are configured."""
        ...

    def await_room(self, layout: Layout, found: Callable[[], None]) -> None:
        """Call `found` once there is room for `layout`, unless processes are provided before."""
        ...


class EndlessRoom:
    """One process with room for everything, and nothing to keep warm."""

    def provide(self, layout: Layout) -> None:
        """There is room."""

    def prepare(self, layout: Layout) -> None:
        """There is room."""

    def fill_standbys(self) -> None:
        """There is nothing to keep warm."""

    def await_room(self, layout: Layout, found: Callable[[], None]) -> None:
        """Nobody waits for room: there was never too little."""
