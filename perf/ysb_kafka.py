"""Question 5 as it was published: the Yahoo streaming benchmark with events from Kafka and counts in Redis each second.

The program of `ysb`, between servers that are started for it: four partitions hold all events when the clock starts,
each with its own time; what a campaign has been viewed in its window of 10 s so far is written to Redis for each second
of event time. When all is read, what Redis holds is compared with what Python's own parser counts. A peer reads the
same topic and writes to another Redis; what the servers take counts on both sides. Run by `perf/run.py ysb_kafka`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock import (
    ArrowTable,
    DataGenSource,
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
    ComparedResult,
    Options,
    Reading,
    Result,
    Sampler,
    reading,
    shut_down,
)
from perf.peers.engines import PeerError
from perf.peers.session import flink_views_run
from perf.peers.task import PeerInput
from perf.processes import Sample
from perf.ysb import ADS_OF_A_CAMPAIGN, EVENT, START_MS, Log, expected

_NAME: Final = "ysb_kafka"
_VARIANT: Final = "100 campaigns"
_LOG: Final = Log(campaigns=100, rows=131_072, milliseconds=1_000)
_TOPIC: Final = "ad-events"
_PARTITIONS: Final = 4
_EVENTS_PER_SECOND: Final = 2_000_000
"""More than are read: the topic must last for the measurement."""
COUNTED: Final = "views -> select(ad_id)"
"""The operator whose incoming rows are the events: two that follow each other are one."""
_PREFIX: Final = "ysb:"
_SIZE_MS: Final = 10_000
_STEP_MS: Final = 1_000
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
    """Measure the one variant, if its name contains `wanted`.

    Raises:
        BenchmarkError: the output was wrong, or the peer has no such program.
    """
    if wanted not in _VARIANT:
        return
    if options.peer is not None and _NAME not in options.peer.programs:
        raise BenchmarkError(f"{options.peer.name} has no program for {_NAME}: --peer flink has")
    warm_up = _warm_up(options)
    rows = int((warm_up + options.seconds) * _EVENTS_PER_SECOND)
    with Kafka() as kafka:
        servers = kafka.bootstrap_servers
        kafka.create_topic(_TOPIC, partitions=_PARTITIONS)
        fill(replace(options, parallelism=_PARTITIONS).environment(), servers, _TOPIC, _LOG, rows)
        right = expected(_LOG, rows)
        if options.peer is None:
            readings = [_measure(options, servers, rows, right) for _ in range(options.repetitions)]
            yield Result.of(_NAME, _VARIANT, readings)
            return
        pairs = []
        for _ in range(options.repetitions):
            ours = _measure(options, servers, rows, right)
            shut_down()
            pairs.append((ours, _measure_peer(options, servers, rows, right)))
        yield ComparedResult.of_pairs(_NAME, _VARIANT, f"{options.peer.name} {options.peer.version()}", pairs)


def _warm_up(options: Options) -> float:
    """Both sides read on for as long as the one takes that needs longer, so that they read the same events."""
    return options.warm_up if options.peer is None else max(options.warm_up, options.peer.warm_up)


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
        .window(cumulative(f"{_SIZE_MS}ms", f"{_STEP_MS}ms"))
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
            sampler = Sampler(job, COUNTED)
            samples = follow(lambda: job.pump(_SAMPLE_SECONDS), sampler.sample, _warm_up(options), rows)
            job.raise_if_ended_badly()
            job.wait()
        finally:
            job.cancel()
        return _reading(samples, server, rows, right)


def _measure_peer(options: Options, servers: str, rows: int, right: Counts) -> Reading:
    """The same of Flink, whose processes are descendants of this one, as the servers are."""
    with Redis() as server, tempfile.TemporaryDirectory(prefix="penstock-views-") as folder:
        _task(servers, server).write(_NAME, Path(folder) / "run")
        try:
            with flink_views_run(Path(folder), options.parallelism) as run:
                samples = follow(lambda: run.goes_on(_SAMPLE_SECONDS), run.sample, _warm_up(options), rows)
                run.last_words()
        except PeerError as error:
            raise BenchmarkError(str(error)) from error
        return _reading(samples, server, rows, right)


def _task(servers: str, server: Redis) -> PeerInput:
    settings: dict[str, int | str] = {
        "servers": servers,
        "topic": _TOPIC,
        "redis_host": server.host,
        "redis_port": server.port,
        "redis_password": server.password,
        "prefix": _PREFIX,
        "size_ms": _SIZE_MS,
        "step_ms": _STEP_MS,
        "ads_of_a_campaign": ADS_OF_A_CAMPAIGN,
    }
    return PeerInput(settings, {"ad": lambda: _LOG.ads})


def follow(goes_on: Callable[[], bool], sample: Callable[[], Sample], warm_up: float, rows: int) -> Sequence[Sample]:
    """Samples from `warm_up` seconds behind the first events on, as long as not all `rows` are read."""
    samples = list[Sample]()
    began: float | None = None
    while goes_on():
        now = sample()
        if now.rows == rows:
            break
        if now.rows and began is None:
            began = now.at
        if began is not None and now.at >= began + warm_up:
            samples.append(now)
    return samples


def _reading(samples: Sequence[Sample], server: Redis, rows: int, right: Counts) -> Reading:
    if (found := stored(server)) != right:
        raise BenchmarkError(f"{_NAME}: Redis holds {len(found)} windows of {len(right)}, or wrong views")
    if len(samples) < 2:
        raise BenchmarkError(f"{_NAME}: {rows} events were read too soon; measure for longer (--seconds)")
    return reading(samples)
