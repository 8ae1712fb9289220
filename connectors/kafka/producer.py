"""aiokafka's producer in an event loop of its own, fed with columns: records at least once, or a transaction of them.

The sink's writers and commits use it. A producer that failed is closed and made anew: what it left open ends then,
because a new one with its transactional id fences it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections import deque
from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from penstock.connectors.kafka.client_log import installed
from penstock.connectors.kafka.connection import (
    CONNECT_SECONDS,
    UNKNOWN_PARTITION,
    EventLoopThread,
    KafkaConnection,
    connected,
    library_version,
)
from penstock.connectors.kafka.outgoing import Run, pieces, runs
from penstock.connectors.kafka.topics import TopicFacts
from penstock.engine.durations import format_duration
from penstock.engine.errors import ConfigurationError

if TYPE_CHECKING:
    from aiokafka import AIOKafkaProducer

_T = TypeVar("_T")
_BATCH_BYTES: Final = 256 << 10
_STOP_SECONDS: Final = 1.0
_MOST_SECONDS: Final = 3600.0
"""Never reached: each step has its own limit."""
_LOG: Final = logging.getLogger(__name__)


class ProduceError(Exception):
    """Records of a partition were not taken: its cause is what the brokers said."""


_OWN_ERRORS: Final = (ProduceError, ConfigurationError, OSError, TimeoutError)


@dataclass(frozen=True, slots=True)
class Delivery:
    """How long things may take.

    Args:
        stall_seconds: the brokers may take nothing for that long.
        transaction_ms: from the first record to the commit of a transaction.
    """

    stall_seconds: float
    transaction_ms: int


@dataclass(frozen=True, slots=True)
class MarkerRecord:
    """The record that says what a transaction has committed, and its partition."""

    topic: str
    partition: int
    key: bytes
    value: bytes


class RecordProducer:
    """Sends records. All methods are called by the subtask's thread.

    Args:
        connection: of the cluster.
        delivery: how long things may take.
        transactional_id: for transactions; from now on, no other producer can use it. None to send at least once.

    Raises:
        ConnectionError: no broker can be used.
        ConfigurationError: aiokafka is not installed, or the cluster does not allow what is asked for.
    """

    def __init__(self, connection: KafkaConnection, delivery: Delivery, transactional_id: str | None = None) -> None:
        library_version()
        self._connection = connection
        self._delivery = delivery
        self._transactional_id = transactional_id
        self._sent: deque[_Sent] = deque()
        self._in_transaction = False
        self._log = installed()
        self._producer: AIOKafkaProducer
        self._thread = EventLoopThread(f"kafka-{transactional_id or 'producer'}")
        # aiokafka fails several futures for one error, and asks for one of them.
        self._thread.loop.set_exception_handler(lambda _, told: _LOG.debug("kafka producer: %s", told.get("message")))
        try:
            self._thread.run(self._start(), 2 * CONNECT_SECONDS)
        except BaseException:
            self._thread.close()
            raise

    def send(self, records: pa.RecordBatch, facts: Mapping[str, TopicFacts]) -> None:
        """Hand records over; returns before they are written, but waits while much is under way.

        Raises:
            ProduceError: these records or earlier ones are not taken.
        """
        self._thread.run(self._send(records, facts), _MOST_SECONDS)

    def flush(self) -> None:
        """Wait until all brokers that must have the records have them; errors as of `send`."""
        self._thread.run(self._await_sent(), _MOST_SECONDS)

    def commit(self, records: pa.Table, facts: Mapping[str, TopicFacts], marker: MarkerRecord) -> int:
        """Write the records and the marker in one transaction; the offset of the marker.

        Raises:
            ProduceError: records are not taken.
            Exception: it is not committed, or nobody knows whether it is.
        """
        most = self._delivery.transaction_ms / 1000 + self._delivery.stall_seconds
        return self._thread.run(self._transact(records, facts, marker), most)

    def close(self) -> None:
        """Abort what is open and end; what was not flushed may be lost. May be called again."""
        if self._thread.loop.is_closed():
            return
        try:
            self._thread.run(self._stop(), 4 * _STOP_SECONDS)
        except TimeoutError:
            _LOG.warning("the Kafka producer at %s did not stop in time", self._connection.address)
        finally:
            self._thread.close()

    async def _start(self) -> None:
        from aiokafka import AIOKafkaProducer

        arguments: dict[str, Any] = {"max_batch_size": _BATCH_BYTES, **self._connection.producer_arguments()}
        if self._transactional_id is not None:
            arguments["transactional_id"] = self._transactional_id
            arguments["transaction_timeout_ms"] = self._delivery.transaction_ms
        self._batch_bytes = int(arguments["max_batch_size"])
        try:
            self._producer = AIOKafkaProducer(**arguments)
        except (ValueError, RuntimeError) as error:
            raise ConfigurationError(f"kafka sink: {error}; for a compression: pip install 'aiokafka[all]'") from error
        try:
            await connected(self._initialise(), self._connection)
        except BaseException:
            await self._producer.stop()
            raise

    async def _initialise(self) -> None:
        """Start, and get the producer's id; what the cluster does not allow is no trouble of the connection's."""
        from aiokafka import errors

        try:
            await self._producer.start()
        except errors.InvalidTransactionTimeout as error:
            raise ConfigurationError(
                f"kafka sink: transaction_timeout is {format_duration(self._delivery.transaction_ms)}, longer than the "
                "brokers allow (transaction.max.timeout.ms, 15 minutes by default)"
            ) from error
        except (errors.TransactionalIdAuthorizationFailed, errors.ClusterAuthorizationFailedError) as error:
            raise ConfigurationError(f"kafka sink: {problem(error, self._transactional_id)}") from error

    async def _stop(self) -> None:
        if self._in_transaction:
            # It is ended by the next producer with this id, or by its time-out, if it cannot be aborted now.
            with contextlib.suppress(Exception):
                await asyncio.wait_for(self._producer.abort_transaction(), _STOP_SECONDS)
        try:
            await asyncio.wait_for(self._producer.stop(), _STOP_SECONDS)
        except asyncio.TimeoutError:
            await self._producer.client.close()

    async def _send(self, records: pa.RecordBatch, facts: Mapping[str, TopicFacts]) -> None:
        while self._sent and self._sent[0].future.done():
            await self._taken(self._sent.popleft())
        self._sent += await self._submit(records, facts)

    async def _await_sent(self) -> None:
        while self._sent:
            await self._taken(self._sent.popleft())

    async def _transact(self, records: pa.Table, facts: Mapping[str, TopicFacts], marker: MarkerRecord) -> int:
        await self._producer.begin_transaction()
        self._in_transaction = True
        for piece in pieces(records):
            for sent in await self._submit(piece, facts):
                await self._taken(sent)
        # Last, since others that look for their markers wait for a transaction that is open there.
        sending = self._producer.send_and_wait(marker.topic, marker.value, marker.key, marker.partition)
        offset: int = (await self._in_time(sending)).offset
        await self._in_time(self._producer.commit_transaction())
        self._in_transaction = False
        return offset

    async def _submit(self, records: pa.RecordBatch, facts: Mapping[str, TopicFacts]) -> list[_Sent]:
        """Hand the records over, all partitions at once."""
        limit = {topic: min(self._batch_bytes, fact.max_bytes) for topic, fact in facts.items()}
        work = [asyncio.create_task(self._submit_run(records, run)) for run in runs(records, limit.__getitem__)]
        try:
            done = await asyncio.gather(*work)
        except BaseException:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)
            raise
        return [sent for some in done for sent in some]

    async def _submit_run(self, records: pa.RecordBatch, run: Run) -> list[_Sent]:
        from aiokafka.errors import KafkaError

        submitted: list[_Sent] = []
        for rows in run.batches:
            builder = self._producer.create_batch()
            for written, key, value, headers in _parts(records.take(pa.array(rows))):
                if builder.append(timestamp=written, key=key, value=value, headers=headers) is None:
                    raise RuntimeError(
                        f"kafka sink: topic {run.topic!r}, partition {run.partition}: a batch of {len(rows)} records "
                        "is larger than was computed: a defect of Penstock"
                    )
            builder.close()
            try:
                sending = self._producer.send_batch(builder, run.topic, partition=run.partition)
                submitted.append(_Sent(await self._in_time(sending), run))
            except KafkaError as error:
                raise self._not_taken(run, error) from error
        return submitted

    def _not_taken(self, run: Run, error: Exception) -> ProduceError:
        what = problem(error, self._transactional_id)
        return ProduceError(f"topic {run.topic!r}, partition {run.partition}: {what}")

    async def _taken(self, sent: _Sent) -> None:
        """Wait until the records are written."""
        from aiokafka.errors import KafkaError

        try:
            await self._in_time(sent.future)
            self._log.answered(time.time())
        except KafkaError as error:
            raise self._not_taken(sent.run, error) from error

    async def _in_time(self, work: Awaitable[_T]) -> _T:
        try:
            return await asyncio.wait_for(work, self._delivery.stall_seconds)
        except asyncio.TimeoutError:
            raise ConnectionError(
                f"the brokers at {self._connection.address} have taken nothing for {self._delivery.stall_seconds:g} s"
            ) from None


@dataclass(frozen=True, slots=True, eq=False)
class _Sent:
    """A batch of a run that was handed over."""

    future: asyncio.Future[Any]
    run: Run

    def __post_init__(self) -> None:
        # Of several that fail, one is reported.
        self.future.add_done_callback(lambda future: future.cancelled() or future.exception())


def _parts(records: pa.RecordBatch) -> Iterator[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]:
    """Time, key, value and headers of each record."""
    times, keys, values = (records.column(name).to_pylist() for name in ("timestamp", "key", "value"))
    lists = records.column("headers")
    if lists.null_count == len(lists):
        return zip(times, keys, values, itertools.repeat([]), strict=False)
    headers = [[(one["key"], one["value"]) for one in some or ()] for some in lists.to_pylist()]
    return zip(times, keys, values, headers, strict=True)


def may_pass(error: BaseException) -> bool:
    """Whether it is worth trying again by a new producer, without anybody changing the cluster or the program."""
    if isinstance(error, ConfigurationError):
        return False
    from aiokafka import errors

    cause = error.__cause__ if isinstance(error, ProduceError) else error
    lasting = (
        errors.TopicAuthorizationFailedError,
        errors.TransactionalIdAuthorizationFailed,
        errors.ClusterAuthorizationFailedError,
        errors.MessageSizeTooLargeError,
        errors.InvalidTimestampError,
    )
    return isinstance(cause, (OSError, TimeoutError, errors.KafkaError)) and not isinstance(cause, lasting)


def is_foreseen(error: BaseException) -> bool:
    """Whether the error tells of the cluster or the settings; any other is a defect."""
    if isinstance(error, _OWN_ERRORS):
        return True
    from aiokafka.errors import KafkaError

    return isinstance(error, KafkaError)


def problem(error: BaseException, transactional_id: str | None) -> str:
    """What is wrong, and what to do about it.

    Example:
        >>> problem(ValueError("x"), None)
        'ValueError: x'
    """
    if isinstance(error, _OWN_ERRORS):
        return str(error)
    from aiokafka import errors

    if isinstance(error, errors.TopicAuthorizationFailedError):
        return "the user may not write to the topic; grant the user WRITE on it"
    if isinstance(error, errors.TransactionalIdAuthorizationFailed):
        return (
            f"the user may not use the transactional id {transactional_id!r}; grant the user WRITE and DESCRIBE on "
            "transactional ids with its prefix"
        )
    if isinstance(error, errors.ClusterAuthorizationFailedError):
        return "the user may not write idempotently; grant the user IDEMPOTENT_WRITE on the cluster"
    if isinstance(error, errors.MessageSizeTooLargeError):
        return (
            "a batch is larger than the topic takes; raise its max.message.bytes, or lower "
            "options={'max_batch_size': ...}"
        )
    if isinstance(error, errors.InvalidTimestampError):
        return (
            "the time of a record is farther from the clock than the topic takes; raise its "
            "message.timestamp.before.max.ms or message.timestamp.after.max.ms"
        )
    if isinstance(error, errors.UnknownTopicOrPartitionError):
        return UNKNOWN_PARTITION
    if isinstance(error, errors.ProducerFenced):
        return (
            f"another producer with the transactional id {transactional_id!r} has taken over, or the transaction was "
            "open for longer than transaction_timeout"
        )
    return f"{type(error).__name__}: {error}"
