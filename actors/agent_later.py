"""What Ray runs for an agent of an embedded cluster: waits until somebody wants it, and becomes it.

A script that loads next to nothing. Ray's agents take a second of CPU to start, and memory as long as they run.
"""

import os
import select
import socket
import sys
from collections.abc import Sequence

_NO_PORT = "0"


def command(address: str, port: int, agent: Sequence[str]) -> list[str]:
    """What becomes an agent.

    Args:
        address, port: where others connect to it, 0: nowhere. Who comes too early is turned away, and Ray tries again.
        agent: the command that starts it.
    """
    return [sys.executable, __file__, address, str(port), *agent]


def main() -> None:
    """Wait, and become the agent; end where the raylet does."""
    address, port, *agent = sys.argv[1:]
    try:
        raylet = os.pidfd_open(int(os.environ["RAY_RAYLET_PID"]))
    except (AttributeError, OSError):
        # A system that tells nobody of the end of processes. The agent looks by itself.
        raylet = None
    if raylet is None or _is_wanted(raylet, address, port):
        os.execv(agent[0], agent)  # noqa: S606  what Ray would have run


def _is_wanted(raylet: int, address: str, port: str) -> bool:
    """Whether the agent is to start, when that is known; False: the raylet has ended."""
    watched = [raylet]
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if port != _NO_PORT:
            listening.bind((address, int(port)))
            listening.listen()
            watched.append(listening.fileno())
        ready, _, _ = select.select(watched, [], [])
    return raylet not in ready


if __name__ == "__main__":
    main()
