"""Whole chaos runs: submits a job, has the harness shake it, waits for its end, and has its output judged.

The command line and our tests call it, for the jobs that come with the harness or for a flow of the user's.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock.actors.client import RayJob
from penstock.actors.cluster import connect
from penstock.engine.durations import Duration, parse_duration
from penstock.engine.errors import JobCancelledError, JobFailedError
from penstock.engine.job.handle import CollectResult, JobHandle
from penstock.engine.job.info import JobInfo
from penstock.engine.job.status import JobStatus
from penstock.environment import StreamEnvironment
from penstock.recovery import checkpoints, exponential_delay
from penstock.savepoints.paths import LOG, split_url
from penstock.savepoints.storage import open_blobs
from penstock.testing.chaos.harness import ChaosHarness, ChaosServer
from penstock.testing.chaos.jobs import KEYS, ChaosJob
from penstock.testing.chaos.report import ChaosRun
from penstock.testing.chaos.schedule import ChaosSchedule
from penstock.testing.chaos.server_jobs import ServerJob

if TYPE_CHECKING:
    from ray.cluster_utils import Cluster

RESTARTS: Final = 100
"""More than any schedule causes; a job that fails again and again by itself comes to its end."""
RATE: Final = 2000.0
"""Rows a second that go into a job: what a process function does with ease while the job restarts again and again."""
SERVER_RATE: Final = 1000.0
"""The same where servers on the same machine take their part of it."""
WARM_UP: Final = "3s"
"""For how long there are rows before the first fault, or behind the last."""
_FIRST_CHECKPOINTS: Final = 2
_TICK_SECONDS: Final = 0.05


@contextmanager
def quiet_cluster(address: str | None = None, cpus: int = 4) -> Iterator[None]:
    """Be connected to a cluster, and print nothing: Ray has much to say of processes that died, which the report tells.

    A process that was connected to a cluster stays so; others leave it behind this.

    Args:
        address: of a running cluster; None: a new one in this process, unless it is connected.
        cpus: (logical ones) that a new cluster has at least.
    """
    import ray

    connected = ray.is_initialized()
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        connect(address, max(os.cpu_count() or 1, cpus), log_to_driver=False)
        try:
            yield
        finally:
            if not connected:
                # Ray's last news come before it has shut down.
                ray.shutdown()


def chaos_environment(
    storage: str, parallelism: int = 2, address: str | None = None, interval: Duration = "250ms"
) -> StreamEnvironment:
    """An environment whose jobs take checkpoints often, and restart at once, unless that is to no avail.

    Args:
        storage: URL of the folder for the checkpoints.
        parallelism: of all operators.
        address: of a running cluster; None: the one that is connected, or a new one.
        interval: between checkpoints.
    """
    env = StreamEnvironment(
        parallelism=parallelism,
        checkpoints=checkpoints(interval, storage, savepoints=f"{storage.rstrip('/')}/savepoints"),
        # A server that is away for seconds must not use the attempts up.
        restart=exponential_delay("10ms", largest="1s", reset_after="10s", attempts=RESTARTS),
        address=address,
    )
    env.configure({"heartbeat.timeout": "1s"})
    return env


def run_chaos_job(
    job: ChaosJob,
    schedule: ChaosSchedule,
    env: StreamEnvironment,
    duration: Duration = "10s",
    rate: float = RATE,
    cluster: Cluster | None = None,
) -> ChaosRun:
    """One schedule against one of the jobs that come with the harness, from its beginning to its end.

    Args:
        job: which.
        schedule: what goes wrong when.
        env: where it runs; `chaos_environment` makes one.
        duration: how long it runs if nothing goes wrong.
        rate: rows a second.
        cluster: where the nodes are that may be killed.
    """
    rows = _rows(duration, rate)
    collected = job.build(env, rows, rate).collect()
    epochs = _Epochs(collected)
    handle = env.submit(_name(job.name, schedule))
    run = _shake(handle, schedule, cluster, epochs.take)
    if not run.problems:
        run.verdicts.extend(job.check([*epochs.taken, collected.take()], rows))
    return run


def run_server_job(
    job: ServerJob,
    schedule: ChaosSchedule,
    env: StreamEnvironment,
    duration: Duration = "10s",
    rate: float = SERVER_RATE,
) -> ChaosRun:
    """One schedule against a job whose rows go through servers; arguments as of `run_chaos_job`.

    The schedule begins when the job has taken its first checkpoints: what it opens at first takes a while.
    """
    rows = _rows(duration, rate) + _rows(WARM_UP, rate)
    trial = job.begin(env, rows, rate)
    handle = env.submit(_name(job.name, schedule))
    _await(handle, lambda info: info.status is JobStatus.RUNNING)
    with trial.feed() as finish:
        _await(handle, lambda info: info.completed_checkpoints >= _FIRST_CHECKPOINTS)
        run = _shake(handle, schedule, None, servers=job.servers, behind=finish)
    if not run.problems:
        run.verdicts.extend(trial.check())
    return run


def _await(handle: JobHandle, condition: Callable[[JobInfo], bool]) -> None:
    """Let the job run until its `info` is as wanted, or it has ended."""
    assert isinstance(handle, RayJob)
    # How it ended is told with its faults.
    with contextlib.suppress(JobFailedError):
        while handle.pump(_TICK_SECONDS) and not condition(handle.info()):
            pass


def run_chaos_flow(
    build: Callable[[StreamEnvironment], object],
    name: str,
    schedule: ChaosSchedule,
    env: StreamEnvironment,
) -> ChaosRun:
    """One schedule against a flow of the user's, which is cancelled behind it if it has not ended.

    Args:
        build: writes the program.
        name: of the job.
        schedule: what goes wrong when.
        env: where it runs.
    """
    build(env)
    handle = env.submit(name)
    try:
        return ChaosHarness(handle, schedule).run()
    finally:
        handle.cancel()


def _rows(duration: Duration, rate: float) -> int:
    return math.ceil(rate * parse_duration(duration, "duration") / 1000 / KEYS) * KEYS


def _name(job: str, schedule: ChaosSchedule) -> str:
    return f"chaos {job}" if schedule.seed is None else f"chaos {job} {schedule.seed}"


def keep_log(run: ChaosRun, folder: Path) -> None:
    """Copy the stimulus log of a run to a folder that stays, where the job's storage does not; the run then names that.

    Args:
        run: of a job.
        folder: gets one for each job.
    """
    if run.log is None:
        return
    blobs = open_blobs(run.log)
    kept = folder / split_url(run.log)[1]
    for path, _ in blobs.list(LOG):
        target = kept / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(blobs.get(path).to_pybytes())
    run.log = str(kept)


def _shake(
    handle: JobHandle,
    schedule: ChaosSchedule,
    cluster: Cluster | None,
    observe: Callable[[], None] = lambda: None,
    servers: Mapping[str, ChaosServer] | None = None,
    behind: Callable[[], None] = lambda: None,
) -> ChaosRun:
    """Carry the schedule out, call `behind`, and wait for the end of the job."""
    try:
        run = ChaosHarness(handle, schedule, cluster, observe=observe, servers=servers).run()
        behind()
        while not run.problems and handle.pump(0.05):
            observe()
        handle.raise_if_ended_badly()
    except (JobFailedError, JobCancelledError) as error:
        if str(error) not in run.problems:
            run.problems.append(str(error))
    finally:
        handle.cancel()
    run.status = handle.status().value
    return run


class _Epochs:
    """The rows of a job by what became visible together."""

    def __init__(self, collected: CollectResult) -> None:
        self._collected = collected
        self.taken: list[pa.Table] = []

    def take(self) -> None:
        """See what has become visible since the last call."""
        if (rows := self._collected.take()).num_rows:
            self.taken.append(rows)
