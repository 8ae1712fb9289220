"""Events come into a topic by a thread that ends when it is told to, whatever has become of the broker."""

from __future__ import annotations

import gc
import threading

from penstock.testing.chaos.kafka_job import feeding
from penstock.testing.services import Kafka
from tests.connectors.kafka.written import records


def test_it_ends_though_the_broker_does_not_answer(kafka: Kafka) -> None:
    kafka.create_topic("fed", partitions=4)
    ended = threading.Event()
    try:
        with feeding(kafka.bootstrap_servers, "fed", 1_000_000, 1000.0):
            # A client that is broken off while it connects leaves its connection to the collector.
            assert any(records(kafka.bootstrap_servers, "fed") for _ in range(1_000))
            kafka.pause()
        ended.set()
    finally:
        kafka.resume()
    assert ended.is_set()
    # A connection that it has left open is told here, and not in the test that Python's collector comes by in.
    gc.collect()
