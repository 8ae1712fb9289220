"""Kafka's murmur2 of byte strings that lie behind one another in a buffer, compiled by numba.

Imported by `partitioner` with the first keys, because numba takes longer to import than a small job runs. Equals the
Java client's `Utils.murmur2` for every length.
Algorithm: https://github.com/aappleby/smhasher (MurmurHash2), with the seed of Kafka's clients.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from penstock.engine.state.keys.xxh64_kernel import compile_cached

# Everything is uint32: numba would make a float of a signed and an unsigned operand.
_SEED: Final = np.uint32(0x9747B28C)
_M: Final = np.uint32(0x5BD1E995)
_R: Final = np.uint32(24)


@compile_cached
def murmur2(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], hashes: npt.NDArray[np.uint32]) -> None:
    """The hash of each string.

    Args:
        data: the strings.
        offsets: where each begins, and behind the last where it ends.
        hashes: what is filled in.
    """
    for row in range(len(hashes)):
        at, end = offsets[row], offsets[row + 1]
        value = np.uint32(_SEED ^ np.uint32(end - at))
        while at + 4 <= end:
            word = (
                np.uint32(data[at])
                | (np.uint32(data[at + 1]) << np.uint32(8))
                | (np.uint32(data[at + 2]) << np.uint32(16))
                | (np.uint32(data[at + 3]) << np.uint32(24))
            )
            word = np.uint32(word * _M)
            word = np.uint32((word ^ (word >> _R)) * _M)
            value = np.uint32(np.uint32(value * _M) ^ word)
            at += 4
        if at < end:
            for index in range(end - at):
                value = np.uint32(value ^ (np.uint32(data[at + index]) << np.uint32(8 * index)))
            value = np.uint32(value * _M)
        value = np.uint32((value ^ (value >> np.uint32(13))) * _M)
        hashes[row] = value ^ (value >> np.uint32(15))
