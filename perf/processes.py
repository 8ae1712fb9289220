"""What a job costs, in CPU-seconds and memory over all processes that this one started, and on which machine.

The harness samples it while a job runs. On Ray that is the driver, the raylet, the GCS server and every worker.
"""

from __future__ import annotations

import importlib
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

_LIBRARIES: Final = ("penstock", "ray", "pyarrow", "numpy")
_MEGABYTE: Final = 2**20


@dataclass(frozen=True, slots=True)
class Sample:
    """The counters at one moment."""

    at: float
    rows: int
    cpu_seconds: float
    memory_mb: float


def crossed(before: int, now: int, whole: int) -> bool:
    """Whether a row whose number is a multiple of `whole` has come between two counts of rows."""
    return now // whole > before // whole


class ProcessTree:
    """A process and all its descendants.

    Args:
        root: its id; None: this process.

    Example:
        >>> tree = ProcessTree()
        >>> before = tree.cpu_seconds()
        >>> tree.cpu_seconds() >= before
        True
    """

    def __init__(self, root: int | None = None) -> None:
        self._psutil = _psutil()
        self._root = self._psutil.Process(root)
        self._cpu: dict[Any, float] = {}
        self._commands: dict[Any, str] = {}
        self._includes_this = self._root.pid == os.getpid()
        self._own = 0.0

    def cpu_seconds(self) -> float:
        """User and system time of all processes seen so far, those that have ended since included.

        Of this process, what this object itself has used is left out.
        """
        return sum(self.cpu_by_command().values())

    def cpu_by_command(self) -> Mapping[str, float]:
        """The same by what processes are called when they are seen last: the first word of their command lines."""
        started = time.process_time()
        for process in self._processes():
            try:
                times, command = process.cpu_times(), process.cmdline()
            except self._psutil.Error:
                continue
            self._cpu[process] = times.user + times.system
            self._commands[process] = command[0] if command else ""
        if self._includes_this and self._root in self._cpu:
            self._cpu[self._root] -= self._own
        used: dict[str, float] = {}
        for process, seconds in self._cpu.items():
            used[self._commands[process]] = used.get(self._commands[process], 0.0) + seconds
        self._own += time.process_time() - started
        return used

    def memory_mb(self) -> float:
        """Resident memory in MiB. Pages that processes share (Ray's object store) count once, where the OS tells."""
        started = time.process_time()
        total = 0
        for process in self._processes():
            try:
                memory = process.memory_full_info()
            except self._psutil.Error:
                continue
            total += getattr(memory, "pss", memory.rss)
        self._own += time.process_time() - started
        return total / _MEGABYTE

    def _processes(self) -> list[Any]:
        try:
            return [self._root, *self._root.children(recursive=True)]
        except self._psutil.NoSuchProcess:
            return []


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_gb": round(_psutil().virtual_memory().total / 2**30, 1),
        "load_1m": round(os.getloadavg()[0], 2),
        "os": platform.platform(),
        "python": platform.python_version(),
        **{library: version(library) for library in _LIBRARIES},
    }


def _psutil() -> Any:
    # Ray brings a psutil of its own, which is found once Ray is imported and must not be imported before.
    importlib.import_module("ray")
    return importlib.import_module("psutil")


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
