"""A job whose output shows every row that was lost or counted twice, and ways to break it."""

from __future__ import annotations

import itertools
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import penstock as ps
from penstock import DataGenSource, Sequence, StreamEnvironment
from penstock.actors.client import RayJob
from penstock.engine.errors import JobError
from penstock.recovery import checkpoints

KEYS = 5


def environment(folder: Path | str, parallelism: int = 2, **settings: Any) -> StreamEnvironment:
    """Checkpoints in `folder`, five a second."""
    settings.setdefault("checkpoints", checkpoints("200ms", str(folder), savepoints=f"{folder}/savepoints"))
    return StreamEnvironment(parallelism=parallelism, buffer_timeout="10ms", **settings)


def submit(
    env: StreamEnvironment, name: str, rows: int = 6000, rate: float = 1000, each: Callable[[int], int] = lambda n: n
) -> tuple[RayJob, ps.CollectResult]:
    """Counts the rows 0 to `rows` by n modulo KEYS, and gives each update; `each` is called with every n."""

    def key(row: dict[str, int]) -> dict[str, int]:
        return {"k": each(row["n"]) % KEYS}

    stream = env.from_source(DataGenSource({"n": Sequence()}, rows=rows, rate=rate))
    updates = (
        stream.map(key, returns={"k": "int64"}).uid("key").key_by("k").aggregate(n=ps.count()).uid("count").collect()
    )
    job = env.submit(name)
    assert isinstance(job, RayJob)
    return job, updates


def assert_exact(rows: Iterable[dict[str, int]], total: int) -> None:
    """Every count went up with each update, and came to what a batch job gives."""
    counts: dict[int, list[int]] = {}
    for row in rows:
        counts.setdefault(row["k"], []).append(row["n"])
    for updates in counts.values():
        assert all(before < after for before, after in itertools.pairwise(updates)), updates
    assert {key: updates[-1] for key, updates in counts.items()} == Counter(n % KEYS for n in range(total))


def until(job: RayJob, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Let the job run, its rows flowing, until its info is as wanted."""
    while True:
        assert job.pump(0.05), job.status()
        try:
            info = job.info()
        except JobError:
            # Its manager is being restarted.
            continue
        if condition(info):
            return info


def until_checkpoint(job: RayJob, more: int = 1) -> dict[str, Any]:
    """Let the job run until it has taken `more` checkpoints."""
    wanted: list[int] = []

    def taken(info: dict[str, Any]) -> bool:
        if info["status"] != "running":
            return False
        wanted.append(info["checkpoints"]["completed"] + more)
        return bool(info["checkpoints"]["completed"] >= wanted[0])

    return until(job, taken)


def subtask_pids(info: dict[str, Any]) -> list[int]:
    """The processes of all subtasks, upstream first."""
    return [subtask["pid"] for task in info["tasks"] for subtask in task["subtasks"]]


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
