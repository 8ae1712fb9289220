"""What must not stay of a Spark that could not be started, or of a job that was refused: processes, actors, Ray."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

import psutil
import ray

_SIGNS = ("spark", "raydp", "ray/jars")
_SECONDS = 120


@contextlib.contextmanager
def nothing_left() -> Iterator[None]:
    """Fail unless everything of Spark's that runs at the end ran at the beginning; processes may take time to end."""
    before, was_connected = _of_spark(), ray.is_initialized()
    yield
    deadline = time.monotonic() + _SECONDS
    while (left := _of_spark() - before) and time.monotonic() < deadline:
        threading.Event().wait(0.1)
    assert not left
    assert ray.is_initialized() is was_connected


def _of_spark() -> set[tuple[int, str]]:
    """The processes that this one has started, also through Ray, and that are part of Spark."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            command = " ".join([process.name(), *process.cmdline()])
            if any(sign in command.lower() for sign in _SIGNS):
                found.add((process.pid, command[:200]))
    return found
