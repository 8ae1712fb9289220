"""How a benchmark is run and measured; each program in this folder brings a workload and hands it to `throughput`.

A workload runs first on a small bounded input, and its output is compared with NumPy's. Then it runs without end: once
rows flow and the warm-up is over, the rows that the measured operator takes in between two readings of the job's own
counters make the rate, and the job is cancelled. Nothing that happens at start-up or at the end is in a figure.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa

from penstock import DataStream, JobHandle, JobMetrics, StreamEnvironment
from penstock.engine.config import DEFAULTS
from penstock.engine.connectors import ConnectorContext, Sink, SinkWriter
from penstock.engine.elements import Batch
from perf.peers.engines import Engine, PeerError
from perf.peers.session import Timing
from perf.peers.session import measure as measure_peer
from perf.peers.task import PeerTask
from perf.processes import ProcessTree, Sample, crossed

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
        repetitions: how many measurements of each variant, or pairs of them with a peer.
        warm_up: seconds that are not counted, from the first rows on.
        check_rows: rows of the run whose output is compared with NumPy's.
        peer: the engine that is measured in turns with this one; None: only this one is.
        megabytes: about how large the input of a batch job is.
        warm_processes: how many a job leaves for the next one; to start them would take from what is measured.
    """

    seconds: float = 5.0
    repetitions: int = 3
    parallelism: int = 2
    batch_rows: int = DEFAULTS.max_batch_rows
    runtime: Literal["ray", "local"] = "ray"
    warm_up: float = 2.0
    check_rows: int = 20_000
    peer: Engine | None = None
    megabytes: int = 200
    warm_processes: int = 0

    def environment(
        self, batch_rows: int | None = None, buffer_timeout: str = f"{DEFAULTS.buffer_timeout_ms}ms"
    ) -> StreamEnvironment:
        """A new environment for one job; where it has more slots than there are cores, they share them."""
        env = StreamEnvironment(
            parallelism=self.parallelism,
            runtime=self.runtime,
            max_batch_rows=batch_rows or self.batch_rows,
            buffer_timeout=buffer_timeout,
            slot_cpus=min(DEFAULTS.slot_cpus, (os.cpu_count() or 1) / self.parallelism),
        )
        env.configure({"penstock.warm-processes": self.warm_processes})
        return env


@dataclass(frozen=True, slots=True)
class Reading:
    """One measurement. What a program does not measure is None."""

    events_per_second: float | None = None
    events_per_cpu_second: float | None = None
    peak_rss_mb: float | None = None
    latency_ms: Mapping[str, float | None] = field(default_factory=lambda: NO_LATENCY)

    @classmethod
    def median(cls, readings: Sequence[Reading]) -> Reading:
        """The median of each figure."""
        return cls(
            _median([reading.events_per_second for reading in readings]),
            _median([reading.events_per_cpu_second for reading in readings]),
            _median([reading.peak_rss_mb for reading in readings]),
            {name: _median([reading.latency_ms[name] for reading in readings]) for name in readings[0].latency_ms},
        )


@dataclass(frozen=True, slots=True)
class Result:
    """One variant: medians over its readings, and how far the readings lie apart.

    Args:
        spread: (largest - smallest) / median of the median latency, or of the events per second where no row was timed;
            None for one reading.
    """

    name: str
    variant: str
    ours: Reading
    spread: float | None
    readings: Sequence[Reading]

    @classmethod
    def of(cls, name: str, variant: str, readings: Sequence[Reading]) -> Result:
        """The result for repeated readings of one variant."""
        ours = Reading.median(readings)
        latencies = [reading.latency_ms["p50"] for reading in readings]
        # A job that is timed has rows at a given rate.
        timed = ours.latency_ms["p50"] is not None
        chosen = latencies if timed else [reading.events_per_second for reading in readings]
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

    def raw(self, machine: Mapping[str, Any]) -> dict[str, Any]:
        """What `--save` keeps."""
        return {**self.line(machine), "readings": [asdict(reading) for reading in self.readings]}


@dataclass(frozen=True, slots=True)
class ComparedResult(Result):
    """One variant beside a peer, measured in turns.

    Args:
        peer: the medians of its readings.
        peer_name: the peer and its version.
        ratio: ours to the peer's, the median over the pairs: rates, or the peer's latency to ours.
        ratio_cpu: the same of events per CPU-second.
        peer_readings: in the order of `readings`.
    """

    peer: Reading
    peer_name: str
    ratio: float | None
    ratio_cpu: float | None
    peer_readings: Sequence[Reading]

    @classmethod
    def of_pairs(
        cls, name: str, variant: str, peer_name: str, pairs: Sequence[tuple[Reading, Reading]]
    ) -> ComparedResult:
        """The result for pairs of readings, ours and the peer's; `spread` is that of their ratios."""
        mine, theirs = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        ratios = [_advantage(a, b) for a, b in pairs]
        of_cpu = [_ratio(a.events_per_cpu_second, b.events_per_cpu_second) for a, b in pairs]
        return cls(
            name,
            variant,
            Reading.median(mine),
            spread(ratios),
            mine,
            Reading.median(theirs),
            peer_name,
            _median(ratios),
            _median(of_cpu),
            theirs,
        )

    def line(self, machine: Mapping[str, Any]) -> dict[str, Any]:
        """What `--json` prints."""
        line = Result.line(self, machine)
        peer = {"name": self.peer_name, **{key: _rounded(value) for key, value in asdict(self.peer).items()}}
        ratios = {"ratio": _rounded(self.ratio), "ratio_cpu": _rounded(self.ratio_cpu)}
        first = {key: line[key] for key in ("name", "variant", "ours")}
        return {**first, "peer": peer, **ratios, "spread": line["spread"], "machine": line["machine"]}

    def raw(self, machine: Mapping[str, Any]) -> dict[str, Any]:
        """What `--save` keeps."""
        return {**Result.raw(self, machine), "peer_readings": [asdict(reading) for reading in self.peer_readings]}


def _advantage(ours: Reading, peer: Reading) -> float | None:
    """How many times as good ours is: by its latency where rows were timed, else by its rate."""
    if ours.latency_ms["p50"] is not None:
        return _ratio(peer.latency_ms["p50"], ours.latency_ms["p50"])
    return _ratio(ours.events_per_second, peer.events_per_second)


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


BoundedRun: TypeAlias = Callable[[Callable[[StreamEnvironment], DataStream]], tuple[pa.Table, JobMetrics]]
"""Runs a bounded stream to its end; its rows, and the job's last counters."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What is measured.

    Args:
        stream: builds the unbounded stream; its rows go to a sink that counts.
        counted: name of the operator whose incoming rows are the events.
        check: runs the same on bounded input and raises `BenchmarkError` where the output is wrong.
        peer: the same for a peer; None: there is nothing to compare with.
        whole: a measurement begins and ends where a row comes whose number is a multiple of this.
        check_batches: into how many batches the bounded input is cut.
    """

    variant: str
    stream: Callable[[StreamEnvironment], DataStream]
    counted: str
    check: Callable[[BoundedRun], None]
    peer: PeerTask | None = None
    whole: int = 1
    check_batches: int = 40


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


def null_workload(stream: Callable[[StreamEnvironment], DataStream], peer: PeerTask | None = None) -> Workload:
    """The generator alone: the source's rows go straight to the counting sink."""
    return Workload("null", stream, "count", lambda run: None, peer)


def throughput(name: str, workloads: Sequence[Workload], options: Options) -> Iterator[Result]:
    """Check and measure each workload.

    Raises:
        BenchmarkError: a check failed, nothing is measured then; or the peer has none of these programs.
    """
    if options.peer is not None:
        workloads = _known_to(options.peer, name, workloads)

    def run(batches: int, build: Callable[[StreamEnvironment], DataStream]) -> tuple[pa.Table, JobMetrics]:
        # Many small batches, so that state is merged and the watermark moves in between.
        env = options.environment(batch_rows=max(1, options.check_rows // batches))
        build(env).collect()
        job = env.submit(f"{name} check")
        return job.result(), job.metrics()

    for workload in workloads:
        workload.check(partial(run, workload.check_batches))
        if options.peer is None or workload.peer is None:
            readings = [measure_once(name, workload, options) for _ in range(options.repetitions)]
            yield Result.of(name, workload.variant, readings)
        else:
            pairs = [
                _measure_pair(name, workload, options, options.peer, workload.peer) for _ in range(options.repetitions)
            ]
            yield ComparedResult.of_pairs(
                name, workload.variant, f"{options.peer.name} {options.peer.version()}", pairs
            )


def _known_to(peer: Engine, name: str, workloads: Sequence[Workload]) -> list[Workload]:
    known = [work for work in workloads if work.peer is not None and work.peer.program in peer.programs]
    if workloads and not known:
        raise BenchmarkError(
            f"{peer.name} has no program for {name}, or for these variants: see the table in perf/README.md"
        )
    return known


def _measure_pair(
    name: str, workload: Workload, options: Options, peer: Engine, task: PeerTask
) -> tuple[Reading, Reading]:
    """Ours, then the peer's, neither while the other runs."""
    ours = measure_once(name, workload, options)
    shut_down()
    return ours, peer_reading(peer, task, options, workload.whole)


def peer_reading(peer: Engine, task: PeerTask, options: Options, whole: int = 1) -> Reading:
    """One measurement of a peer.

    Raises:
        BenchmarkError: it does not run as it should, or its output is wrong.
    """
    timing = Timing(max(options.warm_up, peer.warm_up), max(options.seconds, peer.seconds), whole)
    try:
        return reading(measure_peer(peer, task, options.parallelism, timing))
    except (PeerError, ValueError) as error:
        raise BenchmarkError(str(error)) from error


def shut_down() -> None:
    """End the cluster of this process, if it has one: even an idle one would take CPU from a peer."""
    import ray

    ray.shutdown()


def measure_once(name: str, workload: Workload, options: Options) -> Reading:
    """One measurement of a workload, whose output is not checked.

    Raises:
        BenchmarkError: it does not run as it should.
    """
    env = options.environment()
    workload.stream(env).sink_to(CountingSink()).name("count")
    job = env.submit(f"{name} {workload.variant}")
    try:
        return measure_running(job, workload, options)
    finally:
        job.cancel()


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


def measure_running(job: JobHandle, workload: Workload, options: Options) -> Reading:
    """One measurement of a job of the workload that was submitted.

    Raises:
        BenchmarkError: it does not run as it should.
    """
    sampler = Sampler(job, workload.counted)
    wait_for_whole(job, workload.counted, 1)
    go_on_until(job, time.monotonic() + options.warm_up)
    wait_for_whole(job, workload.counted, workload.whole)
    samples = [sampler.sample()]
    end = time.monotonic() + options.seconds
    while time.monotonic() < end:
        _go_on(job, min(end, time.monotonic() + SAMPLE_SECONDS), SAMPLE_SECONDS)
        samples.append(sampler.sample())
    # For longer than asked, where that is too short for a single batch.
    wait_for_whole(job, workload.counted, workload.whole)
    samples.append(sampler.sample())
    return reading(samples)


def wait_for_whole(job: JobHandle, counted: str, whole: int) -> None:
    """Let the job work until the operator has taken in the next row whose number `whole` divides.

    Raises:
        BenchmarkError: that does not come, or the job has ended.
    """
    before, deadline = rows_in(job.metrics(), counted), time.monotonic() + FLOW_SECONDS
    while not crossed(before, rows_in(job.metrics(), counted), whole):
        _go_on(job, time.monotonic() + POLL_SECONDS)
        if time.monotonic() > deadline:
            raise BenchmarkError(f"job {job.name!r} stands still: no row {whole} further after {FLOW_SECONDS:.0f} s")


def go_on_until(job: JobHandle, end: float) -> None:
    """Let the job work until `end` (seconds, monotonic).

    Raises:
        BenchmarkError: it has ended before.
    """
    while time.monotonic() < end:
        _go_on(job, end)


def _go_on(job: JobHandle, end: float, longest: float = POLL_SECONDS) -> None:
    """Let the job work until `end`, for `longest` seconds at the most; a local job moves in here only."""
    left = end - time.monotonic()
    if not job.pump(min(longest, left) if left > 0 else POLL_SECONDS):
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
