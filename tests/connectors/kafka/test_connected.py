"""What is said of a client that cannot start."""

from __future__ import annotations

import asyncio
import logging

import pytest
from aiokafka.errors import GroupAuthorizationFailedError, KafkaConnectionError, KafkaError, NodeNotReadyError

from penstock.connectors.kafka.client_log import installed
from penstock.connectors.kafka.connection import KafkaConnection, connected
from penstock.connectors.kafka.producer import may_pass
from penstock.connectors.kafka.topics import ask
from penstock.engine.errors import ConfigurationError


def test_a_broker_that_has_just_started_and_names_none_is_asked_again() -> None:
    async def start() -> None:
        # As aiokafka 0.14 does.
        raise AssertionError("Did we not perform bootstrap?")

    with pytest.raises(ConnectionError, match="no Kafka broker can be used at localhost:9") as raised:
        asyncio.run(connected(start(), KafkaConnection(("localhost:9",))))
    assert may_pass(raised.value)


@pytest.mark.parametrize("answers", [False, True])
def test_what_the_client_logs_of_it_is_in_the_error_alone(caplog: pytest.LogCaptureFixture, answers: bool) -> None:
    async def start() -> None:
        logging.getLogger("aiokafka").error('Unable connect to "%s:%d"', "localhost", 9)
        if not answers:
            raise KafkaConnectionError("Unable to bootstrap")

    installed().answered(0.0)
    caplog.clear()
    connecting = connected(start(), KafkaConnection(("localhost:9", "localhost:10")))
    if answers:
        asyncio.run(connecting)
        assert caplog.messages == ['Unable connect to "localhost:9"'], "of one of two brokers"
    else:
        with pytest.raises(ConnectionError, match='Unable connect to "localhost:9"; check'):
            asyncio.run(connecting)
        assert caplog.messages == []


@pytest.mark.parametrize(
    ("error", "raised", "words"),
    [
        (NodeNotReadyError("node 1"), ConnectionError, "do not answer as they should: NodeNotReadyError: node 1"),
        (
            GroupAuthorizationFailedError("g"),
            ConfigurationError,
            r"refuse: .*GroupAuthorizationFailedError: g; check the",
        ),
    ],
)
def test_what_the_client_raises_while_brokers_are_asked_is_said_as_an_error_of_ours(
    error: KafkaError, raised: type[Exception], words: str
) -> None:
    async def asked() -> None:
        raise error

    with pytest.raises(raised, match=words):
        ask(asked())
