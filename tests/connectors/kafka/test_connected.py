"""What is said of a client that cannot start."""

from __future__ import annotations

import asyncio

import pytest

from penstock.connectors.kafka.connection import KafkaConnection, connected
from penstock.connectors.kafka.producer import may_pass


def test_a_broker_that_has_just_started_and_names_none_is_asked_again() -> None:
    async def start() -> None:
        # As aiokafka 0.14 does.
        raise AssertionError("Did we not perform bootstrap?")

    with pytest.raises(ConnectionError, match="no Kafka broker can be used at localhost:9") as raised:
        asyncio.run(connected(start(), KafkaConnection(("localhost:9",))))
    assert may_pass(raised.value)
