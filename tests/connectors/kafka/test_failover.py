"""A broker of three is killed while a job reads from the cluster and writes to it."""

from __future__ import annotations

from pathlib import Path

import pytest

import penstock as ps
from penstock.connectors.kafka import KafkaSink, KafkaSource
from penstock.testing.services.kafka import Kafka
from tests.connectors.kafka.written import RAW, transactions_end, values

ROWS = 2_000
QUICK = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}
"""The others notice after so long that one is gone."""


@pytest.mark.long("test_outage.py kills the only broker; which of several leads is the client's affair")
def test_a_job_goes_on_with_the_brokers_that_are_left(tmp_path: Path) -> None:
    with Kafka(brokers=3, settings=QUICK) as kafka:
        servers = kafka.bootstrap_servers
        for topic in ("in", "out"):
            kafka.create_topic(topic, partitions=3)
        feeding = ps.StreamEnvironment(runtime="local", parallelism=1, max_batch_rows=50)
        numbers = feeding.from_source(ps.DataGenSource({"value": ps.Sequence()}, rows=ROWS))
        texts = numbers.map(lambda row: {"v": str(row["value"])}, returns=RAW.schema)
        texts.sink_to(KafkaSink(servers, "in", format=RAW, guarantee="at-least-once", partitioner="round-robin"))
        feeding.execute("feed")

        env = ps.StreamEnvironment(
            runtime="local", parallelism=2, max_batch_rows=20, checkpoints=ps.checkpoints("100ms", str(tmp_path))
        )
        source = env.from_source(KafkaSource(servers, "in", format=RAW, until="latest"), "in")
        source.map_batches(lambda batch: batch, returns=RAW.schema).sink_to(KafkaSink(servers, "out", format=RAW))
        job = env.submit("copy")
        while job.metrics().operators[0].rows_out < ROWS // 4:
            assert job.pump(0.01)
        kafka.brokers[0].kill()
        job.wait()
        assert sorted(map(int, values(servers, "out"))) == list(range(ROWS))
        assert transactions_end(servers, "out")
