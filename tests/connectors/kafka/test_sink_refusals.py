"""What a user reads where rows cannot be written to Kafka, as far as possible before the job starts."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from penstock.connectors.kafka import KafkaConnection, KafkaSink, connection
from penstock.connectors.kafka.topics import _facts, check_may_write
from penstock.connectors.records import JsonFormat
from penstock.engine.elements import Batch
from penstock.engine.errors import ColumnTypeError, ConfigurationError, MissingColumnError, RecordError
from penstock.testing.services.kafka import Kafka
from tests.connectors.kafka.test_refusals import sasl
from tests.connectors.kafka.topics import produce
from tests.connectors.kafka.written import CLOCK, RAW, context, prepared, rows, values

NewTopic = Callable[..., str]
NOWHERE = "127.0.0.1:1"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "one of topic and topic_column"),
        ({"topic": "a", "topic_column": "b"}, "one of topic and topic_column"),
        ({"topic": "a", "format": "json"}, "format must be a RecordFormat"),
        ({"topic": "a", "key": 5}, "key must be a column or a RecordFormat"),
        ({"topic": "a", "guarantee": "exactly-onc"}, "did you mean 'exactly-once'"),
        ({"topic": "a", "partitioner": "hash"}, "partitioner must be one of 'murmur2', 'round-robin', 'fixed'"),
        ({"topic": "a", "transaction_timeout": "0s"}, "transaction_timeout must be longer"),
        ({"topic": "a", "delivery_timeout": "soon"}, "delivery_timeout: 'soon' is no duration"),
        ({"topic": "a", "options": {"sasl_plain_pasword": "s3cret"}}, "no option 'sasl_plain_pasword'"),
        ({"topic": "a", "options": {"acks": 1}}, "no option 'acks'"),
    ],
)
def test_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        KafkaSink(NOWHERE, **{"format": RAW, **arguments})
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "columns", "error", "message"),
    [
        ({}, {"w": "x"}, MissingColumnError, "no column 'v'"),
        ({"key": "k"}, {"v": "x"}, MissingColumnError, "no column 'k'"),
        ({}, {"v": "x", "w": 1}, ConfigurationError, "column 'w' is not in the format's schema"),
        ({"format": JsonFormat({"v": "int64"})}, {"v": [1]}, ConfigurationError, "column 'v'"),
        (
            {"format": JsonFormat({"v": "int64"})},
            {"v": "1"},
            ConfigurationError,
            "'v' is string, .* int64: cast it in the",
        ),
        ({"key": "k"}, {"v": "x", "k": 1}, ColumnTypeError, "key column 'k' is int64; .*cast the column, or give a"),
        ({"topic": None, "topic_column": "t"}, {"v": "x", "t": 1}, ColumnTypeError, "topic column 't' is int64"),
        ({"partition": "p"}, {"v": "x", "p": "0"}, ColumnTypeError, "partition column 'p' is string"),
        ({"headers": "h"}, {"v": "x", "h": "a"}, ColumnTypeError, "headers column 'h' is string; it must be a map"),
        ({"headers": "h"}, {"v": "x", "h": [{"a": "b"}]}, ColumnTypeError, "headers column 'h' is list"),
        ({"timestamp": "at"}, {"v": "x", "at": 1.5}, ColumnTypeError, "timestamp column 'at' is double"),
    ],
)
def test_columns(arguments: dict[str, Any], columns: dict[str, Any], error: type[Exception], message: str) -> None:
    schema = pa.RecordBatch.from_pylist([columns]).schema
    with pytest.raises(error, match=message):
        KafkaSink(NOWHERE, **{"topic": "t", "format": RAW, **arguments}).check(schema)


def test_a_broker_that_is_not_there_or_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ConfigurationError, match=r"kafka sink: no Kafka broker can be used at 127\.0\.0\.1:1: .*Connect"
    ):
        KafkaSink(NOWHERE, "t", format=RAW).prepare()
    with pytest.raises(ConnectionError, match=r"operator 'write', subtask 0: no Kafka broker can be used at 127"):
        KafkaSink(NOWHERE, "t", format=RAW).open(context())
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ConfigurationError, match=rf"at {address}: no answer within 0\.5 s"):
            KafkaSink(address, "t", format=RAW).prepare()


def test_a_missing_topic_is_named_with_the_nearest_and_not_made(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic()
    for _ in range(2):
        with pytest.raises(
            ConfigurationError, match=f"no topic '{topic}x'.*did you mean '{topic}'.*the sink makes none"
        ):
            KafkaSink(kafka.bootstrap_servers, f"{topic}x", format=RAW).prepare()
    sink = KafkaSink(kafka.bootstrap_servers, format=RAW, topic_column="t")
    sink.prepare()
    writer = sink.open(context())
    with pytest.raises(RecordError, match=f"'write', subtask 0: kafka: there is no topic '{topic}x'"):
        writer.write(rows(1, t=[f"{topic}x"]))
    with pytest.raises(RecordError, match="'write', subtask 0: kafka sink: column 't', row 1: the topic is null"):
        writer.write(rows(1, 2, t=[topic, None]))
    writer.close()


def test_wrong_credentials_say_so_without_the_password(
    kafka: Kafka, new_topic: NewTopic, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    options = sasl(kafka.user_name, "wr0ng-secret")
    sink = KafkaSink(kafka.sasl_bootstrap_servers, new_topic(), format=RAW, options=options)
    with pytest.raises(ConfigurationError, match=r"[Aa]uthentication failed") as caught:
        sink.prepare()
    written = capfd.readouterr()
    shown = str(caught.value) + repr(caught.value) + repr(sink.__dict__) + sink.describe()
    assert "wr0ng-secret" not in shown + written.out + written.err + caplog.text


def test_a_user_who_may_do_nothing_is_told_what_to_grant(kafka: Kafka, new_topic: NewTopic) -> None:
    topic, options = new_topic(), sasl(kafka.guest_name, kafka.guest_password)
    sink = KafkaSink(kafka.sasl_bootstrap_servers, topic, format=RAW, options=options)
    with pytest.raises(ConfigurationError, match=f"no topic '{topic}', or the user may not see it: .*WRITE"):
        sink.prepare()
    sink = KafkaSink(kafka.sasl_bootstrap_servers, format=RAW, topic_column="t", marker_topic="m", options=options)
    with pytest.raises(
        ConfigurationError, match=r"marker topic 'm' is not there and cannot be made .*--create --topic m"
    ):
        sink.prepare()
    # A commit without permission goes on once it is granted: here, by another user.
    allowed = KafkaSink(kafka.bootstrap_servers, topic, format=RAW)
    allowed.prepare()
    committables = prepared(allowed, context("job/guest"), [1])
    with pytest.raises(
        ConfigurationError, match=r"1 rows of checkpoint 1 .*transactional id 'penstock-.*grant the user"
    ):
        sink.commit(committables, context("job/guest"))
    allowed.commit(committables, context("job/guest"))
    assert values(kafka.bootstrap_servers, topic) == ["1"]


def test_a_topic_that_the_user_may_only_read(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic()
    check_may_write(KafkaConnection.of(kafka.bootstrap_servers), [topic])
    guest = KafkaConnection.of(kafka.sasl_bootstrap_servers, sasl(kafka.guest_name, kafka.guest_password))
    with pytest.raises(ConfigurationError, match=f"may not write to topic '{topic}'; grant the user WRITE"):
        check_may_write(guest, [topic])
    assert values(kafka.bootstrap_servers, topic) == []


def test_a_marker_topic_that_loses_markers_is_refused(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic()
    sink = KafkaSink(kafka.bootstrap_servers, topic, format=RAW, marker_topic=topic)
    with pytest.raises(
        ConfigurationError, match=f"marker topic '{topic}' has cleanup.policy=delete.*set it to compact"
    ):
        sink.prepare()


def test_a_marker_topic_that_was_made_anew_is_noticed(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic()
    markers = f"{topic}-markers"
    where, compact = context("job/anew"), {"cleanup.policy": "compact"}
    kafka.create_topic(markers, settings=compact)
    produce(kafka.bootstrap_servers, markers, [{"key": b"somebody", "value": b'{"checkpoint": 1}'}])
    sink = KafkaSink(kafka.bootstrap_servers, topic, format=RAW, marker_topic=markers)
    committables = prepared(sink, where, [1])

    async def delete() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
        await admin.start()
        await admin.delete_topics([markers], timeout_ms=5000)
        while markers in await admin.list_topics():
            pass
        await admin.close()

    asyncio.run(delete())
    kafka.create_topic(markers, settings=compact)
    with pytest.raises(ConfigurationError, match=f"'{markers}', partition 0, ends at offset 0 and reached to 1 before"):
        sink.commit(committables, where)


def test_a_transaction_timeout_that_the_brokers_do_not_allow(kafka: Kafka, new_topic: NewTopic) -> None:
    sink = KafkaSink(kafka.bootstrap_servers, new_topic(), format=RAW, transaction_timeout="20min")
    with pytest.raises(ConfigurationError, match=r"transaction_timeout is 20m, .*transaction\.max\.timeout\.ms"):
        sink.prepare()


def test_records_that_a_topic_does_not_take_are_found_before_the_checkpoint(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic()
    sink = KafkaSink(kafka.bootstrap_servers, topic, format=RAW, partition="p")
    sink.prepare()
    writer = sink.open(context())
    with pytest.raises(
        RecordError,
        match=f"'write', subtask 0: kafka sink: topic '{topic}': the record of row 1 has 52,428,8.. bytes, more than "
        r"the 1,048,588 of the topic's max\.message\.bytes: raise that",
    ):
        writer.write(rows("x", "y" * (50 << 20), p=pa.nulls(2, pa.int32())))
    with pytest.raises(RecordError, match=f"row 1: topic '{topic}' has no partition 3; it has 1"):
        writer.write(rows(1, 2, p=[0, 3]))
    batch = Batch(rows(1, p=[0]).data, pa.array([4_000_000_000_000]))
    with pytest.raises(RecordError, match=r"the time of row 0 is .* ms ahead of the clock"):
        writer.write(batch)
    assert writer.prepare(1) == []
    writer.close()


def test_records_that_are_too_old_for_their_topic(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = f"{new_topic()}-young"
    kafka.create_topic(topic, settings={"message.timestamp.before.max.ms": "1000000"})
    sink = KafkaSink(kafka.bootstrap_servers, topic, format=RAW, timestamp="at", delivery_timeout="5min")
    sink.prepare()
    writer, now = sink.open(context("job/old")), CLOCK.now_ms()
    writer.write(rows(1, 2, at=[now - 800_000, now]))
    with pytest.raises(
        RecordError, match=r"row 1 is 95\d,\d{3} ms behind the clock; .*before\.max\.ms is 1,000,000, of which a tenth"
    ):
        writer.write(rows(3, 4, at=[now, now - 950_000]))
    committables = writer.prepare(1)
    writer.close()
    # What has grown too old since then fails at once, and goes on when the topic takes it.
    for limit in ("1000", "1000000"):
        set_limit = {"message.timestamp.before.max.ms": limit}
        asyncio.run(_alter(kafka, topic, set_limit))
        if limit == "1000":
            with pytest.raises(
                ConfigurationError, match=r"farther from the clock than the topic takes; raise its mess"
            ):
                sink.commit(committables, context("job/old"))
    sink.commit(committables, context("job/old"))
    assert values(kafka.bootstrap_servers, topic) == ["1", "2"]


async def _alter(kafka: Kafka, topic: str, settings: dict[str, str]) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
    await admin.start()
    await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, settings)])
    await admin.close()


@pytest.mark.parametrize(
    ("settings", "ahead", "behind"),
    [
        ({}, None, None),
        ({"after": "5", "before": "7"}, 5, 7),
        ({"after": "5", "before": str(2**63 - 1)}, 5, None),
        # Kafka 3.6 to 3.9 have all three, those before only the last.
        ({"after": str(2**63 - 1), "before": str(2**63 - 1), "difference": "9"}, 9, 9),
        ({"difference": "9"}, 9, 9),
        ({"after": "5", "before": "7", "type": "LogAppendTime"}, None, None),
    ],
)
def test_limits_of_times_in_all_versions_of_kafka(
    settings: dict[str, str], ahead: int | None, behind: int | None
) -> None:
    spelled = {name if name == "type" else f"{name}.max.ms": value for name, value in settings.items()}
    given = {f"message.timestamp.{name}": value for name, value in spelled.items()}
    facts = _facts(1, {"max.message.bytes": "1", **given}, KafkaConnection.of(NOWHERE))
    assert (facts.max_ahead_ms, facts.max_behind_ms) == (ahead, behind)


def test_where_settings_may_not_be_seen_the_limit_is_the_clients(
    kafka: Kafka, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*_: object) -> dict[str, Any]:
        return {}

    monkeypatch.setattr("penstock.connectors.kafka.topics.topic_settings", nothing)
    topic = new_topic()
    KafkaSink(kafka.bootstrap_servers, topic, format=RAW).prepare()
    for options, size, limit in (({}, 1 << 20, "1,048,576"), ({"max_request_size": 500}, 500, "500")):
        writer = KafkaSink(kafka.bootstrap_servers, topic, format=RAW, options=options).open(context())
        with pytest.raises(RecordError, match=f"more than the {limit} of options={{'max_request_size': ...}}: raise"):
            writer.write(rows("x" * size))
        writer.close()


def test_a_compacted_topic_needs_keys(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = f"{new_topic()}-compacted"
    kafka.create_topic(topic, settings={"cleanup.policy": "compact"})
    sink = KafkaSink(kafka.bootstrap_servers, topic, format=RAW, key="k")
    sink.prepare()
    writer = sink.open(context())
    with pytest.raises(RecordError, match=f"topic '{topic}' is compacted, and row 1 has no key: give key="):
        writer.write(rows(1, 2, k=["a", None]))
    writer.close()


def test_at_least_once_says_what_the_brokers_refuse(kafka: Kafka, new_topic: NewTopic) -> None:
    topic, options = new_topic(), sasl(kafka.guest_name, kafka.guest_password)
    sink = KafkaSink(kafka.sasl_bootstrap_servers, topic, format=RAW, guarantee="at-least-once", options=options)
    with pytest.raises(
        ConfigurationError, match=f"'write', subtask 0: kafka: there is no topic '{topic}', or the user"
    ):
        sink.open(context())
