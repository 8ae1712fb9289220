"""How a job's manager reads the counters of its subtasks, for whoever watches the job: again and again.

Processes on the manager's machine are asked by links, which take a fifth of the CPU of a call (docs/adr/0076); others
are called. The event loop of the process answers, so that a task which is stuck in a function is seen, too.
"""

from __future__ import annotations

import asyncio
import pickle
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

from penstock.actors.links import Link, LinkServer, Reply, connected, resolve
from penstock.engine.metrics import SubtaskMetrics


def counters_id(actor_id: str) -> str:
    """Under what the counters of an actor are asked for by links."""
    return f"{actor_id}-counters"


def serve_counters(actor_id: str, counted: Callable[[int], SubtaskMetrics | None]) -> LinkServer:
    """Answer links that ask for counters.

    Args:
        actor_id: of this process.
        counted: the counters as of now of an attempt; None: another one runs here, or none.
    """

    def answer(frame: bytes, reply: Reply) -> None:
        try:
            told = pickle.dumps(counted(int.from_bytes(frame, "little")), pickle.HIGHEST_PROTOCOL)
        except Exception:
            # What a program counts by may not travel; the link is there for the next question.
            told = pickle.dumps(None)
        reply(told)

    return LinkServer(counters_id(actor_id), answer)


class CounterReader:
    """Asks processes for the counters of what runs there. All methods run on one event loop."""

    def __init__(self) -> None:
        self._links: dict[str, _AskingLink] = {}

    async def ask(self, actor: Any, attempt: int) -> SubtaskMetrics | None:
        """The counters as of now.

        Args:
            actor: a `SubtaskActor`.
            attempt: that is meant.

        Returns:
            None: another attempt runs there, or none, or the process has just died.

        Raises:
            RayError: the process is not on this machine, and has died.
        """
        actor_id = actor._actor_id.hex()
        link = self._links.get(actor_id)
        if link is None:
            connection = connected(counters_id(actor_id))
            if connection is None:
                called: SubtaskMetrics | None = await actor.metrics.remote(attempt)
                return called
            link = self._links[actor_id] = _AskingLink(connection, lambda: self._links.pop(actor_id, None))
        return await link.ask(attempt)


class _AskingLink:
    """A link to one process, and who waits for its answers, in the order of their questions."""

    def __init__(self, connection: socket.socket, lost: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._lost = lost
        self._waiting: deque[asyncio.Future[SubtaskMetrics | None]] = deque()
        self._link = Link(connection, self._loop, self._on_answer, self._on_lost)

    async def ask(self, attempt: int) -> SubtaskMetrics | None:
        """Answers come in the order of the questions."""
        answer: asyncio.Future[SubtaskMetrics | None] = self._loop.create_future()
        self._waiting.append(answer)
        self._link.send(attempt.to_bytes(8, "little"))
        return await answer

    def _on_answer(self, frame: bytes) -> None:
        told: SubtaskMetrics | None = pickle.loads(frame)  # noqa: S301  of a process of the same user
        resolve(self._waiting.popleft(), told)

    def _on_lost(self) -> None:
        self._lost()
        while self._waiting:
            resolve(self._waiting.popleft(), None)
