"""Question 6: how long is a row under way through a keyed shuffle and a running sum?

Row i is due at start + i / rate, whatever the job does, and its latency counts from then: a source that is held up
makes its rows late instead of fewer. Measured where the sum's update arrives. Run by `perf/run.py latency`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from penstock import DataStream, JobHandle, StreamEnvironment, col
from penstock import max as max_of
from penstock import sum as sum_of
from penstock.engine.clock import Clock
from penstock.engine.connectors import ConnectorContext, Source, SourceReader, Wait
from penstock.engine.operators.base import OperatorContext
from perf.harness import (
    POLL_SECONDS,
    BenchmarkError,
    ComparedResult,
    Options,
    Reading,
    Result,
    Sample,
    Sampler,
    reading,
    shut_down,
)
from perf.peers.digest import Digest
from perf.peers.engines import Engine, PeerError
from perf.peers.session import Timing, latency_in, measure_to_the_end
from perf.peers.task import PeerInput, PeerTask

_NAME: Final = "latency"
_CASES: Final = (
    (10_000, "0"),
    *((50_000, timeout) for timeout in ("0", "1ms", "5ms", "10ms", "50ms", "100ms")),
    (500_000, "50ms"),
    *((1_500_000, timeout) for timeout in ("10ms", "50ms")),
)
"""Rows a second, and the buffer timeout."""
_KEY_SECONDS: Final = 10
"""Each key has a row in so many seconds, so that none comes twice in a batch, even when the job is held up."""
_MOST_KEYS: Final = 1_500_000
"""With more, the state would be what is measured; at high rates a key comes sooner, but never within a second."""
_TIMED_PER_SECOND: Final = 50_000
"""Rows that are timed, evenly spread: at high rates, a share of them."""
_KEY_STEP: Final = 1_000_003
"""A prime: by steps of it a key comes back after all others."""
_LEAST_SECONDS: Final = 10.0
"""The tail needs a while to show."""
_STEP_SECONDS: Final = 0.008
"""Rows come in steps of this length, as they do from a poll of a log; the wait for the step counts as latency."""
_CHECK_KEYS: Final = 500
_KEEP_SECONDS: Final = 1.0
_TAIL_SECONDS: Final = 2.5
"""The source runs for so long behind the last row that counts: what the probes keep in the end is lost."""
_QUANTILES: Final = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999}
_SCHEMA: Final = pa.schema([("key", pa.int64()), ("due", pa.float64()), ("v", pa.float64())])
_MEASURED: Final = pa.schema([("due", pa.float64()), ("latency", pa.float64())])


@dataclass(frozen=True, slots=True)
class PacedSplit:
    """The rows `index`, `index + count`, ..."""

    index: int
    count: int

    @property
    def split_id(self) -> str:
        return f"{self.index}/{self.count}"


@dataclass(frozen=True, slots=True)
class PacedSource(Source):
    """Rows that carry the time at which they are due: `due`, seconds by the monotonic clock of this machine.

    Args:
        rate: rows per second, over all subtasks.
        rows: how many.
    """

    rate: float
    rows: int

    @property
    def schema(self) -> pa.Schema:
        return _SCHEMA

    def splits(self, parallelism: int) -> Sequence[PacedSplit]:
        return [PacedSplit(index, parallelism) for index in range(parallelism)]

    def open(self, split: object, context: ConnectorContext) -> SourceReader:
        assert isinstance(split, PacedSplit)
        return _PacedReader(self, split, context.clock)

    def describe(self) -> str:
        return f"paced({self.rate:g}/s; {self.rows} rows)"


class _PacedReader(SourceReader):
    """Row i is due `i / rate` seconds after the first call."""

    def __init__(self, source: PacedSource, split: PacedSplit, clock: Clock) -> None:
        self._rate, self._rows = source.rate, source.rows
        self._next, self._step = split.index, split.count
        self._clock = clock
        self._started: float | None = None

    def next_batch(self, max_rows: int) -> pa.RecordBatch | Wait | None:
        if self._next >= self._rows:
            return None
        if self._started is None:
            self._started = self._clock.monotonic()
        now = self._clock.monotonic()
        together = max(1, math.floor(self._rate * _STEP_SECONDS / self._step))
        due = self._started + min(self._next + (together - 1) * self._step, self._rows - 1) / self._rate
        if due > now:
            return Wait(due)
        last = min(math.floor((now - self._started) * self._rate), self._rows - 1)
        count = min(max_rows, max(1, (last - self._next) // self._step + 1))
        numbers = np.arange(self._next, self._next + count * self._step, self._step)
        self._next += count * self._step
        key = numbers * _KEY_STEP % _keys(self._rate)
        columns = (key, self._started + numbers / self._rate, numbers % 1000.0)
        return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], schema=_SCHEMA)


class Probe:
    """For `map_batches`: measures the latency of each row, and gives them on about once a second, at little cost."""

    def open(self, context: OperatorContext) -> None:
        """Take the subtask's clock."""
        self._clock = context.clock
        self._kept: list[pa.RecordBatch] = []
        self._given_until = -math.inf

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """`due` of each row, and its latency in seconds; or no row, for now."""
        due = batch.column("due").to_numpy()
        latency = self._clock.monotonic() - due
        self._kept.append(pa.RecordBatch.from_arrays([pa.array(due), pa.array(latency)], schema=_MEASURED))
        latest = float(due.max())
        if latest < self._given_until + _KEEP_SECONDS:
            return self._kept[-1].slice(0, 0)
        kept, self._kept, self._given_until = self._kept, [], latest
        return pa.concat_batches(kept)


def run(options: Options, wanted: str = "") -> Iterator[Result]:
    """Measure the variants whose name contains `wanted`, for 10 s at the least."""
    for rate, timeout in _CASES:
        variant = f"{rate / 1e6:g}M/s timeout {timeout}" if rate >= 100_000 else f"{rate // 1000}k/s timeout {timeout}"
        if wanted not in variant:
            continue
        if options.peer is None:
            yield Result.of(_NAME, variant, [_measure(options, rate, timeout) for _ in range(options.repetitions)])
        else:
            yield _beside(options, options.peer, variant, rate, timeout)


def _beside(options: Options, peer: Engine, variant: str, rate: int, timeout: str) -> Result:
    if _NAME not in peer.programs:
        raise BenchmarkError(f"{peer.name} has no program for latency: --peer flink has")
    pairs = []
    for _ in range(options.repetitions):
        ours = _measure(options, rate, timeout)
        shut_down()
        pairs.append((ours, _measure_peer(options, peer, rate, timeout)))
    return ComparedResult.of_pairs(_NAME, variant, f"{peer.name} {peer.version()}", pairs)


def _measure_peer(options: Options, peer: Engine, rate: int, timeout: str) -> Reading:
    seconds, warm_up = max(options.seconds, _LEAST_SECONDS), max(options.warm_up, peer.warm_up)
    whole = warm_up + seconds
    task = _peer_task(rate, timeout, warm_up, seconds, options.check_rows)
    try:
        # While rows are timed, nobody looks.
        samples, output = measure_to_the_end(peer, task, options.parallelism, Timing(0.0, whole, every=whole))
        rows, quantiles = latency_in(output)
    except (PeerError, ValueError) as error:
        raise BenchmarkError(str(error)) from error
    _check_rows(rows, rate, seconds)
    return reading(samples, quantiles)


def _peer_task(rate: int, timeout: str, warm_up: float, seconds: float, check_rows: int) -> PeerTask:
    settings = {
        "key_step": _KEY_STEP,
        "step_ms": int(_STEP_SECONDS * 1000),
        "buffer_timeout_ms": int(timeout.removesuffix("ms")),
        "warm_up_ms": int(warm_up * 1000),
        "measured_ms": int(seconds * 1000),
    }
    paced = PeerInput(
        {**settings, "rate": rate, "keys": _keys(rate), "rows": int(rate * (warm_up + seconds + _TAIL_SECONDS))}
    )
    check = PeerInput({**settings, "rate": 10 * check_rows, "keys": _CHECK_KEYS, "rows": check_rows})

    def right() -> Digest:
        numbers = np.arange(check_rows)
        return Digest.of(np.arange(_CHECK_KEYS), np.bincount(numbers * _KEY_STEP % _CHECK_KEYS, numbers % 1000))

    return PeerTask(_NAME, paced, check, right)


def _measure(options: Options, rate: int, timeout: str) -> Reading:
    seconds = max(options.seconds, _LEAST_SECONDS) if options.runtime == "ray" else options.seconds
    rows = math.ceil(rate * (options.warm_up + seconds + _TAIL_SECONDS))
    env = options.environment(buffer_timeout=timeout)
    measured = measured_rows(env, PacedSource(rate, rows), _every(rate)).collect()
    job = env.submit(f"{_NAME} {rate}/s")
    try:
        cost = _follow(job, options.warm_up + seconds)
        table = measured.to_arrow()
    finally:
        job.cancel()
    quantiles = latency_ms(table, rate / _every(rate), options.warm_up, seconds)
    return Reading(cost.events_per_second, cost.events_per_cpu_second, cost.peak_rss_mb, quantiles)


def _keys(rate: float) -> int:
    return min(math.ceil(rate * _KEY_SECONDS), max(_MOST_KEYS, math.ceil(rate)))


def _every(rate: float) -> int:
    return max(1, int(rate) // _TIMED_PER_SECOND)


def measured_rows(env: StreamEnvironment, source: PacedSource, every: int = 1) -> DataStream:
    """The program: a running sum per key, and a probe behind it that sees the keys that are multiples of `every`."""
    # A batch gives one update a key, so each row needs a key that no other row of its batch has.
    sums = env.from_source(source).key_by("key").aggregate(total=sum_of("v"), due=max_of("due")).name(_NAME)
    timed = sums.filter(col("key") % every == 0) if every > 1 else sums
    return timed.map_batches(Probe, returns=_MEASURED)


def _follow(job: JobHandle, seconds: float) -> Reading:
    """The cost of the job over `seconds` while its rows flow; runs to its end."""
    sampler = Sampler(job, _NAME)
    samples: list[Sample] = []
    due = 0.0
    while job.pump(POLL_SECONDS):
        # A sample holds the machine up for as long as a row may take: none while rows are timed.
        if len(samples) == 2 or time.monotonic() < due:
            continue
        sample = sampler.sample()
        if sample.rows > (samples[-1].rows if samples else 0):
            samples.append(sample)
            due = time.monotonic() + seconds
    return reading(samples) if len(samples) > 1 else Reading()


def latency_ms(measured: pa.Table, rate: float, warm_up: float, seconds: float) -> dict[str, float | None]:
    """Quantiles in milliseconds over the rows due within `seconds` behind the warm-up.

    Raises:
        BenchmarkError: more than 2 % of the rows that were due are missing.
    """
    due, latency = (measured.column(name).to_numpy() for name in ("due", "latency"))
    start = due.min(initial=math.inf) + warm_up
    counted = latency[(due >= start) & (due < start + seconds)]
    _check_rows(len(counted), rate, seconds)
    return {name: float(np.quantile(counted, quantile)) * 1000 for name, quantile in _QUANTILES.items()}


def _check_rows(counted: int, rate: float, seconds: float) -> None:
    if counted < 0.98 * rate * seconds:
        raise BenchmarkError(f"latency: {counted} of {rate * seconds:.0f} rows arrived in time to be counted")
