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
        kafka.create_topic(topic, partitions=partitions)
        return topic

    return make
