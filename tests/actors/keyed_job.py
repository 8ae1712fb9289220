"""A job whose output shows every row that was lost or counted twice, and ways to break it."""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import penstock as ps
from penstock import DataGenSource, Sequence, StreamEnvironment
from penstock.actors.client import RayJob
from penstock.console.command_line import run_command
from penstock.engine.errors import JobError
from penstock.engine.job.info import JobInfo
from penstock.engine.job.status import JobStatus
from penstock.recovery import checkpoints
from tests.actors.paced import Paced

KEYS = 5
_LOOK_SECONDS = 0.2


def environment(folder: Path | str, parallelism: int = 2, standbys: int = 0, **settings: Any) -> StreamEnvironment:
    """Checkpoints in `folder`, five a second. Each standby is a process more that starts."""
    settings.setdefault("checkpoints", checkpoints("200ms", str(folder), savepoints=f"{folder}/savepoints"))
    # Every message is a call between processes, which costs them a millisecond.
    return StreamEnvironment(parallelism=parallelism, standbys=standbys, buffer_timeout="50ms", **settings)


def submit(
    env: StreamEnvironment,
    name: str | None,
    rows: int = 6000,
    rate: float = 1000,
    each: Callable[[int], int] = lambda n: n,
    hurry: Path | None = None,
) -> tuple[RayJob, ps.CollectResult]:
    """Counts the rows 0 to `rows` by n modulo KEYS, and gives each update; `each` is called with every n.

    Where there is the file `hurry`, `rate` holds no more.
    """

    def key(row: dict[str, int]) -> dict[str, int]:
        return {"k": each(row["n"]) % KEYS}

    in_time = DataGenSource({"n": Sequence()}, rows=rows, rate=rate)
    stream = env.from_source(in_time if hurry is None else Paced(rows, rate, hurry))
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


def until(job: RayJob, condition: Callable[[JobInfo], bool]) -> JobInfo:
    """Let the job run, its rows flowing, until its info is as wanted."""
    looked = 0.0
    while True:
        assert job.pump(0.05), job.status()
        # Each look takes CPU of the processes that start meanwhile.
        if time.monotonic() - looked < _LOOK_SECONDS:
            continue
        looked = time.monotonic()
        try:
            info = job.info()
        except JobError:
            # Its manager is being restarted.
            continue
        if condition(info):
            return info


def until_checkpoint(job: RayJob, more: int = 1) -> JobInfo:
    """Let the job run until it has taken `more` checkpoints."""
    wanted: list[int] = []

    def taken(info: JobInfo) -> bool:
        if info.status is not JobStatus.RUNNING:
            return False
        wanted.append(info.completed_checkpoints + more)
        return info.completed_checkpoints >= wanted[0]

    return until(job, taken)


def subtask_pids(info: JobInfo) -> list[int]:
    """The processes of all subtasks, upstream first."""
    return [subtask.pid for task in info.tasks for subtask in task.subtasks]


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def replayed(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[int, list[str]]:
    """What each manager of a job heard, by the log in its folder; what was said then, a brain says again now."""
    managers = _replay(folder, capsys)["managers"]
    documents = {manager: _replay(folder, capsys, "--manager", str(manager)) for manager in managers}
    for document in documents.values():
        assert (document["difference"], document["compared"]) == (None, document["events"])
    return {
        manager: [step["event"].partition("(")[0] for step in document["steps"]]
        for manager, document in documents.items()
    }


def _replay(folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    capsys.readouterr()
    code = run_command(["job", "replay", str(folder), "--json", *options])
    shown = capsys.readouterr()
    assert code == 0, shown
    return json.loads(shown.out)
