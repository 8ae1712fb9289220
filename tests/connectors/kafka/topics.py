"""Writes topics and reads sources to their end, for the tests of this folder."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from penstock.connectors.kafka import KafkaSource, KafkaSplit
from penstock.engine.clock import SystemClock
from penstock.engine.connectors import ConnectorContext, SourceReader, Wait

CLOCK = SystemClock()


def produce(servers: str, topic: str, values: Sequence[Any], partition: int = 0, **settings: Any) -> None:
    """Append records; a value is bytes, None or a dict of `send`'s arguments. All but the newest wait for nothing."""

    async def send() -> None:
        async with AIOKafkaProducer(bootstrap_servers=servers, **settings) as producer:
            for value in values:
                arguments = value if isinstance(value, dict) else {"value": value}
                await producer.send(topic, partition=partition, **arguments)
            await producer.flush()

    asyncio.run(send())


def transact(servers: str, topic: str, values: Sequence[bytes], end: str) -> None:
    """Append records in a transaction that is committed or aborted."""

    async def send() -> None:
        settings = {"bootstrap_servers": servers, "transactional_id": f"{topic}-tx"}
        async with AIOKafkaProducer(**settings) as producer:
            await producer.begin_transaction()
            for value in values:
                await producer.send_and_wait(topic, value, partition=0)
            await getattr(producer, f"{end}_transaction")()

    asyncio.run(send())


def commit(servers: str, group: str, offsets: dict[tuple[str, int], int]) -> None:
    """Commit the offsets of a group."""

    async def send() -> None:
        async with AIOKafkaConsumer(bootstrap_servers=servers, group_id=group, enable_auto_commit=False) as consumer:
            partitions = {TopicPartition(*key): offset for key, offset in offsets.items()}
            consumer.assign(list(partitions))
            await consumer.commit(partitions)

    asyncio.run(send())


def committed(servers: str, group: str, topic: str) -> int | None:
    """The offset that a group has committed of partition 0."""

    async def ask() -> int | None:
        async with AIOKafkaConsumer(bootstrap_servers=servers, group_id=group, enable_auto_commit=False) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            found: int | None = await consumer.committed(TopicPartition(topic, 0))
            return found

    return asyncio.run(ask())


def context() -> ConnectorContext:
    return ConnectorContext("read", 0, 1, CLOCK)


def take(reader: SourceReader, max_rows: int = 1000) -> pa.RecordBatch | None:
    """The next batch, waited for as the engine does."""
    while isinstance(answer := reader.next_batch(max_rows), Wait):
        CLOCK.wait_until(answer.until)
    return answer


def read(source: KafkaSource, splits: Sequence[KafkaSplit] | None = None, max_rows: int = 1000) -> list[dict[str, Any]]:
    """All rows of a bounded source, partition after partition."""
    where, rows = context(), []
    for split in splits if splits is not None else source.splits(1):
        reader = source.open(split, where)
        try:
            while (batch := take(reader, max_rows)) is not None:
                assert 0 < batch.num_rows <= max_rows
                assert batch.schema.equals(source.schema)
                batch.validate(full=True)
                rows += batch.to_pylist()
        finally:
            reader.close()
    return rows
