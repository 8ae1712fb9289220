"""What a job costs, in CPU-seconds and memory over all processes that this one started, and on which machine.

The harness samples it while a job runs. On Ray that is the driver, the raylet, the GCS server and every worker.
"""

from __future__ import annotations

import importlib
import os
import platform
import time
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
        self._includes_this = self._root.pid == os.getpid()
        self._own = 0.0

    def cpu_seconds(self) -> float:
        """User and system time of all processes seen so far, those that have ended since included.

        Of this process, what this object itself has used is left out.
        """
        started = time.process_time()
        for process in self._processes():
            try:
                times = process.cpu_times()
            except self._psutil.Error:
                continue
            self._cpu[process] = times.user + times.system
        used = sum(self._cpu.values()) - (self._own if self._includes_this else 0.0)
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
