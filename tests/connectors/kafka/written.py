"""Writes through sinks, and reads what is there by aiokafka alone, for the tests of this folder."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from penstock.connectors.kafka import KafkaSink
from penstock.connectors.records.raw import RawFormat
from penstock.engine.clock import SystemClock
from penstock.engine.connectors import Committable, ConnectorContext
from penstock.engine.elements import Batch

RAW = RawFormat("v", "string")
CLOCK = SystemClock()
_ENDING_SECONDS: Final = 120.0
"""How long a busy broker may take to end a transaction whose commit it has confirmed."""


def context(identity: str = "", subtask: int = 0, parallelism: int = 1) -> ConnectorContext:
    return ConnectorContext("write", subtask, parallelism, CLOCK, identity)


def rows(*values: Any, **columns: Sequence[Any]) -> Batch:
    """A batch with the values in column `v`."""
    return Batch(pa.record_batch({"v": pa.array([str(value) for value in values], pa.string()), **columns}))


def prepared(sink: KafkaSink, where: ConnectorContext, *epochs: Sequence[Any], first: int = 1) -> list[Committable]:
    """What a writer prepares for one checkpoint after the other; it is then closed."""
    writer = sink.open(where)
    try:
        committables: list[Committable] = []
        for checkpoint, values in enumerate(epochs, first):
            writer.write(rows(*values))
            committables += writer.prepare(checkpoint)
        return committables
    finally:
        writer.close()


def records(servers: str, topic: str, isolation: str = "read_committed") -> list[Any]:
    """All records of a topic, partition after partition; none of an open transaction if they must be committed."""
    return asyncio.run(_records(servers, topic, isolation))


async def _records(servers: str, topic: str, isolation: str) -> list[Any]:
    async with AIOKafkaConsumer(bootstrap_servers=servers, isolation_level=isolation) as consumer:
        partitions = await _partitions(servers, topic)
        ends = await _settled_ends(servers, consumer, partitions)
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        found: dict[TopicPartition, list[Any]] = {one: [] for one in partitions}
        while any([await consumer.position(one) < ends[one] for one in partitions]):
            for one, some in (await consumer.getmany(timeout_ms=50)).items():
                found[one] += some
        return [record for one in partitions for record in found[one]]


async def _settled_ends(
    servers: str, consumer: AIOKafkaConsumer, partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """Where the consumer's topics end, once transactions that have just been committed are seen.

    Who commits is told before readers see it: on a busy machine seconds before.

    Raises:
        TimeoutError: a transaction stays open.
    """
    async with AIOKafkaConsumer(bootstrap_servers=servers) as uncommitted:
        newest = await uncommitted.end_offsets(partitions)
    give_up = time.monotonic() + _ENDING_SECONDS
    ends = await consumer.end_offsets(partitions)
    while any(ends[one] < newest[one] for one in partitions):
        if time.monotonic() > give_up:
            raise TimeoutError(f"a transaction stays open: {ends} of {newest}")
        await asyncio.sleep(0.02)
        ends = await consumer.end_offsets(partitions)
    return dict(ends)


async def _partitions(servers: str, topic: str) -> list[TopicPartition]:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    try:
        await admin.start()
        (described,) = await admin.describe_topics([topic])
        return sorted(TopicPartition(topic, one["partition"]) for one in described["partitions"])
    finally:
        await admin.close()


def values(servers: str, topic: str, isolation: str = "read_committed") -> list[str]:
    """The values of a topic, partition after partition."""
    return [record.value.decode() for record in records(servers, topic, isolation)]


def open_transactions(servers: str, topic: str) -> int:
    """How many partitions of a topic hold back readers of committed records."""

    async def ends(isolation: str) -> dict[TopicPartition, int]:
        async with AIOKafkaConsumer(bootstrap_servers=servers, isolation_level=isolation) as consumer:
            return dict(await consumer.end_offsets(await _partitions(servers, topic)))

    stable, newest = asyncio.run(ends("read_committed")), asyncio.run(ends("read_uncommitted"))
    return sum(stable[one] < newest[one] for one in newest)


def transactions_end(servers: str, topic: str) -> bool:
    """Whether no transaction stays open that holds back readers of committed records."""
    give_up = time.monotonic() + _ENDING_SECONDS
    while open_transactions(servers, topic):
        if time.monotonic() > give_up:
            return False
        time.sleep(0.1)
    return True
