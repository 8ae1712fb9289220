"""What a KafkaSink writes: keys, partitions, headers, times and formats, as another client reads them."""

from __future__ import annotations

import datetime
import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from penstock.connectors.kafka import KafkaSink, KafkaSource
from penstock.connectors.records import AvroFormat, CsvFormat, JsonFormat, RecordFormat
from penstock.connectors.records.raw import RawFormat
from penstock.engine.elements import Batch
from penstock.testing.services.kafka import Kafka
from tests.connectors.kafka.topics import read
from tests.connectors.kafka.written import RAW, context, records, rows, values

NewTopic = Callable[..., str]


def write(sink: KafkaSink, *batches: Batch) -> None:
    """Write as a job without checkpoints does."""
    sink = pickle.loads(pickle.dumps(sink))
    sink.check(batches[0].data.schema)
    sink.prepare()
    where = context()
    writer = sink.open(where)
    try:
        for batch in batches:
            writer.write(batch)
        if committables := writer.prepare(0):
            sink.commit(committables, where)
    finally:
        writer.close()


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_rows_are_written_in_order(kafka: Kafka, new_topic: NewTopic, guarantee: Any) -> None:
    topic = new_topic()
    sink = KafkaSink(kafka.bootstrap_servers, topic, format=RAW, guarantee=guarantee)
    write(sink, *(rows(*range(begin, begin + 100)) for begin in range(0, 1000, 100)))
    assert values(kafka.bootstrap_servers, topic) == [str(value) for value in range(1000)]


def test_at_least_once_rows_do_not_wait_for_a_commit(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    sink = KafkaSink(kafka.bootstrap_servers, topic, format=RAW, guarantee="at-least-once", partitioner="round-robin")
    writer = sink.open(context())
    writer.write(rows(*range(10)))
    assert writer.prepare(1) == []
    # As a job that restarts from before writes them.
    assert values(kafka.bootstrap_servers, topic) == ["0", "2", "4", "6", "8", "1", "3", "5", "7", "9"]
    writer.write(rows(10))
    assert writer.prepare(2) == []
    writer.close()
    assert values(kafka.bootstrap_servers, topic)[5] == "10"


def test_the_key_decides_the_partition_as_in_other_clients(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(3)
    sink = KafkaSink(kafka.bootstrap_servers, topic, format=JsonFormat({"k": "string", "v": "string"}), key="k")
    write(sink, rows(1, 2, 3, k=["21", "foobar", "abc"]))
    found = {(record.key, record.partition) for record in records(kafka.bootstrap_servers, topic)}
    hashes = {b"21": -973932308, b"foobar": -790332482, b"abc": 479470107}
    assert found == {(key, (hashed & 0x7FFFFFFF) % 3) for key, hashed in hashes.items()}


def test_a_key_of_several_columns_and_one_that_is_not_in_the_value(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic()
    key = JsonFormat({"a": "int64", "b": "string"})
    write(
        KafkaSink(kafka.bootstrap_servers, topic, format=RAW, key=key),
        rows(1, 2, a=pa.array([7, 8]), b=["x", None]),
    )
    found = [(record.key, record.value) for record in records(kafka.bootstrap_servers, topic)]
    assert found == [(b'{"a":7,"b":"x"}', b"1"), (b'{"a":8,"b":null}', b"2")]


def test_columns_choose_topic_and_partition(kafka: Kafka, new_topic: NewTopic) -> None:
    one, two = new_topic(3), new_topic(2)
    sink = KafkaSink(kafka.bootstrap_servers, format=RAW, topic_column="t", partition="p", partitioner="fixed")
    write(sink, rows(*range(6), t=[one, two, one, two, one, one], p=pa.array([2, 1, 2, None, None, 1], pa.int64())))
    found = [(record.partition, record.value.decode()) for record in records(kafka.bootstrap_servers, one)]
    assert found == [(0, "4"), (1, "5"), (2, "0"), (2, "2")]
    found = [(record.partition, record.value.decode()) for record in records(kafka.bootstrap_servers, two)]
    assert found == [(0, "3"), (1, "1")]


HEADERS = [[("a", b"1"), ("b", None)], [], [("a", b"2"), ("a", b"3")], None]


@pytest.mark.parametrize(
    "kind",
    [
        pa.map_(pa.string(), pa.binary()),
        pa.map_(pa.string(), pa.string()),
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        pa.list_(pa.struct([("value", pa.large_binary()), ("key", pa.string())])),
    ],
    ids=str,
)
def test_headers(kafka: Kafka, new_topic: NewTopic, kind: pa.DataType) -> None:
    topic = new_topic()
    given: list[Any] = HEADERS
    if not pa.types.is_map(kind):
        given = [some and [{"key": key, "value": value} for key, value in some] for some in HEADERS]
    column = pa.array([[], *given], pa.map_(pa.string(), pa.binary()) if pa.types.is_map(kind) else kind)
    batch = rows(0, 1, 2, 3, 4, h=column.cast(kind)).slice(1)
    write(KafkaSink(kafka.bootstrap_servers, topic, format=RAW, headers="h"), batch)
    assert [list(record.headers) for record in records(kafka.bootstrap_servers, topic)] == [
        some or [] for some in HEADERS
    ]


def test_times_are_the_columns_or_event_time_or_now(kafka: Kafka, new_topic: NewTopic) -> None:
    topic, before = new_topic(), int(datetime.datetime.now().timestamp() * 1000)
    data = rows(1, 2, 3).data
    sink = KafkaSink(kafka.bootstrap_servers, topic, format=RAW)
    write(sink, Batch(data, pa.array([1000, -1, before])))
    times = [record.timestamp for record in records(kafka.bootstrap_servers, topic)]
    assert times[0] == 1000
    assert before <= times[1] <= before + 60_000
    assert times[2] == before
    topic = new_topic()
    at = pa.array([1_000_999, 2_000_000], pa.timestamp("us"))
    write(KafkaSink(kafka.bootstrap_servers, topic, format=RAW, timestamp="at"), rows(1, 2, at=at))
    assert [record.timestamp for record in records(kafka.bootstrap_servers, topic)] == [1000, 2000]


COLUMNS = {"id": "int64", "name": "string"}


@pytest.mark.parametrize("record_format", [JsonFormat(COLUMNS), CsvFormat(COLUMNS), AvroFormat(
    '{"type": "record", "name": "r", "fields": [{"name": "id", "type": ["null", "long"]},'
    ' {"name": "name", "type": ["null", "string"]}]}'
)], ids=lambda one: one.describe())  # fmt: skip
def test_what_is_written_in_a_format_is_read_in_it(
    kafka: Kafka, new_topic: NewTopic, record_format: RecordFormat
) -> None:
    topic = new_topic()
    given = [{"id": 1, "name": "ann"}, {"id": -2, "name": ""}, {"id": 3, "name": 'ö,\n"'}]
    batch = Batch(pa.RecordBatch.from_pylist(given, record_format.schema))
    write(KafkaSink(kafka.bootstrap_servers, topic, format=record_format), batch)
    assert read(KafkaSource(kafka.bootstrap_servers, topic, format=record_format, until="latest")) == given


def test_a_null_in_the_raw_format_is_a_tombstone(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic()
    batch = Batch(pa.record_batch({"k": ["a", "b"], "v": pa.array([b"1", None])}))
    write(KafkaSink(kafka.bootstrap_servers, topic, format=RawFormat("v"), key="k"), batch)
    assert [(record.key, record.value) for record in records(kafka.bootstrap_servers, topic)] == [
        (b"a", b"1"),
        (b"b", None),
    ]


def test_many_rows_in_small_and_compressed_batches(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    options = {"max_batch_size": 500, "compression_type": "gzip"}
    sink = KafkaSink(kafka.bootstrap_servers, topic, format=RAW, partitioner="round-robin", options=options)
    write(sink, rows(*range(1000)), rows("x" * 100_000), rows(*range(1000)))
    found = values(kafka.bootstrap_servers, topic)
    evens, odds = [str(one) for one in range(0, 1000, 2)], [str(one) for one in range(1, 1000, 2)]
    assert found == [*evens, "x" * 100_000, *odds, *odds, *evens]


def test_a_record_may_be_as_large_as_the_topic_takes(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic()
    large = f"{topic}-large"
    kafka.create_topic(large, settings={"max.message.bytes": str(8 << 20)})
    write(KafkaSink(kafka.bootstrap_servers, large, format=RAW), rows("x" * (6 << 20), "y"))
    assert [len(value) for value in values(kafka.bootstrap_servers, large)] == [6 << 20, 1]
