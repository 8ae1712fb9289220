"""The Kafka source: topics as a stream of rows, each partition a split that resumes at an offset.

Programs build a `KafkaSource`; planning finds the partitions, and each subtask reads its own over one connection. The
offsets live in the job's checkpoints, so that every record takes part in its state exactly once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import pyarrow as pa

from penstock.connectors.kafka.connection import KafkaConnection
from penstock.connectors.kafka.consumer import PartitionConsumer, SharedConsumers, fetch_problem
from penstock.connectors.kafka.discovery import PartitionDiscovery
from penstock.connectors.kafka.fetched import HEADERS_TYPE, TIMESTAMP_TYPE, PartitionFetchError, Records
from penstock.connectors.kafka.offsets import Chosen, KafkaOffsets, KafkaSplit, plan_splits
from penstock.connectors.records.format import BadRecord, Decoded, RecordFormat
from penstock.connectors.records.kept import ERROR_COLUMN, KEPT_FIELDS, with_kept
from penstock.engine.clock import Clock
from penstock.engine.connectors import (
    ConnectorContext,
    Dataset,
    Position,
    Source,
    SourceReader,
    Split,
    SplitOrder,
    Wait,
)
from penstock.engine.durations import Duration, parse_duration
from penstock.engine.errors import ConfigurationError, PenstockError, RecordError, RestoreError, nearest

if TYPE_CHECKING:
    from aiokafka import TopicPartition

METADATA: Final[Mapping[str, pa.DataType]] = {
    "key": pa.binary(),
    "headers": HEADERS_TYPE,
    "timestamp": TIMESTAMP_TYPE,
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
}
"""What a record has beside its value."""
_FIRST_WAIT: Final = 0.001
_LONGEST_WAIT: Final = 0.016
"""Seconds between two looks at a partition that has nothing: doubled each time, from the first to the longest."""

Start: TypeAlias = "KafkaOffsets | Literal['earliest', 'latest']"
End: TypeAlias = "KafkaOffsets | Literal['latest']"


class KafkaSource(Source):
    """Reads topics; bounded if it is told where to end.

    Args:
        bootstrap_servers: `host:port` of some brokers: a list, or text with commas.
        topics: one topic or several; or else `topic_pattern` or `partitions`.
        format: makes columns of the records' values.
        topic_pattern: a regular expression that the whole names of the topics match.
        partitions: numbers of partitions by topic.
        start: where to begin: `"earliest"`, `"latest"` or `KafkaOffsets`. Found once, where the job is planned; a job
            that resumes from a checkpoint reads from the checkpoint's offsets.
        until: where to end: `"latest"` (as it is where the job is planned) or `KafkaOffsets`; None to read for ever.
        metadata: what to give as columns behind the format's: of `key` (binary), `headers` (list of key and value),
            `timestamp` (timestamp[ms, tz=UTC]), `topic`, `partition` (int32) and `offset` (int64). A mapping gives the
            columns other names: `{"offset": "kafka_offset"}`.
        bad_records: `"fail"` to fail the job with the record's place; `"keep"` to give a bad record as a row whose
            format's columns are null, with two more columns: `error` (string, null for good rows) and `raw` (binary:
            the record's value, null for good rows). A filter sends them elsewhere. With watermarks at the source, they
            have no event time, and hold nothing up.
        discovery_interval: how often to look for new partitions, and for new topics that match the pattern: read from
            their oldest record. None not to look. Only without an end, and not where the partitions are given.
        commit_to: a consumer group that is told now and then how far the job is, for monitoring. Nothing is read back.
            What is committed is what was read, not what a checkpoint holds.
        options: of aiokafka, such as `security_protocol`, `sasl_mechanism`, `sasl_plain_username`,
            `sasl_plain_password`, `ssl_cafile`, `fetch_max_bytes`, `max_partition_fetch_bytes` (by default 16 MiB over
            the partitions of a subtask, of each 1 to 4 MiB) or `isolation_level` (`read_committed` by default). They
            are never shown.

    Raises:
        ConfigurationError: an argument that cannot be used.

    Example:
        >>> KafkaSource("localhost:9092", "clicks", format=JsonFormat({"user": "string"}), metadata=["timestamp"])
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        topics: str | Sequence[str] | None = None,
        *,
        format: RecordFormat,  # noqa: A002 - the word users look for
        topic_pattern: str | None = None,
        partitions: Mapping[str, Sequence[int]] | None = None,
        start: Start = "earliest",
        until: End | None = None,
        metadata: Sequence[str] | Mapping[str, str] = (),
        bad_records: Literal["fail", "keep"] = "fail",
        discovery_interval: Duration | None = "5m",
        commit_to: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._connection = KafkaConnection.of(bootstrap_servers, options)
        self._chosen = _choose(topics, topic_pattern, partitions)
        self._start = _offsets(start, "start")
        self._until = None if until is None else _offsets(until, "until")
        if bad_records not in {"fail", "keep"}:
            raise ConfigurationError(f"kafka: bad_records must be 'fail' or 'keep', not {bad_records!r}")
        if not isinstance(format, RecordFormat):
            raise ConfigurationError(f"kafka: format must be a RecordFormat, not {format!r}")
        self._layout = (
            _KeepingLayout(format, _names(metadata)) if bad_records == "keep" else _Layout(format, _names(metadata))
        )
        self._commit_to = commit_to
        self._discovery_ms = _checked_interval(discovery_interval)
        self._consumers = SharedConsumers()

    @property
    def schema(self) -> pa.Schema:
        return self._layout.schema

    @property
    def bounded(self) -> bool:
        return self._until is not None

    @property
    def error_column(self) -> str | None:
        return ERROR_COLUMN if isinstance(self._layout, _KeepingLayout) else None

    def worded(self, owner: str, remedy: str) -> KafkaSource:
        """The same source, whose errors for bad records begin with `owner`, and say in the end what to do."""
        source = copy(self)
        source._layout = self._layout.worded(owner, remedy)
        return source

    @property
    def split_order(self) -> SplitOrder:
        """A batch from each partition in turn, also where they end: their event times are near one another."""
        return SplitOrder.INTERLEAVED

    def splits(self, parallelism: int) -> Sequence[KafkaSplit]:
        return plan_splits(self._connection, self._chosen, self._start, self._until)

    def split(self, split_id: str) -> KafkaSplit | None:
        topic, _, partition = split_id.rpartition("-")
        if not topic or not partition.isdecimal():
            raise _of_another_source(split_id, "that is no partition of a topic")
        made = KafkaSplit(topic, int(partition), 0)
        return made if self._chosen.reads(made.topic, made.partition) else None

    def discover(self, context: ConnectorContext) -> PartitionDiscovery | None:
        if self._discovery_ms is None or self._chosen.partitions:
            return None
        return PartitionDiscovery(self._connection, self._chosen, self._discovery_ms / 1000)

    def open(self, split: Split, context: ConnectorContext) -> SourceReader:
        assert isinstance(split, KafkaSplit)
        return self._reader(split, split.start, context)

    def open_at(self, split: Split, position: Position, context: ConnectorContext) -> SourceReader:
        assert isinstance(split, KafkaSplit)
        offset = position.get("offset")
        if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
            raise _of_another_source(split.split_id, f"a position must have an offset, not {dict(position)!r}")
        return self._reader(split, offset, context)

    @property
    def datasets(self) -> Sequence[Dataset]:
        return [self._connection.dataset(topic) for topic in self._chosen.topic_names]

    def describe(self) -> str:
        until = "" if self._until is None else f" until {self._until.describe()}"
        return (
            f"kafka({self._chosen.describe()}, {self._layout.format.describe()}, from {self._start.describe()}{until})"
        )

    def _reader(self, split: KafkaSplit, offset: int, context: ConnectorContext) -> KafkaReader:
        from aiokafka import TopicPartition

        where = f"operator {context.operator!r}, subtask {context.subtask}: kafka"
        try:
            consumer = self._consumers.lease(context, self._connection, self._commit_to)
        except ConnectionError as error:
            raise ConnectionError(f"{where}: {error}") from None
        partition = TopicPartition(split.topic, split.partition)
        consumer.add(partition, offset)
        context.metrics.gauge("pending_records", consumer.pending)
        return KafkaReader(partition, offset, split.stop, self._layout, consumer, self._consumers, context.clock)


class KafkaReader(SourceReader):
    """Reads one partition.

    Args:
        partition: which one.
        offset: where to begin.
        stop: the first offset that is not read any more, or None.
        layout: makes rows of records.
        consumer: fetches them; given back to `consumers`.
        clock: tells when to look again.
    """

    def __init__(
        self,
        partition: TopicPartition,
        offset: int,
        stop: int | None,
        layout: _Layout,
        consumer: PartitionConsumer,
        consumers: SharedConsumers,
        clock: Clock,
    ) -> None:
        self._partition = partition
        self._next = offset
        self._stop = stop
        self._layout = layout
        self._consumer = consumer
        self._consumers = consumers
        self._clock = clock
        self._records: Records | None = None
        self._row = 0
        self._wait = _FIRST_WAIT
        self._closed = False

    def next_batch(self, max_rows: int) -> pa.RecordBatch | Wait | None:
        while self._stop is None or self._next < self._stop:
            if self._records is None and not self._fetch():
                until = self._clock.monotonic() + self._wait
                self._wait = min(2 * self._wait, _LONGEST_WAIT)
                return Wait(until)
            rows = self._give(max_rows)
            if rows is not None:
                return rows
        return None

    def _fetch(self) -> bool:
        """Whether there are records now; perhaps none that count."""
        try:
            fetched = self._consumer.take(self._partition)
            if fetched is None:
                return False
            self._records = _before(fetched.records(), self._stop)
        except (PenstockError, MemoryError):
            raise
        except Exception as error:
            raise self._failure(error) from error
        self._row = 0
        self._wait = _FIRST_WAIT
        return True

    def _give(self, max_rows: int) -> pa.RecordBatch | None:
        assert self._records is not None
        count = min(max_rows, len(self._records.offsets) - self._row)
        rows = None
        if count:
            part = _slice(self._records, self._row, count)
            rows = self._layout.rows(part, self._partition)
            self._row += count
            self._next = part.next_offset
        if self._row == len(self._records.offsets):
            self._next = self._records.next_offset
            self._records = None
        self._consumer.have_read(self._partition, self._next)
        return rows

    def _failure(self, error: Exception) -> Exception:
        """The error with its place."""
        named = isinstance(error, PartitionFetchError)
        partition = error.partition if isinstance(error, PartitionFetchError) else self._partition
        offset = error.offset if isinstance(error, PartitionFetchError) and error.offset is not None else self._next
        place = f"kafka: topic {partition.topic!r}, partition {partition.partition}, offset {offset}"
        text = f"{place}: {fetch_problem(error)}"
        return RecordError(text) if named or type(error).__name__ in _DATA_ERRORS else ConnectionError(text)

    def position(self) -> Position:
        return {"offset": self._next}

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._consumer.remove(self._partition)
        self._consumers.release(self._consumer)


_DATA_ERRORS: Final = frozenset({"CorruptRecordException", "UnsupportedCodecError", "ArrowInvalid"})


class _Layout:
    """Makes rows of records: the format's columns, then those of the metadata.

    Args:
        record_format: decodes the values.
        names: of the metadata's columns, by what they hold.
    """

    def __init__(self, record_format: RecordFormat, names: Mapping[str, str]) -> None:
        self.format = record_format
        self._names = names
        fields = [*record_format.schema, *(pa.field(name, METADATA[what]) for what, name in names.items())]
        self.schema = _distinct(pa.schema([*fields, *self.further_fields()]))
        self._owner = ""
        self._remedy = "mend the producer, or keep such records as rows by bad_records='keep'"

    def worded(self, owner: str, remedy: str) -> _Layout:
        """The same, with other words around what is wrong with a record."""
        layout = copy(self)
        layout._owner, layout._remedy = owner, remedy
        return layout

    def further_fields(self) -> Sequence[pa.Field]:
        """Columns behind the metadata's."""
        return ()

    def rows(self, records: Records, partition: TopicPartition) -> pa.RecordBatch:
        """A row for each record.

        Raises:
            RecordError: a record cannot be decoded.
        """
        decoded = self.format.decode(records.values)
        columns = self.columns(decoded, records, partition)
        given = [_metadata(what, records, partition) for what in self._names]
        kept = columns[: len(self.format.schema)]
        return pa.RecordBatch.from_arrays([*kept, *given, *columns[len(kept) :]], schema=self.schema)

    def columns(self, decoded: Decoded, records: Records, partition: TopicPartition) -> list[pa.Array]:
        """The format's columns and the further ones."""
        if decoded.bad:
            raise self._refused(decoded.bad[0], records, partition)
        return list(decoded.rows.columns)

    def _refused(self, bad: BadRecord, records: Records, partition: TopicPartition) -> RecordError:
        offset = records.offsets[bad.index].as_py()
        place = f"kafka: topic {partition.topic!r}, partition {partition.partition}, offset {offset}"
        return RecordError(f"{self._owner}{place}: {bad.reason}; {self._remedy}")


class _KeepingLayout(_Layout):
    """Gives bad records as rows of nulls, with the reason and the value."""

    def further_fields(self) -> Sequence[pa.Field]:
        return KEPT_FIELDS

    def columns(self, decoded: Decoded, records: Records, partition: TopicPartition) -> list[pa.Array]:
        values = records.values
        bad = {bad.index: (bad.reason, values[bad.index].as_py()) for bad in decoded.bad}
        return with_kept(decoded.rows, bad, len(values))


def _of_another_source(split_id: str, reason: str) -> RestoreError:
    return RestoreError(
        f"kafka: split {split_id!r}: {reason}; the checkpoint was taken with another source under this uid: give the "
        "new source a uid of its own"
    )


def _metadata(what: str, records: Records, partition: TopicPartition) -> pa.Array:
    count = len(records.offsets)
    if what == "topic":
        return pa.repeat(pa.scalar(partition.topic, pa.string()), count)
    if what == "partition":
        return pa.repeat(pa.scalar(partition.partition, pa.int32()), count)
    if what == "key":
        return records.keys.cast(pa.binary())
    return {"headers": records.headers, "timestamp": records.timestamps, "offset": records.offsets}[what]


def _before(records: Records, stop: int | None) -> Records:
    """The records whose offsets are less than `stop`."""
    if stop is None or records.next_offset <= stop:
        return records
    offsets = records.offsets.to_numpy()
    return _slice(records, 0, int(offsets.searchsorted(stop)), records.next_offset)


def _slice(records: Records, begin: int, count: int, next_offset: int | None = None) -> Records:
    """Some of the records; by default, the next offset is the one behind the last."""
    return Records(
        records.offsets.slice(begin, count),
        records.timestamps.slice(begin, count),
        records.keys.slice(begin, count),
        records.values.slice(begin, count),
        records.headers.slice(begin, count),
        records.offsets[begin + count - 1].as_py() + 1 if next_offset is None else next_offset,
    )


def _choose(
    topics: str | Sequence[str] | None, pattern: str | None, partitions: Mapping[str, Sequence[int]] | None
) -> Chosen:
    if sum(one is not None for one in (topics, pattern, partitions)) != 1:
        raise ConfigurationError("kafka: give one of topics, topic_pattern and partitions")
    if pattern is not None:
        try:
            re.compile(pattern)
        except (re.error, TypeError) as error:
            raise ConfigurationError(f"kafka: topic_pattern {pattern!r} is no regular expression: {error}") from None
        return Chosen(pattern=pattern)
    if partitions is not None:
        listed = tuple((topic, number) for topic, numbers in partitions.items() for number in dict.fromkeys(numbers))
        if not listed or not all(isinstance(number, int) and number >= 0 for _, number in listed):
            raise ConfigurationError(f"kafka: partitions are {{'topic': [0, 1]}}, not {partitions!r}")
        return Chosen(partitions=listed)
    given = (topics,) if isinstance(topics, str) else tuple(topics or ())
    if not given or not all(isinstance(topic, str) and topic for topic in given):
        raise ConfigurationError(f"kafka: topics must be the names of one topic or more, not {topics!r}")
    return Chosen(topics=tuple(dict.fromkeys(given)))


def _checked_interval(interval: Duration | None) -> int | None:
    if interval is None:
        return None
    milliseconds = parse_duration(interval, "kafka: discovery_interval")
    if not milliseconds:
        raise ConfigurationError("kafka: discovery_interval must not be 0; None looks for no new partitions")
    return milliseconds


def _offsets(given: KafkaOffsets | str, argument: str) -> KafkaOffsets:
    if given == "latest":
        return KafkaOffsets.latest()
    if given == "earliest" and argument == "start":
        return KafkaOffsets.earliest()
    if isinstance(given, KafkaOffsets) and (argument == "start" or given.kind in {"latest", "timestamp", "offsets"}):
        return given
    allowed = (
        "'earliest', 'latest' or KafkaOffsets"
        if argument == "start"
        else ("'latest', KafkaOffsets.of(...) or KafkaOffsets.at_timestamp(...)")
    )
    raise ConfigurationError(f"kafka: {argument} must be {allowed}, not {given!r}")


def _names(metadata: Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    if isinstance(metadata, str):
        raise ConfigurationError(f"kafka: metadata must be a list of names, such as [{metadata!r}]")
    names = dict(metadata) if isinstance(metadata, Mapping) else {name: name for name in metadata}
    for what in names:
        if what not in METADATA:
            raise ConfigurationError(
                f"kafka: records have no {what!r}{nearest(str(what), METADATA)}; metadata is of {', '.join(METADATA)}"
            )
    return names


def _distinct(schema: pa.Schema) -> pa.Schema:
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise ConfigurationError(
                f"kafka: column {name!r} occurs twice; give the metadata another name, such as "
                f"metadata={{'offset': 'kafka_offset'}}, or rename the format's column"
            )
    return schema
