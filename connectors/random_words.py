"""Random numbers that depend on a seed and a row number alone, for whole arrays of rows.

The fields of `penstock.connectors.datagen` draw from it: `words` is everywhere the array `row number * WEYL`,
which all columns share, and `mix` turns it into 64 random bits a row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

WEYL: Final = np.uint64(0x9E3779B97F4A7C15)
"""The step of the sequence that `mix` is applied to."""
UNIT: Final = 2.0**-53
"""Brings 53 random bits to 0 (included) to 1 (excluded)."""
_MIX_1: Final = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2: Final = np.uint64(0x94D049BB133111EB)

Rows: TypeAlias = "npt.NDArray[np.int64]"
"""Row numbers of the whole source."""
Words: TypeAlias = "npt.NDArray[np.uint64]"
"""One 64-bit word a row."""


def stream(text: str) -> np.uint64:
    """A starting point for the random words of one purpose; unrelated texts give unrelated words."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    start: np.uint64 = np.uint64(int.from_bytes(digest, "little"))
    return start


def mix(words: Words, start: np.uint64) -> Words:
    """64 random bits a row: the output function of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014)."""
    mixed = words + start
    shifted = mixed >> np.uint64(30)
    mixed ^= shifted
    mixed *= _MIX_1
    np.right_shift(mixed, np.uint64(27), out=shifted)
    mixed ^= shifted
    mixed *= _MIX_2
    np.right_shift(mixed, np.uint64(31), out=shifted)
    mixed ^= shifted
    return mixed


def scale(words: Words, size: int) -> Words:
    """The random words, which it overwrites, brought to 0 to `size` - 1."""
    if size > 2**32:
        words %= np.uint64(size)
        return words
    # floor(word * size / 2**64) in two halves: as even as the remainder, and three times as fast.
    low = words & np.uint64(0xFFFFFFFF)
    low *= np.uint64(size)
    low >>= np.uint64(32)
    words >>= np.uint64(32)
    words *= np.uint64(size)
    words += low
    words >>= np.uint64(32)
    return words


def weighted(seed: str, weights: npt.NDArray[np.float64]) -> Callable[[Words], Rows]:
    """Draws places of `weights`, each in proportion to its weight."""
    start = stream(seed)
    cumulative = np.cumsum(weights)
    cumulative /= cumulative[-1]

    def draw(words: Words) -> Rows:
        drawn = mix(words, start)
        np.right_shift(drawn, np.uint64(11), out=drawn)
        return np.searchsorted(cumulative, drawn.view(np.int64) * UNIT, side="right")

    return draw
