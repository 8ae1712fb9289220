"""What users ask for and wait for: savepoints, stops, rescales. Each is called at once and polled by its trigger id.

The server keeps the last ones. They run in threads, as calls to the cluster block; a client that goes away changes
nothing.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from penstock.engine.errors import PenstockError

KEPT: Final = 1000
MOST_AT_ONCE: Final = 16


@dataclass(slots=True, eq=False)
class Operation:
    """One of them.

    Args:
        id: the trigger id, of its own or the client's.
        job_id, kind: what was asked, of whom: `savepoint`, `checkpoint`, `stop`, `drain`, `cancel`, `rescale`.
        at_ms: when, civil time.
        done: whether it has come to its end.
        result: a URL, or the seconds that a rescale took.
        error: why it failed; None: it has not.
    """

    id: str
    job_id: str
    kind: str
    at_ms: int
    done: bool = False
    result: Any = None
    error: str | None = None


class TooManyOperationsError(Exception):
    """As many as may be are under way."""


class Operations:
    """The last operations, by job and trigger id."""

    def __init__(self) -> None:
        self._all: dict[tuple[str, str], Operation] = {}
        self._running: set[asyncio.Task[None]] = set()
        # A pool of their own: a rescale that waits for room must not keep the readings of the cluster waiting.
        self._threads = ThreadPoolExecutor(MOST_AT_ONCE, "operation")

    def begin(self, job_id: str, kind: str, call: Callable[[], Any], trigger: str | None = None) -> Operation:
        """Start one.

        Args:
            job_id, kind: what is asked, of whom.
            call: does it; it blocks.
            trigger: its id, 32 hexadecimal digits; None draws one.

        Raises:
            TooManyOperationsError: there are enough under way.
        """
        if len(self._running) >= MOST_AT_ONCE:
            raise TooManyOperationsError(f"{MOST_AT_ONCE} operations are under way; try again when some have ended")
        operation = Operation(trigger or secrets.token_hex(16), job_id, kind, time.time_ns() // 1_000_000)
        self._all[job_id, operation.id] = operation
        while len(self._all) > KEPT:
            del self._all[next(iter(self._all))]
        task = asyncio.ensure_future(self._run(operation, call))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return operation

    async def _run(self, operation: Operation, call: Callable[[], Any]) -> None:
        try:
            operation.result = await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except PenstockError as error:
            operation.error = str(error)
        except Exception as error:
            operation.error = f"{type(error).__name__}: {error}"
        operation.done = True

    def find(self, job_id: str, trigger: str) -> Operation | None:
        """The one with that trigger id, if it is of that job."""
        return self._all.get((job_id, trigger))

    def of_job(self, job_id: str) -> list[Operation]:
        """The last ones of a job, the newest first."""
        return [one for one in reversed(self._all.values()) if one.job_id == job_id][:20]


def flink_answer(operation: Operation) -> dict[str, Any]:
    """An operation as Flink's clients poll it."""
    if not operation.done:
        return {"status": {"id": "IN_PROGRESS"}, "operation": None}
    if operation.error is not None:
        cause = {"class": "penstock", "stack-trace": operation.error, "serialized-throwable": None}
        return {"status": {"id": "COMPLETED"}, "operation": {"failure-cause": cause}}
    if operation.kind == "checkpoint":
        number = str(operation.result).rstrip("/").rsplit("-", 1)[-1]
        done = {"checkpointId": int(number) if number.isdigit() else None, "location": operation.result}
        return {"status": {"id": "COMPLETED"}, "operation": done}
    if operation.kind == "rescale":
        return {"status": {"id": "COMPLETED"}, "operation": {"seconds": operation.result}}
    return {"status": {"id": "COMPLETED"}, "operation": {"location": operation.result}}
