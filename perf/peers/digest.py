"""A hash of a job's rows, whatever their order: two engines have given the same rows if their digests are equal.

Each row is a tuple of int64; a row's hash takes its columns in with the finalizer of MurmurHash3, and the digest is the
sum of the hashes modulo 2^64. `java/bench/Digest.java` and `programs/counters.py` compute the same.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

_MARK: Final = "digest "
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_FIRST: Final = np.uint64(0xFF51AFD7ED558CCD)
_SECOND: Final = np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT: Final = np.uint64(33)


@dataclass(frozen=True, slots=True)
class Digest:
    """How many rows, and the sum of their hashes."""

    rows: int
    hash: int

    @classmethod
    def of(cls, *columns: Any) -> Digest:
        """The digest of rows by columns of whole numbers.

        Example:
            >>> Digest.of([1, 2], [3, 4]) == Digest.of([2, 1], [4, 3])
            True
            >>> Digest.of([1, 2], [3, 4]) == Digest.of([1, 2], [4, 3])
            False
        """
        hashes = np.zeros(len(columns[0]), np.uint64)
        for column in columns:
            hashes = _mixed((hashes + _GOLDEN) ^ np.asarray(column).astype(np.int64).view(np.uint64))
        return cls(len(hashes), int(hashes.sum(dtype=np.uint64)))

    @classmethod
    def parse(cls, line: str) -> Digest:
        """The digest that a peer has printed, as "digest ROWS HASH" with the hash unsigned.

        Raises:
            ValueError: the line is none of that kind.
        """
        if not is_digest(line):
            raise ValueError(f"not a digest: {line!r}")
        try:
            rows, digest = line.removeprefix(_MARK).split()
            return cls(int(rows), int(digest))
        except ValueError:
            raise ValueError(f"not a digest: {line!r}, which should be 'digest ROWS HASH'") from None


def is_digest(line: str) -> bool:
    """Whether a line of a peer's output is its digest, and no news of its own."""
    return line.startswith(_MARK)


def of_texts(texts: Sequence[str]) -> Digest:
    """The digest of rows of one text each, which goes by its CRC-32."""
    return Digest.of(np.array([zlib.crc32(text.encode()) for text in texts], np.int64))


def _mixed(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    values = (values ^ (values >> _SHIFT)) * _FIRST
    values = (values ^ (values >> _SHIFT)) * _SECOND
    return values ^ (values >> _SHIFT)
