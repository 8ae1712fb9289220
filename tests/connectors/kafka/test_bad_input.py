"""Large records, and records whose columns change while a job runs."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from penstock.connectors.kafka import KafkaSink, KafkaSource
from penstock.connectors.records import JsonFormat
from penstock.connectors.records.raw import RawFormat
from penstock.engine.elements import Batch
from penstock.engine.errors import PenstockError, RecordError
from penstock.testing.services.kafka import Kafka
from tests.connectors.kafka.topics import produce, read
from tests.connectors.kafka.written import context as write_context
from tests.large import LARGE

NewTopic = Callable[..., str]
FORMAT = JsonFormat({"n": "int64"})


@LARGE
@pytest.mark.parametrize(
    "way", ["columnar", pytest.param("documented", marks=pytest.mark.long("what both ways give: test_columnar.py"))]
)
def test_a_large_record_is_read(
    kafka: Kafka, new_topic: NewTopic, way: str, large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "documented":
        monkeypatch.setattr("penstock.connectors.kafka.consumer.library_version", lambda: "0.15.1")
    topic = f"{new_topic()}-large"
    kafka.create_topic(topic, settings={"max.message.bytes": str(large + 10_000)})
    produce(kafka.bootstrap_servers, topic, [b"a", b"x" * large, b"b"], max_request_size=large + 10_000)
    found = read(KafkaSource(kafka.bootstrap_servers, topic, format=RawFormat("v"), until="latest"))
    assert [len(row["v"]) for row in found] == [1, large, 1]


def test_columns_that_change_in_the_topic(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic()
    produce(kafka.bootstrap_servers, topic, [b'{"n": 1}', b'{"n": 2, "new": true}', b"{}", b'{"n": "three"}'])
    source = KafkaSource(kafka.bootstrap_servers, topic, format=FORMAT, until="latest")
    with pytest.raises(RecordError, match=rf"topic '{topic}', partition 0, offset 3: field 'n'"):
        read(source)
    source = KafkaSource(kafka.bootstrap_servers, topic, format=FORMAT, until="latest", bad_records="keep")
    assert [row["n"] for row in read(source)][:3] == [1, 2, None]


def test_columns_that_change_before_the_sink(kafka: Kafka, new_topic: NewTopic) -> None:
    sink = KafkaSink(kafka.bootstrap_servers, new_topic(), format=FORMAT)
    sink.prepare()
    writer = sink.open(write_context())
    writer.write(Batch(pa.record_batch({"n": [1]})))
    for columns in ({"m": [1]}, {"n": ["two"]}):
        with pytest.raises(PenstockError, match=r"'write', subtask 0: .*column 'n'"):
            writer.write(Batch(pa.record_batch(columns)))
    writer.close()
