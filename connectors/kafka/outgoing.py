"""Rows as Kafka records in columns: what the sink's writers make, checkpoints keep, and producers send.

Whatever can be wrong with a row is found here, before a checkpoint holds it: what a checkpoint holds must be written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.kafka import columns
from penstock.connectors.kafka.fetched import HEADERS_TYPE
from penstock.connectors.kafka.partitioner import Partitioner, Partitions
from penstock.connectors.kafka.topics import TopicFacts
from penstock.connectors.records.batches import fit_rows
from penstock.connectors.records.format import RecordFormat
from penstock.engine.elements import Batch
from penstock.engine.errors import ConfigurationError, RecordError, missing_column

RECORDS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("key", pa.large_binary()),
        ("value", pa.large_binary()),
        ("headers", HEADERS_TYPE),
        ("timestamp", pa.int64()),
    ]
)
"""Records that know their place; the timestamp is in milliseconds since the epoch."""

Numbers: TypeAlias = "npt.NDArray[np.int64]"
FactsOf: TypeAlias = Callable[[str], TopicFacts]

BATCH_OVERHEAD: Final = 61
_RECORD_OVERHEAD: Final = 40
_HEADER_OVERHEAD: Final = 10
"""Bytes around a record's own, at the most."""
_PIECE_BYTES: Final = 64 << 20
_AGE_TAKEN: Final = 0.9
"""Which part of the age that a topic takes a record may have: it is older by a checkpoint when it is written."""


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """Which columns become what of a record; arguments as of `KafkaSink`."""

    format: RecordFormat
    key: str | RecordFormat | None
    topic: str | None
    topic_column: str | None
    partition: str | None
    headers: str | None
    timestamp: str | None

    def check(self, schema: pa.Schema) -> None:
        """Whether rows with these columns can be written.

        Raises:
            MissingColumnError: a column that is named is not there.
            ColumnTypeError: one has a type that does not fit.
            ConfigurationError: a column has no place in the record, or no type that the format could take.
        """
        for name in [*self._named, *self.format.schema.names]:
            if name not in schema.names:
                raise missing_column(name, schema.names, "kafka sink")
        rows = pa.RecordBatch.from_pylist([], schema)
        try:
            fit_rows(self._value_rows(rows), self.format.schema, f"kafka sink: {self.format.describe()} value")
            if isinstance(self.key, RecordFormat):
                fit_rows(rows.select(self.key.schema.names), self.key.schema, f"kafka sink: {self.key.describe()} key")
        except RecordError as error:
            raise ConfigurationError(str(error)) from error
        if isinstance(self.key, str):
            columns.key_bytes(rows.column(self.key), self.key)
        self._places(rows)
        self._times(Batch(rows), 0)

    def encode(self, batch: Batch, now_ms: int) -> pa.RecordBatch:
        """`RECORDS` for the rows; the partition is null where the partitioner is to choose.

        Raises:
            RecordError: a row cannot be written.
        """
        rows = batch.data
        topic, partition, headers = self._places(rows)
        value = self.format.encode(self._value_rows(rows))
        return pa.RecordBatch.from_arrays(
            [topic, partition, self._keys(rows), value, headers, self._times(batch, now_ms)], schema=RECORDS
        )

    @property
    def _named(self) -> list[str]:
        key = self.key.schema.names if isinstance(self.key, RecordFormat) else [self.key]
        named = [*key, self.topic_column, self.partition, self.headers, self.timestamp]
        return list(dict.fromkeys(name for name in named if name is not None))

    def _value_rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        aside = set(self._named) - set(self.format.schema.names)
        return rows.select([name for name in rows.schema.names if name not in aside])

    def _keys(self, rows: pa.RecordBatch) -> pa.LargeBinaryArray:
        if self.key is None:
            return pa.nulls(rows.num_rows, pa.large_binary())
        if isinstance(self.key, str):
            return columns.key_bytes(rows.column(self.key), self.key)
        return self.key.encode(rows.select(self.key.schema.names))

    def _places(self, rows: pa.RecordBatch) -> tuple[pa.Array, pa.Array, pa.Array]:
        count = rows.num_rows
        topic = (
            pa.repeat(pa.scalar(self.topic, pa.string()), count)
            if self.topic_column is None
            else columns.topics(rows.column(self.topic_column), self.topic_column)
        )
        partition = (
            pa.nulls(count, pa.int32())
            if self.partition is None
            else columns.partitions(rows.column(self.partition), self.partition)
        )
        headers = (
            pa.nulls(count, HEADERS_TYPE)
            if self.headers is None
            else columns.headers(rows.column(self.headers), self.headers)
        )
        return topic, partition, headers

    def _times(self, batch: Batch, now_ms: int) -> pa.Int64Array:
        """The column, or else event time; now where there is none, or one that Kafka cannot hold."""
        if self.timestamp is not None:
            given = columns.timestamps(batch.data.column(self.timestamp), self.timestamp)
        else:
            given = batch.timestamps if batch.timestamps is not None else pa.nulls(batch.num_rows, pa.int64())
        return pc.if_else(pc.fill_null(pc.greater_equal(given, 0), False), given, pa.scalar(now_ms, pa.int64()))


def place(records: pa.RecordBatch, facts_of: FactsOf, partitioner: Partitioner, now_ms: int) -> pa.RecordBatch:
    """The records with their partitions.

    Args:
        records: as `RecordLayout.encode` gives them.
        facts_of: what the brokers say about a topic.
        partitioner: chooses where no partition is given.
        now_ms: the time, in milliseconds since the epoch.

    Raises:
        RecordError: the topic does not take a record, or has no such partition; names topic and row.
    """
    sizes = record_sizes(records)
    partitions = np.empty(records.num_rows, np.int32)
    for topic, rows in _by_topic(records):
        facts = facts_of(topic)
        some = records if len(rows) == records.num_rows else records.take(pa.array(rows))
        _check_taken(some, topic, facts, sizes[rows], rows, now_ms)
        partitions[rows] = _partitions(some, topic, facts, partitioner, rows)
    return records.set_column(1, "partition", pa.array(partitions))


def _by_topic(records: pa.RecordBatch) -> Iterator[tuple[str, Numbers]]:
    encoded = records.column("topic").dictionary_encode()
    codes = encoded.indices.to_numpy()
    for code, topic in enumerate(encoded.dictionary.to_pylist()):
        yield topic, np.flatnonzero(codes == code)


def _check_taken(
    records: pa.RecordBatch, topic: str, facts: TopicFacts, sizes: Numbers, rows: Numbers, now_ms: int
) -> None:
    where = f"kafka sink: topic {topic!r}"
    largest = int(sizes.argmax())
    if sizes[largest] + BATCH_OVERHEAD > facts.max_bytes:
        raise RecordError(
            f"{where}: the record of row {rows[largest]} has {sizes[largest]:,} bytes, more than the "
            f"{facts.max_bytes:,} of {facts.limit_name}: raise that (with readers that take as much), or write "
            "smaller records"
        )
    if facts.compacted and records.column("key").null_count:
        row = rows[pc.index(records.column("key").is_null(), True).as_py()]
        raise RecordError(f"{where} is compacted, and row {row} has no key: give key=")
    ahead = records.column("timestamp").to_numpy() - now_ms
    latest, oldest = int(ahead.argmax()), int(ahead.argmin())
    if facts.max_ahead_ms is not None and ahead[latest] > facts.max_ahead_ms:
        raise RecordError(
            f"{where}: the time of row {rows[latest]} is {ahead[latest]:,} ms ahead of the clock; the topic's "
            f"message.timestamp.after.max.ms is {facts.max_ahead_ms:,}: raise it, or give timestamp="
        )
    if facts.max_behind_ms is not None and -ahead[oldest] > facts.max_behind_ms * _AGE_TAKEN:
        raise RecordError(
            f"{where}: the time of row {rows[oldest]} is {-ahead[oldest]:,} ms behind the clock; the topic's "
            f"message.timestamp.before.max.ms is {facts.max_behind_ms:,}, of which a tenth is left for the time until "
            "the commit: raise it, or give timestamp="
        )


def _partitions(
    records: pa.RecordBatch, topic: str, facts: TopicFacts, partitioner: Partitioner, rows: Numbers
) -> Partitions:
    given = records.column("partition")
    if given.null_count == len(given):
        return partitioner.partitions(records.column("key"), facts.partitions)
    found: Partitions = given.fill_null(0).to_numpy()
    wrong = (found < 0) | (found >= facts.partitions)
    if wrong.any():
        row = int(wrong.argmax())
        raise RecordError(
            f"kafka sink: row {rows[row]}: topic {topic!r} has no partition {found[row]}; it has {facts.partitions}"
        )
    if not given.null_count:
        return found
    chosen = partitioner.partitions(records.column("key"), facts.partitions)
    return np.where(given.is_null().to_numpy(zero_copy_only=False), chosen, found)


def record_sizes(records: pa.RecordBatch) -> Numbers:
    """The most bytes that each record can take in a batch."""
    sizes = np.full(records.num_rows, _RECORD_OVERHEAD, np.int64)
    for name in ("key", "value"):
        sizes += pc.binary_length(records.column(name)).fill_null(0).to_numpy()
    lists = records.column("headers")
    if lists.null_count < len(lists):
        entries = lists.flatten()
        keys, values = pc.struct_field(entries, "key"), pc.struct_field(entries, "value")
        each = pc.add(pc.binary_length(keys), pc.fill_null(pc.binary_length(values), 0)).to_numpy() + _HEADER_OVERHEAD
        ends = np.cumsum(pc.list_value_length(lists).fill_null(0).to_numpy())
        total = np.concatenate([[0], np.cumsum(each, dtype=np.int64)])
        sizes += np.diff(total[ends], prepend=0)
    return sizes


@dataclass(frozen=True, slots=True)
class Run:
    """Records of one partition, in their order, cut to batches.

    Args:
        topic, partition: which one.
        batches: the records' rows, batch by batch.
    """

    topic: str
    partition: int
    batches: tuple[Numbers, ...]


def runs(records: pa.RecordBatch, most_bytes: Callable[[str], int]) -> Iterator[Run]:
    """The records of each partition.

    Args:
        records: as `place` gives them.
        most_bytes: of a batch of a topic's; one record is a batch, however large.
    """
    sizes = record_sizes(records)
    partitions = records.column("partition").to_numpy()
    for topic, of_topic in _by_topic(records):
        rows = of_topic[np.argsort(partitions[of_topic], kind="stable")]
        begins = np.flatnonzero(np.diff(partitions[rows], prepend=-1))
        for some in np.split(rows, begins[1:]):
            batches = tuple(_cut(some, sizes[some], most_bytes(topic) - BATCH_OVERHEAD))
            yield Run(topic, int(partitions[some[0]]), batches)


def _cut(rows: Numbers, sizes: Numbers, most: int) -> Iterator[Numbers]:
    ends, begin = np.cumsum(sizes), 0
    while begin < len(rows):
        before = int(ends[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + most, "right")))
        yield rows[begin:end]
        begin = end


def pieces(records: pa.Table) -> Iterator[pa.RecordBatch]:
    """The records in parts that are worth sending at once and bound the memory that it takes."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in records.to_batches():
        rows = max(1, batch.num_rows * _PIECE_BYTES // max(batch.nbytes, 1))
        for begin in range(0, batch.num_rows, rows):
            part = batch.slice(begin, rows)
            waiting.append(part)
            size += part.nbytes
            if size >= _PIECE_BYTES:
                yield pa.concat_batches(waiting)
                waiting, size = [], 0
    if waiting:
        yield pa.concat_batches(waiting)
