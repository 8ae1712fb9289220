"""The Yahoo benchmark between servers: its events carry their times, and Redis holds each campaign's views."""

from __future__ import annotations

import json

import numpy as np
import pytest

from penstock import StreamEnvironment
from penstock.testing.services import Kafka, Redis
from perf import ysb_kafka
from perf.harness import BenchmarkError, Options, rows_in
from perf.peers.engines import engine
from perf.processes import Sample
from perf.ysb import START_MS, Log, expected

LOG = Log(campaigns=5, rows=64, milliseconds=4_000)
ROWS = 500


def test_each_event_carries_its_own_time() -> None:
    lines = ysb_kafka.Timed(LOG)(np.arange(200))
    events = [json.loads(line) for line in lines.to_pylist()]
    assert [event["event_time"] for event in events] == [
        START_MS + n // 64 * 4_000 + n % 64 * 4_000 // 64 for n in range(200)
    ]
    assert {len(line) for line in lines.to_pylist()} == {272}
    assert events[3]["ad_id"] == events[67]["ad_id"] == json.loads(LOG.lines()[3].as_py())["ad_id"]


def test_views_that_came_from_kafka_are_in_redis(kafka: Kafka, redis: Redis) -> None:
    kafka.create_topic("ysb-events", partitions=4)
    servers = kafka.bootstrap_servers
    ysb_kafka.fill(StreamEnvironment(runtime="local", parallelism=4), servers, "ysb-events", LOG, ROWS)
    env = StreamEnvironment(runtime="local", parallelism=2)
    ysb_kafka.build(env, servers, "ysb-events", redis.url, LOG)
    job = env.submit("views")
    job.wait()
    assert rows_in(job.metrics(), ysb_kafka.COUNTED) == ROWS
    assert ysb_kafka.stored(redis) == expected(LOG, ROWS)


def test_a_peer_without_the_program_is_refused_before_any_server_starts() -> None:
    with pytest.raises(BenchmarkError, match="bytewax has no program for ysb_kafka"):
        list(ysb_kafka.run(Options(peer=engine("bytewax"))))


def test_events_count_from_the_warm_up_on_until_all_are_read() -> None:
    seen = [Sample(float(at), rows, 0.0, 0.0) for at, rows in enumerate([0, 0, 5, 10, 20, 30, 40])]
    samples = iter(seen)
    assert ysb_kafka.follow(lambda: True, lambda: next(samples), warm_up=2.0, rows=40) == seen[4:6]
