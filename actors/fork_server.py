"""The process from which the workers of an embedded cluster are forked: it has loaded what each of them would load.

`embedded_start` starts it, before anything else of the cluster. `fork_client`, which Ray runs for each worker, brings
what Ray gave to it: arguments, environment, open files. A worker is then a copy of this process that runs Ray's script
for workers, and shares its memory with the others. Nothing of Ray has been started here, and no job's code loaded.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import marshal
import os
import runpy
import signal
import socket
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from penstock.actors.fork_client import FORKED, READY, belongs_to_user

_RAYLET: Final = "RAY_RAYLET_PID"
_JOB: Final = "RAY_JOB_ID"
_NO_JOB: Final = "ffffffff"
_BACKLOG: Final = 1024
_REQUEST_SECONDS: Final = 5.0
_FULL_SECONDS: Final = 0.1
"""How long the server waits for open files when it has as many as it may."""
_FILES: Final = 3


@dataclass(frozen=True)
class _Request:
    """What `fork_client` sends, with the open files that came along."""

    files: Sequence[int]
    arguments: Sequence[str]
    environment: Mapping[str, str]
    folder: str
    niceness: int
    oom_score: str
    leads_group: bool


def command(address: str, worker: str, before: Sequence[str], behind: Sequence[str]) -> Sequence[str]:
    """What starts a server; it ends when it is killed, or is not told of a raylet.

    Args:
        address: name of the socket that it listens on, in Linux's abstract namespace.
        worker: path of the script that workers run.
        before: modules that it loads at once, and that do not load Ray.
        behind: those that it loads when it has been told of the raylet: a line with its process id and, behind a blank,
            the address of the cluster.
    """
    return [sys.executable, __file__, address, worker, ",".join(before), ",".join(behind)]


def main() -> None:
    """Serve; in a forked process, be the worker."""
    address, worker, before, behind = sys.argv[1:]
    if not getattr(sys.flags, "safe_path", False):
        # As where the script itself is run: modules beside this file are nobody's.
        sys.path[0] = os.path.dirname(worker)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(f"\0{address}")
        listening.listen(_BACKLOG)
        # Nothing of what is loaded is garbage, and none of the forked processes is to look for some in it.
        gc.disable()
        _load(before)
        raylet, _, cluster = sys.stdin.readline().strip().partition(" ")
        if not raylet:
            return
        # Ray's library reads them once, as it is loaded. A worker without a job takes that of its first call.
        os.environ.update({_RAYLET: raylet, _JOB: _NO_JOB})
        # All that the script imports; it does nothing more where it is not the main module.
        runpy.run_path(worker)
        _load(behind)
        if cluster:
            _name_process(cluster)
        gc.freeze()
        arguments = _serve(listening, raylet)
    sys.argv[:] = [worker, *arguments]
    runpy.run_path(worker, run_name="__main__")


def _load(modules: str) -> None:
    for module in modules.split(","):
        importlib.import_module(module)


def _name_process(cluster: str) -> None:
    """Have the address in the command line, as the raylet has it: it tells whose workers those of this process are."""
    from ray import _raylet as untyped

    raylet: Any = untyped
    raylet.setproctitle(f"ray::fork_server {cluster}")


def _serve(listening: socket.socket, raylet: str) -> Sequence[str]:
    """Fork a process for each request; returns in those, with the arguments of their script."""
    # Nobody waits for them here, and the system is to forget them when they end.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        with _accepted(listening) as connection, contextlib.ExitStack() as opened:
            request = _asked(connection, raylet, opened)
            if request is not None and _is_forked():
                _take_over(request)
                connection.sendall(FORKED)
                return request.arguments


def _accepted(listening: socket.socket) -> socket.socket:
    while True:
        with contextlib.suppress(OSError):
            return listening.accept()[0]
        # Such as of too many open files: who asks stays in the queue, and would wake the server at once.
        time.sleep(_FULL_SECONDS)


def _asked(connection: socket.socket, raylet: str, opened: contextlib.ExitStack) -> _Request | None:
    """What is wanted; None: nothing that is to be had here. Who asked then becomes the worker."""
    if not belongs_to_user(connection):
        return None
    connection.settimeout(_REQUEST_SECONDS)
    # No request, whatever it is, may end the server of all others.
    with contextlib.suppress(Exception):
        connection.sendall(READY)
        _, files, _, _ = socket.recv_fds(connection, len(READY), _FILES)
        for file in files:
            opened.callback(os.close, file)
        with connection.makefile("rb") as rest:
            request = _Request(files, **marshal.load(rest))  # noqa: S302  of a process of this user
        # The system leaves files out where this process may open no more.
        if len(files) == _FILES and request.environment[_RAYLET] == raylet:
            return request
    return None


def _is_forked() -> bool:
    """Fork; whether this is the new process. There is none where the system has no process or memory to give."""
    with warnings.catch_warnings(), contextlib.suppress(OSError):
        # Python 3.12 warns of threads. Those here are Arrow's and of linear algebra, which know of forks, and idle.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork() == 0
    return False


def _take_over(request: _Request) -> None:
    """Be as the process that asked."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, file in enumerate(request.files):
        os.dup2(file, number)
    os.environ.clear()
    os.environ.update({**request.environment, _JOB: _NO_JOB})
    os.chdir(request.folder)
    if request.leads_group:
        os.setpgid(0, 0)
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, request.niceness)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(request.oom_score)
    gc.enable()
    # `random` sees to that itself.
    if numpy_random := sys.modules.get("numpy.random"):
        numpy_random.seed()


if __name__ == "__main__":
    main()
