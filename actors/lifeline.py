"""A connection by which a process on one node learns at once that a process on another one has ended.

The kernel closes the sockets of a process that ends, however it does, so the other side needs no heartbeat. A subtask's
process keeps one open when its job manager is on another node; nothing but silence goes over it. Of a machine that
loses its power or its network no close comes: heartbeats, and Ray, tell of that.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Final, TypeAlias

Address: TypeAlias = tuple[str, int]
"""Host and port."""
_CONNECT_SECONDS: Final = 5.0
_SHORT_SECONDS: Final = 1.0
"""A connection that lasted less was closed by what is between the nodes, and the next one may be as well."""


class Lifeline:
    """The end that is in the process which is watched: a port that takes connections and lets them be.

    Args:
        host: address of this node, on which the port is opened when it is first asked for.
    """

    def __init__(self, host: str) -> None:
        self._host = host
        self._server: asyncio.Server | None = None

    async def address(self) -> Address | None:
        """Where the port is; None: this node has none to give."""
        if self._server is None:
            try:
                self._server = await asyncio.start_server(_hold_open, self._host, 0)
            except OSError:
                return None
        host, port = self._server.sockets[0].getsockname()[:2]
        return str(host), int(port)

    def close(self) -> None:
        """Take no more connections."""
        if self._server is not None:
            self._server.close()


async def _hold_open(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Wait until the other side closes the connection."""
    with contextlib.suppress(OSError):
        await reader.read(1)
    writer.close()


async def until_closed(address: Address) -> None:
    """Return when the process whose lifeline is at an address has ended; never where that cannot be told.

    A connection may be closed by what is between the nodes: the process has ended when nobody takes another one.
    """
    was_there = False
    while True:
        try:
            reader, writer = await asyncio.wait_for(asyncio.open_connection(*address), _CONNECT_SECONDS)
        except ConnectionRefusedError:
            if was_there:
                return
            # A firewall between the nodes may refuse as well.
            await asyncio.Event().wait()
        except (OSError, asyncio.TimeoutError):
            await asyncio.Event().wait()
        was_there, began = True, time.monotonic()
        try:
            with contextlib.suppress(OSError):
                await reader.read(1)
        finally:
            writer.close()
        if time.monotonic() - began < _SHORT_SECONDS:
            await asyncio.sleep(_SHORT_SECONDS)


async def answers(address: Address, seconds: float) -> bool:
    """Whether anybody takes a connection there within so many seconds."""
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(*address), seconds)
    except (OSError, asyncio.TimeoutError):
        return False
    writer.close()
    return True
