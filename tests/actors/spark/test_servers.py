"""Batch jobs that read from servers and write to servers."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest

import penstock as ps
from penstock.connectors.kafka import KafkaSink, KafkaSource
from penstock.connectors.postgres import PostgresLookup, PostgresSink, PostgresSource
from penstock.connectors.records import JsonFormat
from penstock.testing.services import Kafka, Postgres
from tests.actors.spark.conftest import Environment, on_spark
from tests.connectors.kafka.topics import produce
from tests.connectors.kafka.written import records, transactions_end
from tests.connectors.postgres.tables import Database

pytestmark = on_spark
ROWS, KEYS, HOUR = 600, 7, 3_600_000
READ = JsonFormat({"k": "string", "at": "int64"})
WRITTEN = JsonFormat({"k": "string", "n": "int64"})


def hour_of(n: int) -> int:
    return n // 10 * 2 % 3


def topic_of(kafka: Kafka, partitions: int) -> str:
    topic = f"batch-{uuid.uuid4().hex[:10]}"
    kafka.create_topic(topic, partitions=partitions)
    return topic


@pytest.mark.long(
    "test_jobs.py ends a worker; order: test_time_order.py; a server: the test below; tests/connectors/kafka"
)
def test_from_kafka_to_kafka_each_row_once_though_tasks_fail(spark: Environment, kafka: Kafka, tmp_path: Path) -> None:
    """No partition is in the order of time; what fails has written windows of earlier hours."""
    servers, incoming, outgoing = kafka.bootstrap_servers, topic_of(kafka, 3), topic_of(kafka, 2)
    for partition in range(3):
        rows = [{"k": f"key-{n % KEYS}", "at": hour_of(n) * HOUR} for n in range(partition, ROWS, 3)]
        produce(servers, incoming, [json.dumps(row).encode() for row in rows], partition)

    failed = tmp_path / "failed"

    def fail_once(row: dict[str, Any]) -> dict[str, Any]:
        if row["window_start"].hour == 2 and not failed.exists():
            failed.touch()
            raise OSError("once")
        return {"k": row["k"], "n": row["n"]}

    env = spark()
    read = env.from_source(KafkaSource(servers, incoming, format=READ, until="latest")).assign_timestamps(
        "at", ps.WatermarkStrategy.for_monotonous_timestamps()
    )
    counted = read.key_by("k").window(ps.tumbling("1h")).aggregate(n=ps.count()).map(fail_once, returns=WRITTEN.schema)
    counted.sink_to(KafkaSink(servers, outgoing, format=WRITTEN, key="k"))
    env.execute("from Kafka to Kafka", mode="batch")
    assert failed.exists()
    expected = Counter((f"key-{n % KEYS}", hour_of(n)) for n in range(ROWS))
    found = [json.loads(record.value) for record in records(servers, outgoing)]
    assert sorted((row["k"], row["n"]) for row in found) == sorted((key, n) for (key, _), n in expected.items())
    assert transactions_end(servers, outgoing)


def test_from_table_to_table_with_a_lookup(spark: Environment, postgres: Postgres) -> None:
    with psycopg.connect(postgres.dsn, autocommit=True) as connection:
        database = Database(postgres, connection)
        users = database.create("id bigint primary key, name text")
        orders = database.create("id bigint primary key, customer bigint, amount numeric(8,2)")
        totals = database.create("name text primary key, total numeric(12,2)")
        database.run(f"INSERT INTO {users} SELECT n, 'user ' || n FROM generate_series(0, 3) AS n")
        database.run(f"INSERT INTO {orders} SELECT n, n % 5, n / 4.0 FROM generate_series(1, 200) AS n")
        env = spark()
        rows = env.from_source(PostgresSource(database.dsn, orders, column="id", ranges=[50, 150]))
        named = rows.lookup_join(PostgresLookup(database.dsn, users, keys="id"), on={"customer": "id"})
        sums = named.key_by("name").aggregate(total=ps.sum("amount"))
        sums.sink_to(PostgresSink(database.dsn, totals, markers=database.new_name("m")))
        env.execute("from table to table", mode="batch")
        expected = database.ask(
            f"SELECT name, sum(amount) FROM {orders} JOIN {users} u ON u.id = customer GROUP BY name ORDER BY name"
        )
        assert len(expected) == 4
        assert database.ask(f"SELECT name, total FROM {totals} ORDER BY name") == expected
