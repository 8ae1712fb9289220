"""Looks at a job on Ray from time to time: where event time stands still, and which nodes are about to leave.

One for each job manager, in its event loop, until the job has ended. What follows is decided by the brain.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection
from typing import Final

from penstock.actors.brain_shell import BrainShell, now
from penstock.actors.job_view import JobView
from penstock.actors.nodes import leaving_nodes
from penstock.engine.job import events as ev
from penstock.engine.job.event_time import EventTimeWatch, has_event_time
from penstock.engine.job.info import EventTimeWait

_LOG = logging.getLogger(__name__)
_EVENT_TIME_SECONDS: Final = 10.0
"""How often event time is looked at."""
_NODES_SECONDS: Final = 1.0
"""How often it is asked which nodes are about to leave; a cloud gives a notice of half a minute or more."""


class JobWatch:
    """Watches one job.

    Args:
        shell: of its brain.
        view: gives its counters.
        started_ms: when its manager started, civil time in ms UTC.
    """

    def __init__(self, shell: BrainShell, view: JobView, started_ms: int) -> None:
        self._found: tuple[int, tuple[EventTimeWait, ...]] = 0, ()
        self._shell = shell
        self._view = view
        self._event_time = EventTimeWatch(started_ms)

    @property
    def waits(self) -> tuple[EventTimeWait, ...]:
        """Where windows wait for an event time that does not advance; nowhere while the job does not run."""
        brain, (since_ms, waits) = self._shell.brain, self._found
        return waits if brain.runs and brain.since_ms == since_ms else ()

    async def run(self) -> None:
        """Watch the job to its end."""
        await asyncio.gather(self._watch_event_time(), self._watch_nodes())

    async def _watch_event_time(self) -> None:
        """Tell where windows wait for an event time that does not advance."""
        shell = self._shell
        while not shell.report.done():
            await asyncio.sleep(_EVENT_TIME_SECONDS)
            graph = shell.graph
            if graph is None or not shell.brain.runs or not has_event_time(graph):
                continue
            since_ms, metrics = shell.brain.since_ms, await self._view.metrics()
            if not shell.brain.runs or shell.brain.since_ms != since_ms:
                # It was restarted meanwhile: nobody knows of which attempt the counters are.
                continue
            now_ms = now().ms
            self._event_time.begin(since_ms)
            self._found = since_ms, self._event_time.look(graph, metrics, now_ms)
            for wait in self._event_time.news(self.waits):
                _LOG.warning("job %r: %s", shell.name, wait.text(now_ms))

    async def _watch_nodes(self) -> None:
        """Tell which subtasks are on nodes that are about to leave."""
        shell = self._shell
        while not shell.report.done():
            await asyncio.sleep(_NODES_SECONDS)
            leaving: Collection[str] = ()
            # The head of the cluster may be away for a while: what Ray raises then is written nowhere.
            with contextlib.suppress(Exception):
                leaving = await asyncio.to_thread(leaving_nodes)
            if shell.brain.runs and (places := shell.execution.leave(leaving)):
                shell.handle(ev.Leaving(tuple(places)))
