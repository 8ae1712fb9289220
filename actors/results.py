"""The end of a stream whose rows go to the client: they wait in the subtask until they are fetched.

The subtask's task sends into it, within credits; the client fetches from it through the actor. Each batch bears the
last checkpoint whose barrier went before it, by which the client knows when no failure can take it back; and the
subtask acknowledges no checkpoint before the client has all rows in front of its barrier, as nobody else keeps them.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from penstock.engine.client_rows import EpochTagger
from penstock.engine.elements import Barrier, Batch
from penstock.engine.exchange.outputs import Message

Tagged: TypeAlias = tuple[int, Batch]
"""A batch behind the barrier of a checkpoint (0: none)."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """An answer to the client.

    Args:
        rows: batches, each with the checkpoint whose barrier it came behind.
        more: whether more may follow from this attempt.
        completed: the newest checkpoint that the subtask knows to be complete.
    """

    rows: Sequence[Tagged]
    more: bool
    completed: int


class ResultBuffer:
    """The engine's `Channel` to the client: messages wait here, within credits, until they are fetched.

    Args:
        credit: how many messages may wait.
        loop: the event loop on which `arrived` is awaited.
        wake: tells the task that there is credit again.
        restored: the checkpoint that the attempt resumes from, 0 for none.
    """

    def __init__(
        self, credit: int, loop: asyncio.AbstractEventLoop, wake: Callable[[], None], restored: int = 0
    ) -> None:
        self.arrived = asyncio.Event()
        self.exhausted = False
        self._credit = credit
        self._loop = loop
        self._wake = wake
        self._tagger = EpochTagger(restored)
        self._messages: deque[list[Tagged]] = deque()
        self._sent = 0
        # Until the client has asked for the first time: what it holds of an earlier attempt is dropped by then.
        self._received = -1
        self._before: dict[int, int] = {}
        self._moved = asyncio.Event()

    @property
    def credits(self) -> int:
        return self._credit - len(self._messages)

    @property
    def under_way(self) -> int:
        return len(self._messages)

    wanted_rows = math.inf
    """The client says only when it has taken something."""

    def send(self, message: Message) -> None:
        tagged = [batch for element in message if (batch := self._tagger.tag(element)) is not None]
        if tagged:
            self._sent += len(tagged)
            self._messages.append(tagged)
            self._loop.call_soon_threadsafe(self.arrived.set)
        # A barrier ends its message.
        if message and isinstance(message[-1], Barrier):
            self._before[message[-1].checkpoint] = self._sent
            self._loop.call_soon_threadsafe(self._moved.set)

    def take(self) -> list[Tagged]:
        """All batches that wait."""
        self.arrived.clear()
        taken: list[Tagged] = []
        while self._messages:
            taken.extend(self._messages.popleft())
        self._wake()
        return taken

    def received(self, count: int) -> None:
        """The client has `count` batches of this attempt."""
        self._received = count
        self._moved.set()

    async def delivered(self, checkpoint: int, finished: bool) -> None:
        """Return when the client has all rows in front of the barrier of a checkpoint.

        Args:
            checkpoint: which.
            finished: whether the task had ended, so that all its rows are in front of it.
        """
        while True:
            self._moved.clear()
            before = self._sent if finished else self._before.get(checkpoint)
            if before is not None and self._received >= before:
                # In place: the task's thread adds to the same dict meanwhile.
                for number in [number for number in list(self._before) if number <= checkpoint]:
                    del self._before[number]
                return
            await self._moved.wait()
