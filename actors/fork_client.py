"""What Ray runs for each worker where there is a fork server: asks that for the worker, and ends when it is there.

A script that loads next to nothing. It becomes the worker itself, as Ray would have started it, where the server does
not answer or is another user's, and where the worker is to have an environment of its own, which may be another Python.
"""

import marshal
import os
import socket
import sys

SERVER = "PENSTOCK_FORK_SERVER"
"""In the environment: the server's address and, behind a blank, the script that a worker runs."""
READY = b"r"
"""What the server sends when it has loaded everything. The request goes then, and the answer is `FORKED`."""
FORKED = b"f"
_LOADING_SECONDS = 30.0
"""Ray gives a worker up after a minute."""
_NO_ENVIRONMENT = "--runtime-env-hash=0"
_SPECIAL = "--worker-type="
"""Workers that spill objects have an argument of this kind."""


def main() -> None:
    """Have the worker forked, or become it."""
    address, _, worker = os.environ.pop(SERVER).partition(" ")
    arguments = sys.argv[1:]
    if not _is_usual(arguments) or not _is_forked(address, arguments):
        os.execv(sys.executable, [sys.executable, worker, *arguments])  # noqa: S606  what Ray ran


def _is_usual(arguments: list[str]) -> bool:
    return _NO_ENVIRONMENT in arguments and not any(argument.startswith(_SPECIAL) for argument in arguments)


def _is_forked(address: str, arguments: list[str]) -> bool:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            server.settimeout(_LOADING_SECONDS)
            server.connect(f"\0{address}")
            # Any user may listen where a server has ended, and an environment may hold secrets.
            if not belongs_to_user(server) or server.recv(1) != READY:
                return False
            # One that has the request forks.
            server.settimeout(None)
            socket.send_fds(server, [READY], [0, 1, 2])
            server.sendall(marshal.dumps(_request(arguments)))
            server.shutdown(socket.SHUT_WR)
            return server.recv(1) == FORKED
    except OSError:
        return False


def belongs_to_user(connection: socket.socket) -> bool:
    """Whether the other end belongs to the user of this process, by what the kernel says."""
    # Process, user and group, of four bytes each; see unix(7).
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], sys.byteorder) == os.getuid()


def _request(arguments: list[str]) -> dict[str, object]:
    """What of this process is to be the worker's, beside its open files."""
    with open("/proc/self/oom_score_adj") as score:
        return {
            "arguments": arguments,
            "environment": dict(os.environ),
            "folder": os.getcwd(),
            "niceness": os.getpriority(os.PRIO_PROCESS, 0),
            "oom_score": score.read(),
            "leads_group": os.getpgrp() == os.getpid(),
        }


if __name__ == "__main__":
    main()
