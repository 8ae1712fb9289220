"""One Kafka consumer for all partitions that a subtask reads, in an event loop of its own.

Readers of `source` add their partitions and take what has come in, without ever waiting. Partitions are assigned by
hand, so no group rebalances; how much is fetched ahead is bounded for each partition.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from penstock.connectors.kafka.client_log import installed
from penstock.connectors.kafka.columnar import Fetch, forbidden_topics, open_fetch
from penstock.connectors.kafka.connection import (
    CONNECT_SECONDS,
    UNKNOWN_PARTITION,
    EventLoopThread,
    KafkaConnection,
    connected,
    library_version,
)
from penstock.connectors.kafka.fetched import Fetched, PartitionFetchError
from penstock.engine.connectors import ConnectorContext

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer, TopicPartition

_AHEAD: Final = 2
"""How many fetches of a partition may lie ready; each is about what `columnar` fetches of one."""
_UNKNOWN_SECONDS: Final = 8.0
"""How long the brokers may not know a topic; without one of these limits aiokafka asks again for ever."""
_COMMIT_SECONDS: Final = 5.0
_STOP_SECONDS: Final = 5.0
_LOG: Final = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Assigned:
    """A partition that is read: what lies ready, where the next fetch begins, and when the brokers last knew it."""

    next_fetch: int
    known_at: float
    ready: deque[Fetched] = field(default_factory=deque)
    paused: bool = False


class PartitionConsumer:
    """Fetches partitions in the background. All methods are called by the subtask's thread.

    Args:
        connection: of the cluster.
        commit_to: the group that is told how far the readers are, or None.
        name: of the thread.

    Raises:
        ConnectionError: no broker can be used.
        ConfigurationError: aiokafka is not installed.
    """

    def __init__(self, connection: KafkaConnection, commit_to: str | None, name: str) -> None:
        self._version = library_version()
        self._connection = connection
        self._assigned: dict[TopicPartition, _Assigned] = {}
        self._changed = False
        self._error: Exception | None = None
        self._read: dict[TopicPartition, int] = {}
        self._pumping: asyncio.Task[None]
        self._reporting: asyncio.Task[None] | None = None
        self._closing: asyncio.Event
        self._consumer: AIOKafkaConsumer
        self._fetch: Fetch
        self._thread = EventLoopThread(name)
        try:
            self._thread.run(self._start(commit_to), 2 * CONNECT_SECONDS)
        except BaseException:
            self._thread.close()
            raise

    def add(self, partition: TopicPartition, offset: int) -> None:
        """Begin to fetch a partition at an offset."""
        self._thread.loop.call_soon_threadsafe(self._add, partition, _Assigned(offset, self._thread.loop.time()))

    def remove(self, partition: TopicPartition) -> None:
        """Fetch a partition no more."""
        self._thread.loop.call_soon_threadsafe(self._remove, partition)

    def take(self, partition: TopicPartition) -> Fetched | None:
        """The next of what has come in, or None.

        Raises:
            Exception: what keeps the consumer from continuing.
        """
        assigned = self._assigned.get(partition)
        if assigned is not None and assigned.ready:
            fetched = assigned.ready.popleft()
            if assigned.paused and not assigned.ready:
                self._thread.loop.call_soon_threadsafe(self._resume, partition)
            return fetched
        if self._error is not None:
            raise self._error
        if assigned is not None and assigned.paused:
            # The partition may have been paused just after the look above, when its last records had been taken.
            self._thread.loop.call_soon_threadsafe(self._resume, partition)
        return None

    def have_read(self, partition: TopicPartition, offset: int) -> None:
        """Note where a reader would resume, for the group."""
        self._read[partition] = offset

    def pending(self) -> float:
        """How many records wait in all partitions, by what the brokers said with the last fetch; any thread may ask.

        Not a number before they have said anything: 0 would be taken for a source that has read all there is.
        """
        waiting, is_known = 0, not self._assigned
        for partition, assigned in list(self._assigned.items()):
            end = self._consumer.highwater(partition)
            if end is not None:
                is_known = True
                waiting += max(0, end - self._read.get(partition, assigned.next_fetch))
        return waiting if is_known else math.nan

    def close(self) -> None:
        """Stop fetching, and tell the group for the last time."""
        try:
            self._thread.run(self._stop(), 2 * _STOP_SECONDS)
        except TimeoutError:
            _LOG.warning("the Kafka consumer at %s did not stop in time", self._connection.address)
        finally:
            self._thread.close()

    async def _start(self, commit_to: str | None) -> None:
        from aiokafka import AIOKafkaConsumer

        # Where an offset is gone, that must be an error: "latest", the default, would lose records silently.
        arguments = self._connection.consumer_arguments() | {"auto_offset_reset": "none"}
        self._consumer = AIOKafkaConsumer(**arguments)
        try:
            await connected(self._consumer.start(), self._connection)
        except BaseException:
            await self._consumer.stop()
            raise
        self._fetch = open_fetch(self._consumer, self._version, arguments.get("max_partition_fetch_bytes"))
        self._closing = asyncio.Event()
        self._pumping = asyncio.create_task(self._pump())
        if commit_to is not None:
            self._reporting = asyncio.create_task(self._report(commit_to))

    async def _stop(self) -> None:
        self._closing.set()
        self._pumping.cancel()
        await asyncio.gather(self._pumping, return_exceptions=True)
        if self._reporting is not None:
            # It ends by itself, behind the last report; also where it is only just connecting.
            await asyncio.wait([self._reporting], timeout=_STOP_SECONDS)
            self._reporting.cancel()
            await asyncio.gather(self._reporting, return_exceptions=True)
        await self._consumer.stop()

    async def _pump(self) -> None:
        log = installed()
        try:
            while True:
                if not self._assigned:
                    await asyncio.sleep(0.01)
                    continue
                for fetched in await self._fetch.next():
                    self._keep(fetched)
                    log.answered(time.time())
                self._check_topics()
        except Exception as error:
            self._error = error

    def _check_topics(self) -> None:
        from aiokafka.errors import TopicAuthorizationFailedError, UnknownTopicOrPartitionError

        forbidden, now = forbidden_topics(self._consumer), self._thread.loop.time()
        for partition, assigned in self._assigned.items():
            if partition.topic in forbidden:
                raise PartitionFetchError(partition, assigned.next_fetch) from TopicAuthorizationFailedError()
            if partition.partition in (self._consumer.partitions_for_topic(partition.topic) or ()):
                assigned.known_at = now
            elif now - assigned.known_at > _UNKNOWN_SECONDS:
                raise PartitionFetchError(partition, assigned.next_fetch) from UnknownTopicOrPartitionError()

    def _keep(self, fetched: Fetched) -> None:
        assigned = self._assigned.get(fetched.partition)
        if assigned is None:
            return
        assigned.next_fetch = fetched.next_offset
        assigned.ready.append(fetched)
        if len(assigned.ready) >= _AHEAD and not assigned.paused:
            assigned.paused = True
            self._consumer.pause(fetched.partition)

    def _resume(self, partition: TopicPartition) -> None:
        assigned = self._assigned.get(partition)
        if assigned is not None and assigned.paused and not assigned.ready:
            assigned.paused = False
            if not self._changed:
                self._consumer.resume(partition)

    def _add(self, partition: TopicPartition, assigned: _Assigned) -> None:
        self._assigned[partition] = assigned
        self._change()

    def _remove(self, partition: TopicPartition) -> None:
        if self._assigned.pop(partition, None) is not None:
            self._change()

    def _change(self) -> None:
        """Assign anew, once for all changes that come together: it drops what is being fetched."""
        if not self._changed:
            self._changed = True
            self._thread.loop.call_soon(self._assign)

    def _assign(self) -> None:
        self._changed = False
        self._consumer.assign(list(self._assigned))
        for partition, assigned in self._assigned.items():
            self._consumer.seek(partition, assigned.next_fetch)
            if assigned.paused:
                self._consumer.pause(partition)

    async def _report(self, group: str) -> None:
        """Commit what has been read now and then. A group that cannot be told is no reason to stop reading."""
        from aiokafka import AIOKafkaConsumer
        from aiokafka.errors import KafkaError

        arguments: dict[str, Any] = self._connection.consumer_arguments()
        committer = AIOKafkaConsumer(group_id=group, enable_auto_commit=False, **arguments)
        told: dict[TopicPartition, int] = {}
        try:
            await connected(committer.start(), self._connection)
            is_last = False
            while not is_last:
                with contextlib.suppress(asyncio.TimeoutError):
                    is_last = await asyncio.wait_for(self._closing.wait(), _COMMIT_SECONDS)
                told = await self._tell(committer, group, told)
        except (KafkaError, ConnectionError) as error:
            _LOG.warning("group %r is not told how far its topics are read: %s", group, error)
        finally:
            await committer.stop()

    async def _tell(
        self, committer: AIOKafkaConsumer, group: str, told: dict[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        from aiokafka.errors import KafkaError

        read = dict(self._read)
        if read == told:
            return told
        try:
            if committer.assignment() != set(read):
                committer.assign(list(read))
                # Else it would fetch all records once more.
                committer.pause(*read)
            await asyncio.wait_for(committer.commit(read), _STOP_SECONDS)
        except (KafkaError, asyncio.TimeoutError) as error:
            _LOG.warning("group %r is not told how far its topics are read: %s", group, error)
            return told
        return read


@dataclass(slots=True, eq=False)
class _Lease:
    """A consumer, and how many readers of one subtask use it."""

    context: ConnectorContext
    consumer: PartitionConsumer
    readers: int = 0


class SharedConsumers:
    """Gives all readers of a subtask one consumer. Travels without its consumers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._leases: list[_Lease] = []

    def __reduce__(self) -> tuple[type[SharedConsumers], tuple[()]]:
        return SharedConsumers, ()

    def lease(self, context: ConnectorContext, connection: KafkaConnection, commit_to: str | None) -> PartitionConsumer:
        """The consumer of the subtask, which is told apart by its context; started for the first reader."""
        with self._lock:
            # By identity: an attempt before this one has an equal context, and its readers may not be closed yet.
            lease = next((one for one in self._leases if one.context is context), None)
            if lease is None:
                name = f"kafka-{context.operator}-{context.subtask}"
                lease = _Lease(context, PartitionConsumer(connection, commit_to, name))
                self._leases.append(lease)
            lease.readers += 1
            return lease.consumer

    def release(self, consumer: PartitionConsumer) -> None:
        """Give a consumer back; the last reader closes it."""
        with self._lock:
            lease = next(one for one in self._leases if one.consumer is consumer)
            lease.readers -= 1
            if lease.readers:
                return
            self._leases.remove(lease)
        consumer.close()


def fetch_problem(error: Exception) -> str:
    """What is wrong, and what to do about it.

    Example:
        >>> fetch_problem(ValueError("x"))
        'ValueError: x'
    """
    from aiokafka.errors import (
        OffsetOutOfRangeError,
        TopicAuthorizationFailedError,
        UnknownTopicOrPartitionError,
        UnsupportedCodecError,
    )

    cause = error.__cause__ if isinstance(error, PartitionFetchError) else error
    if isinstance(cause, OffsetOutOfRangeError):
        return (
            "there are no records at this offset: they were deleted (the topic's retention is shorter than the job was "
            "away), or the topic was made anew; start from another offset, without the checkpoint"
        )
    if isinstance(cause, TopicAuthorizationFailedError):
        return "the user may not read the topic; grant the user READ on it"
    if isinstance(cause, UnknownTopicOrPartitionError):
        return UNKNOWN_PARTITION
    if isinstance(cause, UnsupportedCodecError):
        return f"{cause}: install it by `pip install 'aiokafka[all]'`"
    return f"{type(cause).__name__}: {cause}"
