"""Warm processes of the cluster, which belong to no job: Ray's own idle workers, as many as jobs have lately needed.

A job finds its processes among them, and has others started once it runs, or when it ends: Ray gives an idle worker to
whatever wants one in the same environment, keeps it for as long as it was told to, and ends it with its node. So
nothing is reserved, no node is kept from leaving, and whoever takes a job over has nothing to find again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import ray

from penstock.actors.lifeline import Address
from penstock.actors.nodes import addresses, leaving_nodes, own_node
from penstock.actors.raylet import idle_workers, start_workers
from penstock.actors.warm_pool import Ask, Counted, Ended, Leaving, Made, WarmPool

_LATER_SECONDS: Final = 30.0
"""How long a job runs before others are started in the place of those that it has taken: its start needs the CPUs."""
_REST_SECONDS: Final = 2.0
"""How long it waits when a job has ended: a program that ends, too, often takes the cluster with it."""
_LOOK_SECONDS: Final = 0.5
_KEPT_SECONDS: Final = 600
"""How long a process waits for a job."""
_NO_ENVIRONMENT: Final = ("", "{}")


class WarmProcesses:
    """What one job takes from the warm processes of its nodes, and leaves there. Used on one event loop.

    Args:
        size: the most on each node.
    """

    def __init__(self, size: int) -> None:
        self._pool = WarmPool(size)
        self._ended = asyncio.Event()
        self._filling: asyncio.Task[None] | None = None

    def made(self, node: str) -> None:
        """The job has made a process on the node with this id."""
        self._pool.handle(Made(node), time.monotonic())
        self._begin()

    async def leave_as_many(self) -> None:
        """The job has ended: returns when there are as many as it has taken, or nothing can be done for that."""
        self._pool.handle(Ended(), time.monotonic())
        self._ended.set()
        self._begin()
        if self._filling is not None:
            await asyncio.shield(self._filling)

    def _begin(self) -> None:
        if self._pool.short and (self._filling is None or self._filling.done()):
            self._filling = asyncio.ensure_future(self._fill())

    async def _fill(self) -> None:
        if not _are_usable():
            return
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._ended.wait(), _LATER_SECONDS)
            await asyncio.sleep(_REST_SECONDS)
        while nodes := self._pool.short:
            idle = await asyncio.to_thread(_count, nodes)
            now = time.monotonic()
            self._pool.handle(Leaving([node for node in nodes if node not in idle]), now)
            asks = [self._pool.handle(Counted(node, count), now) for node, count in idle.items()]
            await asyncio.to_thread(_start, [ask for ask in asks if ask is not None])
            await asyncio.sleep(_LOOK_SECONDS)


def start_early(count: int) -> None:
    """Have this node start what a job is about to need beside what waits there: while its manager starts, others do.

    For a cluster that this process has started, where all is on one node. What a job that is refused has not taken
    waits for the next one.

    Args:
        count: how many processes the job has.
    """
    if not _are_usable():
        return
    for address in _staying([own_node()]).values():
        idle = idle_workers(address)
        if idle is not None and idle < count:
            start_workers(address, count - idle, _KEPT_SECONDS)


def _are_usable() -> bool:
    """Not for a job in an environment of its own, for which Ray starts others; encrypted calls are not made."""
    is_encrypted = os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")
    context: Any = ray.get_runtime_context()
    return not is_encrypted and context.get_runtime_env_string() in _NO_ENVIRONMENT


def _staying(nodes: Iterable[str]) -> Mapping[str, Address]:
    """Where those of the nodes are that stay; none where the head of the cluster is away."""
    # Whatever Ray raises: no job needs a warm process.
    try:
        return addresses(set(nodes) - set(leaving_nodes()))
    except Exception:
        return {}


def _count(nodes: Collection[str]) -> Mapping[str, int | None]:
    """How many workers are idle on those of the nodes that stay; None: it does not answer."""
    return {node: idle_workers(address) for node, address in _staying(nodes).items()}


def _start(asks: Collection[Ask]) -> None:
    where = _staying(ask.node for ask in asks)
    for ask in asks:
        if ask.node in where:
            start_workers(where[ask.node], ask.count, _KEPT_SECONDS)
