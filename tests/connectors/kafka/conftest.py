"""Topics for the tests of this folder."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from penstock.testing.services.kafka import Kafka


@pytest.fixture
def new_topic(kafka: Kafka) -> Callable[..., str]:
    """Makes topics that no other test has."""

    def make(partitions: int = 1, prefix: str = "t") -> str:
        topic = f"{prefix}-{uuid.uuid4().hex[:10]}"
        # Records of 1970 are deleted otherwise, some time after the broker's start.
        kafka.create_topic(topic, partitions=partitions, settings={"retention.ms": "-1"})
        return topic

    return make
