"""Record batches as a broker would answer them, made in memory."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import READ_COMMITTED, PartitionRecords
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import calc_crc32c

ATTRIBUTES_AT = 21
LOG_APPEND_TIME = 0x08
CONTROL = 0x20

Record = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]
"""Timestamp, key, value, headers."""


def batch(
    records: Sequence[Record], base_offset: int = 0, codec: int = 0, producer: int = -1, attributes: int = 0
) -> bytes:
    """A batch; with a producer's id, of a transaction."""
    builder = DefaultRecordBatchBuilder(2, codec, producer >= 0, producer, 0 if producer >= 0 else -1, 0, 1 << 30)
    for offset, (timestamp, key, value, headers) in enumerate(records):
        assert builder.append(offset, timestamp, key, value, headers) is not None
    data = bytearray(struct.pack(">q", base_offset) + bytes(builder.build())[8:])
    data[ATTRIBUTES_AT + 1] |= attributes
    data[17:21] = struct.pack(">I", calc_crc32c(bytes(data[ATTRIBUTES_AT:])))
    return bytes(data)


def marker(base_offset: int, producer: int, kind: int) -> bytes:
    """The record that ends a transaction: `kind` is 0 where it was aborted, 1 where it was committed."""
    return batch([(0, struct.pack(">hh", 0, kind), b"\0" * 6, [])], base_offset, 0, producer, CONTROL)


def unread(raw: bytes, first: int = 0, aborted: Sequence[tuple[int, int]] = ()) -> Any:
    """What aiokafka makes of an answer that is raw."""
    partition = TopicPartition("events", 0)
    return PartitionRecords(partition, MemoryRecords(raw), list(aborted), first, None, None, True, READ_COMMITTED)
