"""The Kafka source keeps the rules of the connector API."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from penstock.connectors.kafka import KafkaSource
from penstock.connectors.records.raw import RawFormat
from penstock.engine.connectors import Source
from penstock.testing.connector_suite import SourceSuite
from penstock.testing.services.kafka import Kafka
from tests.connectors.kafka.topics import produce

COUNT = 40


@pytest.fixture(scope="module")
def topic(kafka: Kafka) -> str:
    """Three partitions, one of them empty."""
    name = f"suite-{uuid.uuid4().hex[:10]}"
    kafka.create_topic(name, partitions=3, settings={"retention.ms": "-1"})
    for partition in (0, 2):
        values = [b"%d" % number for number in range(COUNT) if number % 3 // 2 == partition // 2]
        produce(kafka.bootstrap_servers, name, values, partition)
    return name


class TestKafkaSource(SourceSuite):
    @pytest.fixture(autouse=True, params=["latest", None])
    def _topic(self, request: pytest.FixtureRequest, kafka: Kafka, topic: str) -> None:
        self.servers, self.topic, self.until = kafka.bootstrap_servers, topic, request.param

    def source(self) -> Source:
        return KafkaSource(self.servers, self.topic, format=RawFormat("value"), until=self.until)

    def expected(self) -> list[dict[str, Any]]:
        return [{"value": b"%d" % number} for number in range(COUNT)]
