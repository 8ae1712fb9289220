"""The Kafka source and sink keep the rules of the connector API."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from penstock.connectors.kafka import KafkaSink, KafkaSource
from penstock.connectors.records import JsonFormat
from penstock.connectors.records.raw import RawFormat
from penstock.engine.connectors import Sink, Source, TransactionalSink
from penstock.testing.connector_suite import AtLeastOnceSinkSuite, SourceSuite, TransactionalSinkSuite
from penstock.testing.services.kafka import Kafka
from tests.connectors.kafka.topics import produce
from tests.connectors.kafka.written import values
from tests.draws import drawn

COUNT = 40
LONG = pytest.mark.long("test_columnar.py: both ways give the same; test_source.py: sources that end")
FORMAT = JsonFormat({"id": "int64", "name": "string"})


@pytest.fixture(scope="module")
def topic(kafka: Kafka) -> str:
    """Three partitions, one of them empty."""
    name = f"suite-{uuid.uuid4().hex[:10]}"
    kafka.create_topic(name, partitions=3)
    for partition in (0, 2):
        sent = [b"%d" % number for number in range(COUNT) if number % 3 // 2 == partition // 2]
        produce(kafka.bootstrap_servers, name, sent, partition)
    return name


class TestKafkaSource(SourceSuite):
    """By its own columnar decoding, and by the client library's documented way to fetch."""

    seeds = (1,)
    most_positions = drawn(6)

    @pytest.fixture(autouse=True, params=["columnar endless", pytest.param("documented bounded", marks=LONG)])
    def _topic(self, request: pytest.FixtureRequest, kafka: Kafka, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
        way, kind = request.param.split()
        self.servers, self.topic = kafka.bootstrap_servers, topic
        self.until: Any = "latest" if kind == "bounded" else None
        if way == "documented":
            # A version whose inner parts nobody has looked at.
            monkeypatch.setattr("penstock.connectors.kafka.consumer.library_version", lambda: "0.15.1")

    def source(self) -> Source:
        return KafkaSource(self.servers, self.topic, format=RawFormat("value"), until=self.until)

    def expected(self) -> list[dict[str, Any]]:
        return [{"value": b"%d" % number} for number in range(COUNT)]


class TestKafkaSink(TransactionalSinkSuite):
    seeds = (1,)
    most_crashes = drawn(4)

    @pytest.fixture(autouse=True)
    def _servers(self, kafka: Kafka, new_topic: Callable[..., str]) -> None:
        self.servers, self.new_topic = kafka.bootstrap_servers, new_topic
        self.topics: dict[str, str] = {}

    def sink(self) -> TransactionalSink:
        topic = self.new_topic(2)
        sink = KafkaSink(self.servers, topic, key="name", format=FORMAT)
        self.topics[sink.describe()] = topic
        return sink

    def read_back(self, sink: TransactionalSink) -> list[dict[str, Any]]:
        return [json.loads(value) for value in values(self.servers, self.topics[sink.describe()])]


class TestAtLeastOnceKafkaSink(AtLeastOnceSinkSuite):
    seeds = (1,)
    most_crashes = drawn(4)

    @pytest.fixture(autouse=True)
    def _servers(self, kafka: Kafka, new_topic: Callable[..., str]) -> None:
        self.servers, self.new_topic = kafka.bootstrap_servers, new_topic
        self.topics: dict[str, str] = {}

    def sink(self) -> Sink:
        topic = self.new_topic(2)
        sink = KafkaSink(self.servers, topic, key="name", format=FORMAT, guarantee="at-least-once")
        self.topics[sink.describe()] = topic
        return sink

    def read_back(self, sink: Sink) -> list[dict[str, Any]]:
        return [json.loads(value) for value in values(self.servers, self.topics[sink.describe()])]
