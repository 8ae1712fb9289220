"""The one file, with `frames`, around what aiokafka 0.14 keeps to itself: whole answers to fetches, as they came.

`consumer` asks `open_fetch` for the way to fetch that fits the installed aiokafka; any version but 0.14 goes through
`getmany()` and gives the same records, slower. What is in an answer is read by `record_batches`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.connectors.kafka.fetched import Fetched, PartitionFetchError, Records, records_of
from penstock.connectors.kafka.frames import read_frames
from penstock.connectors.kafka.record_batches import FetchedBatches, Raw, first_alone

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

_KNOWN_VERSION: Final = "0.14."
_POLL_SECONDS: Final = 0.2
"""How long a fetch waits before it gives nothing; nothing depends on it but how soon an end is noticed."""
_FETCH_BYTES: Final = 16 << 20
_LEAST_BYTES: Final = 1 << 20
"""As aiokafka has it: `max_partition_fetch_bytes` by default."""
_MOST_BYTES: Final = 4 << 20


class Fetch(ABC):
    """The way to fetch from a consumer that has started. Called in the consumer's event loop."""

    @abstractmethod
    async def next(self) -> Sequence[Fetched]:
        """What has come in of the assigned partitions; nothing after a moment without any.

        Raises:
            PartitionFetchError: a partition cannot be read.
        """


def open_fetch(consumer: AIOKafkaConsumer, version: str, partition_bytes: int | None) -> Fetch:
    """The fastest way to fetch that the installed aiokafka allows.

    Args:
        consumer: started, and without an assignment as yet.
        version: of aiokafka.
        partition_bytes: how much to fetch of a partition at most, where the user says so; the consumer has it.
    """
    return ColumnarFetch(consumer, partition_bytes) if version.startswith(_KNOWN_VERSION) else PlainFetch(consumer)


def partition_bytes_of(partitions: int) -> int:
    """How much to fetch of each of so many partitions at most.

    What each batch costs is shared by its rows, so that few partitions have large ones; many have aiokafka's, as what
    lies ready of all would be too much.

    Example:
        >>> [partition_bytes_of(partitions) >> 10 for partitions in (1, 8, 100)]
        [4096, 2048, 1024]
    """
    return min(_MOST_BYTES, max(_LEAST_BYTES, _FETCH_BYTES // max(1, partitions)))


def forbidden_topics(consumer: AIOKafkaConsumer) -> frozenset[str]:
    """Topics that the brokers hide from the user, of which aiokafka only logs that they do, and tries for ever."""
    cluster = getattr(getattr(consumer, "_client", None), "cluster", None)
    return frozenset(getattr(cluster, "unauthorized_topics", ()))


class PlainFetch(Fetch):
    """By `getmany()`, the documented way: an object for each record."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer

    async def next(self) -> Sequence[Fetched]:
        from aiokafka.errors import KafkaError

        before = {partition: await self._consumer.position(partition) for partition in self._consumer.assignment()}
        try:
            found = await self._consumer.getmany(timeout_ms=int(_POLL_SECONDS * 1000))
        except KafkaError as error:
            raise _of_any(error, before) from error
        # A transaction that was aborted, or its marker, moves the position and gives no record.
        after = {partition: await self._consumer.position(partition) for partition in self._consumer.assignment()}
        return [
            _FetchedRows(partition, found.get(partition, []), offset)
            for partition, offset in after.items()
            if partition in found or offset > before.get(partition, offset)
        ]


def _of_any(error: Exception, offsets: Mapping[TopicPartition, int]) -> Exception:
    """The error of a partition, if the library's error names one."""
    named = error.args[0] if error.args else None
    for partition, offset in offsets.items():
        if named == partition.topic or (isinstance(named, dict) and partition in named):
            return PartitionFetchError(partition, offset)
    return error


class _FetchedRows(Fetched):
    def __init__(self, partition: TopicPartition, rows: Sequence[ConsumerRecord[Any, Any]], next_offset: int) -> None:
        self.partition = partition
        self.next_offset = next_offset
        self._rows = rows

    def records(self) -> Records:
        return records_of(self._rows, self.next_offset)


class ColumnarFetch(Fetch):
    """Takes whole fetch answers out of aiokafka's fetcher before it makes records of them.

    Args:
        consumer: started, and without an assignment as yet.
        partition_bytes: how much to fetch of a partition at most; None: by their number.
    """

    def __init__(self, consumer: AIOKafkaConsumer, partition_bytes: int | None = None) -> None:
        self._consumer = consumer
        self._partition_bytes = partition_bytes
        self._fetcher: Any = consumer._fetcher
        self._fetcher._client = _Answers(self._fetcher._client, self._fetcher._records)

    async def next(self) -> Sequence[Fetched]:
        partitions = len(self._consumer.assignment())
        self._fetcher._max_partition_fetch_bytes = self._partition_bytes or partition_bytes_of(partitions)
        found = self._take()
        if not found:
            waiter = self._fetcher._create_fetch_waiter()
            try:
                await asyncio.wait(
                    [waiter, self._fetcher._fetch_task], timeout=_POLL_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
                if waiter.done():
                    waiter.result()
            finally:
                waiter.cancel()
            if self._fetcher._fetch_task.done():
                self._fetcher._fetch_task.result()
            found = self._take()
        return found

    def _take(self) -> list[Fetched]:
        """Everything that lies ready; a partition that failed comes alone, behind what the others brought."""
        found: list[Fetched] = []
        for partition in list(self._fetcher._records):
            result = self._fetcher._records[partition]
            if not hasattr(result, "check_raise"):
                fetched = self._take_result(partition, result)
                if fetched is not None:
                    found.append(fetched)
            elif not found:
                self._forget(partition)
                self._raise(partition, result)
        return found

    def _take_result(self, partition: TopicPartition, result: Any) -> Fetched | None:
        self._forget(partition)
        if not result.check_assignment(partition) or not result.has_more():
            return None
        unread = result._partition_records
        raw: Raw | None = getattr(result, "raw", None)
        if raw is None:
            rows = result.getall()
            return _FetchedRows(partition, rows, unread.next_fetch_offset)
        fetched = FetchedBatches(unread, raw)
        result._assignment.state_value(partition).consumed_to(fetched.next_offset)
        return fetched

    def _forget(self, partition: TopicPartition) -> None:
        """Take the answer away, so that the fetcher asks for the next."""
        del self._fetcher._records[partition]
        self._fetcher._notify(self._fetcher._wait_consume_future)

    def _raise(self, partition: TopicPartition, failed: Any) -> None:
        from aiokafka.errors import KafkaError

        assignment = self._fetcher._subscriptions.subscription.assignment
        state = None if assignment is None else assignment.state_value(partition)
        try:
            failed.check_raise()
        except KafkaError as error:
            position = state.position if state is not None and state.has_valid_position else None
            raise PartitionFetchError(partition, position) from error


class _Answers:
    """Stands before the fetcher's client and gives the fetcher, of each partition's batches, the first without records.

    That is enough for it to see that there are some. The batches hang on the result that it makes of them, and go with
    it: while the leader changes, two brokers may be asked for a partition, and another may be assigned meanwhile.
    """

    def __init__(self, client: Any, results: Mapping[TopicPartition, Any]) -> None:
        self._client = client
        self._results = results

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def send(self, node: int, request: Any) -> Any:
        """As the client does; the topics of an answer can be gone through once, as the fetcher does."""
        from aiokafka.client import ConnectionGroup
        from aiokafka.protocol.fetch import FetchRequest

        if not isinstance(request, FetchRequest):
            return await self._client.send(node, request)
        connection = self._client._conns.get((node, ConnectionGroup.DEFAULT))
        if connection is not None and connection.connected():
            read_frames(connection)
        answer = await self._client.send(node, request)
        answer.topics = [(topic, self._shortened(topic, partitions)) for topic, partitions in answer.topics]
        return answer

    def _shortened(self, topic: str, partitions: Sequence[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        """The fetcher has made its result of a partition when it asks for the next."""
        from aiokafka import TopicPartition

        for number, error, *facts, raw in partitions:
            partition = TopicPartition(topic, number)
            before = self._results.get(partition)
            first = None if error else first_alone(raw)
            if first is not None:
                yield number, error, *facts, first
                result = self._results.get(partition)
                if result is not None and result is not before:
                    result.raw = raw
            # Of two brokers that were asked, one has answered: the fetcher would fail if the other refuses.
            elif before is None:
                yield number, error, *facts, bytes(raw)
