"""Question 8 beside Flink: the same job on a cluster of Flink's, of which task managers are killed.

A task manager has one slot; there is one more than the job needs, as we have a standby. Called by `perf/recovery.py`.
"""

from __future__ import annotations

import random
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from perf.harness import Options
from perf.keyed_state import FULL_AFTER, Keys
from perf.peers.engines import PeerError, classpath, flink_options
from perf.peers.flink_cluster import FlinkCluster, started, until
from perf.peers.session import SLOTS
from perf.peers.task import Column, PeerInput

_STEP_MS: Final = 8
_SETTLED_SECONDS: Final = 3.0
"""An attempt that has run for so long is not the one that was to be put on a task manager that is dead."""
_SETTINGS: Final = {
    "taskmanager.memory.managed.size": "128m",
    "taskmanager.memory.network.min": "128m",
    "taskmanager.memory.network.max": "128m",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000000",
    "restart-strategy.fixed-delay.delay": "0 ms",
    "heartbeat.interval": "500",
    "heartbeat.timeout": "5000",
    "execution.checkpointing.tolerable-failed-checkpoints": "1000000",
}
"""Flink's own heartbeats come every 10 s, and it waits for 50. With 2 s, for other answers too, it was no faster."""


class FlinkJob:
    """The job, on a cluster that it has to itself."""

    def __init__(self, cluster: FlinkCluster, job: str) -> None:
        self._cluster = cluster
        self._path = f"/jobs/{job}"
        self._managers = 0

    def checkpoints(self) -> int:
        """How many are complete."""
        found = self._cluster.get(f"{self._path}/checkpoints")
        return int(found["counts"]["completed"]) if "counts" in found else 0

    def is_running(self) -> bool:
        """Whether all subtasks are."""
        job = self._cluster.get(self._path)
        tasks = [vertex["tasks"] for vertex in job["vertices"]]
        return (
            bool(tasks) and job["state"] == "RUNNING" and all(task["RUNNING"] == sum(task.values()) for task in tasks)
        )

    def failures(self) -> list[int]:
        """When there were failures, ms since the epoch."""
        found = self._cluster.get(f"{self._path}/exceptions?maxExceptions=100")
        return sorted(entry["timestamp"] for entry in found.get("exceptionHistory", {}).get("entries", []))

    def workers(self) -> list[str]:
        """The task managers that have subtasks."""
        names: set[str] = set()
        for vertex in self._cluster.get(self._path)["vertices"]:
            subtasks: Any = self._cluster.get(f"{self._path}/vertices/{vertex['id']}").get("subtasks", [])
            names |= {subtask["taskmanager-id"] for subtask in subtasks}
        return sorted(names)

    def kill_one(self, choice: random.Random) -> None:
        """Kill a task manager that has subtasks."""
        self._cluster.kill(choice.choice(self.workers()))

    def replace(self) -> None:
        """Start a task manager for the one that was killed."""
        self._managers += 1
        self._cluster.add(f"standby-{self._managers}")


@contextmanager
def running_job(
    options: Options, keys: Keys, rate: float, interval: float, values: Column, stamps: Path
) -> Iterator[FlinkJob]:
    """The job of `perf/recovery.py`, its state full."""
    with tempfile.TemporaryDirectory(prefix="penstock-peer-") as name:
        folder = Path(name)
        checkpointing = {
            "execution.checkpointing.interval": f"{interval * 1000:.0f}ms",
            "execution.checkpointing.dir": (folder / "checkpoints").as_uri(),
        }
        settings = {"spread_keys": keys.count, "rate": int(rate), "step_ms": _STEP_MS}
        PeerInput(settings, {"v": values}).write("recovery", folder / "run")
        counters = folder / "counters"
        counters.write_bytes(bytes(SLOTS * 64))
        with started(folder, options.parallelism + 1, {**_SETTINGS, **checkpointing}) as cluster:
            told = [str(folder / "run"), str(options.parallelism), str(counters), cluster.host, str(cluster.port)]
            told += [str(stamps), *(f"{name}={value}" for name, value in checkpointing.items())]
            job = FlinkJob(cluster, _submitted(["java", *flink_options(), "-cp", classpath(), "bench.Recovery", *told]))
            until(job.is_running, "running job")
            time.sleep(FULL_AFTER * keys.count / rate)
            yield job


def _submitted(command: list[str]) -> str:
    """The job's id."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    found = [line.removeprefix("job ") for line in done.stdout.splitlines() if line.startswith("job ")]
    if not found:
        raise PeerError(f"flink has not taken the job:\n{done.stderr[-2000:]}")
    return found[0]


def recovery(
    job: FlinkJob, interval: float, choice: random.Random, first_rows: Callable[[float], float | None]
) -> tuple[float, dict[str, float]]:
    """Kill a task manager between two checkpoints; ms to the first rows, and others by name.

    Args:
        first_rows: when (monotonic seconds) a writer opened after the given time first had rows; None: not yet.
    """
    taken = job.checkpoints()
    until(lambda: job.checkpoints() > taken, "checkpoint", 60 + 4 * interval)
    time.sleep(choice.random() * interval)
    killed, killed_ms = time.monotonic(), time.time_ns() / 1e6
    job.kill_one(choice)
    until(lambda: any(at >= killed_ms for at in job.failures()), "failure that was noticed")
    running = _until_settled(job)
    failures = [at for at in job.failures() if at >= killed_ms]
    # Attempts between were put on the task manager that was dead.
    last = killed + (failures[-1] - killed_ms) / 1000
    first = until(lambda: first_rows(last), "rows behind the death of a task manager")
    reported = {
        "detect_ms": failures[0] - killed_ms,
        "restore_ms": (running - killed) * 1000,
        "attempts": len(failures),
    }
    return (first - killed) * 1000, reported


def _until_settled(job: FlinkJob) -> float:
    """Since when (monotonic seconds) all subtasks have run, which they did for a while."""
    while True:
        until(job.is_running, "running job")
        since, failures = time.monotonic(), len(job.failures())
        while job.is_running() and time.monotonic() < since + _SETTLED_SECONDS:
            time.sleep(0.1)
        if time.monotonic() >= since + _SETTLED_SECONDS and len(job.failures()) == failures:
            return since
