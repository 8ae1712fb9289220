"""The end of a process, told by the kernel: at once, and not after the tenth of a second that Ray takes over it.

Between the death of a worker and an actor that waits for its answer Ray has the raylet, the GCS and a subscription,
each of which has to get a turn on a busy machine; where the raylet goes, too, it takes Ray many seconds. Processes on
other nodes are watched by a connection to them (`lifeline`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayError

from penstock.actors.lifeline import Address, until_closed


@dataclass(frozen=True, slots=True)
class Process:
    """A process of the cluster.

    Args:
        node: Ray's id of the node that it is on.
        pid: its id there.
    """

    node: str
    pid: int

    @classmethod
    def own(cls) -> Process:
        """The one that asks; on a node without a name where it belongs to no cluster."""
        # The context would start a cluster, or join one that somebody else has on this machine.
        node = ray.get_runtime_context().get_node_id() if ray.is_initialized() else ""
        return cls(node, os.getpid())


class ProcessEndedError(Exception):
    """A process has ended before it answered `call`, which will say more: it fails, or it has an answer after all."""

    def __init__(self, call: asyncio.Future[Any]) -> None:
        super().__init__("the process has ended")
        self.call = call


async def until_ended(process: Process, lifeline: Callable[[], Awaitable[Address | None]]) -> None:
    """Return when a process has ended; never where the system cannot tell.

    Args:
        process: which.
        lifeline: asks it for the address of its lifeline, where it is on another node.
    """
    if process.node == Process.own().node:
        await until_pid_ended(process.pid)
        return
    address: Address | None = None
    # If the process dies meanwhile, the call itself fails.
    with contextlib.suppress(RayError):
        address = await lifeline()
    if address is None:
        await _never()
    else:
        await until_closed(address)


async def until_pid_ended(pid: int) -> None:
    """Return when the process with this id on this machine has ended; never where the system cannot tell.

    Source: pidfd_open(2), Linux.
    """
    loop = asyncio.get_running_loop()
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except (AttributeError, OSError):
        await _never()
    ended = asyncio.Event()
    try:
        try:
            loop.add_reader(handle, ended.set)
        except (NotImplementedError, OSError):
            await _never()
        await ended.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)


async def unless_ended(ended: asyncio.Future[None], answer: Awaitable[Any]) -> Any:
    """The answer of a process.

    Args:
        ended: done when the process has ended.
        answer: of a call to it.

    Raises:
        ProcessEndedError: it has ended, and the answer is not there.
    """
    call = asyncio.ensure_future(_awaited(answer))
    # Where the process has ended, or nobody waits any more, nobody may take its error.
    call.add_done_callback(lambda done: done.cancelled() or done.exception())
    try:
        await asyncio.wait({call, ended}, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        call.cancel()
        raise
    if call.done() or ended.exception() is not None:
        # If the watch itself has failed, the call still has the outcome.
        return await call
    raise ProcessEndedError(call)


async def _awaited(answer: Awaitable[Any]) -> Any:
    return await answer


async def _never() -> None:
    await asyncio.Event().wait()
