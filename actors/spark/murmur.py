"""The numbers that Spark's hash partitioning sends to a partition of our choice.

`DataFrame.repartition(n, column)` sends a row to partition `pmod(murmur3(column), n)`. Who wants it in a certain one
puts a number into the column that hashes there: no partitioner of our own has to run in the JVM.

Source of the hash: Austin Appleby, MurmurHash3_x86_32, for one 32-bit block with seed 42, as Spark uses it.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import count
from typing import Final

_MASK: Final = 0xFFFFFFFF
_SEED: Final = 42


def spark_hash(value: int) -> int:
    """Spark's `hash` of one int column: a signed 32-bit number.

    Args:
        value: from 0 to 2**31 - 1.

    Example:
        >>> spark_hash(1)
        -559580957
    """
    block = _rotated(value * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    hashed = (_rotated(_SEED ^ block, 13) * 5 + 0xE6546B64) & _MASK
    hashed ^= 4
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6B & _MASK
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35 & _MASK
    hashed ^= hashed >> 16
    return hashed - 2**32 if hashed >= 2**31 else hashed


def _rotated(number: int, bits: int) -> int:
    return (number << bits | number >> (32 - bits)) & _MASK


@lru_cache(maxsize=256)
def routes(partitions: int) -> tuple[int, ...]:
    """For each of `partitions` partitions, the smallest number that Spark sends there."""
    found: dict[int, int] = {}
    for number in count():
        found.setdefault(spark_hash(number) % partitions, number)
        if len(found) == partitions:
            break
    return tuple(found[partition] for partition in range(partitions))
