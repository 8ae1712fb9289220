"""What a user reads where Kafka cannot be read."""

from __future__ import annotations

import asyncio
import datetime
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.structs import TopicPartition

from penstock.connectors.kafka import KafkaOffsets, KafkaSource, KafkaSplit, connection, consumer
from penstock.connectors.records.raw import RawFormat
from penstock.engine.errors import ConfigurationError, RecordError, RestoreError
from penstock.testing.services.kafka import Kafka
from tests.connectors.kafka.topics import context, produce, read

RAW = RawFormat("v")
NewTopic = Callable[..., str]


def test_a_broker_that_is_not_there_is_named_at_once() -> None:
    with pytest.raises(
        ConfigurationError, match=r"no Kafka broker can be used at 127\.0\.0\.1:1: .*Connect call failed"
    ):
        KafkaSource("127.0.0.1:1", "t", format=RAW).splits(1)


def test_a_broker_that_never_answers_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert connection.CONNECT_SECONDS < 10
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ConfigurationError, match=rf"at {address}: no answer within 0\.5 s"):
            KafkaSource(address, "t", format=RAW).splits(1)


def test_a_subtask_that_finds_no_broker_says_where() -> None:
    source = KafkaSource("127.0.0.1:1", "t", format=RAW)
    with pytest.raises(ConnectionError, match=r"operator 'read', subtask 0: kafka: no Kafka broker.*127\.0\.0\.1:1"):
        source.open(KafkaSplit("t", 0, 0), context())


def test_a_missing_topic_is_named_with_the_nearest_and_not_made(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic()
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=f"no topic '{topic}x'.*did you mean '{topic}'"):
            KafkaSource(kafka.bootstrap_servers, f"{topic}x", format=RAW).splits(1)


def test_a_missing_partition_or_pattern(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic()
    with pytest.raises(ConfigurationError, match="has no partition 3; it has 1"):
        KafkaSource(kafka.bootstrap_servers, format=RAW, partitions={topic: [3]}).splits(1)
    with pytest.raises(ConfigurationError, match="no topic matches 'nothing-'"):
        KafkaSource(kafka.bootstrap_servers, format=RAW, topic_pattern="nothing-").splits(1)


def test_a_group_without_offsets_and_an_end_that_is_not_listed(kafka: Kafka, new_topic: NewTopic) -> None:
    topic, servers = new_topic(), kafka.bootstrap_servers
    with pytest.raises(ConfigurationError, match="group 'nobody' has committed no offset of topic"):
        KafkaSource(servers, topic, format=RAW, start=KafkaOffsets.committed("nobody")).splits(1)
    with pytest.raises(ConfigurationError, match="until has no offset for topic"):
        KafkaSource(servers, topic, format=RAW, until=KafkaOffsets.of({})).splits(1)


def sasl(user: str, password: str) -> dict[str, str]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }


def test_credentials_are_passed_through(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic()
    produce(kafka.bootstrap_servers, topic, [b"x"])
    options = sasl(kafka.user_name, kafka.password)
    source = KafkaSource(kafka.sasl_bootstrap_servers, topic, format=RAW, until="latest", options=options)
    assert read(source) == [{"v": b"x"}]


def test_wrong_credentials_say_so_without_the_password(
    kafka: Kafka, new_topic: NewTopic, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    options = sasl(kafka.user_name, "wr0ng-secret")
    with pytest.raises(ConfigurationError, match=r"[Aa]uthentication failed") as caught:
        KafkaSource(kafka.sasl_bootstrap_servers, new_topic(), format=RAW, options=options).splits(1)
    written = capfd.readouterr()
    assert "wr0ng-secret" not in str(caught.value) + repr(caught.value) + written.out + written.err + caplog.text


def test_a_topic_that_the_user_may_not_see(kafka: Kafka, new_topic: NewTopic) -> None:
    options, topic = sasl(kafka.guest_name, kafka.guest_password), new_topic()
    source = KafkaSource(kafka.sasl_bootstrap_servers, topic, format=RAW, options=options)
    with pytest.raises(ConfigurationError, match=f"no topic '{topic}', or the user may not see it: .*grant"):
        source.splits(1)


def test_a_topic_that_the_user_may_not_read_fails_the_reader(kafka: Kafka, new_topic: NewTopic) -> None:
    options, topic = sasl(kafka.guest_name, kafka.guest_password), new_topic()
    source = KafkaSource(kafka.sasl_bootstrap_servers, topic, format=RAW, until="latest", options=options)
    with pytest.raises(RecordError, match=f"topic '{topic}', partition 0.*grant the user READ"):
        read(source, [KafkaSplit(topic, 0, 0, 1)])


def test_records_that_are_deleted_are_an_error_and_not_skipped(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic()
    produce(kafka.bootstrap_servers, topic, [b"a", b"b", b"c"])
    source = KafkaSource(kafka.bootstrap_servers, topic, format=RAW, until="latest")
    (split,) = source.splits(1)

    async def delete() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
        await admin.start()
        await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=2)}, timeout_ms=5000)
        await admin.close()

    asyncio.run(delete())
    with pytest.raises(RecordError, match=f"topic '{topic}', partition 0, offset 0: there are no records at this"):
        read(source, [split])


def test_a_topic_that_is_deleted_fails_the_reader(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "_UNKNOWN_SECONDS", 1.0)
    source = KafkaSource(kafka.bootstrap_servers, "never-made", format=RAW)
    with pytest.raises(RecordError, match=r"topic 'never-made', partition 0, offset 0: .* deleted .* just started"):
        read(source, [KafkaSplit("never-made", 0, 0, 1)])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "one of topics, topic_pattern and partitions"),
        ({"topics": "a", "topic_pattern": "b"}, "one of topics, topic_pattern and partitions"),
        ({"topics": []}, "topics must be the names"),
        ({"topic_pattern": "("}, "no regular expression"),
        ({"partitions": {"a": [-1]}}, "partitions are"),
        ({"topics": "a", "start": "begin"}, "start must be 'earliest'"),
        ({"topics": "a", "until": "earliest"}, "until must be 'latest'"),
        ({"topics": "a", "until": KafkaOffsets.committed("g")}, "until must be 'latest'"),
        ({"topics": "a", "metadata": ["offsett"]}, "did you mean 'offset'"),
        ({"topics": "a", "metadata": {"key": "v"}}, "column 'v' occurs twice"),
        ({"topics": "a", "bad_records": "drop"}, "bad_records must be"),
        ({"topics": "a", "options": {"sasl_pasword": "s3cret"}}, "there is no option 'sasl_pasword'"),
        ({"topics": "a", "format": "raw"}, "must be a RecordFormat"),
    ],
)
def test_arguments_that_cannot_be_used(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        KafkaSource("h:1", **{"format": RAW, **arguments})
    assert "s3cret" not in str(caught.value)


def test_offsets_that_cannot_be_used() -> None:
    for make in (
        lambda: KafkaOffsets.of({("t", 0): -1}),
        lambda: KafkaOffsets.of({"t": 1}),  # type: ignore[dict-item]
        lambda: KafkaOffsets.at_timestamp(datetime.datetime(2024, 1, 1)),
        lambda: KafkaOffsets.committed(""),
        lambda: KafkaSource([], "t", format=RAW),
    ):
        with pytest.raises(ConfigurationError, match="kafka: "):
            make()


def test_a_time_is_the_first_millisecond_that_is_not_before_it() -> None:
    zone = datetime.timezone(datetime.timedelta(hours=-5))
    # As floats, the first three lose a part of their last millisecond.
    for ms in (1_700_000_000_001, 1_700_000_000_009, 1_577_836_800_001, 0, 1, 253_402_300_799_999):
        at = datetime.datetime(1969, 12, 31, 19, tzinfo=zone) + datetime.timedelta(milliseconds=ms)
        assert KafkaOffsets.at_timestamp(at).timestamp_ms == ms
        earlier = at - datetime.timedelta(microseconds=999)
        assert KafkaOffsets.at_timestamp(earlier).timestamp_ms == ms


@pytest.mark.parametrize(
    ("chosen", "read", "unread"),
    [
        ({"topics": ["a", "b-c"]}, ["a-0", "a-17", "b-c-1"], ["b-0", "a-b-0"]),
        ({"topic_pattern": "clicks-.*"}, ["clicks-eu-0"], ["clicks-0", "old-clicks-eu-0"]),
        ({"partitions": {"a": [0, 2]}}, ["a-0", "a-2"], ["a-1", "b-0"]),
    ],
)
def test_a_job_that_resumes_reads_no_topic_that_its_program_does_not_name(
    chosen: dict[str, Any], read: list[str], unread: list[str]
) -> None:
    source = KafkaSource("localhost:1", format=RAW, **chosen)
    assert [source.split(name) for name in unread] == [None] * len(unread)
    made = [source.split(name) for name in read]
    assert [split and split.split_id for split in made] == read


@pytest.mark.parametrize("split_id", ["clicks.json", "0", "-0", "a-", "part-00001.parquet"])
def test_a_split_of_another_source_is_refused(split_id: str) -> None:
    source = KafkaSource("localhost:1", "a", format=RAW)
    with pytest.raises(RestoreError, match=f"split '{split_id}': .*another source under this uid"):
        source.split(split_id)


def test_importing_the_connector_is_light() -> None:
    code = "import sys, penstock.connectors.kafka; print([m for m in ('aiokafka', 'numba') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
