"""The marker topic: which checkpoint each writer of exactly-once sinks has committed last.

A marker is written in the transaction that it speaks of, so one is there if and only if the other is. The topic is
compacted: a record for each writer is kept for ever, so that even an old savepoint commits nothing twice.

A committable says where in the topic a marker of its checkpoint can begin to be (`MarkerPlace`), and only what lies
behind is read: about the markers that were written since, however long the topic is.
"""

from __future__ import annotations

import asyncio
import json
import logging
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.connectors.kafka.connection import KafkaConnection, connected
from penstock.connectors.kafka.topics import (
    REQUEST_SECONDS,
    ask,
    existing_partitions,
    started_admin,
    topic_settings,
)
from penstock.engine.errors import ConfigurationError

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer, TopicPartition
    from aiokafka.admin import AIOKafkaAdminClient

_LOG = logging.getLogger(__name__)
_PARTITIONS: Final = 16
_REPLICAS: Final = 3
_SETTINGS: Final[Mapping[str, str]] = {"cleanup.policy": "compact", "segment.bytes": str(16 << 20)}
"""Small segments, because the newest of a partition is never compacted."""
_POLL_MS: Final = 50


@dataclass(frozen=True, slots=True)
class MarkerPlace:
    """A partition of a marker topic, and an offset before which a marker is not looked for."""

    topic: str
    partition: int
    offset: int


def marker_value(checkpoint: int) -> bytes:
    """The value of the record whose key is the writer's name."""
    return json.dumps({"checkpoint": checkpoint}).encode()


def prepare_marker_topic(connection: KafkaConnection, topic: str) -> None:
    """Make the topic, or check it if it is there.

    Raises:
        ConfigurationError: it cannot be made, or is not compacted.
        ConnectionError: no broker can be used.
    """
    ask(_prepare(connection, topic))


async def _prepare(connection: KafkaConnection, topic: str) -> None:
    admin = await started_admin(connection)
    try:
        if topic not in await existing_partitions(admin):
            await _create(admin, topic)
        settings = (await topic_settings(admin, [topic])).get(topic)
        if settings is None:
            _LOG.warning(
                "kafka sink: nobody knows whether the marker topic %r is compacted, as it must be: the user may not "
                "see its settings (DESCRIBE_CONFIGS)",
                topic,
            )
            return
        policy = settings["cleanup.policy"]
        if policy != "compact":
            raise ConfigurationError(
                f"kafka sink: the marker topic {topic!r} has cleanup.policy={policy}, so markers would be lost and "
                "rows written twice: set it to compact, or give another marker_topic"
            )
    finally:
        await admin.close()


async def _create(admin: AIOKafkaAdminClient, topic: str) -> None:
    from aiokafka.admin import NewTopic
    from aiokafka.errors import TopicAlreadyExistsError, for_code

    brokers = len((await admin.describe_cluster())["brokers"])
    new = NewTopic(topic, _PARTITIONS, min(brokers, _REPLICAS), topic_configs=dict(_SETTINGS))
    answer: Any = await asyncio.wait_for(admin.create_topics([new]), REQUEST_SECONDS)
    for _, code, *message in answer.topic_errors:
        error = for_code(code)
        if code and error is not TopicAlreadyExistsError:
            settings = " ".join(f"--config {name}={value}" for name, value in _SETTINGS.items())
            raise ConfigurationError(
                f"kafka sink: the marker topic {topic!r} is not there and cannot be made ({error.__name__}: "
                f"{message[0] if message else ''}): make it by `kafka-topics.sh --create --topic {topic} --partitions "
                f"{_PARTITIONS} --replication-factor {min(brokers, _REPLICAS)} {settings}`, or grant the user CREATE "
                "on it; the sink also needs DESCRIBE, READ and WRITE"
            )


def place_of(connection: KafkaConnection, topic: str, writer: str) -> MarkerPlace:
    """Where the next marker of a writer can be.

    Raises:
        ConnectionError: no broker can be used.
        ConfigurationError: there is no such topic.
    """
    return ask(_place_of(connection, topic, writer))


async def _place_of(connection: KafkaConnection, topic: str, writer: str) -> MarkerPlace:
    from aiokafka import TopicPartition

    admin = await started_admin(connection)
    try:
        count = (await existing_partitions(admin)).get(topic)
    finally:
        await admin.close()
    if count is None:
        raise ConfigurationError(f"kafka sink: the marker topic {topic!r} is gone, or the user may not see it")
    partition = TopicPartition(topic, zlib.crc32(writer.encode()) % count)
    return MarkerPlace(topic, partition.partition, (await _ends(connection, [partition]))[partition])


async def _ends(connection: KafkaConnection, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Behind the newest record, whether it is committed or not."""
    consumer = await _consumer(connection, "read_uncommitted")
    try:
        return dict(await asyncio.wait_for(consumer.end_offsets(partitions), REQUEST_SECONDS))
    finally:
        await consumer.stop()


async def _consumer(connection: KafkaConnection, isolation: str) -> AIOKafkaConsumer:
    from aiokafka import AIOKafkaConsumer

    arguments = connection.consumer_arguments() | {
        "isolation_level": isolation,
        "auto_offset_reset": "none",
        "enable_auto_commit": False,
        "fetch_max_wait_ms": _POLL_MS,
    }
    consumer = AIOKafkaConsumer(**arguments)
    try:
        await connected(consumer.start(), connection)
    except BaseException:
        await consumer.stop()
        raise
    return consumer


def newest_markers(connection: KafkaConnection, places: Mapping[str, MarkerPlace], patience: float) -> dict[str, int]:
    """The newest committed checkpoint of each writer that has a marker at its place or behind it.

    Called when the transactional ids of all these writers are initialised: what they had left open is ended then, so
    that all their markers lie before the end that is read to. Transactions of other writers may be open there; their
    end is waited for, because no reader can pass them.

    Args:
        connection: of the cluster.
        places: by writer.
        patience: seconds to wait for others.

    Raises:
        ConnectionError: no broker can be used, or another writer's transaction stayed open.
        ConfigurationError: the topic is not the one that it was.
    """
    return ask(_newest(connection, places, patience), patience)


async def _newest(connection: KafkaConnection, places: Mapping[str, MarkerPlace], patience: float) -> dict[str, int]:
    from aiokafka import TopicPartition

    begins: dict[TopicPartition, int] = {}
    for place in places.values():
        partition = TopicPartition(place.topic, place.partition)
        begins[partition] = min(place.offset, begins.get(partition, place.offset))
    ends = await _ends(connection, list(begins))
    for partition, begin in begins.items():
        if begin > ends[partition]:
            raise ConfigurationError(
                f"kafka sink: the marker topic {partition.topic!r}, partition {partition.partition}, ends at offset "
                f"{ends[partition]} and reached to {begin} before: it was deleted or made anew, so that nobody knows "
                "which checkpoints are committed. Give another marker_topic to commit the rows of the checkpoint, if "
                "need be a second time"
            )
    behind = {partition: begin for partition, begin in begins.items() if begin < ends[partition]}
    return await _read(connection, behind, ends, places, patience) if behind else {}


async def _read(
    connection: KafkaConnection,
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    places: Mapping[str, MarkerPlace],
    patience: float,
) -> dict[str, int]:
    newest: dict[str, int] = {}
    consumer = await _consumer(connection, "read_committed")
    try:
        consumer.assign(list(begins))
        for partition, begin in begins.items():
            consumer.seek(partition, begin)
        waiting = set(begins)
        deadline = asyncio.get_running_loop().time() + patience
        while waiting:
            for records in (await consumer.getmany(timeout_ms=_POLL_MS)).values():
                for record in records:
                    writer = (record.key or b"").decode("utf-8", "replace")
                    if writer in places and record.value is not None:
                        newest[writer] = max(newest.get(writer, 0), int(json.loads(record.value)["checkpoint"]))
            waiting = {one for one in waiting if await consumer.position(one) < ends[one]}
            if waiting and asyncio.get_running_loop().time() > deadline:
                one = next(iter(waiting))
                raise ConnectionError(
                    f"a transaction of another writer is open in the marker topic {one.topic!r}, partition "
                    f"{one.partition}: its job resumes and ends it, or its transaction_timeout does"
                )
    finally:
        await consumer.stop()
    return newest
