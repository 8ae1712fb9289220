"""What does a wide job cost while next to nothing comes: cores, memory, and how long it takes to start?

Ten operators in five tasks of four subtasks, with four shuffles by key between them and event time; rows come at a
trickle. It is measured half as wide, too, for machines of two cores. The figures are of all processes of the cluster,
Ray's own among them. Run by `perf/run.py trickle`, on Ray.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pyarrow as pa

from penstock import DataGenSource, DataStream, RandomInt, StreamEnvironment, WatermarkStrategy, col
from penstock import sum as sum_of
from perf.generators import Rows
from perf.harness import BenchmarkError, CountingSink, Options, Reading, Result, go_on_until, rows_in, spread
from perf.keyed_state import DetailedResult
from perf.processes import ProcessTree

_NAME: Final = "trickle"
_RATES: Final = (1, 20, 50, 200)
_PARALLELISM: Final = 4
_NARROW: Final = 2
_SHUFFLES: Final = 4
_SETTLED_SECONDS: Final = 35.0
"""What a start leaves to do is over by then, also what Ray starts half a minute later (ADR 0085): some 0.9 s of CPU, a
fifth of what a narrow job takes meanwhile. No processes are warmed for a next job."""
_LEAST_SECONDS: Final = 10.0
_PATIENCE_SECONDS: Final = 90.0


def run(options: Options, wanted: str = "") -> Iterator[Result]:
    """Measure the variants whose name contains `wanted`, for 10 s at the least."""
    if options.runtime != "ray":
        raise BenchmarkError("trickle: what is measured is processes and messages; leave out --runtime local")
    variants = {f"{rate} rows/s": (rate, _PARALLELISM) for rate in _RATES}
    variants[f"{max(_RATES)}/s at parallelism {_NARROW}"] = max(_RATES), _NARROW
    for variant, (rate, parallelism) in variants.items():
        if wanted in variant:
            as_wide = replace(options, parallelism=parallelism)
            yield _result(variant, [_measure(as_wide, rate) for _ in range(options.repetitions)])


def trickle(env: StreamEnvironment, rate: float, rows: int | None = None) -> DataStream:
    """The stream: sums of sums, each by another key."""
    source = DataGenSource({"a": RandomInt(0, 1000), "ts": _now, "v": RandomInt(0, 100)}, rows, rate)
    stream = env.from_source(source).assign_timestamps("ts", WatermarkStrategy.for_monotonous_timestamps())
    for number in range(_SHUFFLES):
        summed = stream.key_by("a").aggregate(v=sum_of("v")).name(f"sum {number}")
        stream = summed.with_columns(a=col("a") * 7 + number)
    return stream


def _now(rows: Rows) -> pa.Array:
    return pa.array([time.time_ns() // 1_000_000] * len(rows), pa.int64())


def _measure(options: Options, rate: float) -> tuple[Reading, float]:
    """One measurement, and the seconds from submitting the job to its first row at the end."""
    env = options.environment()
    trickle(env, rate).sink_to(CountingSink()).name("count")
    tree = ProcessTree()
    begun = time.monotonic()
    job = env.submit(f"{_NAME} {rate}/s")
    try:
        while not rows_in(job.metrics(), "count"):
            go_on_until(job, time.monotonic() + 0.1)
            if time.monotonic() > begun + _PATIENCE_SECONDS:
                raise BenchmarkError(f"trickle: no row has come through within {_PATIENCE_SECONDS:g} s")
        started = time.monotonic() - begun
        go_on_until(job, time.monotonic() + _SETTLED_SECONDS)
        cpu, rows, at = tree.cpu_seconds(), rows_in(job.metrics(), "count"), time.monotonic()
        go_on_until(job, at + max(options.seconds, _LEAST_SECONDS))
        seconds = time.monotonic() - at
        used, came = tree.cpu_seconds() - cpu, rows_in(job.metrics(), "count") - rows
        memory = tree.memory_mb()
    finally:
        job.cancel()
    if not came:
        raise BenchmarkError(f"trickle: no row came through in {seconds:.0f} s")
    return Reading(came / seconds, came / used, memory), started


def _result(variant: str, measured: list[tuple[Reading, float]]) -> Result:
    readings = [reading for reading, _ in measured]
    cores = [(one.events_per_second or 0.0) / (one.events_per_cpu_second or 1.0) for one in readings]
    figures = {
        "cores": [round(one, 3) for one in cores],
        "seconds to the first row at the end": [round(seconds, 2) for _, seconds in measured],
    }
    return DetailedResult(_NAME, variant, Reading.median(readings), spread(cores), readings, figures)
