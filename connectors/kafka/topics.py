"""What the brokers say about topics: how many partitions one has, and which records it takes.

The sink asks when a job is planned and in each subtask, each time over a connection of its own. No topic is ever made
by asking.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from penstock.connectors.kafka.connection import EventLoopThread, KafkaConnection, connected, library_version
from penstock.engine.errors import ConfigurationError, nearest

if TYPE_CHECKING:
    from aiokafka.admin import AIOKafkaAdminClient

_T = TypeVar("_T")

REQUEST_SECONDS: Final = 8.0
_AGAIN_SECONDS: Final = 0.1
_ALL_SECONDS: Final = 30.0
_CLIENT_LIMIT: Final = 1 << 20
"""`max_request_size` of Kafka's producers where nobody sets it."""
_ANY_TIME: Final = (1 << 63) - 1
"""What the limits of records' times are where there is none."""


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What a producer must know about a topic.

    Args:
        partitions: how many.
        max_bytes: of a record with all that belongs to it, and of a batch of them.
        limit_name: the setting that `max_bytes` is of.
        compacted: whether each record must have a key.
        max_ahead_ms: how far in the future a record's time may be, or None for any.
        max_behind_ms: how far in the past, or None for any.
    """

    partitions: int
    max_bytes: int
    limit_name: str
    compacted: bool = False
    max_ahead_ms: int | None = None
    max_behind_ms: int | None = None


def ask(work: Coroutine[Any, Any, _T], patience: float = 0.0) -> _T:
    """What the coroutine gives, in an event loop of its own.

    Args:
        patience: seconds that it may wait for something else than the brokers.

    Raises:
        ConnectionError: no broker can be used, or they do not answer in time, or as they should.
        ConfigurationError: aiokafka is not installed, or the brokers refuse what they are asked.
    """
    try:
        library_version()
    except ConfigurationError:
        work.close()
        raise
    from aiokafka.errors import KafkaError

    try:
        with EventLoopThread("kafka-ask") as loop:
            return loop.run(work, _ALL_SECONDS + patience)
    except TimeoutError as error:
        raise ConnectionError(f"kafka: {error}") from None
    except KafkaError as error:
        if error.retriable:
            raise ConnectionError(f"kafka: the brokers do not answer as they should: {error}; try again") from error
        raise ConfigurationError(f"kafka: the brokers refuse: {error}; check the permissions of the user") from error


async def started_admin(connection: KafkaConnection) -> AIOKafkaAdminClient:
    """A client that the caller closes; errors as of `connected`."""
    from aiokafka.admin import AIOKafkaAdminClient

    admin = AIOKafkaAdminClient(**connection.client_arguments())
    try:
        await connected(admin.start(), connection)
    except BaseException:
        await admin.close()
        raise
    return admin


def describe_topics(connection: KafkaConnection, names: Collection[str]) -> dict[str, TopicFacts]:
    """The facts about some topics.

    Raises:
        ConfigurationError: there is no such topic, or the user may not see it.
        ConnectionError: no broker can be used.
    """
    return ask(_describe(connection, names))


async def _describe(connection: KafkaConnection, names: Collection[str]) -> dict[str, TopicFacts]:
    admin = await started_admin(connection)
    try:
        partitions = await existing_partitions(admin)
        for name in names:
            if name not in partitions:
                raise ConfigurationError(
                    f"kafka: there is no topic {name!r}, or the user may not see it{nearest(name, partitions)}: make "
                    "it, or grant the user DESCRIBE and WRITE on it; the sink makes none"
                )
        settings = await topic_settings(admin, names)
        return {name: _facts(partitions[name], settings.get(name), connection) for name in names}
    finally:
        await admin.close()


def check_may_write(connection: KafkaConnection, names: Collection[str]) -> None:
    """Whether the user may write to some topics; nothing is written.

    Raises:
        ConfigurationError: no.
        ConnectionError: no broker can be used.
    """
    ask(_check_may_write(connection, names))


async def _check_may_write(connection: KafkaConnection, names: Collection[str]) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import TopicAuthorizationFailedError, for_code
    from aiokafka.protocol.produce import ProduceRequest

    producer = AIOKafkaProducer(**connection.client_arguments())
    try:
        await connected(producer.start(), connection)
        # No records at all: any broker says first whether the user may write, and otherwise that this is no request.
        empty = ProduceRequest(
            transactional_id=None, required_acks=-1, timeout=1000, topics=[(name, [(0, b"")]) for name in names]
        )
        sending: Any = producer.client.send(producer.client.get_random_node(), empty)
        answer = await asyncio.wait_for(sending, REQUEST_SECONDS)
        for name, partitions in answer.topics:
            if any(for_code(told[1]) is TopicAuthorizationFailedError for told in partitions):
                raise ConfigurationError(f"kafka: the user may not write to topic {name!r}; grant the user WRITE on it")
    finally:
        await producer.stop()


async def existing_partitions(admin: AIOKafkaAdminClient) -> dict[str, int]:
    """How many partitions each topic has. All are asked for: asking for one by its name may make it."""
    topics = await asyncio.wait_for(admin.describe_topics(None), REQUEST_SECONDS)
    return {one["topic"]: len(one["partitions"]) for one in topics if not one["error_code"]}


async def topic_settings(admin: AIOKafkaAdminClient, names: Collection[str]) -> dict[str, Mapping[str, str]]:
    """The settings of those topics that the user may see them of.

    A broker that does not know them yet, or is in want of time, is asked again.
    """
    from aiokafka.errors import KafkaError

    deadline = time.monotonic() + REQUEST_SECONDS
    found: dict[str, Mapping[str, str]] = {}
    while True:
        try:
            answered, is_all = await _settings_now(admin, names)
            found.update(answered)
        except KafkaError as error:
            is_all = not error.retriable
        if is_all or time.monotonic() > deadline:
            return found
        await asyncio.sleep(_AGAIN_SECONDS)


async def _settings_now(
    admin: AIOKafkaAdminClient, names: Collection[str]
) -> tuple[dict[str, Mapping[str, str]], bool]:
    """The settings that are answered, and whether another question would be answered in the same way."""
    from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
    from aiokafka.errors import for_code

    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    answers: Any = await asyncio.wait_for(admin.describe_configs(resources), REQUEST_SECONDS)
    found: dict[str, Mapping[str, str]] = {}
    is_all = True
    for answer in answers:
        for code, _, _, name, entries in answer.resources:
            if not code:
                found[name] = {entry[0]: entry[1] for entry in entries}
            is_all = is_all and not for_code(code).retriable
    return found, is_all


def _facts(partitions: int, settings: Mapping[str, str] | None, connection: KafkaConnection) -> TopicFacts:
    if settings is None:
        limit = int(connection.options.get("max_request_size", _CLIENT_LIMIT))
        return TopicFacts(partitions, limit, "options={'max_request_size': ...}")
    return TopicFacts(
        partitions,
        int(settings["max.message.bytes"]),
        "the topic's max.message.bytes",
        compacted="compact" in settings.get("cleanup.policy", ""),
        max_ahead_ms=_time_limit(settings, "after"),
        max_behind_ms=_time_limit(settings, "before"),
    )


def _time_limit(settings: Mapping[str, str], side: str) -> int | None:
    """How far from the clock a record's time may be; before Kafka 4 one setting may stand for both sides."""
    if settings.get("message.timestamp.type") == "LogAppendTime":
        return None
    names = (f"message.timestamp.{side}.max.ms", "message.timestamp.difference.max.ms")
    limits = (int(settings.get(name, _ANY_TIME)) for name in names)
    return next((limit for limit in limits if limit != _ANY_TIME), None)


class TopicCatalog:
    """The facts about the topics that a subtask writes to, each asked for once.

    Example:
        >>> TopicCatalog(KafkaConnection.of("localhost:9092")).facts("clicks").partitions  # doctest: +SKIP
        4
    """

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection
        self._facts: dict[str, TopicFacts] = {}

    def facts(self, topic: str) -> TopicFacts:
        """What is known about a topic; errors as of `describe_topics`."""
        if topic not in self._facts:
            self._facts |= describe_topics(self._connection, [topic])
        return self._facts[topic]
