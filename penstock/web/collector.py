"""Reads the cluster again and again, and tells who listens that there is something new.

One for the server. A cluster that does not answer changes nothing but what is said of it: `problem`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from penstock.engine.job.status import JobStatus
from penstock.web.cluster import Cluster, Node
from penstock.web.export.exporter import Exporter
from penstock.web.observed import JobView, Observed

_LOG = logging.getLogger(__name__)
EVERY_SECONDS: Final = 2.0
SOON_SECONDS: Final = 0.5
"""Between readings while a job gets over something, so that its return is shown within moments."""
_TROUBLED_MS: Final = 60_000
"""What has been away for longer is looked at as seldom as all else."""
MOST_LISTENERS: Final = 64
_NODES_SECONDS: Final = 1.0
"""For so long who asks for nodes waits for a cluster that does not answer."""
_APART: Final = 4
"""Between two readings is at least so many times the work of one."""


class Collector:
    """Keeps `observed` up to date.

    Args:
        cluster: what is read.
        observed: what is shown it.
        every: seconds between readings; more where they take long, less while a job gets over something.
        exporter: told of each reading; None: nobody else is.
    """

    def __init__(
        self,
        cluster: Cluster,
        observed: Observed,
        every: float = EVERY_SECONDS,
        exporter: Exporter | None = None,
    ) -> None:
        self._cluster = cluster
        self._every = every
        # A thread of its own: calls for flame graphs and logs must not keep the readings waiting.
        self._thread = ThreadPoolExecutor(1, "readings")
        self._exporter = exporter
        self._listeners: set[asyncio.Event] = set()
        self._took = 0.0
        self._nodes: Sequence[Node] = ()
        self._nodes_at = -math.inf
        self._asking_nodes: asyncio.Task[None] | None = None
        self.observed = observed
        self.problem: str | None = None

    async def run(self) -> None:
        """Read until cancelled."""
        while True:
            await asyncio.sleep(self._pause())
            await self.read()

    def _pause(self) -> float:
        """Seconds until the next reading."""
        every = min(self._every, SOON_SECONDS) if self._is_troubled() else self._every
        # A job of 100,000 subtasks takes seconds of work to read, which who asks would wait for.
        return max(every, _APART * self._took)

    def _is_troubled(self) -> bool:
        """Whether the cluster or a job is away, or about to run, and may be back at any moment."""
        now_ms = time.time_ns() // 1_000_000
        return (
            self.problem is not None
            or bool(self._cluster.awaited())
            or any(now_ms - away < _TROUBLED_MS for away in map(_away_since, self.observed.jobs()) if away is not None)
        )

    async def read(self) -> None:
        """Read once."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._read)
            self.problem = None
        except Exception as error:
            # Watchers are told of the error, whatever it is; the next reading may succeed.
            self.problem = f"{type(error).__name__}: {error}"
        for listener in self._listeners:
            listener.set()
        if self._exporter is not None and self.problem is None:
            self._exporter.offer(self.observed.jobs())

    def _read(self) -> None:
        """Read, and have the reading worked out, which takes a wide job half a second, away from those who ask."""
        began = time.thread_time()
        try:
            readings = self._cluster.read()
            now, now_ms = time.monotonic(), time.time_ns() // 1_000_000
            for reading in readings:
                self.observed.see(reading.info, reading.metrics, now, now_ms)
            self.observed.miss([*(reading.info.id for reading in readings), *self._cluster.awaited()])
        finally:
            # CPU time: what is only waited for holds up nobody else.
            self._took = time.thread_time() - began

    async def nodes(self) -> Sequence[Node]:
        """All machines, as of now or of a moment ago: they are read when somebody asks, as seldom as jobs are.

        Of a cluster that fails or does not answer soon, those that were there last. All who ask wait for one answer.
        """
        if time.monotonic() - self._nodes_at >= self._every:
            if self._asking_nodes is None or self._asking_nodes.done():
                self._asking_nodes = asyncio.ensure_future(self._read_nodes())
            await asyncio.wait([self._asking_nodes], timeout=_NODES_SECONDS)
        return self._nodes

    async def _read_nodes(self) -> None:
        try:
            self._nodes = await asyncio.to_thread(self._cluster.nodes)
            self._nodes_at = time.monotonic()
        except Exception as error:
            _LOG.warning("the nodes of the cluster cannot be read: %s: %s", type(error).__name__, error)

    @property
    def listeners(self) -> int:
        """How many listen."""
        return len(self._listeners)

    async def news(self, longest: float) -> AsyncIterator[bool]:
        """True behind each reading; False where none came for `longest` seconds."""
        event = asyncio.Event()
        self._listeners.add(event)
        try:
            while True:
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(event.wait(), longest)
                yield event.is_set()
                event.clear()
        finally:
            self._listeners.discard(event)


def _away_since(view: JobView) -> int | None:
    """Since when a job that has not ended is not seen to run, civil time in ms; None: it runs, or has ended."""
    status = view.info.status
    if status.ended or (view.answers and status is JobStatus.RUNNING):
        return None
    return view.info.since_ms if view.answers else view.seen_ms
