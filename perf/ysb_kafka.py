"""Question 5 as it was published: the Yahoo streaming benchmark with events from Kafka and counts in Redis each second.

The program of `ysb`, between servers that are started for it: four partitions hold all events when the clock starts,
each with its own time; what a campaign has been viewed in its window of 10 s so far is written to Redis for each second
of event time. When all is read, what Redis holds is compared with what Python's own parser counts. Run by
`perf/run.py ysb_kafka`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock import (
    ArrowTable,
    DataGenSource,
    JobHandle,
    StreamEnvironment,
    WatermarkStrategy,
    col,
    count,
    cumulative,
)
from penstock.connectors.kafka import KafkaSink, KafkaSource
from penstock.connectors.records import JsonFormat, RawFormat
from penstock.connectors.redis import RedisSink
from penstock.testing.services import Kafka, Redis
from perf.harness import (
    BenchmarkError,
    Options,
    Reading,
    Result,
    Sample,
    Sampler,
    reading,
)
from perf.ysb import EVENT, START_MS, Log, expected

_NAME: Final = "ysb_kafka"
_VARIANT: Final = "100 campaigns"
_LOG: Final = Log(campaigns=100, rows=131_072, milliseconds=1_000)
_TOPIC: Final = "ad-events"
_PARTITIONS: Final = 4
_EVENTS_PER_SECOND: Final = 1_000_000
"""More than are read: the topic must last for the measurement."""
COUNTED: Final = "views -> select(ad_id)"
"""The operator whose incoming rows are the events: two that follow each other are one."""
_PREFIX: Final = "ysb:"
_SAMPLE_SECONDS: Final = 0.5
_TIME: Final = '"event_time": '
_POWERS: Final = 10 ** np.arange(len(str(START_MS)))[::-1]

_Int64s: TypeAlias = "npt.NDArray[np.int64]"
Counts: TypeAlias = "list[tuple[int, int, int]]"
"""(campaign, start of the window in ms, views), ascending."""


class Timed:
    """A column of `DataGenSource`: the events of a log that is played again and again, each with its own time.

    Args:
        log: whose events.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lines: npt.NDArray[np.uint8] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Timed, (self._log,)

    def __call__(self, rows: _Int64s) -> pa.Array:
        """The lines of rows 0, 1, ..., 272 bytes each."""
        if self._lines is None:
            lines = self._log.lines(START_MS)
            self._lines = np.frombuffer(lines.buffers()[2], np.uint8).reshape(len(lines), -1)
            self._places = np.array([line.index(_TIME) + len(_TIME) for line in lines.to_pylist()])
        laps, events = np.divmod(rows, self._log.rows)
        chosen = self._lines[events]
        times = START_MS + laps * self._log.milliseconds + events * self._log.milliseconds // self._log.rows
        digits = (times[:, None] // _POWERS % 10 + ord("0")).astype(np.uint8)
        np.put_along_axis(chosen, self._places[events, None] + np.arange(len(_POWERS)), digits, axis=1)
        ends = np.arange(len(rows) + 1, dtype=np.int32) * chosen.shape[1]
        return pa.StringArray.from_buffers(len(rows), pa.py_buffer(ends), pa.py_buffer(chosen))


def run(options: Options, wanted: str = "") -> Iterator[Result]:
    """Measure the one variant, if its name contains `wanted`."""
    if wanted not in _VARIANT:
        return
    rows = int((options.warm_up + options.seconds) * _EVENTS_PER_SECOND)
    with Kafka() as kafka:
        kafka.create_topic(_TOPIC, partitions=_PARTITIONS)
        fill(replace(options, parallelism=_PARTITIONS).environment(), kafka.bootstrap_servers, _TOPIC, _LOG, rows)
        right = expected(_LOG, rows)
        readings = [_measure(options, kafka.bootstrap_servers, rows, right) for _ in range(options.repetitions)]
    yield Result.of(_NAME, _VARIANT, readings)


def fill(env: StreamEnvironment, servers: str, topic: str, log: Log, rows: int) -> None:
    """Write the first events of a log that is played again and again, in order in each partition."""
    events = env.from_source(DataGenSource({"line": Timed(log)}, rows=rows))
    events.sink_to(KafkaSink(servers, topic, format=RawFormat("line"), guarantee="at-least-once", partitioner="fixed"))
    env.execute("ysb events")


def build(env: StreamEnvironment, servers: str, topic: str, url: str, log: Log) -> None:
    """The program: views of each campaign in 10 s, so far, to Redis at `url`."""
    in_order = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner("event_time")
    views = (
        env.from_source(KafkaSource(servers, topic, format=JsonFormat(EVENT), until="latest"), "events", in_order)
        .filter(col("event_type") == "view")
        .name("views")
        .select("ad_id")
        .lookup_join(ArrowTable(log.table(), keys="ad_id"), on="ad_id")
        .key_by("campaign")
        .window(cumulative("10s", "1s"))
        .aggregate(views=count())
        .select("campaign", "views", at=col("window_start").dt.timestamp("ms"))
    )
    views.sink_to(RedisSink(url, keys=("campaign", "at"), prefix=_PREFIX))


def stored(server: Redis) -> Counts:
    """What Redis holds."""
    import redis

    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        keys = list(client.scan_iter(f"{_PREFIX}*", count=1000))
        with client.pipeline(transaction=False) as pipeline:
            for key in keys:
                pipeline.hget(key, "views")
            views = pipeline.execute()
    places = (map(int, key.removeprefix(_PREFIX).split(":")) for key in keys)
    return sorted((*place, int(seen)) for place, seen in zip(places, views, strict=True))


def _measure(options: Options, servers: str, rows: int, right: Counts) -> Reading:
    with Redis() as server:
        env = options.environment()
        build(env, servers, _TOPIC, server.url, _LOG)
        job = env.submit(f"{_NAME} {_VARIANT}")
        try:
            samples = _follow(job, options, rows)
            job.wait()
        finally:
            job.cancel()
        if (found := stored(server)) != right:
            raise BenchmarkError(f"{_NAME}: Redis holds {len(found)} windows of {len(right)}, or wrong views")
    if len(samples) < 2:
        raise BenchmarkError(f"{_NAME}: {rows} events were read too soon; measure for longer (--seconds)")
    return reading(samples)


def _follow(job: JobHandle, options: Options, rows: int) -> Sequence[Sample]:
    """Samples behind the warm-up, as long as there are more events."""
    sampler, samples = Sampler(job, COUNTED), list[Sample]()
    began: float | None = None
    while job.pump(_SAMPLE_SECONDS):
        sample = sampler.sample()
        if sample.rows == rows:
            break
        if sample.rows and began is None:
            began = sample.at
        if began is not None and sample.at >= began + options.warm_up:
            samples.append(sample)
    job.raise_if_ended_badly()
    return samples
