"""Starts the Ray cluster of a program while the program goes on: of the seconds that Ray takes, it waits for most.

The name is public (`penstock.start_cluster`). Ray is loaded in the background, and not with this module.
"""

from __future__ import annotations

import importlib
import logging
import math
import os
from functools import partial
from typing import Final

from penstock.actors.background_start import BackgroundStart, start_under_way

_OF_JOBS: Final = "penstock.actors.client"
"""What submits jobs takes a while to load, too."""


def start_cluster(cpus: float | None = None) -> None:
    """Begin to start the Ray cluster that this program's jobs are to run on, and return at once.

    For programs with a cluster of their own, which `execute` starts otherwise: it takes Ray some seconds, in which a
    program that calls this first can load what it needs and read its input. Jobs wait for what is missing then. Nothing
    is started where this process is connected to a cluster already, or `RAY_ADDRESS` names one, which it is connected
    to then. What cannot be started fails in `execute`.

    Args:
        cpus: how many (logical) CPUs the slots of the largest job need, as many as its parallelism unless `slot_cpus`
            is set: the cluster keeps its size. It has as many as this machine at least; None: no more than these.

    Example:
        >>> penstock.start_cluster()  # doctest: +SKIP
        >>> env = penstock.StreamEnvironment()  # doctest: +SKIP
    """
    if start_under_way() is None:
        wanted = os.cpu_count() or 1 if cpus is None else cpus
        BackgroundStart(partial(_start, wanted), partial(_prepare, wanted)).start()


def _start(cpus: float) -> int | None:
    """The id of the process that the cluster ends with; None: this process was connected already."""
    import ray

    from penstock.actors.cluster import connect
    from penstock.actors.embedded import control_service

    if ray.is_initialized():
        return None
    # That SIGTERM is handled by the main thread alone is known: `connect` sees to it there.
    logging.getLogger("ray._private.worker").addFilter(_is_news)
    connect(None, cpus)
    service = control_service()
    return None if service is None else service.pid


def _prepare(cpus: float) -> None:
    """Have processes started, and load what submits jobs."""
    from penstock.actors.warm_processes import start_early
    from penstock.engine.config import DEFAULTS

    # Any job has a manager, and a process in each slot.
    start_early(min(1 + math.ceil(cpus), DEFAULTS.warm_processes))
    importlib.import_module(_OF_JOBS)


def _is_news(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("SIGTERM handler is not set")
