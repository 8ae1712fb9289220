"""Which partition a record goes to: by the hash of its key, as Kafka's own clients do, or without looking at it.

The sink's writers call it for each batch. The same key goes to the same partition as from a Java producer, as long as
the topic has as many partitions.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

PartitionerName: TypeAlias = Literal["murmur2", "round-robin", "fixed"]
PARTITIONERS: Final = ("murmur2", "round-robin", "fixed")

Partitions: TypeAlias = npt.NDArray[np.int32]


def murmur2(keys: pa.LargeBinaryArray) -> npt.NDArray[np.uint32]:
    """The hash of each key; of a null it means nothing.

    Source: Kafka's `org.apache.kafka.common.utils.Utils.murmur2`.

    Example:
        >>> murmur2(pa.array([b"21"], pa.large_binary())).view("int32").tolist()
        [-973932308]
    """
    from penstock.connectors.kafka.murmur2_kernel import murmur2 as compiled

    hashes = np.zeros(len(keys), np.uint32)
    _, offsets, data = keys.buffers()
    if len(keys):
        begins = np.frombuffer(offsets, np.int64)[keys.offset : keys.offset + len(keys) + 1]
        compiled(np.frombuffer(data or b"", np.uint8), begins, hashes)
    return hashes


class Partitioner:
    """Gives each record of one writer its partition.

    Args:
        name: `"murmur2"`: by the key, as Kafka's clients do; records without a key go by batches to one partition
            after the other. `"round-robin"`: each record to the next partition, whatever its key. `"fixed"`: all
            records of a subtask to one partition.
        subtask: of the writer; where its turn begins.

    Example:
        >>> Partitioner("fixed", 5).partitions(pa.nulls(2, pa.large_binary()), 3).tolist()
        [2, 2]
    """

    def __init__(self, name: PartitionerName, subtask: int) -> None:
        self._name = name
        self._subtask = subtask
        self._turn = subtask

    def partitions(self, keys: pa.LargeBinaryArray, count: int) -> Partitions:
        """The partition of each record.

        Args:
            keys: one a record; null for none.
            count: how many partitions the topic has.
        """
        if self._name == "fixed":
            return np.full(len(keys), self._subtask % count, np.int32)
        if self._name == "round-robin":
            first, self._turn = self._turn, self._turn + len(keys)
            return ((first + np.arange(len(keys))) % count).astype(np.int32)
        if keys.null_count == len(keys):
            return np.full(len(keys), self._next_turn(count), np.int32)
        # As Java: the sign bit is dropped, not the number negated.
        found: Partitions = ((murmur2(keys) & np.uint32(0x7FFFFFFF)) % np.uint32(count)).astype(np.int32)
        if keys.null_count:
            found[keys.is_null().to_numpy(zero_copy_only=False)] = self._next_turn(count)
        return found

    def _next_turn(self, count: int) -> int:
        turn, self._turn = self._turn, self._turn + 1
        return turn % count
