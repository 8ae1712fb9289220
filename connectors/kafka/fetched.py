"""Records as they came from one partition: Arrow columns, and what a fetch brought before it is made columns.

The ways to fetch in `columnar` give them to `consumer`, and the readers of `source` make rows of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from aiokafka import ConsumerRecord, TopicPartition

TIMESTAMP_TYPE: Final = pa.timestamp("ms", tz="UTC")
HEADER_TYPE: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
HEADERS_TYPE: Final = pa.list_(HEADER_TYPE)


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
