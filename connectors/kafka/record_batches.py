"""Fetched batches of message format 2 as Arrow arrays, without an object a record.

`columnar` makes `FetchedBatches` of what a broker answered. Decompression, the list of aborted producers and control
batches stay aiokafka's; heads, checksums and bodies of batches are read here.
Format: https://kafka.apache.org/documentation/#recordbatch
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.connectors.kafka.fetched import HEADER_TYPE, HEADERS_TYPE, TIMESTAMP_TYPE, Fetched, Records, records_of

Raw: TypeAlias = "bytes | memoryview"
"""Batches, one behind the other, as a broker sends them."""

_HEAD: Final = struct.Struct(">qiibIhiqqqhii")
"""As `_Head` names them."""
_LENGTH: Final = struct.Struct(">i")
_LENGTH_AT: Final = 8
_LENGTH_COUNTS_FROM: Final = 12
_MAGIC_AT: Final = 16
_FORMAT: Final = 2
_CHECKED_FROM: Final = 21
_CODEC: Final = 0x07
_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20


class _Head(NamedTuple):
    """What stands before the records of a batch."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    checksum: int
    attributes: int
    last_offset_delta: int
    first_timestamp: int
    max_timestamp: int
    producer: int
    producer_epoch: int
    base_sequence: int
    records: int

    @classmethod
    def of(cls, raw: Raw, begin: int) -> _Head:
        return cls(*_HEAD.unpack_from(raw, begin))


def _batches(raw: Raw) -> Iterator[tuple[int, int]]:
    """Begin and end of each whole batch; the broker may cut off the last."""
    at = 0
    while len(raw) - at > _MAGIC_AT:
        end = at + _LENGTH_COUNTS_FROM + _LENGTH.unpack_from(raw, at + _LENGTH_AT)[0]
        if end > len(raw) or end <= at:
            return
        yield at, end
        at = end


def first_alone(raw: Raw) -> bytes | None:
    """The first batch as if it had no records, for aiokafka, which copies what it is given.

    None where there is no whole batch, or one that has another format.
    """
    bounds = list(_batches(raw))
    if not bounds or any(raw[begin + _MAGIC_AT] != _FORMAT or end - begin < _HEAD.size for begin, end in bounds):
        return None
    return bytes(raw[:_LENGTH_AT]) + _LENGTH.pack(_HEAD.size - _LENGTH_COUNTS_FROM) + bytes(raw[12 : _HEAD.size])


class FetchedBatches(Fetched):
    """Batches of message format 2.

    Args:
        unread: aiokafka's `PartitionRecords` of the answer, of whose records nothing is read here.
        raw: the batches, as they came.
    """

    def __init__(self, unread: Any, raw: Raw) -> None:
        self.partition = unread._tp
        self._unread = unread
        self._raw = raw
        self._first = unread.next_fetch_offset
        last = _Head.of(raw, max(begin for begin, _ in _batches(raw)))
        self.next_offset = max(self._first, last.base_offset + last.last_offset_delta + 1)

    def records(self) -> Records:
        return _assemble([self._body(*found) for found in self._readable()], self._first, self.next_offset)

    def _readable(self) -> Iterator[tuple[_Head, int, int]]:
        """Head, begin and end of the batches for the reader: no control batches, and none of aborted transactions."""
        from aiokafka.consumer.fetcher import READ_COMMITTED
        from aiokafka.errors import CorruptRecordException

        unread = self._unread
        for begin, end in _batches(self._raw):
            head = _Head.of(self._raw, begin)
            if unread._check_crcs and not self._is_whole(head, begin, end):
                raise CorruptRecordException(f"the checksum of the batch at offset {head.base_offset} is wrong")
            is_control = bool(head.attributes & _CONTROL)
            if unread._isolation_level == READ_COMMITTED:
                unread._consume_aborted_up_to(head.base_offset)
                if is_control and unread._contains_abort_marker(self._by_library(begin, end)):
                    unread._aborted_producers.discard(head.producer)
                if head.attributes & _TRANSACTIONAL and head.producer in unread._aborted_producers:
                    continue
            if not is_control:
                yield head, begin, end

    def _is_whole(self, head: _Head, begin: int, end: int) -> bool:
        """Whether the batch has the checksum that it names."""
        from penstock.connectors.kafka.crc32c_kernel import HAS_INSTRUCTION, crc32c

        if not HAS_INSTRUCTION:
            return bool(self._by_library(begin, end).validate_crc())
        return head.checksum == crc32c(np.frombuffer(self._raw, np.uint8)[begin + _CHECKED_FROM : end])

    def _by_library(self, begin: int, end: int) -> Any:
        from aiokafka.record.memory_records import MemoryRecords

        return MemoryRecords(bytes(self._raw[begin:end])).next_batch()

    def _body(self, head: _Head, begin: int, end: int) -> _Body:
        data = memoryview(self._raw)[begin + _HEAD.size : end]
        if head.attributes & _CODEC:
            data = _decompress(data, head.attributes & _CODEC)
        append = head.max_timestamp if head.attributes & _APPEND_TIME else -1
        return _Body(np.frombuffer(data, np.uint8), head.records, head.base_offset, head.first_timestamp, append)


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
    if nulls == len(lengths):
        return pa.nulls(nulls, pa.large_binary())
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
    if not offsets[-1]:
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array([], HEADER_TYPE), type=HEADERS_TYPE)
    places = np.empty((kernel.HEADER_PLACES, int(offsets[-1])), np.int64)
    header_ends = [0]
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
