"""Question 8: how long does a job with 100 MB of keyed state take to get over the death of one of its processes?

A running aggregate at 500,000 rows/s; a subtask, chosen at random, is killed at a random time between checkpoints
(`kill -9`), again and again; and the job manager. Two readings: the manager's own, and that of the sinks, which stamp
the time of each attempt's first rows on files. Run by `perf/run.py recovery`; `--pairs` is the number of kills.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from penstock.actors.client import RayJob
from penstock.engine.job.info import JobInfo, RestartInfo
from penstock.recovery import checkpoints
from perf.generators import values
from perf.harness import BenchmarkError, Options, Reading, Result, shut_down, spread
from perf.keyed_state import (
    DetailedResult,
    Keys,
    environment,
    keys_of,
    let_run,
    running,
    submitted,
    summary,
    until,
    until_checkpoints,
    until_full,
)
from perf.peers.engines import Engine, PeerError
from perf.processes import ProcessTree
from perf.recovery_peer import recovery, running_job
from perf.stamps import StampingSink, first_rows

_NAME: Final = "recovery"
_RATE: Final = 500_000.0
_SIZE_MB: Final = 100
_WARM_SECONDS: Final = 5.0
"""Behind a recovery, until a new standby is warm."""
_SEED: Final = 2026


@dataclass(frozen=True, slots=True)
class Case:
    """What is measured.

    Args:
        interval: of the checkpoints, seconds.
        standbys, local_recovery: as for `StreamEnvironment`.
        victim: `"subtask"` or `"manager"`.
    """

    interval: float
    standbys: int = 1
    local_recovery: bool = False
    victim: str = "subtask"

    @property
    def variant(self) -> str:
        """Its name."""
        standbys = "local recovery" if self.local_recovery else f"standbys {self.standbys}"
        return f"{self.victim} every {self.interval:g}s, {standbys}"


CASES: Final = (
    Case(5.0),
    Case(1.0),
    Case(5.0, standbys=0),
    Case(5.0, local_recovery=True),
    Case(5.0, victim="manager"),
)


@dataclass(frozen=True, slots=True)
class Recovery:
    """One recovery, in milliseconds from the kill.

    Args:
        seen: when a sink had the first rows of the new attempt.
        reported: what the manager says, by name.
    """

    seen: float
    reported: Mapping[str, float] = field(default_factory=dict)


def run(options: Options, wanted: str = "") -> Iterator[Result]:
    """Measure the variants whose name contains `wanted`."""
    for case in CASES:
        if wanted not in case.variant:
            continue
        if options.peer is None:
            yield result_of(case.variant, *_recoveries(case, options))
        else:
            yield from _beside(case, options, options.peer)


def _beside(case: Case, options: Options, peer: Engine) -> Iterator[Result]:
    """Ours and then Flink's: a result each."""
    if _NAME not in peer.programs or case.victim != "subtask" or case.local_recovery or not case.standbys:
        raise BenchmarkError(f"{peer.name} has no program for {_NAME} {case.variant}")
    yield result_of(case.variant, *_recoveries(case, options))
    shut_down()
    try:
        yield result_of(f"{case.variant}, {peer.name} {peer.version()}", *_recoveries_of_peer(case, options))
    except PeerError as error:
        raise BenchmarkError(str(error)) from error


def _recoveries_of_peer(case: Case, options: Options) -> tuple[list[Recovery], float]:
    choice = random.Random(f"{_SEED} {case.variant}")
    keys = Keys(keys_of(_SIZE_MB))
    recoveries, tree, peak_mb = [], ProcessTree(), 0.0
    with tempfile.TemporaryDirectory(prefix="penstock-perf-") as name:
        stamps = Path(name)
        with running_job(options, keys, _RATE, case.interval, values, stamps) as job:
            for _ in range(options.repetitions):
                seen, reported = recovery(job, case.interval, choice, partial(first_rows, stamps))
                recoveries.append(Recovery(seen, reported))
                peak_mb = max(peak_mb, tree.memory_mb())
                job.replace()
                time.sleep(_WARM_SECONDS)
    return recoveries, peak_mb


def result_of(variant: str, recoveries: Sequence[Recovery], peak_mb: float) -> Result:
    """The result for repeated recoveries; latency is from the kill to the first rows that a sink saw."""
    seen = [recovery.seen for recovery in recoveries]
    names = sorted({name for recovery in recoveries for name in recovery.reported})
    reported = {name: summary([recovery.reported[name] for recovery in recoveries]) for name in names}
    figures = {"first_output_seen_ms": summary(seen), **reported}
    readings = [_reading([one], peak_mb) for one in seen]
    return DetailedResult(_NAME, variant, _reading(seen, peak_mb), spread(seen), readings, figures)


def _reading(seen: Sequence[float], peak_mb: float) -> Reading:
    p50, p99 = np.quantile(seen, [0.5, 0.99]).tolist()
    return Reading(None, None, peak_mb, {"p50": p50, "p99": p99})


def _recoveries(case: Case, options: Options) -> tuple[list[Recovery], float]:
    """The recoveries, and the most memory behind one."""
    choice = random.Random(f"{_SEED} {case.variant}")
    keys = keys_of(_SIZE_MB)
    with tempfile.TemporaryDirectory(prefix="penstock-perf-") as folder:
        stamps = Path(folder) / "stamps"
        stamps.mkdir()
        settings = checkpoints(
            f"{case.interval * 1000:.0f}ms", str(Path(folder) / "checkpoints"), tolerable_failures=None
        )
        env = environment(options, settings, case.standbys, case.local_recovery)
        running(env, Keys(keys), rate=_RATE).sink_to(StampingSink(str(stamps))).name("stamp")
        with submitted(env, f"{_NAME} {case.variant}") as job:
            until_full(job, keys)
            tree, recoveries, peak_mb = ProcessTree(), [], 0.0
            for _ in range(options.repetitions):
                let_run(job, _WARM_SECONDS)
                info = until_checkpoints(job, 1, case.interval)
                let_run(job, choice.random() * case.interval)
                recoveries.append(_recovery(job, info, case, stamps, choice))
                peak_mb = max(peak_mb, tree.memory_mb())
    return recoveries, peak_mb


def _recovery(job: RayJob, info: JobInfo, case: Case, stamps: Path, choice: random.Random) -> Recovery:
    subtasks = [subtask.pid for task in info.tasks for subtask in task.subtasks]
    pid = info.manager_pid if case.victim == "manager" else choice.choice(subtasks)
    killed, killed_ms = time.monotonic(), time.time_ns() / 1e6
    os.kill(pid, signal.SIGKILL)

    def is_over(info: JobInfo) -> bool:
        return info.attempt != attempt and first_rows(stamps, killed) is not None

    attempt = info.attempt
    after = until(job, is_over, f"rows behind the death of a {case.victim}")
    first = first_rows(stamps, killed)
    assert first is not None
    seen = (first - killed) * 1000
    if case.victim == "manager":
        return Recovery(seen, by_new_manager(after, killed_ms))
    after = until(job, lambda info: _restart(info, killed).first_output_ms is not None, "restart with rows")
    return Recovery(seen, by_manager(_restart(after, killed), killed))


def _restart(info: JobInfo, killed: float) -> RestartInfo:
    found = [restart for restart in info.restart_history if (restart.detected_monotonic or 0.0) >= killed]
    if not found:
        raise BenchmarkError(f"{_NAME}: the manager has rows of a new attempt and knows of no restart")
    return found[0]


def by_manager(restart: RestartInfo, killed: float) -> dict[str, float]:
    """A restart as the manager has it, in milliseconds from the kill (`killed`: monotonic seconds)."""
    assert restart.detected_monotonic is not None
    assert restart.restore_ms is not None
    assert restart.first_output_ms is not None
    detected = (restart.detected_monotonic - killed) * 1000
    return {
        "detect_ms": detected,
        "restore_ms": detected + restart.restore_ms,
        "first_output_ms": detected + restart.first_output_ms,
    }


def by_new_manager(info: JobInfo, killed_ms: float) -> dict[str, float]:
    """What the manager that took over says, in milliseconds from the kill (`killed_ms`: civil time)."""
    return {"manager_started_ms": info.started_ms - killed_ms, "restore_ms": info.since_ms - killed_ms}
