"""Warm processes that take the place of those that die, so that a recovery need not wait for a process to start.

The execution of a job fills the pool in the background once the job runs, and takes from it when a process is lost. A
standby that dies is replaced, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Collection, MutableMapping, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

import ray
from ray.exceptions import RayError

from penstock.actors.process_end import Process, ProcessEndedError, unless_ended, until_ended

_AGAIN_SECONDS: Final = 5.0


class Standbys:
    """The standbys of one job.

    Args:
        size: how many are kept.
        create: makes a subtask actor in a slot, without waiting for it.
        slots: how many there are, all of which get standbys in turn.
        made: told of each node that one of them has come to.

    Attributes:
        lodged: the slots of all that there are, also of those that were taken: they die with them.
    """

    def __init__(
        self, size: int, create: Callable[[int], Any], slots: Callable[[], int], made: Callable[[str], None]
    ) -> None:
        self.lodged: MutableMapping[Any, int] = WeakKeyDictionary()
        self._size = size
        self._create = create
        self._slots = slots
        self._made = made
        self._number = itertools.count()
        self._graph: Any = None
        self._warm: dict[Any, Process] = {}
        self._watching: set[asyncio.Task[None]] = set()
        self._warming = 0
        self._closed = False

    def fill(self, graph: Any) -> None:
        """Begin to make as many as are missing.

        Args:
            graph: ref of the job's graph, which brings the job's modules into the processes.
        """
        self._graph = graph
        while not self._closed and len(self._warm) + self._warming < self._size:
            self._warming += 1
            watching = asyncio.ensure_future(self._watch())
            self._watching.add(watching)
            watching.add_done_callback(self._watching.discard)

    def take(self, slots: int) -> Any | None:
        """The warm actor that has waited longest, of those in the first so many slots, or None if there is none."""
        actor = next((actor for actor in self._warm if self.lodged[actor] < slots), None)
        self._warm.pop(actor, None)
        return actor

    def leave(self, nodes: Collection[str]) -> None:
        """End those on these nodes, which are about to leave; others are made instead."""
        for actor in [actor for actor, process in self._warm.items() if process.node in nodes]:
            ray.kill(actor)

    @property
    def pids(self) -> Sequence[int]:
        """The ids of the processes that are ready, on their nodes."""
        return [process.pid for process in self._warm.values()]

    async def _watch(self) -> None:
        """Make one, and watch it as long as it lives."""
        slot = next(self._number) % self._slots()
        actor = self._create(slot)
        self.lodged[actor] = slot
        try:
            process = await actor.prepare.remote(self._graph)
        except RayError:
            await asyncio.sleep(_AGAIN_SECONDS)
            self._warming -= 1
            self.fill(self._graph)
            return
        except asyncio.CancelledError:
            ray.kill(actor)
            raise
        self._warming -= 1
        self._warm[actor] = process
        self._made(process.node)
        ended = asyncio.ensure_future(until_ended(process, actor.lifeline.remote))
        try:
            with contextlib.suppress(RayError, ProcessEndedError):
                await unless_ended(ended, actor.wait.remote())
        finally:
            ended.cancel()
        if actor in self._warm:
            del self._warm[actor]
            self.fill(self._graph)

    def close(self) -> None:
        """End all of them."""
        self._closed = True
        for watching in self._watching:
            watching.cancel()
        while self._warm:
            ray.kill(self._warm.popitem()[0])
