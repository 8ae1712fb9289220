"""The Ray cluster that this process has started inside itself: whether there is one, and whether it is still there.

Whoever is told to end asks: SIGTERM to a whole group of processes (`timeout`, systemd, a terminal that closes) ends the
cluster, too, and Ray would wait for it for a minute, and then end this process with a code of its own.
"""

from __future__ import annotations

import atexit
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
    """Have this process end a second sooner, once it has started a cluster.

    Ray ends the control service before the autoscaler's monitor, which then wants to report there that it was told to
    end, and is killed when it has not ended within a second. It has nothing to scale here.
    """
    atexit.unregister(_kill_monitor)
    # Behind Ray's own: what is registered last is called first.
    atexit.register(_kill_monitor)


def _kill_monitor() -> None:
    node = _own_node()
    for info in [] if node is None else node.all_processes.get("monitor", []):
        info.process.kill()


def _own_node() -> Any:
    """What Ray has started in this process; None: nothing."""
    worker: Any = ray._private.worker
    node = worker._global_node
    return node if node is not None and node.head else None
