"""The one file around what aiokafka 0.14 keeps to itself: fetched batches as Arrow arrays, without an object a record.

`consumer` asks `open_fetch` for the way to fetch that fits the installed aiokafka; any version but 0.14 goes through
`getmany()` and gives the same records, slower. Decompression, the list of aborted producers and control batches stay
the library's; what is read here is the body of batches of message format 2, and its checksum.
"""

from __future__ import annotations

import asyncio
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

TIMESTAMP_TYPE: Final = pa.timestamp("ms", tz="UTC")
HEADER_TYPE: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
HEADERS_TYPE: Final = pa.list_(HEADER_TYPE)

_KNOWN_VERSION: Final = "0.14."
_POLL_SECONDS: Final = 0.2
"""How long a fetch waits before it gives nothing; nothing depends on it but how soon an end is noticed."""
_LENGTH: Final = struct.Struct(">i")
_LENGTH_AT: Final = 8
_LENGTH_COUNTS_FROM: Final = 12
_MAGIC_AT: Final = 16
_COUNT_AT: Final = 57
_RECORDS_AT: Final = 61
_CHECKSUM: Final = struct.Struct(">I")
_CHECKSUM_AT: Final = 17
_CHECKED_FROM: Final = 21
_FORMAT: Final = 2


@dataclass(frozen=True, slots=True)
class Records:
    """Records of one partition, in the order of their offsets.

    Args:
        offsets: int64.
        timestamps: `TIMESTAMP_TYPE`; null where the producer gave none.
        keys, values: large_binary; null for null.
        headers: `HEADERS_TYPE`; empty lists where there are none.
        next_offset: where the records begin that follow; control records and aborted ones may lie before it.
    """

    offsets: pa.Int64Array
    timestamps: pa.TimestampArray
    keys: pa.LargeBinaryArray
    values: pa.LargeBinaryArray
    headers: pa.ListArray
    next_offset: int


class PartitionFetchError(Exception):
    """A partition cannot be read on; the cause is aiokafka's error.

    Args:
        partition: which one.
        offset: where it could not be read.
    """

    def __init__(self, partition: TopicPartition, offset: int | None) -> None:
        super().__init__(partition, offset)
        self.partition = partition
        self.offset = offset


class Fetched(ABC):
    """What one fetch brought from one partition; small until `records` is called, which any thread may do once."""

    partition: TopicPartition
    next_offset: int

    @abstractmethod
    def records(self) -> Records:
        """The records.

        Raises:
            aiokafka.errors.KafkaError: a batch is damaged, or the library to decompress it is not installed.
        """


class Fetch(ABC):
    """The way to fetch from a consumer that has started. Called in the consumer's event loop."""

    @abstractmethod
    async def next(self) -> Sequence[Fetched]:
        """What has come in of the assigned partitions; nothing after a moment without any.

        Raises:
            PartitionFetchError: a partition cannot be read.
        """


def open_fetch(consumer: AIOKafkaConsumer, version: str) -> Fetch:
    """The fastest way to fetch that the installed aiokafka allows.

    Args:
        consumer: started, and without an assignment as yet.
        version: of aiokafka.
    """
    return ColumnarFetch(consumer) if version.startswith(_KNOWN_VERSION) else PlainFetch(consumer)


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


def records_of(rows: Sequence[ConsumerRecord[Any, Any]], next_offset: int) -> Records:
    """The same records as columns, from an object each."""
    headers = [[{"key": key, "value": value} for key, value in row.headers] for row in rows]
    return Records(
        pa.array([row.offset for row in rows], pa.int64()),
        pa.array([None if row.timestamp == -1 else row.timestamp for row in rows], pa.int64()).cast(TIMESTAMP_TYPE),
        pa.array([row.key for row in rows], pa.large_binary()),
        pa.array([row.value for row in rows], pa.large_binary()),
        pa.array(headers, HEADERS_TYPE),
        next_offset,
    )


class ColumnarFetch(Fetch):
    """Takes whole fetch answers out of aiokafka's fetcher before it makes records of them.

    Args:
        consumer: started, and without an assignment as yet.
    """

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._fetcher: Any = consumer._fetcher
        self._answers = _Answers(self._fetcher._client)
        self._fetcher._client = self._answers

    async def next(self) -> Sequence[Fetched]:
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
        raw = self._answers.take(partition)
        bounds = list(_batches(raw)) if len(raw) == unread._records.size_in_bytes() else []
        if not bounds or any(raw[begin + _MAGIC_AT] != _FORMAT for begin, _ in bounds):
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
    """Stands before the fetcher's client and keeps the bytes of the newest answer for each partition."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._raw: dict[tuple[str, int], bytes] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def send(self, node: int, request: Any) -> Any:
        """As the client does; the fetcher continues with the answer before anyone else can run."""
        from aiokafka.protocol.fetch import FetchRequest

        answer = await self._client.send(node, request)
        if isinstance(request, FetchRequest):
            for topic, partitions in answer.topics:
                for partition, _, _, *data in partitions:
                    self._raw[topic, partition] = data[-1]
        return answer

    def take(self, partition: TopicPartition) -> bytes:
        return self._raw.pop((partition.topic, partition.partition), b"")


def _batches(raw: bytes) -> Iterator[tuple[int, int]]:
    """Begin and end of each whole batch; the broker may cut off the last."""
    at = 0
    while len(raw) - at > _MAGIC_AT:
        end = at + _LENGTH_COUNTS_FROM + _LENGTH.unpack_from(raw, at + _LENGTH_AT)[0]
        if end > len(raw) or end <= at:
            return
        yield at, end
        at = end


class FetchedBatches(Fetched):
    """Batches of message format 2.

    Args:
        unread: aiokafka's `PartitionRecords` of the answer, of which nothing has been read.
        raw: the same batches, as they came.
    """

    def __init__(self, unread: Any, raw: bytes) -> None:
        self.partition = unread._tp
        self._unread = unread
        self._raw = raw
        self._first = unread.next_fetch_offset
        last = max(begin for begin, _ in _batches(raw))
        base, delta = struct.unpack_from(">q", raw, last)[0], struct.unpack_from(">i", raw, last + 23)[0]
        self.next_offset = max(self._first, base + delta + 1)

    def records(self) -> Records:
        return _assemble([self._body(begin, batch) for begin, batch in self._readable()], self._first, self.next_offset)

    def _readable(self) -> Iterator[tuple[tuple[int, int], Any]]:
        """The batches with records for the reader: neither control batches nor those of aborted transactions."""
        from aiokafka.consumer.fetcher import READ_COMMITTED
        from aiokafka.errors import CorruptRecordException

        unread = self._unread
        for bounds in _batches(self._raw):
            batch = unread._records.next_batch()
            if unread._check_crcs and not self._is_whole(bounds, batch):
                raise CorruptRecordException(f"the checksum of the batch at offset {batch.base_offset} is wrong")
            if unread._isolation_level == READ_COMMITTED:
                unread._consume_aborted_up_to(batch.base_offset)
                if batch.is_control_batch and unread._contains_abort_marker(batch):
                    unread._aborted_producers.discard(batch.producer_id)
                if batch.is_transactional and batch.producer_id in unread._aborted_producers:
                    continue
            if not batch.is_control_batch:
                yield bounds, batch

    def _is_whole(self, bounds: tuple[int, int], batch: Any) -> bool:
        """Whether the batch has the checksum that it names."""
        from penstock.connectors.kafka.crc32c_kernel import HAS_INSTRUCTION, crc32c

        if not HAS_INSTRUCTION:
            return bool(batch.validate_crc())
        begin, end = bounds
        checked = np.frombuffer(self._raw, np.uint8, end - begin - _CHECKED_FROM, begin + _CHECKED_FROM)
        named: int = _CHECKSUM.unpack_from(self._raw, begin + _CHECKSUM_AT)[0]
        return crc32c(checked) == named

    def _body(self, bounds: tuple[int, int], batch: Any) -> _Body:
        begin, end = bounds
        count = _LENGTH.unpack_from(self._raw, begin + _COUNT_AT)[0]
        data = memoryview(self._raw)[begin + _RECORDS_AT : end]
        if batch.compression_type:
            data = _decompress(data, batch.compression_type)
        append = batch.max_timestamp if batch.timestamp_type else -1
        return _Body(np.frombuffer(data, np.uint8), count, batch.base_offset, batch.first_timestamp, append)


def _decompress(data: memoryview, kind: int) -> memoryview:
    from aiokafka import codec
    from aiokafka.errors import UnsupportedCodecError

    codecs: dict[int, tuple[str, Callable[[], bool], Callable[[Any], Any]]] = {
        1: ("gzip", codec.has_gzip, codec.gzip_decode),
        2: ("snappy", codec.has_snappy, codec.snappy_decode),
        3: ("lz4", codec.has_lz4, codec.lz4_decode),
        4: ("zstd", codec.has_zstd, codec.zstd_decode),
    }
    if kind not in codecs:
        raise UnsupportedCodecError(f"no compression has the number {kind}")
    name, installed, decode = codecs[kind]
    if not installed():
        raise UnsupportedCodecError(f"Libraries for {name} compression codec not found")
    return memoryview(decode(data.tobytes()))


@dataclass(frozen=True, slots=True)
class _Body:
    """The records of a batch, and what its head says of them; `append_timestamp` is -1 for the producer's times."""

    data: npt.NDArray[np.uint8]
    count: int
    base_offset: int
    base_timestamp: int
    append_timestamp: int


def _assemble(bodies: Sequence[_Body], first: int, next_offset: int) -> Records:
    """The records of all bodies from offset `first` on."""
    if not bodies:
        return records_of([], next_offset)
    from penstock.connectors.kafka import record_kernel as kernel

    places = np.empty((kernel.PLACES, sum(_plausible_count(body) for body in bodies)), np.int64)
    ends = [0]
    for body in bodies:
        row = kernel.scan_records(
            body.data,
            body.count,
            body.base_offset,
            body.base_timestamp,
            body.append_timestamp,
            first,
            places,
            ends[-1],
        )
        ends.append(_whole(row, body))
    places = places[:, : ends[-1]]
    times = places[kernel.TIMESTAMP]
    return Records(
        pa.array(places[kernel.OFFSET]),
        pa.array(times, mask=times == -1).cast(TIMESTAMP_TYPE),
        _gathered(bodies, ends, places[kernel.KEY_AT], places[kernel.KEY_LENGTH]),
        _gathered(bodies, ends, places[kernel.VALUE_AT], places[kernel.VALUE_LENGTH]),
        _headers(bodies, ends, places),
        next_offset,
    )


def _plausible_count(body: _Body) -> int:
    """The number of records, which have seven bytes at least: a damaged number must not take all memory."""
    if not 0 <= body.count <= len(body.data) // 7:
        raise _broken(body)
    return body.count


def _whole(result: int, body: _Body) -> int:
    if result < 0:
        raise _broken(body)
    return result


def _broken(body: _Body) -> Exception:
    from aiokafka.errors import CorruptRecordException

    error: Exception = CorruptRecordException(f"the batch at offset {body.base_offset} is damaged")
    return error


def _gathered(
    bodies: Sequence[_Body], ends: Sequence[int], begins: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> pa.LargeBinaryArray:
    """Pieces of the bodies as a column; the pieces `ends[i]` to `ends[i + 1]` lie in body i."""
    from penstock.connectors.kafka.record_kernel import gather

    nulls = int((lengths < 0).sum())
    # Pieces do not overlap, but the lengths of nulls are -1.
    # Arrow's memory has been used before: that of numpy is new, and zeroed page by page as it is written.
    data, offsets = pa.allocate_buffer(int(lengths.sum()) + nulls), pa.allocate_buffer(8 * (len(lengths) + 1))
    bytes_, bounds = np.frombuffer(data, np.uint8), np.frombuffer(offsets, np.int64)
    bounds[0] = 0
    for body, begin, end in zip(bodies, ends, ends[1:], strict=False):
        gather(body.data, begins[begin:end], lengths[begin:end], bytes_, bounds[begin : end + 1])
    valid = pa.py_buffer(np.packbits(lengths >= 0, bitorder="little")) if nulls else None
    return pa.Array.from_buffers(pa.large_binary(), len(lengths), [valid, offsets, data], nulls)


def _headers(bodies: Sequence[_Body], ends: Sequence[int], records: npt.NDArray[np.int64]) -> pa.ListArray:
    """The headers of the records whose places are given."""
    from penstock.connectors.kafka import record_kernel as kernel

    counts = records[kernel.HEADERS]
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    places = np.empty((kernel.HEADER_PLACES, int(offsets[-1])), np.int64)
    header_ends = [0]
    if offsets[-1]:
        for body, begin, end in zip(bodies, ends, ends[1:], strict=False):
            of_body = records[:, begin:end]
            header = kernel.scan_headers(
                body.data,
                of_body[kernel.HEADERS_AT],
                of_body[kernel.HEADERS],
                of_body[kernel.HEADERS_END],
                places,
                header_ends[-1],
            )
            header_ends.append(_whole(header, body))
    keys = _gathered(bodies, header_ends, places[kernel.HEADER_KEY_AT], places[kernel.HEADER_KEY_LENGTH])
    values = _gathered(bodies, header_ends, places[kernel.HEADER_VALUE_AT], places[kernel.HEADER_VALUE_LENGTH])
    pairs = pa.StructArray.from_arrays(
        [keys.cast(pa.binary()).cast(pa.string()), values.cast(pa.binary())], fields=list(HEADER_TYPE)
    )
    return pa.ListArray.from_arrays(pa.array(offsets), pairs, type=HEADERS_TYPE)
