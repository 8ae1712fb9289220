"""The Ray cluster that this process has started inside itself: whether there is one, and whether it is still there.

Whoever is told to end asks: SIGTERM to a whole group of processes (`timeout`, systemd, a terminal that closes) ends the
cluster, too, and Ray would wait for it for a minute, and then end this process with a code of its own.
"""

from __future__ import annotations

import atexit
import time
from pathlib import Path
from subprocess import Popen
from typing import Any

import ray


def is_embedded() -> bool:
    """Whether the cluster is one that this process has started."""
    return _own_node() is not None


def is_lost() -> bool:
    """Whether this process has started a cluster whose control service (GCS) has ended, so that Ray answers no more."""
    service = control_service()
    return service is not None and service.poll() is not None


def control_service() -> Popen[bytes] | None:
    """The process of the control service of the cluster that this process has started; None: there is no such."""
    node = _own_node()
    started = [] if node is None else node.all_processes.get("gcs_server", [])
    return next((info.process for info in started), None)


def end_quickly_at_exit() -> None:
    """Have this process end sooner, once it has started a cluster.

    Ray ends the control service before the autoscaler's monitor, which then wants to report there that it was told to
    end, and is killed when it has not ended within a second. It has nothing to scale here.
    Before that Ray waits half a second for lines of workers that were not shown yet: in vain where none has printed.
    """
    atexit.unregister(_hasten)
    # Behind Ray's own: what is registered last is called first.
    atexit.register(_hasten)


def _hasten() -> None:
    node = _own_node()
    if node is None:
        return
    for info in node.all_processes.get("monitor", []):
        info.process.kill()
    if not have_printed(Path(node.get_logs_dir_path())):
        worker: Any = ray._private.worker
        worker.time = _WithoutSleep()


def have_printed(logs: Path) -> bool:
    """Whether a worker has printed, or logged.

    Args:
        logs: of a session of Ray, a file for each worker and stream; lines that begin by a colon are Ray's own.
    """
    for written in (*logs.glob("worker-*.out"), *logs.glob("worker-*.err")):
        with written.open("rb") as lines:
            if any(not line.startswith(b":") for line in lines):
                return True
    return False


class _WithoutSleep:
    """The module `time` for who need not wait."""

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def sleep(self, seconds: float) -> None:
        """Return at once."""


def _own_node() -> Any:
    """What Ray has started in this process; None: nothing."""
    worker: Any = ray._private.worker
    node = worker._global_node
    return node if node is not None and node.head else None
