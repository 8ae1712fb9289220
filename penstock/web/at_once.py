"""Calls to the cluster that block, in threads: so many of a kind at once, so that no kind keeps another waiting.

The routes have one for each kind: state, rows of streams, what threads do, logs.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from starlette.exceptions import HTTPException

_T = TypeVar("_T")


class AtOnce:
    """Runs calls in threads of its own.

    Args:
        most: how many at once.
        what: they ask for, for messages.
    """

    def __init__(self, most: int, what: str) -> None:
        self._most, self._what = most, what
        # Those of asyncio are for all, and as few as five on a small machine.
        self._threads = ThreadPoolExecutor(most, what)
        self._free = threading.Semaphore(most)

    async def __call__(self, call: Callable[[], _T]) -> _T:
        """What the call gives.

        Raises:
            HTTPException: too many run already.
        """
        if not self._free.acquire(blocking=False):
            raise HTTPException(503, f"{self._most} ask for {self._what} already; try again", {"Retry-After": "1"})
        running = self._threads.submit(call)
        # A call continues when nobody waits for it any more.
        running.add_done_callback(lambda _: self._free.release())
        return await asyncio.wrap_future(running)
