"""A cluster of Flink's with processes of its own, so that one can be killed: a job manager, and task managers.

Called by `perf/recovery_peer.py`. A task manager has one slot. Everything listens on the loopback address and ends with
the context.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from perf.peers.engines import PeerError, classpath, flink_options

_HOST: Final = "127.0.0.1"
_JOB_MANAGER: Final = "org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint"
_TASK_MANAGER: Final = "org.apache.flink.runtime.taskexecutor.TaskManagerRunner"
_PATIENCE: Final = 60.0
_POLL_SECONDS: Final = 0.02

_Found = TypeVar("_Found")


class FlinkCluster:
    """Processes of Flink's, by the names of their task managers."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self._folder = folder
        rpc, self.port = _free_ports(2)
        own = {
            "jobmanager.rpc.address": _HOST,
            "jobmanager.rpc.port": str(rpc),
            "rest.address": _HOST,
            "rest.port": str(self.port),
            "taskmanager.host": _HOST,
            "taskmanager.numberOfTaskSlots": "1",
            "taskmanager.cpu.cores": "1",
            "taskmanager.memory.task.heap.size": "1g",
            "taskmanager.memory.task.off-heap.size": "0",
            # A task manager that is not started by Flink's script has no defaults for these.
            "taskmanager.memory.framework.heap.size": "128m",
            "taskmanager.memory.framework.off-heap.size": "128m",
            "taskmanager.memory.jvm-metaspace.size": "256m",
            "taskmanager.memory.jvm-overhead.min": "192m",
            "taskmanager.memory.jvm-overhead.max": "192m",
        }
        (folder / "conf").mkdir()
        lines = [f"{name}: {value}\n" for name, value in {**own, **settings}.items()]
        (folder / "conf" / "config.yaml").write_text("".join(lines))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._start("jobmanager", _JOB_MANAGER)

    @property
    def host(self) -> str:
        return _HOST

    def add(self, *names: str) -> None:
        """Start task managers, and wait until the cluster knows of them.

        Raises:
            PeerError: it does not within a minute, or one has ended.
        """
        for name in names:
            self._start(name, _TASK_MANAGER, "-D", f"taskmanager.resource-id={name}")

        def are_there() -> bool:
            self._raise_if_ended()
            return {*names} <= {manager["id"] for manager in self.get("/taskmanagers")["taskmanagers"]}

        until(are_there, f"task manager {', '.join(names)}")

    def kill(self, name: str) -> None:
        """`kill -9`."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def get(self, path: str) -> Any:
        """What the cluster's REST interface answers; nothing but an empty dict while it does not."""
        try:
            with urllib.request.urlopen(f"http://{_HOST}:{self.port}{path}", timeout=10) as answer:
                return json.load(answer)
        except (urllib.error.URLError, OSError):
            return {"taskmanagers": [], "vertices": [], "state": "UNKNOWN"}

    def close(self) -> None:
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _raise_if_ended(self) -> None:
        for name, process in self._processes.items():
            if process.poll() is not None:
                log = (self._folder / f"{name}.log").read_text(errors="replace")
                raise PeerError(f"flink's {name} has ended with {process.returncode}:\n{log[-2000:]}")

    def _start(self, name: str, program: str, *arguments: str) -> None:
        command = ["java", *flink_options(), "-cp", classpath(), program, "--configDir", str(self._folder / "conf")]
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                [*command, *arguments], stdout=log, stderr=log, start_new_session=True
            )


@contextmanager
def started(folder: Path, managers: int, settings: Mapping[str, str]) -> Iterator[FlinkCluster]:
    """A cluster with task managers `tm-0`, `tm-1`...

    Raises:
        PeerError: it has not come up within a minute.
    """
    cluster = FlinkCluster(folder, settings)
    try:
        cluster.add(*(f"tm-{number}" for number in range(managers)))
        yield cluster
    finally:
        cluster.close()


def until(found: Callable[[], _Found], what: str, seconds: float = _PATIENCE) -> _Found:
    """What `found` gives once that is true.

    Raises:
        PeerError: it was not within `seconds`.
    """
    deadline = time.monotonic() + seconds
    while not (result := found()):
        if time.monotonic() > deadline:
            raise PeerError(f"flink: no {what} within {seconds:.0f} s")
        time.sleep(_POLL_SECONDS)
    return result


def _free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    for one in sockets:
        one.bind((_HOST, 0))
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports
