"""Jobs whose keyed state has a chosen size, for the benchmarks of checkpoints, recovery and rescaling.

Row i's key is where the multiples of the golden ratio fall: among 2 n rows in a row each of n keys is, and those that
follow each other lie far apart. So the state is full after 2 n rows, and every batch touches as many keys as it can.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock import DataGenSource, DataStream, StreamEnvironment, count
from penstock import max as max_of
from penstock import min as min_of
from penstock import sum as sum_of
from penstock.actors.client import RayJob
from penstock.engine.checkpoint_config import CheckpointConfig
from penstock.engine.config import DEFAULTS
from penstock.engine.errors import JobError
from penstock.engine.job.info import CheckpointInfo, JobInfo
from penstock.engine.job.status import JobStatus
from penstock.recovery import fixed_delay
from perf.generators import Pool, values
from perf.harness import FLOW_SECONDS, POLL_SECONDS, BenchmarkError, Options, Result, rows_in

MEGABYTE: Final = 10**6
KEY_BYTES: Final = 44
"""Of a key and its aggregates in a checkpoint: key group, key, count, sum, lowest, highest. Measured files say more."""
FULL_AFTER: Final = 2
"""Each key has come after so many rows a key."""
STATE: Final = "state"
"""Name of the operator that holds the state; its incoming rows are the events."""
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_HALF: Final = np.uint64(32)
_STEPS: Final = 16
_ANY_NUMBER: Final = 1_000_000

_Int64s: TypeAlias = "npt.NDArray[np.int64]"


def keys_of(size_mb: float) -> int:
    """How many keys make a state of about so many megabytes."""
    return max(1, int(size_mb * MEGABYTE / KEY_BYTES))


@dataclass(frozen=True, slots=True)
class Keys:
    """The key column of `DataGenSource`: int64 keys 0 to `count` - 1.

    Args:
        count: how many.
        churn: the share of them that has rows within `seconds`, once each has come: which, moves on with the clock, so
            that any time of that length has its share, and the next one has others. 1: all, whatever the time.
        seconds: see `churn`.

    Example:
        >>> sorted(Keys(4)(np.arange(8)).to_pylist())
        [0, 0, 1, 1, 2, 2, 3, 3]
    """

    count: int
    churn: float = 1.0
    seconds: float = 1.0

    def __call__(self, rows: _Int64s) -> pa.Array:
        """The keys of rows in ascending order."""
        if self.churn < 1 and len(rows) and rows[0] >= FULL_AFTER * self.count:
            hot = max(1, int(self.churn * self.count))
            first = int(time.monotonic() / self.seconds * hot)
            return pa.array((spread(rows, max(1, hot // _STEPS)) + first) % self.count)
        return pa.array(spread(rows, self.count))


def spread(rows: _Int64s, count: int) -> _Int64s:
    """Numbers 0 to `count` - 1 for rows: the fraction of row times golden ratio, times `count`."""
    fraction = rows.view(np.uint64) * _GOLDEN
    fraction >>= _HALF
    fraction *= np.uint64(count)
    fraction >>= _HALF
    return fraction.view(np.int64)


AGGREGATES: Final = {"n": count(), "total": sum_of("v"), "low": min_of("v"), "high": max_of("v")}


def input_rows(
    env: StreamEnvironment,
    keys: Keys,
    rows: int | None = None,
    rate: float | None = None,
    more: Mapping[str, Callable[[_Int64s], Any]] | None = None,
) -> DataStream:
    """(key int64, v float64), and the columns `more`; other arguments as for `DataGenSource`."""
    return env.from_source(DataGenSource({"key": keys, "v": Pool(values), **(more or {})}, rows=rows, rate=rate))


def running(env: StreamEnvironment, keys: Keys, rows: int | None = None, rate: float | None = None) -> DataStream:
    """Count, sum, lowest and highest value of each key so far: one update for each key and batch."""
    return input_rows(env, keys, rows, rate).key_by("key").aggregate(**AGGREGATES).name(STATE)


def environment(
    options: Options,
    checkpoints: CheckpointConfig | None,
    standbys: int = 0,
    local_recovery: bool = False,
    batch_rows: int | None = None,
    slot_cpus: float = DEFAULTS.slot_cpus,
) -> StreamEnvironment:
    """A new environment for one job that gets over any number of failures at once."""
    return StreamEnvironment(
        parallelism=options.parallelism,
        runtime=options.runtime,
        max_batch_rows=batch_rows or options.batch_rows,
        slot_cpus=slot_cpus,
        checkpoints=checkpoints,
        restart=fixed_delay(_ANY_NUMBER, "0s"),
        standbys=standbys,
        local_recovery=local_recovery,
    )


@contextmanager
def submitted(env: StreamEnvironment, name: str) -> Iterator[RayJob]:
    """The job of the program in `env`, which is cancelled in the end.

    Raises:
        BenchmarkError: it does not run on Ray.
    """
    if env.runtime != "ray":
        env.clear()
        raise BenchmarkError(f"{name}: only a job on Ray has processes to measure; leave out --runtime")
    job = env.submit(name)
    assert isinstance(job, RayJob)
    try:
        yield job
    finally:
        job.cancel()


def let_run(job: RayJob, seconds: float) -> None:
    """Wait while the job works.

    Raises:
        BenchmarkError: it ended.
    """
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        _go_on(job, min(POLL_SECONDS, left))


def until(job: RayJob, condition: Callable[[JobInfo], bool], what: str, seconds: float = FLOW_SECONDS) -> JobInfo:
    """Wait until the job's info is as wanted; the info.

    Raises:
        BenchmarkError: it was not within `seconds`, or the job ended.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            info: JobInfo | None = job.info()
        except JobError:
            # Its manager is being restarted.
            info = None
        if info is not None and info.status is JobStatus.RUNNING and condition(info):
            return info
        if time.monotonic() > deadline:
            raise BenchmarkError(f"job {job.name!r}: no {what} within {seconds:.0f} s")
        _go_on(job, POLL_SECONDS / 4)


def until_full(job: RayJob, keys: int, seconds: float = 10 * FLOW_SECONDS) -> None:
    """Wait until each key has come."""
    rows = FULL_AFTER * keys
    until(job, lambda info: rows_in(job.metrics(), STATE) >= rows, f"{rows} rows", seconds)


def completed(info: JobInfo) -> list[CheckpointInfo]:
    """The records of completed checkpoints, oldest first; none of a job that takes none."""
    history = info.checkpoints.history if info.checkpoints is not None else []
    return [record for record in history if record.status == "completed"]


def until_checkpoints(job: RayJob, wanted: int, interval: float) -> JobInfo:
    """Wait for checkpoints that are triggered from now on to be complete."""
    since = time.time_ns() // 1_000_000

    def are_there(info: JobInfo) -> bool:
        return sum(record.triggered_ms >= since for record in completed(info)) >= wanted

    return until(job, are_there, f"{wanted} checkpoints", FLOW_SECONDS + wanted * 4 * interval)


def _go_on(job: RayJob, seconds: float) -> None:
    if not job.pump(seconds):
        raise BenchmarkError(f"job {job.name!r} ended while it was measured")


def summary(figures: Sequence[float]) -> dict[str, float | int | None]:
    """Median, lowest, highest and number of readings."""
    if not figures:
        return {"median": None, "least": None, "most": None, "readings": 0}
    rounded = [float(f"{figure:.4g}") for figure in (statistics.median(figures), min(figures), max(figures))]
    return {"median": rounded[0], "least": rounded[1], "most": rounded[2], "readings": len(figures)}


@dataclass(frozen=True, slots=True)
class DetailedResult(Result):
    """A result with figures of its own, which `--json` prints as `figures`.

    Args:
        figures: summaries of readings, or numbers, by name.
    """

    figures: Mapping[str, Any]

    def line(self, machine: Mapping[str, Any]) -> dict[str, Any]:
        return {**Result.line(self, machine), "figures": dict(self.figures)}

    @property
    def lines(self) -> list[str]:
        """The figures for a terminal."""
        return [f"{name}: {_shown(figure)}" for name, figure in self.figures.items()]


def _shown(figure: Any) -> str:
    if not isinstance(figure, Mapping):
        return str(figure)
    if not figure["readings"]:
        return "none"
    return f"{figure['median']:,} ({figure['least']:,} to {figure['most']:,}; {figure['readings']} readings)"
