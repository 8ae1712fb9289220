"""How soon is live state answered while a job works as fast as it can, and what does it cost that job?

A running sum of 100,000 keys, asked for 1,000 keys a second by eight threads that take turns: one by one, and fifty at
a time. One job is measured throughout, asked and not asked in turns: two jobs lie further apart than what is looked
for. Who asks runs on the same machine: on two cores it takes from the job what it uses itself. So rows a CPU-second are
those of the job's processes: the threads that ask are left out, and what a question takes in them is said by itself.
Run by `perf/run.py lookups`, on Ray.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

import numpy as np

from penstock import DataStream, StreamEnvironment
from penstock.engine.errors import PenstockError
from penstock.engine.job.handle import JobHandle
from penstock.queryable_state import state
from penstock.savepoints.live_state import LiveState
from perf import keyed
from perf.harness import (
    BenchmarkError,
    CountingSink,
    Options,
    Reading,
    Result,
    Workload,
    go_on_until,
    measure_running,
    spread,
    wait_for_whole,
)
from perf.keyed_state import DetailedResult, summary

_NAME: Final = "lookups"
_KEYS: Final = 100_000
_PER_SECOND: Final = 1_000
_THREADS: Final = 8
_TOGETHER: Final = 50
_UID: Final = "totals"
_STATE: Final = "accumulators"
_SETTLED_SECONDS: Final = 0.5
"""Behind the last who asked, or the first."""
_PATIENCE_SECONDS: Final = 30.0
_How: TypeAlias = "Callable[[LiveState, random.Random], bool]"
"""Asks once; whether all was there."""


@dataclass
class Asked:
    """What those who ask have seen.

    Args:
        seconds: that each question took.
        wrong: questions that were not answered, or with nothing.
        cores, cpu_seconds: that those who ask have used.
    """

    seconds: list[float] = field(default_factory=list)
    wrong: int = 0
    cores: float = 0.0
    cpu_seconds: float = 0.0

    def reading(self, found: Reading) -> Reading:
        """That of a job which was asked meanwhile, without the CPU of those who asked."""
        assert found.events_per_second is not None
        assert found.events_per_cpu_second is not None
        p50, p99 = 1000 * np.quantile(self.seconds, (0.5, 0.99))
        latency = {"p50": float(p50), "p99": float(p99), "asker": 1000 * self.cpu_seconds / len(self.seconds)}
        cores = found.events_per_second / found.events_per_cpu_second - self.cores
        return Reading(found.events_per_second, found.events_per_second / cores, found.peak_rss_mb, latency)


def run(options: Options, wanted: str = "") -> Iterator[Result]:
    """Measure the variants whose name contains `wanted`, in turns with the same job when nobody asks."""
    if options.runtime != "ray":
        raise BenchmarkError("lookups: live state is asked of jobs on Ray; leave out --runtime local")
    workload = _named(keyed.workload(options, "uniform", _KEYS, "coalesced"))
    variants = {"1,000 keys/s one by one": _one_by_one, "1,000 keys/s fifty by fifty": _together}
    chosen = {name: how for name, how in variants.items() if wanted in name}
    pairs: dict[str, list[tuple[Reading, Reading]]] = {name: [] for name in chosen}
    env = options.environment()
    workload.stream(env).sink_to(CountingSink()).name("count")
    job = env.submit(_NAME)
    try:
        wait_for_whole(job, workload.counted, 1)
        live = _found()
        go_on_until(job, time.monotonic() + options.warm_up)
        settled = replace(options, warm_up=_SETTLED_SECONDS)
        for number in range(options.repetitions):
            for name, how in chosen.items():
                pairs[name].append(_pair(job, workload, settled, (live, how), alone_first=number % 2 == 1))
    finally:
        job.cancel()
    for name, measured in pairs.items():
        yield _result(name, measured)


def _named(workload: Workload) -> Workload:
    def stream(env: StreamEnvironment) -> DataStream:
        return workload.stream(env).uid(_UID)

    return Workload("asked", stream, workload.counted, workload.check)


def _pair(
    job: JobHandle, workload: Workload, options: Options, asks: tuple[LiveState, _How], alone_first: bool
) -> tuple[Reading, Reading]:
    """The job that is asked, and alone."""
    before = measure_running(job, workload, options) if alone_first else None
    with _asking(*asks) as asked:
        found = measure_running(job, workload, options)
    if not asked.seconds or asked.wrong:
        raise BenchmarkError(f"lookups: {len(asked.seconds)} answers, and {asked.wrong} questions without one")
    return asked.reading(found), before or measure_running(job, workload, options)


def _result(variant: str, pairs: Sequence[tuple[Reading, Reading]]) -> DetailedResult:
    """The job that is asked, and how much less it does than alone, pair by pair."""
    asked = [one for one, _ in pairs]
    figures: dict[str, object] = {
        "ms of CPU that a question takes in who asks": summary([one.latency_ms["asker"] or 0.0 for one in asked])
    }
    for what, of in (("rows a second", "events_per_second"), ("rows a CPU-second", "events_per_cpu_second")):
        lost = [100 - 100 * getattr(one, of) / getattr(alone, of) for one, alone in pairs]
        figures[f"{what} when nobody asks"] = summary([getattr(alone, of) for _, alone in pairs])
        figures[f"less {what}, in percent"] = summary(lost)
    median, apart = Reading.median(asked), spread([one.events_per_second for one in asked])
    return DetailedResult(_NAME, variant, median, apart, asked, figures)


@contextmanager
def _asking(live: LiveState, how: _How) -> Iterator[Asked]:
    """Asks in threads until the measurement is over."""
    asked, over = Asked(), threading.Event()
    step = _THREADS / _PER_SECOND * (_TOGETHER if how is _together else 1)

    def ask(number: int) -> None:
        # Not all at once.
        if over.wait(step * number / _THREADS):
            return
        drawn, due = random.Random(number), time.monotonic()
        begun, used = due, time.thread_time()
        while not over.wait(max(0.0, due - time.monotonic())):
            due += step
            began = time.perf_counter()
            try:
                known = how(live, drawn)
            except PenstockError:
                known = False
            asked.seconds.append(time.perf_counter() - began)
            asked.wrong += not known
        used = time.thread_time() - used
        asked.cpu_seconds += used
        asked.cores += used / (time.monotonic() - begun)

    threads = [threading.Thread(target=ask, args=(number,), daemon=True) for number in range(_THREADS)]
    for thread in threads:
        thread.start()
    try:
        yield asked
    finally:
        over.set()
        for thread in threads:
            thread.join(_PATIENCE_SECONDS)


def _found() -> LiveState:
    """The state, as soon as it has rows."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        try:
            live = state(_NAME, _UID, _STATE)
            if live.scan(limit=1).num_rows:
                return live
        except PenstockError:
            # It has not begun.
            pass
        time.sleep(0.2)
    raise BenchmarkError("lookups: the job has no state to ask for")


def _one_by_one(live: LiveState, drawn: random.Random) -> bool:
    return live.get(drawn.randrange(_KEYS)) is not None


def _together(live: LiveState, drawn: random.Random) -> bool:
    keys = drawn.sample(range(_KEYS), _TOGETHER)
    return bool(live.scan(keys).num_rows == _TOGETHER)
