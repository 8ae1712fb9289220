"""Where the reading of partitions begins and ends, as users say it, and the numbers that this means today.

`KafkaSource` takes `KafkaOffsets`; planning asks the brokers by `plan_splits`, once and on the client, so that a job
that starts again from its beginning reads the same records.
"""

from __future__ import annotations

import asyncio
import datetime
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import tenacity

from penstock.connectors.kafka.connection import EventLoopThread, KafkaConnection, connected, library_version
from penstock.engine.errors import ConfigurationError, nearest

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer, TopicPartition
    from aiokafka.admin import AIOKafkaAdminClient

_PLAN_SECONDS: Final = 40.0
_REQUEST_SECONDS: Final = 8.0
_ENDING_SECONDS: Final = 10.0
"""How long transactions that have been committed may take to be seen: who commits is told before readers see it."""
_LOOK_SECONDS: Final = 0.05
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_MILLISECOND: Final = datetime.timedelta(milliseconds=1)

Fallback: TypeAlias = Literal["earliest", "latest"]


@dataclass(frozen=True, slots=True)
class KafkaOffsets:
    """A place in each partition. Made by its class methods, as Flink's `OffsetsInitializer` is.

    Example:
        >>> KafkaOffsets.at_timestamp(1_700_000_000_000).describe()
        'timestamp 1700000000000'
    """

    kind: Literal["earliest", "latest", "committed", "timestamp", "offsets"]
    group: str = ""
    timestamp_ms: int = 0
    offsets: tuple[tuple[str, int, int], ...] = ()
    otherwise: Fallback | None = None

    @classmethod
    def earliest(cls) -> KafkaOffsets:
        """The oldest record that is kept."""
        return cls("earliest")

    @classmethod
    def latest(cls) -> KafkaOffsets:
        """Behind the newest record; before the first open transaction where committed records are read.

        As an end it waits, up to ten seconds, for transactions that are just being committed.
        """
        return cls("latest")

    @classmethod
    def committed(cls, group: str, otherwise: Fallback | None = None) -> KafkaOffsets:
        """Where a consumer group has got to.

        Of a group that `KafkaSource(commit_to=...)` tells, that is what was read, not what a checkpoint holds: a job
        that begins there loses the rows that were under way. To resume where a job was, start from its savepoint.

        Args:
            group: its id.
            otherwise: for partitions of which the group has no offset; by default that is an error.
        """
        if not isinstance(group, str) or not group:
            raise ConfigurationError(f"kafka: committed() needs the id of a consumer group, not {group!r}")
        return cls("committed", group=group, otherwise=_checked_fallback(otherwise))

    @classmethod
    def at_timestamp(cls, timestamp: int | datetime.datetime) -> KafkaOffsets:
        """The first record at that time or later, or the latest place if there is none.

        Args:
            timestamp: milliseconds since the epoch, or a datetime with a time zone.
        """
        if isinstance(timestamp, datetime.datetime):
            if timestamp.tzinfo is None:
                raise ConfigurationError(f"kafka: the datetime {timestamp} needs a time zone, such as datetime.UTC")
            # The first millisecond that is not before it; a float would be one too early for some.
            timestamp = -((_EPOCH - timestamp) // _MILLISECOND)
        if not isinstance(timestamp, int) or isinstance(timestamp, bool) or timestamp < 0:
            raise ConfigurationError(f"kafka: a timestamp is milliseconds since 1970 or a datetime, not {timestamp!r}")
        return cls("timestamp", timestamp_ms=timestamp)

    @classmethod
    def of(cls, offsets: Mapping[tuple[str, int], int], otherwise: Fallback = "earliest") -> KafkaOffsets:
        """An offset for each partition.

        Args:
            offsets: by topic and partition; the first offset that is read, or that is not read any more.
            otherwise: for partitions that are not listed; where reading ends, all must be.
        """
        for key, offset in offsets.items():
            plain = isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], str) and isinstance(key[1], int)
            if not plain or not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
                raise ConfigurationError(
                    f"kafka: offsets are {{('topic', partition): offset}}, not {key!r}: {offset!r}"
                )
        listed = tuple(sorted((topic, partition, offset) for (topic, partition), offset in offsets.items()))
        return cls("offsets", offsets=listed, otherwise=_checked_fallback(otherwise))

    def describe(self) -> str:
        """A few words for `explain()`."""
        texts = {"committed": f"committed by {self.group}", "timestamp": f"timestamp {self.timestamp_ms}"}
        return texts.get(self.kind, self.kind)


def _checked_fallback(otherwise: Fallback | None) -> Fallback | None:
    if otherwise not in {None, "earliest", "latest"}:
        raise ConfigurationError(f"kafka: otherwise must be 'earliest' or 'latest', not {otherwise!r}")
    return otherwise


@dataclass(frozen=True, slots=True)
class KafkaSplit:
    """A partition.

    Args:
        topic, partition: which one.
        start: the first offset that is read.
        stop: the first that is not read any more; None to read for ever.
    """

    topic: str
    partition: int
    start: int
    stop: int | None = None

    @property
    def split_id(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which partitions are read: all of some topics, all of the topics whose whole names match a pattern, or some."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[tuple[str, int], ...] = ()

    @property
    def topic_names(self) -> Sequence[str]:
        """The topics, each once; for those that match a pattern, the pattern."""
        if self.pattern is not None:
            return (self.pattern,)
        return self.topics or tuple(dict.fromkeys(topic for topic, _ in self.partitions))

    def describe(self) -> str:
        """A few words for `explain()`."""
        if self.pattern is not None:
            return f"pattern {self.pattern!r}"
        return ", ".join(self.topics or [f"{topic}-{partition}" for topic, partition in self.partitions])

    def reads(self, topic: str, partition: int) -> bool:
        """Whether a partition is one of them, if there is such a one."""
        if self.pattern is not None:
            return self._matches(topic)
        return topic in self.topics or (topic, partition) in self.partitions

    def _matches(self, topic: str) -> bool:
        return self.pattern is not None and re.fullmatch(self.pattern, topic) is not None

    def among(self, existing: Mapping[str, Sequence[int]]) -> list[tuple[str, int]]:
        """The partitions, of those that there are.

        Raises:
            ConfigurationError: a topic or partition is missing, or nothing matches.
        """
        if self.pattern is not None:
            topics = [name for name in sorted(existing) if self._matches(name)]
            if not topics:
                raise ConfigurationError(
                    f"kafka: no topic matches {self.pattern!r}; the user may see {len(existing)} topics: "
                    f"{', '.join(sorted(existing)[:10]) or 'none'}"
                )
            return [(topic, partition) for topic in topics for partition in existing[topic]]
        for topic in dict.fromkeys([*self.topics, *(topic for topic, _ in self.partitions)]):
            if topic not in existing:
                raise ConfigurationError(
                    f"kafka: there is no topic {topic!r}{nearest(topic, existing)}, or the user may not see it: create "
                    "it, or grant the user READ on it"
                )
        for topic, partition in self.partitions:
            if partition not in existing[topic]:
                raise ConfigurationError(
                    f"kafka: topic {topic!r} has no partition {partition}; it has {len(existing[topic])}"
                )
        return [(topic, one) for topic in self.topics for one in existing[topic]] + list(self.partitions)


def plan_splits(
    connection: KafkaConnection, chosen: Chosen, start: KafkaOffsets, until: KafkaOffsets | None
) -> list[KafkaSplit]:
    """Ask the brokers which partitions there are, and where their reading begins and ends.

    Raises:
        ConfigurationError: no broker can be used, a topic or partition is missing, or an offset is not known.
    """
    library_version()
    try:
        with EventLoopThread("kafka-plan") as loop:
            return loop.run(_plan(connection, chosen, start, until), _PLAN_SECONDS)
    except (ConnectionError, TimeoutError) as error:
        raise ConfigurationError(f"kafka: source of {chosen.describe()}: {error}") from error


async def _plan(
    connection: KafkaConnection, chosen: Chosen, start: KafkaOffsets, until: KafkaOffsets | None
) -> list[KafkaSplit]:
    from aiokafka import AIOKafkaConsumer, TopicPartition
    from aiokafka.admin import AIOKafkaAdminClient
    from aiokafka.errors import KafkaError

    admin = AIOKafkaAdminClient(**connection.client_arguments())
    consumer = AIOKafkaConsumer(**connection.consumer_arguments())
    try:
        await connected(admin.start(), connection)
        await connected(consumer.start(), connection)
        partitions = [TopicPartition(*one) for one in chosen.among(await _existing(admin))]
        brokers = _Brokers(connection, admin, consumer)
        starts = await brokers.find(start, partitions)
        stops = {} if until is None else await brokers.find_ends(until, partitions)
        return [KafkaSplit(one.topic, one.partition, starts[one], stops.get(one)) for one in partitions]
    except KafkaError as error:
        if error.retriable:
            raise ConnectionError(f"the brokers do not answer as they should: {error}; try again") from error
        raise ConfigurationError(
            f"kafka: the brokers at {connection.address} do not tell about {chosen.describe()}: "
            f"{error}; check the permissions of the user"
        ) from error
    finally:
        await consumer.stop()
        await admin.close()


async def _existing(admin: AIOKafkaAdminClient) -> dict[str, list[int]]:
    """Partitions by topic. All topics are asked for: asking for one by its name may create it."""
    topics = await asyncio.wait_for(admin.describe_topics(None), _REQUEST_SECONDS)
    return {
        one["topic"]: sorted(partition["partition"] for partition in one["partitions"])
        for one in topics
        if not one["error_code"] and not one.get("is_internal")
    }


@dataclass(frozen=True, slots=True)
class _Brokers:
    """Finds offsets."""

    connection: KafkaConnection
    admin: AIOKafkaAdminClient
    consumer: AIOKafkaConsumer

    async def find(self, wanted: KafkaOffsets, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset in each partition."""
        if wanted.kind in {"earliest", "latest"}:
            return await self._edge(wanted.kind, partitions)
        if wanted.kind == "timestamp":
            found = await self._at(wanted.timestamp_ms, partitions)
        elif wanted.kind == "committed":
            found = await self._committed(wanted.group, partitions)
        else:
            listed = {(topic, partition): offset for topic, partition, offset in wanted.offsets}
            found = {one: listed[one] for one in partitions if one in listed}
        missing = [one for one in partitions if one not in found]
        otherwise = "latest" if wanted.kind == "timestamp" else wanted.otherwise
        if missing and otherwise is None:
            raise ConfigurationError(
                f"kafka: group {wanted.group!r} has committed no offset of topic {missing[0].topic!r}, partition "
                f"{missing[0].partition}; check the group's id, or give otherwise='earliest'"
            )
        return found | (await self._edge(str(otherwise), missing) if missing else {})

    async def find_ends(self, wanted: KafkaOffsets, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The same for ends, of which none may be guessed."""
        listed = {(topic, partition) for topic, partition, _ in wanted.offsets}
        unlisted = [one for one in partitions if one not in listed]
        if wanted.kind == "offsets" and unlisted:
            raise ConfigurationError(
                f"kafka: until has no offset for topic {unlisted[0].topic!r}, partition {unlisted[0].partition}: "
                "list every partition that is read"
            )
        return await (self._settled(partitions) if wanted.kind == "latest" else self.find(wanted, partitions))

    async def _settled(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """The latest places, behind transactions that have just been committed; before one that stays open."""
        arguments = self.connection.consumer_arguments()
        ends = await self._edge("latest", partitions)
        if arguments["isolation_level"] != "read_committed":
            return ends
        newest = await self._newest({**arguments, "isolation_level": "read_uncommitted"}, partitions)
        give_up = time.monotonic() + _ENDING_SECONDS
        while any(ends[one] < newest[one] for one in partitions) and time.monotonic() < give_up:
            await asyncio.sleep(_LOOK_SECONDS)
            ends = await self._edge("latest", partitions)
        return ends

    async def _newest(
        self, arguments: Mapping[str, Any], partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Behind the newest records, committed or not."""
        from aiokafka import AIOKafkaConsumer

        consumer = AIOKafkaConsumer(**arguments)
        try:
            await connected(consumer.start(), self.connection)
            return dict(await asyncio.wait_for(consumer.end_offsets(list(partitions)), _REQUEST_SECONDS))
        finally:
            await consumer.stop()

    async def _edge(self, kind: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        ask = self.consumer.beginning_offsets if kind == "earliest" else self.consumer.end_offsets
        return dict(await asyncio.wait_for(ask(list(partitions)), _REQUEST_SECONDS))

    async def _at(self, timestamp_ms: int, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        asked: Any = self.consumer.offsets_for_times(dict.fromkeys(partitions, timestamp_ms))
        found = await asyncio.wait_for(asked, _REQUEST_SECONDS)
        return {one: place.offset for one, place in found.items() if place is not None}

    async def _committed(self, group: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        from aiokafka.errors import KafkaError

        def may_pass(error: BaseException) -> bool:
            # A cluster finds a coordinator when the first group asks for one.
            return isinstance(error, KafkaError) and bool(error.retriable)

        asked: Any = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception(may_pass),
            wait=tenacity.wait_fixed(0.1),
            stop=tenacity.stop_after_delay(_REQUEST_SECONDS),
            reraise=True,
        )(self.admin.list_consumer_group_offsets, group, partitions=list(partitions))
        found = await asyncio.wait_for(asked, 2 * _REQUEST_SECONDS)
        return {one: place.offset for one, place in found.items() if place.offset >= 0}
