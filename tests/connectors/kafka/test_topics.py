"""What the brokers say of topics is asked again where the answer passes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import ClusterAuthorizationFailedError, KafkaConnectionError

from penstock.connectors.kafka.topics import topic_settings

UNKNOWN, REFUSED = 3, 29
SEEN = [("cleanup.policy", "compact", False, False, False)]


def answer(code: int) -> Any:
    return [SimpleNamespace(resources=[(code, "", 2, "markers", [] if code else SEEN)])]


class Admin:
    """A client that gives these answers, one after another."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    async def describe_configs(self, _: Sequence[Any]) -> Any:
        given = self.answers.pop(0)
        if isinstance(given, Exception):
            raise given
        return given


@pytest.mark.parametrize("first", [answer(UNKNOWN), KafkaConnectionError("in want of time")], ids=["unknown", "lost"])
def test_a_broker_that_does_not_know_the_topic_yet_is_asked_again(first: Any) -> None:
    admin: Any = Admin(first, answer(0))
    assert asyncio.run(topic_settings(admin, ["markers"])) == {"markers": {"cleanup.policy": "compact"}}


@pytest.mark.parametrize("only", [answer(REFUSED), ClusterAuthorizationFailedError()], ids=["topic", "cluster"])
def test_a_user_who_may_not_see_the_settings_gets_none_at_once(only: Any) -> None:
    admin: Any = Admin(only)
    assert asyncio.run(topic_settings(admin, ["markers"])) == {}
