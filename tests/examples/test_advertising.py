"""The advertising example, counted again by DuckDB."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import duckdb
import pytest

import penstock as ps
from penstock.connectors.kafka import KafkaSource
from penstock.testing.services import Kafka

EVENTS = 60_000


def _counted(example: ModuleType) -> list[tuple[str, int, int]]:
    events = ps.StreamEnvironment(runtime="local").from_source(example.events(EVENTS)).collect().to_arrow()
    campaigns = example.CAMPAIGN_OF_AD
    connection = duckdb.connect()
    connection.register("events", events)
    connection.register("campaigns", campaigns)
    return connection.execute(
        "SELECT campaign, epoch_ms(event_time) // 10000 * 10000 AS at, count(*) "
        "FROM events JOIN campaigns USING (ad_id) WHERE event_type = 'view' GROUP BY ALL ORDER BY ALL"
    ).fetchall()


@pytest.mark.parametrize(
    "source", ["generator", pytest.param("kafka", marks=pytest.mark.long("test_clickstream_kafka.py reads Kafka"))]
)
def test_each_campaign_is_counted_in_each_window(
    load: Callable[[str], ModuleType], request: pytest.FixtureRequest, source: str
) -> None:
    example = load("advertising")
    events = example.events(EVENTS)
    if source == "kafka":
        kafka: Kafka = request.getfixturevalue("kafka")
        kafka.create_topic(example.EVENTS, partitions=4)
        example.produce(kafka.bootstrap_servers, EVENTS)
        events = KafkaSource(kafka.bootstrap_servers, example.EVENTS, format=example.EVENT, until="latest")
    env = ps.StreamEnvironment(runtime="local", parallelism=2)
    views = example.build(env, events).collect()
    found = [(row["campaign"], int(row["window_start"].timestamp() * 1000), row["views"]) for row in views]
    assert sorted(found) == _counted(example)
