"""Kafka keeps records, offsets and ports over restarts, knows its users, and three brokers survive the loss of one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, TopicAuthorizationFailedError

from penstock.engine.errors import ConfigurationError
from penstock.testing.services import Kafka


async def produce(servers: str, topic: str, values: Sequence[bytes], **options: Any) -> None:
    # All replicas: what only a leader has is lost with it.
    producer = AIOKafkaProducer(bootstrap_servers=servers, acks="all", **options)
    try:
        await producer.start()
        for value in values:
            await producer.send_and_wait(topic, value)
    finally:  # `async with` leaves a producer open that could not log in.
        await producer.stop()


async def consume(servers: str, topic: str, count: int) -> list[bytes]:
    found: list[bytes] = []
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        while len(found) < count:
            found.append((await consumer.getone()).value)
    return found


def login(user: str, password: str) -> dict[str, str]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }


@pytest.mark.long("tests/connectors/kafka/test_outage.py starts a broker that was killed")
def test_records_stay_over_restart_and_kill(kafka: Kafka) -> None:
    kafka.create_topic("test-kept")
    asyncio.run(produce(kafka.bootstrap_servers, "test-kept", [b"1"]))
    kafka.restart()
    asyncio.run(produce(kafka.bootstrap_servers, "test-kept", [b"2"]))
    kafka.kill()
    kafka.start()
    asyncio.run(produce(kafka.bootstrap_servers, "test-kept", [b"3"]))
    assert asyncio.run(consume(kafka.bootstrap_servers, "test-kept", 3)) == [b"1", b"2", b"3"]


def test_transactions_work(kafka: Kafka) -> None:
    async def run() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=kafka.bootstrap_servers, transactional_id="test-transactions"
        ) as producer:
            await producer.begin_transaction()
            await producer.send_and_wait("test-transactions", b"dropped")
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send_and_wait("test-transactions", b"kept")

    kafka.create_topic("test-transactions")
    asyncio.run(run())
    assert asyncio.run(consume(kafka.bootstrap_servers, "test-transactions", 1)) == [b"kept"]


def test_a_paused_broker_does_not_answer(kafka: Kafka) -> None:
    (broker,) = kafka.brokers
    kafka.pause()
    with pytest.raises(TimeoutError):
        broker.registered_brokers()
    kafka.resume()
    broker.await_ready()
    assert broker.registered_brokers() == {1}


def test_users_have_the_rights_they_should(kafka: Kafka) -> None:
    servers = kafka.sasl_bootstrap_servers
    kafka.create_topic("test-rights")
    asyncio.run(produce(servers, "test-rights", [b"1"], **login(kafka.user_name, kafka.password)))
    with pytest.raises(TopicAuthorizationFailedError):
        asyncio.run(produce(servers, "test-rights", [b"2"], **login(kafka.guest_name, kafka.guest_password)))
    with pytest.raises(KafkaError):
        asyncio.run(produce(servers, "test-rights", [b"3"], **login(kafka.user_name, "guess")))


def test_topics_are_made_on_demand_only_and_once(kafka: Kafka) -> None:
    kafka.create_topic("test-topic", partitions=3, settings={"max.message.bytes": "2000000"})
    with pytest.raises(TopicAlreadyExistsError, match="test-topic"):
        kafka.create_topic("test-topic")


def test_records_of_old_times_are_not_deleted(kafka: Kafka) -> None:
    """Brokers look for those every five minutes, so a test that comes upon it fails once in a while."""

    async def settings_of(topic: str) -> list[Any]:
        admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
        await admin.start()
        try:
            (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
        finally:
            await admin.close()
        return [setting for *_, settings in answer.resources for setting in settings]

    kafka.create_topic("test-old-times")
    values = {name: value for name, value, *_ in asyncio.run(settings_of("test-old-times"))}
    assert values["retention.ms"] == "-1"


def test_a_cluster_has_a_broker() -> None:
    with pytest.raises(ConfigurationError, match="one broker or more"):
        Kafka(brokers=0)


@pytest.mark.long("the test above; tests/connectors/kafka/test_outage.py kills the only broker")
def test_three_brokers_survive_the_loss_of_one() -> None:
    with Kafka(brokers=3) as kafka:
        kafka.create_topic("test-failover", partitions=3)
        asyncio.run(produce(kafka.bootstrap_servers, "test-failover", [b"1"] * 6))
        kafka.brokers[0].kill()
        asyncio.run(produce(kafka.bootstrap_servers, "test-failover", [b"2"] * 6))
        assert sorted(asyncio.run(consume(kafka.bootstrap_servers, "test-failover", 12))) == [b"1"] * 6 + [b"2"] * 6
        kafka.brokers[0].start()
        assert kafka.brokers[0].registered_brokers() == {1, 2, 3}
