from __future__ import annotations

import asyncio
import datetime
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from aiokafka import AIOKafkaProducer, codec

from penstock.connectors.kafka import KafkaConnection, KafkaOffsets, KafkaSource, discovery, offsets
from penstock.connectors.kafka.columnar import PlainFetch
from penstock.connectors.records.json_format import JsonFormat
from penstock.connectors.records.raw import RawFormat
from penstock.engine.errors import RecordError, RestoreError
from penstock.testing.services.kafka import Kafka
from tests.connectors.kafka.topics import commit, committed, context, produce, read, take, transact

RAW = RawFormat("v")
CODECS = {None: True, "gzip": codec.has_gzip(), "snappy": codec.has_snappy(), "lz4": codec.has_lz4()}
NewTopic = Callable[..., str]


def numbers(begin: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(begin, end)]


def values(source: KafkaSource) -> list[bytes]:
    return [row["v"] for row in read(source)]


@pytest.fixture
def ten(kafka: Kafka, new_topic: NewTopic) -> str:
    """A topic with the numbers 0 to 9, whose times are 1000 times as large, in one partition."""
    topic = new_topic()
    produce(kafka.bootstrap_servers, topic, [{"value": b"%d" % n, "timestamp_ms": n * 1000} for n in range(10)])
    return topic


@pytest.mark.parametrize(
    ("start", "until", "expected"),
    [
        ("earliest", "latest", range(10)),
        ("latest", "latest", []),
        (KafkaOffsets.earliest(), KafkaOffsets.latest(), range(10)),
        (KafkaOffsets.at_timestamp(3500), "latest", range(4, 10)),
        (
            KafkaOffsets.at_timestamp(datetime.datetime(1970, 1, 1, 0, 0, 9, tzinfo=datetime.timezone.utc)),
            "latest",
            [9],
        ),
        (KafkaOffsets.at_timestamp(99_000), "latest", []),
        ("earliest", KafkaOffsets.at_timestamp(3000), range(3)),
        ("earliest", KafkaOffsets.at_timestamp(99_000), range(10)),
    ],
)
def test_begins_and_ends_where_it_is_told(
    kafka: Kafka, ten: str, start: object, until: object, expected: list[int]
) -> None:
    source = KafkaSource(kafka.bootstrap_servers, ten, format=RAW, start=start, until=until)
    assert values(source) == [b"%d" % number for number in expected]


def test_begins_and_ends_at_offsets(kafka: Kafka, ten: str) -> None:
    start, until = KafkaOffsets.of({(ten, 0): 2}), KafkaOffsets.of({(ten, 0): 7})
    assert values(KafkaSource(kafka.bootstrap_servers, ten, format=RAW, start=start, until=until)) == numbers(2, 7)


def test_begins_where_a_group_is(kafka: Kafka, ten: str) -> None:
    commit(kafka.bootstrap_servers, f"g-{ten}", {(ten, 0): 6})
    start = KafkaOffsets.committed(f"g-{ten}")
    assert values(KafkaSource(kafka.bootstrap_servers, ten, format=RAW, start=start, until="latest")) == numbers(6, 10)


def test_begins_elsewhere_where_a_group_has_no_offset(kafka: Kafka, ten: str) -> None:
    start = KafkaOffsets.committed("nobody", otherwise="earliest")
    assert values(KafkaSource(kafka.bootstrap_servers, ten, format=RAW, start=start, until="latest")) == numbers(0, 10)


def test_latest_is_what_it_was_when_the_job_was_planned(kafka: Kafka, ten: str) -> None:
    source = KafkaSource(kafka.bootstrap_servers, ten, format=RAW, until="latest")
    splits = source.splits(1)
    produce(kafka.bootstrap_servers, ten, numbers(10, 20))
    assert len(read(source, splits)) == 10


def test_without_an_end_it_waits_for_more(kafka: Kafka, ten: str) -> None:
    source = KafkaSource(kafka.bootstrap_servers, ten, format=RAW, start="latest")
    assert not source.bounded
    reader = source.open(source.splits(1)[0], context())
    produce(kafka.bootstrap_servers, ten, [b"new"])
    assert take(reader).to_pylist() == [{"v": b"new"}]
    produce(kafka.bootstrap_servers, ten, [b"newer"])
    assert take(reader).to_pylist() == [{"v": b"newer"}]
    reader.close()


def test_all_partitions_are_read_and_all_topics_of_a_pattern(kafka: Kafka, new_topic: NewTopic) -> None:
    prefix = new_topic()
    topics = [new_topic(2, f"{prefix}-x"), new_topic(1, f"{prefix}-x")]
    for number, (topic, partition) in enumerate([(topics[0], 0), (topics[0], 1), (topics[1], 0)]):
        produce(kafka.bootstrap_servers, topic, [b"%d" % number], partition)
    servers = kafka.bootstrap_servers
    for chosen in ({"topic_pattern": f"{prefix}-x-.*"}, {"topics": topics}):
        assert sorted(values(KafkaSource(servers, format=RAW, until="latest", **chosen))) == numbers(0, 3)
    some = KafkaSource(servers, format=RAW, until="latest", partitions={topics[0]: [1]})
    assert values(some) == [b"1"]


def test_metadata_comes_as_columns(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    sent = {"value": b"x", "key": b"k", "headers": [("h", b"1"), ("n", None)], "timestamp_ms": 1234}
    produce(kafka.bootstrap_servers, topic, [sent, {"value": None, "key": b"t", "timestamp_ms": 5}, b"no key"], 1)
    names = {name: name for name in ["key", "headers", "timestamp", "topic", "partition"]} | {"offset": "at"}
    source = KafkaSource(kafka.bootstrap_servers, topic, format=RAW, until="latest", metadata=names)
    zero = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    first = {
        "v": b"x",
        "key": b"k",
        "headers": [{"key": "h", "value": b"1"}, {"key": "n", "value": None}],
        "timestamp": zero + datetime.timedelta(milliseconds=1234),
        "topic": topic,
        "partition": 1,
        "at": 0,
    }
    tombstone = {"v": None, "key": b"t", "headers": [], "timestamp": zero + datetime.timedelta(milliseconds=5)}
    rows = read(source)
    assert rows[:2] == [first, {**tombstone, "topic": topic, "partition": 1, "at": 1}]
    assert rows[2]["key"] is None


@pytest.mark.parametrize("compression", [name for name, there in CODECS.items() if there])
def test_compressed_batches(kafka: Kafka, new_topic: NewTopic, compression: str | None) -> None:
    topic = new_topic()
    produce(kafka.bootstrap_servers, topic, numbers(0, 500), compression_type=compression, linger_ms=20)
    source = KafkaSource(kafka.bootstrap_servers, topic, format=RAW, until="latest")
    assert values(source) == numbers(0, 500)


def test_aborted_transactions_are_not_read(kafka: Kafka, new_topic: NewTopic) -> None:
    topic, servers = new_topic(), kafka.bootstrap_servers
    transact(servers, topic, [b"a", b"b"], "commit")
    transact(servers, topic, [b"lost"], "abort")
    transact(servers, topic, [b"c"], "commit")
    transact(servers, topic, [b"lost", b"too"], "abort")
    assert values(KafkaSource(servers, topic, format=RAW, until="latest")) == [b"a", b"b", b"c"]
    dirty = KafkaSource(servers, topic, format=RAW, until="latest", options={"isolation_level": "read_uncommitted"})
    assert len(values(dirty)) == 6


def test_the_documented_way_to_fetch_gives_the_same_rows(
    kafka: Kafka, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, servers = new_topic(2), kafka.bootstrap_servers
    produce(servers, topic, [{"value": v, "key": v, "headers": [("h", v)]} for v in numbers(0, 300)], 1)
    transact(servers, topic, [b"a"], "commit")
    transact(servers, topic, [b"lost"], "abort")
    metadata = ["key", "headers", "timestamp", "topic", "partition", "offset"]
    source = KafkaSource(servers, topic, format=RAW, until="latest", metadata=metadata)
    fast = read(source)
    monkeypatch.setattr("penstock.connectors.kafka.consumer.library_version", lambda: "0.15.1")
    made = []
    monkeypatch.setattr(PlainFetch, "__init__", _noting(PlainFetch.__init__, made))
    assert read(source) == fast
    assert made
    assert len(fast) == 301


def _noting(function: Callable[..., None], made: list[object]) -> Callable[..., None]:
    def call(self: object, *arguments: object) -> None:
        made.append(self)
        function(self, *arguments)

    return call


@pytest.mark.parametrize("max_rows", [1, 7, 1000])
def test_resumes_where_it_was(kafka: Kafka, new_topic: NewTopic, max_rows: int) -> None:
    topic, servers = new_topic(), kafka.bootstrap_servers
    produce(servers, topic, numbers(0, 20))
    transact(servers, topic, [b"lost"], "abort")
    produce(servers, topic, numbers(20, 40))
    source = KafkaSource(servers, topic, format=RAW, until="latest", metadata=["offset"])
    (split,) = source.splits(1)
    reader, seen, positions = source.open(split, context()), [], []
    positions.append(reader.position())
    while (batch := take(reader, max_rows)) is not None:
        seen.append(batch.to_pylist())
        positions.append(reader.position())
    reader.close()
    assert [row["v"] for batch in seen for row in batch] == numbers(0, 40)
    for place in {0, 1, len(seen) // 2, len(seen)}:
        again, rows = source.open_at(split, positions[place], context()), []
        while (batch := take(again)) is not None:
            rows += batch.to_pylist()
        again.close()
        assert rows == [row for batch in seen[place:] for row in batch]


def test_a_position_of_another_source_is_refused(kafka: Kafka, ten: str) -> None:
    source = KafkaSource(kafka.bootstrap_servers, ten, format=RAW)
    with pytest.raises(RestoreError, match="must have an offset"):
        source.open_at(source.splits(1)[0], {"row": 3}, context())


def test_a_bad_record_fails_with_its_place(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic()
    produce(kafka.bootstrap_servers, topic, [b'{"id": 1}', b'{"id": ', b'{"id": 3}'])
    source = KafkaSource(kafka.bootstrap_servers, topic, format=JsonFormat({"id": "int64"}), until="latest")
    with pytest.raises(RecordError, match=f"topic '{topic}', partition 0, offset 1: .+bad_records"):
        read(source)


def test_bad_records_can_be_kept_as_rows(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic()
    produce(
        kafka.bootstrap_servers, topic, [b'{"id": 1}', b'{"id": ', {"value": None, "key": b"k"}, b'{"id": 3}', b"\xff"]
    )
    source = KafkaSource(
        kafka.bootstrap_servers,
        topic,
        format=JsonFormat({"id": "int64"}),
        until="latest",
        metadata=["offset"],
        bad_records="keep",
    )
    rows = read(source)
    assert [row["id"] for row in rows] == [1, None, None, 3, None]
    assert [row["offset"] for row in rows] == [0, 1, 2, 3, 4]
    assert [row["raw"] for row in rows] == [None, b'{"id": ', None, None, b"\xff"]
    assert [row["error"] is None for row in rows] == [True, False, True, True, False]
    assert source.schema.names == ["id", "offset", "error", "raw"]


def test_readers_of_a_subtask_share_a_connection(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(3)
    for partition in range(3):
        produce(kafka.bootstrap_servers, topic, numbers(0, 5), partition)
    source, where = KafkaSource(kafka.bootstrap_servers, topic, format=RAW, until="latest"), context()
    readers = [source.open(split, where) for split in source.splits(1)]
    assert len({id(reader._consumer) for reader in readers}) == 1
    rows = [take(reader).num_rows for reader in readers]
    readers[0].close()
    assert rows == [5, 5, 5]
    assert [take(reader) for reader in readers[1:]] == [None, None]
    for reader in readers[1:]:
        reader.close()
    other = source.open(source.splits(1)[0], context())
    assert take(other).num_rows == 5
    other.close()


def test_more_than_is_fetched_ahead(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic()
    produce(kafka.bootstrap_servers, topic, [b"%06d" % n + b"." * 1000 for n in range(2000)])
    source = KafkaSource(
        kafka.bootstrap_servers, topic, format=RAW, until="latest", options={"max_partition_fetch_bytes": 50_000}
    )
    assert [int(row["v"][:6]) for row in read(source, max_rows=17)] == list(range(2000))


def test_few_partitions_come_in_large_batches_unless_the_user_says_otherwise(kafka: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic()
    produce(kafka.bootstrap_servers, topic, [b"." * 1000] * 6000)
    by_default, by_option = (_largest(kafka, topic, options) for options in ({}, {"max_partition_fetch_bytes": 50_000}))
    assert by_default > 2_000_000
    assert by_option < 100_000


def _largest(kafka: Kafka, topic: str, options: dict[str, int]) -> int:
    """Bytes of the largest batch of the first partition."""
    source = KafkaSource(kafka.bootstrap_servers, topic, format=RAW, until="latest", options=options)
    (split,) = source.splits(1)
    reader = source.open(split, context())
    sizes = [batch.nbytes for batch in iter(lambda: take(reader, 10_000), None)]
    reader.close()
    return max(sizes)


def test_a_group_is_told_how_far_it_is(kafka: Kafka, ten: str) -> None:
    source = KafkaSource(kafka.bootstrap_servers, ten, format=RAW, until="latest", commit_to=f"g-{ten}")
    assert len(read(source)) == 10
    assert committed(kafka.bootstrap_servers, f"g-{ten}", ten) == 10


def test_travels_and_describes_itself(kafka: Kafka, ten: str) -> None:
    options = {"sasl_plain_password": "s3cret", "sasl_plain_username": "u"}
    source = KafkaSource("h:1", "clicks", format=RAW, until="latest", options=options)
    again = pickle.loads(pickle.dumps(source))
    assert again.describe() == "kafka(clicks, raw binary, from earliest until latest)"
    assert again.schema == pa.schema([("v", pa.binary())])
    for thing in (source, source._connection):
        assert "s3cret" not in repr(thing)
    plain = pickle.loads(pickle.dumps(KafkaSource(kafka.bootstrap_servers, ten, format=RAW, until="latest")))
    assert len(read(plain)) == 10


def test_the_look_for_partitions_goes_on_behind_any_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked, found = iter([RuntimeError("no such thing")]), threading.Event()
    new = [offsets.KafkaSplit("t", 0, 0)]

    def plan(*_: object) -> list[offsets.KafkaSplit]:
        for error in asked:
            raise error
        found.set()
        return new

    monkeypatch.setattr(discovery, "plan_splits", plan)
    look = discovery.PartitionDiscovery(KafkaConnection.of("h:1"), offsets.Chosen(("t",)), 0.001)
    assert found.wait(10)
    look.close()
    assert "no new partitions could be looked for: RuntimeError: no such thing" in caplog.text


def test_what_is_just_being_committed_comes_before_the_end(
    kafka: Kafka, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers, topic = kafka.bootstrap_servers, new_topic()
    looked = asyncio.Event()
    newest = offsets._Brokers._newest

    async def look(*arguments: Any) -> Any:
        found = await newest(*arguments)
        loop.call_soon_threadsafe(looked.set)
        return found

    async def commit_behind_the_first_look() -> Any:
        nonlocal loop
        loop = asyncio.get_running_loop()
        async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id=f"{topic}-tx") as producer:
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"a", partition=0)
            planning = asyncio.create_task(asyncio.to_thread(source.splits, 1))
            await looked.wait()
            await producer.commit_transaction()
            return await planning

    loop: asyncio.AbstractEventLoop
    monkeypatch.setattr(offsets._Brokers, "_newest", look)
    source = KafkaSource(servers, topic, format=RAW, until=KafkaOffsets.latest())
    [split] = asyncio.run(commit_behind_the_first_look())
    assert [row["v"] for row in read(source, [split])] == [b"a"]
