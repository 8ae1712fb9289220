"""How a benchmark is run and measured; each program in this folder brings a workload and hands it to `throughput`.

A workload runs first on a small bounded input, and its output is compared with NumPy's. Then it runs without end: once
rows flow and the warm-up is over, the rows that the measured operator takes in between two readings of the job's own
counters make the rate, and the job is cancelled. Nothing that happens at start-up or at the end is in a figure.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa

from penstock import DataStream, JobHandle, JobMetrics, StreamEnvironment
from penstock.engine.config import DEFAULTS
from penstock.engine.connectors import ConnectorContext, Sink, SinkWriter
from penstock.engine.elements import Batch
from perf.processes import ProcessTree

POLL_SECONDS: Final = 0.2
SAMPLE_SECONDS: Final = 2.0
"""A sample takes 50 ms of CPU for the memory of a dozen processes: rare enough not to slow the job down."""
FLOW_SECONDS: Final = 60.0
"""How long a job may take to its first rows."""
NO_LATENCY: Final[Mapping[str, float | None]] = {"p50": None, "p99": None}


class BenchmarkError(Exception):
    """A figure cannot be given: the output was wrong, or the job did not run as it should."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to measure.

    Args:
        seconds: length of one measurement.
        repetitions: how many measurements of each variant (pairs, once there is a peer).
        warm_up: seconds that are not counted, from the first rows on.
        check_rows: rows of the run whose output is compared with NumPy's.
    """

    seconds: float = 5.0
    repetitions: int = 3
    parallelism: int = 2
    batch_rows: int = DEFAULTS.max_batch_rows
    runtime: Literal["ray", "local"] = "ray"
    warm_up: float = 2.0
    check_rows: int = 20_000

    def environment(self, batch_rows: int | None = None, buffer_timeout: str = "50ms") -> StreamEnvironment:
        """A new environment for one job."""
        return StreamEnvironment(
            parallelism=self.parallelism,
            runtime=self.runtime,
            max_batch_rows=batch_rows or self.batch_rows,
            buffer_timeout=buffer_timeout,
        )


@dataclass(frozen=True, slots=True)
class Reading:
    """One measurement. What a program does not measure is None."""

    events_per_second: float | None = None
    events_per_cpu_second: float | None = None
    peak_rss_mb: float | None = None
    latency_ms: Mapping[str, float | None] = field(default_factory=lambda: NO_LATENCY)


@dataclass(frozen=True, slots=True)
class Result:
    """One variant: medians over its readings, and how far the readings lie apart.

    Args:
        spread: (largest - smallest) / median of the events per second, or of the median latency; None for one reading.
    """

    name: str
    variant: str
    ours: Reading
    spread: float | None
    readings: Sequence[Reading]

    @classmethod
    def of(cls, name: str, variant: str, readings: Sequence[Reading]) -> Result:
        """The result for repeated readings of one variant."""
        latencies = {
            quantile: _median([reading.latency_ms[quantile] for reading in readings])
            for quantile in readings[0].latency_ms
        }
        ours = Reading(
            _median([reading.events_per_second for reading in readings]),
            _median([reading.events_per_cpu_second for reading in readings]),
            _median([reading.peak_rss_mb for reading in readings]),
            latencies,
        )
        rates = [reading.events_per_second for reading in readings]
        chosen = rates if ours.events_per_second is not None else [reading.latency_ms["p50"] for reading in readings]
        return cls(name, variant, ours, spread(chosen), readings)

    def line(self, machine: Mapping[str, Any]) -> dict[str, Any]:
        """What `--json` prints."""
        ours = {key: _rounded(value) for key, value in asdict(self.ours).items()}
        return {
            "name": self.name,
            "variant": self.variant,
            "ours": ours,
            "spread": _rounded(self.spread),
            "machine": dict(machine),
        }


BoundedRun: TypeAlias = Callable[[Callable[[StreamEnvironment], DataStream]], tuple[pa.Table, JobMetrics]]
"""Runs a bounded stream to its end; its rows, and the job's last counters."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What is measured.

    Args:
        stream: builds the unbounded stream; its rows go to a sink that counts.
        counted: name of the operator whose incoming rows are the events.
        check: runs the same on bounded input and raises `BenchmarkError` where the output is wrong.
    """

    variant: str
    stream: Callable[[StreamEnvironment], DataStream]
    counted: str
    check: Callable[[BoundedRun], None]


@dataclass(frozen=True, slots=True)
class CountingSink(Sink):
    """Counts rows and forgets them."""

    def open(self, context: ConnectorContext) -> SinkWriter:
        return _CountingWriter()

    def describe(self) -> str:
        return "count"


class _CountingWriter(SinkWriter):
    def __init__(self) -> None:
        self.rows = 0

    def write(self, batch: Batch) -> None:
        self.rows += batch.num_rows


def null_workload(stream: Callable[[StreamEnvironment], DataStream]) -> Workload:
    """The generator alone: the source's rows go straight to the counting sink."""
    return Workload("null", stream, "count", lambda run: None)


def throughput(name: str, workloads: Sequence[Workload], options: Options) -> Iterator[Result]:
    """Check and measure each workload.

    Raises:
        BenchmarkError: a check failed; nothing is measured then.
    """

    def run(build: Callable[[StreamEnvironment], DataStream]) -> tuple[pa.Table, JobMetrics]:
        # Many small batches, so that state is merged and the watermark moves in between.
        env = options.environment(batch_rows=max(1, options.check_rows // 40))
        build(env).collect()
        job = env.submit(f"{name} check")
        return job.result(), job.metrics()

    for workload in workloads:
        workload.check(run)
        readings = [_measure_once(name, workload, options) for _ in range(options.repetitions)]
        yield Result.of(name, workload.variant, readings)


def _measure_once(name: str, workload: Workload, options: Options) -> Reading:
    env = options.environment()
    workload.stream(env).sink_to(CountingSink()).name("count")
    job = env.submit(f"{name} {workload.variant}")
    try:
        return _measure(job, workload.counted, options)
    finally:
        job.cancel()


@dataclass(frozen=True, slots=True)
class Sample:
    """The counters at one moment."""

    at: float
    rows: int
    cpu_seconds: float
    memory_mb: float


class Sampler:
    """Reads a job's rows and its processes' cost."""

    def __init__(self, job: JobHandle, counted: str) -> None:
        self._job = job
        self._counted = counted
        self._tree = ProcessTree()

    def sample(self) -> Sample:
        """The counters as of now. The time is taken around the call, which reaches all subtasks."""
        before = time.monotonic()
        rows = rows_in(self._job.metrics(), self._counted)
        at = (before + time.monotonic()) / 2
        return Sample(at, rows, self._tree.cpu_seconds(), self._tree.memory_mb())


def rows_in(metrics: JobMetrics, operator: str) -> int:
    """The rows that the operator has taken in; 0 before the job runs."""
    return sum(report.rows_in for report in metrics.operators if report.name == operator)


def reading(samples: Sequence[Sample], latency_ms: Mapping[str, float | None] = NO_LATENCY) -> Reading:
    """The rate between the first sample and the last, and the most memory among all.

    Raises:
        BenchmarkError: no row came in between.
    """
    first, last = samples[0], samples[-1]
    events, seconds, cpu = last.rows - first.rows, last.at - first.at, last.cpu_seconds - first.cpu_seconds
    if events <= 0 or seconds <= 0:
        raise BenchmarkError(f"{events} rows in {seconds:.2f} s: the job stands still; measure for longer (--seconds)")
    memory = max(sample.memory_mb for sample in samples)
    return Reading(events / seconds, events / cpu if cpu > 0 else None, memory, latency_ms)


def _measure(job: JobHandle, counted: str, options: Options) -> Reading:
    sampler = Sampler(job, counted)
    deadline = time.monotonic() + FLOW_SECONDS
    while not rows_in(job.metrics(), counted):
        _go_on(job, deadline)
        if time.monotonic() > deadline:
            raise BenchmarkError(f"job {job.name!r} has no rows after {FLOW_SECONDS:.0f} s")
    _go_on_until(job, time.monotonic() + options.warm_up)
    samples = [sampler.sample()]
    end = time.monotonic() + options.seconds
    # For longer than asked, where that is too short for a single batch.
    while time.monotonic() < end or (samples[-1].rows == samples[0].rows and time.monotonic() < end + FLOW_SECONDS):
        _go_on(job, min(end, time.monotonic() + SAMPLE_SECONDS), SAMPLE_SECONDS)
        samples.append(sampler.sample())
    return reading(samples)


def _go_on_until(job: JobHandle, end: float) -> None:
    while time.monotonic() < end:
        _go_on(job, end)


def _go_on(job: JobHandle, end: float, longest: float = POLL_SECONDS) -> None:
    """Let the job work until `end`, for `longest` seconds at the most; a local job moves in here only."""
    left = end - time.monotonic()
    if not job.pump(min(longest, left) if left > 0 else POLL_SECONDS):
        job.raise_if_ended_badly()
        raise BenchmarkError(f"job {job.name!r} ended while it was measured")


def spread(values: Sequence[float | None]) -> float | None:
    """(largest - smallest) / median; None for fewer than two values."""
    present = [value for value in values if value is not None]
    if len(present) < 2:
        return None
    return (max(present) - min(present)) / statistics.median(present)


def _median(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return statistics.median(present) if present else None


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _rounded(inner) for key, inner in value.items()}
    return value if value is None else float(f"{value:.4g}")
