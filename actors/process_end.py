"""The end of a process, told by the kernel: at once, and not after the tenth of a second that Ray takes over it.

Between the death of a worker and an actor that waits for its answer Ray has the raylet, the GCS and a subscription,
each of which has to get a turn on a busy machine. Of processes on other nodes only Ray tells.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass

import ray


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
        """The one that asks."""
        return cls(ray.get_runtime_context().get_node_id(), os.getpid())


async def until_ended(process: Process) -> None:
    """Return when a process of this node has ended; never where it is on another one, or the system cannot tell."""
    if process.node != Process.own().node:
        await asyncio.Event().wait()
    await until_pid_ended(process.pid)


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
        await asyncio.Event().wait()
    ended = asyncio.Event()
    loop.add_reader(handle, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)
