"""How long does an event take from the client that sends it through a server and a keyed job?

locust (`perf/locustfile.py`) sends JSON events at a rate, with skewed keys, to Kafka or to an HTTP feed, and a job
counts them by key behind a real shuffle: one row out for each event. The latency counts from the time at which an event
was to be sent, so it has everything: client, server, poll, decoding, shuffle, state. Run by `perf/run.py end_to_end`.
"""

from __future__ import annotations

import math
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock import DataStream, JobHandle, KeyedBatch, KeyedProcessFunction, StreamEnvironment
from penstock import ValueStateDescriptor as ValueState
from penstock.connectors.http import HttpSource
from penstock.connectors.kafka import KafkaSource
from penstock.connectors.records import JsonFormat
from penstock.engine.connectors import Source
from penstock.engine.functions import Context, RuntimeContext
from penstock.testing.services import Kafka
from perf.event_feed import PATH, event_feed
from perf.harness import POLL_SECONDS, BenchmarkError, Options, Reading, Result, Sampler, reading
from perf.latency import Probe

_NAME: Final = "end_to_end"
_TOPIC: Final = "events"
_PARTITIONS: Final = 4
_KEYS: Final = 1_000
_SKEW: Final = 1.0
_LEAST_SECONDS: Final = 10.0
_TAIL_SECONDS: Final = 3.0
"""locust runs for so long behind the last event that counts: what the probes keep in the end is lost."""
_FIRST_SECONDS: Final = 60.0
"""The first row must come within this."""
_EVENT: Final = JsonFormat({"key": "int64", "due": "float64", "v": "int64"})
_COUNT: Final = ValueState("count", "int64", default=0)
_QUANTILES: Final = {"p50": 0.5, "p99": 0.99}


@dataclass(frozen=True, slots=True)
class Case:
    """Events through `server` ("kafka" or "http"), so many a second."""

    server: str
    rate: int

    @property
    def variant(self) -> str:
        """Its name."""
        return f"{self.server} {self.rate // 1000}k/s"


_CASES: Final = (Case("kafka", 10_000), Case("kafka", 50_000), Case("kafka", 200_000), Case("http", 10_000))


class Counted(KeyedProcessFunction):
    """Counts the events of each key; gives each event's time on."""

    def open(self, context: RuntimeContext) -> None:
        self.count = context.get_state(_COUNT)

    def process_batch(self, batch: KeyedBatch, ctx: Context) -> dict[str, Any]:
        counts = np.bincount(batch.groups, minlength=batch.keys.num_rows)
        self.count.update_values(self.count.values().to_numpy() + counts)
        return {"due": batch.data["due"]}


def run(options: Options, wanted: str = "") -> Iterator[Result]:
    """Measure the variants whose name contains `wanted`, for 10 s at the least."""
    for case in _CASES:
        if wanted in case.variant:
            readings = [_measure(options, case) for _ in range(options.repetitions)]
            yield Result.of(_NAME, case.variant, readings)


def counted(env: StreamEnvironment, source: Source) -> DataStream:
    """The program: events by key, and a probe behind them."""
    by_key = env.from_source(source, "events").key_by("key").process(Counted, returns={"due": "float64"}).name(_NAME)
    return by_key.map_batches(Probe, returns={"due": "float64", "latency": "float64"})


def _measure(options: Options, case: Case) -> Reading:
    seconds = max(options.seconds, _LEAST_SECONDS)
    with ExitStack() as running:
        if case.server == "kafka":
            kafka = running.enter_context(Kafka())
            kafka.create_topic(_TOPIC, partitions=_PARTITIONS)
            source: Source = KafkaSource(kafka.bootstrap_servers, _TOPIC, format=_EVENT)
            target = ["KafkaEvents", "--kafka", kafka.bootstrap_servers, "--topic", _TOPIC]
        else:
            address = running.enter_context(event_feed())
            source = HttpSource(f"{address}{PATH}", format=_EVENT)
            target = ["HttpEvents", "--host", address]
        env = options.environment(buffer_timeout="0")
        rows = counted(env, source).collect()
        job = env.submit(f"{_NAME} {case.variant}")
        running.callback(job.cancel)
        while job.status().value in ("created", "deploying"):
            job.pump(POLL_SECONDS)
        load = _load(target, case.rate)
        try:
            cost = _follow(job, load, options.warm_up, seconds)
        finally:
            load.terminate()
            said, _ = load.communicate()
        if load.returncode:
            raise BenchmarkError(f"{_NAME}, {case.variant}: locust ended with {load.returncode}:\n{said}")
        quantiles = latency_ms(rows.take(), case.rate, options.warm_up, seconds)
    return Reading(cost.events_per_second, cost.events_per_cpu_second, cost.peak_rss_mb, quantiles)


def _follow(job: JobHandle, load: subprocess.Popen[str], warm_up: float, seconds: float) -> Reading:
    """Wait for the first event, and then for those that count and a while longer; what those that count have cost."""
    sampler, give_up = Sampler(job, _NAME), time.monotonic() + _FIRST_SECONDS
    while not (first := sampler.sample()).rows:
        if load.poll() is not None or time.monotonic() > give_up:
            raise BenchmarkError(f"{_NAME}: no event arrived within {_FIRST_SECONDS:.0f} s")
        _go_on(job, POLL_SECONDS)
    _go_on(job, warm_up)
    before = sampler.sample()
    # A sample holds the machine up for as long as an event may take: none while events are timed.
    _go_on(job, seconds - (before.at - first.at - warm_up))
    after = sampler.sample()
    _go_on(job, _TAIL_SECONDS)
    return reading([before, after])


def _go_on(job: JobHandle, seconds: float) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if not job.pump(min(POLL_SECONDS, left)):
            job.raise_if_ended_badly()  # somebody has cancelled it


def _load(target: Sequence[str], rate: int) -> subprocess.Popen[str]:
    """locust, at work."""
    user, *address = target
    command = [sys.executable, "-m", "locust", "-f", str(Path(__file__).with_name("locustfile.py")), "--headless"]
    command += ["--users", "1", "--only-summary", "--loglevel", "ERROR"]
    command += ["--rate", str(rate), "--keys", str(_KEYS), "--skew", str(_SKEW), *address, user]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def latency_ms(measured: pa.Table, rate: float, warm_up: float, seconds: float) -> dict[str, float | None]:
    """Quantiles in milliseconds over the events due within `seconds` behind the warm-up.

    Raises:
        BenchmarkError: more than 2 % of the events that were due are missing.
    """
    due, latency = (measured.column(name).to_numpy() for name in ("due", "latency"))
    start = due.min(initial=math.inf) + warm_up
    within = latency[(due >= start) & (due < start + seconds)]
    if len(within) < 0.98 * rate * seconds:
        raise BenchmarkError(f"{_NAME}: {len(within)} of {rate * seconds:.0f} events arrived in time to be counted")
    return {name: float(np.quantile(within, quantile)) * 1000 for name, quantile in _QUANTILES.items()}
