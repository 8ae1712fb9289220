"""The broker dies, and comes back a while later: sinks and sources that were at work go on, and no row is lost."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from penstock.connectors.kafka import KafkaSink, KafkaSource
from penstock.testing.services.kafka import Kafka
from tests.connectors.kafka import topics
from tests.connectors.kafka.written import RAW, context, rows, transactions_end, values


@contextlib.contextmanager
def away(kafka: Kafka) -> Iterator[None]:
    """The broker that all tests share is dead meanwhile; what it has is there again in the end."""
    kafka.kill()
    try:
        yield
    finally:
        kafka.start()


def test_an_outage_delays_rows_and_loses_none(kafka: Kafka, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    sink = KafkaSink(kafka.bootstrap_servers, topic, format=RAW, delivery_timeout="500ms")
    sink.prepare()
    tries, waits = context("outage/tries"), context("outage/waits")
    trying, waiting = sink.open(tries), sink.open(waits)
    source = KafkaSource(kafka.bootstrap_servers, topic, format=RAW)
    reader = source.open(source.splits(1)[0], topics.context())
    read: list[str] = []
    for where, writer, value in ((tries, trying, 1), (waits, waiting, 2)):
        writer.write(rows(value))
        sink.commit(writer.prepare(1), where)
    while len(read) < 2:
        read += [row["v"] for row in topics.take(reader).to_pylist()]
    trying.write(rows(3, 4))
    committables = trying.prepare(2)
    with away(kafka):
        with pytest.raises(ConnectionError, match=r"the 2 rows of checkpoint 2 are not written yet: .*127\.0\.0\.1"):
            sink.commit(committables, tries)
        trying.close()
    KafkaSink(kafka.bootstrap_servers, topic, format=RAW).commit(committables, context("outage/tries"))
    # A producer and a consumer that had nothing to do meanwhile go on.
    waiting.write(rows(5))
    sink.commit(waiting.prepare(2), waits)
    waiting.close()
    while len(read) < 5:
        read += [row["v"] for row in topics.take(reader).to_pylist()]
    reader.close()
    assert read == values(kafka.bootstrap_servers, topic) == ["1", "2", "3", "4", "5"]
    assert transactions_end(kafka.bootstrap_servers, topic)
