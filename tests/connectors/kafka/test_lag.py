"""How many records wait for a source, by what the brokers said last; without a broker."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from aiokafka import TopicPartition

from penstock.connectors.kafka.connection import KafkaConnection
from penstock.connectors.kafka.consumer import PartitionConsumer

ONE, OTHER, THIRD = (TopicPartition("orders", number) for number in range(3))


class Brokers:
    """A client that knows the ends of two partitions, and has not heard of the third yet."""

    def highwater(self, partition: TopicPartition) -> int | None:
        return {ONE: 10, OTHER: 100}.get(partition)

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        pass

    def seek(self, partition: TopicPartition, offset: int) -> None:
        pass


def test_what_waits_is_counted_over_all_partitions_from_where_each_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def start(consumer: PartitionConsumer, commit_to: str | None) -> None:
        consumer._consumer = Brokers()  # type: ignore[assignment]

    monkeypatch.setattr(PartitionConsumer, "_start", start)
    consumer = PartitionConsumer(KafkaConnection.of("127.0.0.1:9", None), None, "lag")
    consumer.add(THIRD, 0)
    consumer._thread.run(_nothing(), 5.0)
    assert math.isnan(consumer.pending())
    for partition, offset in ((ONE, 4), (OTHER, 90)):
        consumer.add(partition, offset)
    consumer._thread.run(_nothing(), 5.0)
    assert consumer.pending() == 6 + 10
    consumer.have_read(ONE, 9)
    assert consumer.pending() == 1 + 10
    consumer.have_read(OTHER, 100)
    assert consumer.pending() == 1
    consumer._thread.close()


async def _nothing() -> None:
    """What has been handed to the loop before is done when this is."""
