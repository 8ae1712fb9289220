"""The Kafka sink: rows as records of topics, exactly once with the job's checkpoints, or at least once and sooner.

Programs build a `KafkaSink`; the client checks topics and permissions, each subtask writes, and what a checkpoint holds
is committed when that is complete. See `committer` for why exactly once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa

from penstock.connectors.kafka.connection import KafkaConnection
from penstock.connectors.kafka.markers import place_of, prepare_marker_topic
from penstock.connectors.kafka.outgoing import RecordLayout
from penstock.connectors.kafka.partitioner import PARTITIONERS, Partitioner, PartitionerName
from penstock.connectors.kafka.producer import Delivery, RecordProducer
from penstock.connectors.kafka.topics import check_may_write, describe_topics
from penstock.connectors.kafka.writers import EagerWriter, EpochWriter, RowsToRecords, Session, Sessions, writer_name
from penstock.connectors.records.format import RecordFormat
from penstock.engine.connectors import Committable, ConnectorContext, Dataset, TransactionalSink, TransactionalWriter
from penstock.engine.durations import Duration, parse_duration
from penstock.engine.errors import ConfigurationError, nearest

Guarantee: TypeAlias = Literal["exactly-once", "at-least-once"]
_GUARANTEES: Final = ("exactly-once", "at-least-once")


class KafkaSink(TransactionalSink):
    """Writes rows as records of one topic, or of the topic that each row names.

    Guarantee: exactly once with checkpoints, read committed. The rows between two checkpoints are kept in the second
    one; when it is complete, each subtask writes its rows in one transaction, together with a marker "this checkpoint
    is committed" in a topic of its own. After a failure the marker tells whether that had been done. So nothing depends
    on how long an outage takes, and no transaction is open for longer than it takes to write. Readers need
    `isolation_level=read_committed`; they see rows late by up to the checkpoint interval, and the rows of an interval
    must fit into the subtasks' memory. Without checkpoints, each subtask writes all its rows when its input ends.

    `guarantee="at-least-once"` writes rows as they come, and a checkpoint waits until the brokers have them: after a
    failure, rows since the last checkpoint are written again.

    Rows are written as they come: changelog row kinds are not. Records of one subtask that go to one partition keep
    their order. All replicas acknowledge each record.

    Args:
        bootstrap_servers: `host:port` of some brokers: a list, or text with commas.
        topic: the topic; it must exist. Or else `topic_column`.
        format: makes the record's value of the format's columns.
        guarantee: `"exactly-once"` or `"at-least-once"`.
        key: a column of bytes or text, or a format that makes the key of its columns; None for none.
        topic_column: a column with the name of the topic.
        partition: a column with the number of the partition; where it is null, the partitioner chooses.
        headers: a column with a map from string to binary or string, or a list of struct<key, value>.
        timestamp: a column with a timestamp, or milliseconds as an integer; by default event time, or now if there is
            none. Of these, columns that are not the format's are not part of the value. A time that the topic does not
            take (`message.timestamp.before.max.ms`, of which a tenth is left for the time until the commit, and
            `message.timestamp.after.max.ms`) is a `RecordError` before the checkpoint.
        partitioner: `"murmur2"` (by the key, as Kafka's clients do; without a key, by batches in turn),
            `"round-robin"`, or `"fixed"` (one partition for each subtask). Partitions that are added to a topic are
            used when the job starts again.
        marker_topic: the compacted topic of the markers; made if it is not there. Jobs may share one.
        transactional_id_prefix: what the transactional ids begin with, for permissions: the user needs WRITE and
            DESCRIBE on them.
        transaction_timeout: the longest that it may take to write the rows of a checkpoint. Where a killed job is
            never resumed, readers wait as long.
        delivery_timeout: how long the brokers may take nothing before a commit (or, at least once, a write) fails. The
            job then restarts and tries again; the rows are kept.
        options: of aiokafka, such as `security_protocol`, `sasl_mechanism`, `sasl_plain_username`,
            `sasl_plain_password`, `ssl_cafile`, `compression_type`, `max_batch_size` or `max_request_size`. They are
            never shown.

    Raises:
        ConfigurationError: an argument that cannot be used.

    Example:
        >>> KafkaSink("localhost:9092", "totals", key="user", format=JsonFormat({"user": "string", "n": "int64"}))
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        topic: str | None = None,
        *,
        format: RecordFormat,  # noqa: A002 - the word users look for
        guarantee: Guarantee = "exactly-once",
        key: str | RecordFormat | None = None,
        topic_column: str | None = None,
        partition: str | None = None,
        headers: str | None = None,
        timestamp: str | None = None,
        partitioner: PartitionerName = "murmur2",
        marker_topic: str = "penstock-markers",
        transactional_id_prefix: str = "penstock",
        transaction_timeout: Duration = "5min",
        delivery_timeout: Duration = "30s",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._connection = KafkaConnection.of(bootstrap_servers, options)
        if (topic is None) == (topic_column is None) or topic == "":
            raise ConfigurationError("kafka sink: give one of topic and topic_column")
        if not isinstance(format, RecordFormat):
            raise ConfigurationError(f"kafka sink: format must be a RecordFormat, not {format!r}")
        if key is not None and not isinstance(key, (str, RecordFormat)):
            raise ConfigurationError(f"kafka sink: key must be a column or a RecordFormat, not {key!r}")
        _check_choice("guarantee", guarantee, _GUARANTEES)
        _check_choice("partitioner", partitioner, PARTITIONERS)
        self._layout = RecordLayout(format, key, topic, topic_column, partition, headers, timestamp)
        self._exactly_once = guarantee == "exactly-once"
        self._partitioner = partitioner
        self._marker_topic = marker_topic
        self._prefix = transactional_id_prefix
        self._delivery = Delivery(
            _positive(delivery_timeout, "delivery_timeout") / 1000,
            _positive(transaction_timeout, "transaction_timeout"),
        )
        self._sessions = Sessions()

    def check(self, schema: pa.Schema | None) -> None:
        if schema is not None:
            self._layout.check(schema)

    def prepare(self) -> None:
        """Find out whether the job can write: brokers, topic, marker topic, permissions."""
        try:
            topics = [] if self._layout.topic is None else [self._layout.topic]
            describe_topics(self._connection, topics)
            if self._exactly_once:
                prepare_marker_topic(self._connection, self._marker_topic)
                topics.append(self._marker_topic)
            check_may_write(self._connection, topics)
            identifier = f"{self._prefix}-check" if self._exactly_once else None
            RecordProducer(self._connection, self._delivery, identifier).close()
        except ConnectionError as error:
            raise ConfigurationError(f"kafka sink: {error}") from error

    def open(self, context: ConnectorContext) -> TransactionalWriter:
        session = Session(self._connection, self._delivery, context)
        try:
            if self._layout.topic is not None:
                session.catalog.facts(self._layout.topic)
            rows = RowsToRecords(
                self._layout, Partitioner(self._partitioner, context.subtask), session.catalog, context
            )
            if not self._exactly_once:
                return EagerWriter(rows, RecordProducer(self._connection, self._delivery), session)
            name = writer_name(self._prefix, context)
            start = place_of(self._connection, self._marker_topic, name)
            return EpochWriter(rows, name, start, session, self._sessions, context)
        except (ConnectionError, ConfigurationError) as error:
            raise type(error)(f"{session.where}: {error}") from error

    def commit(self, committables: Sequence[Committable], context: ConnectorContext) -> None:
        """Write the rows in transactions, unless their markers are there; errors as of `Committer.commit`."""
        with self._sessions.of(context, self._connection, self._delivery) as session:
            session.committer.commit(committables)

    @property
    def datasets(self) -> Sequence[Dataset]:
        topic = self._layout.topic
        return () if topic is None else (self._connection.dataset(topic),)

    def describe(self) -> str:
        target = self._layout.topic or f"by {self._layout.topic_column}"
        return f"kafka({target}, {self._layout.format.describe()})"


def _check_choice(argument: str, given: str, choices: Sequence[str]) -> None:
    if given not in choices:
        raise ConfigurationError(
            f"kafka sink: {argument} must be one of {', '.join(map(repr, choices))}, not {given!r}"
            f"{nearest(str(given), choices)}"
        )


def _positive(duration: Duration, argument: str) -> int:
    milliseconds = parse_duration(duration, f"kafka sink: {argument}")
    if milliseconds == 0:
        raise ConfigurationError(f"kafka sink: {argument} must be longer than nothing")
    return milliseconds
