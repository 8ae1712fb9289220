"""XXH64 of byte strings that lie behind one another in a buffer, and of words, compiled by numba.

Imported by `key_groups` only when a column has too many distinct strings to hash one by one, or very many words,
because its import takes longer than a small job. Equals the `xxhash` package for every length and seed.
Algorithm: https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

_F = TypeVar("_F", bound=Callable[..., object])

# Everything below is uint64, counters and shift widths included: numba turns a signed and an unsigned 64-bit
# operand into a float, and tests a signed index for being negative, which keeps LLVM from joining byte loads.
_U: Final = np.uint64
_P1: Final = np.uint64(0x9E3779B185EBCA87)
_P2: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_P3: Final = np.uint64(0x165667B19E3779F9)
_P4: Final = np.uint64(0x85EBCA77C2B2AE63)
_P5: Final = np.uint64(0x27D4EB2F165667C5)


def _options(from_python: bool = True) -> dict[str, Any]:
    """Without the ways to call a function that nobody goes, which take long to compile; numba's stubs lack them."""
    return {"nogil": True, "no_cfunc_wrapper": True, "no_cpython_wrapper": not from_python}


def _compile(function: _F) -> _F:
    return cast(_F, numba.njit(**_options())(function))


def compile_cached(function: _F, from_python: bool = True) -> _F:
    """The compiled function, kept on disk for the next process if numba finds a place it may write to.

    Args:
        function: to be compiled.
        from_python: whether Python calls it, and not compiled functions alone.
    """
    try:
        return cast(_F, numba.njit(cache=True, **_options(from_python))(function))
    except RuntimeError:  # "cannot cache function: no locator available"
        return _compile(function)


@_compile
def _rotate(word: np.uint64, bits: int) -> np.uint64:
    rotated: np.uint64 = (word << _U(bits)) | (word >> _U(64 - bits))
    return rotated


@_compile
def _round(lane: np.uint64, word: np.uint64) -> np.uint64:
    mixed: np.uint64 = _rotate(lane + word * _P2, 31) * _P1
    return mixed


@_compile
def _read(data: npt.NDArray[np.uint8], position: np.uint64, width: int) -> np.uint64:
    word: np.uint64 = _U(0)
    for byte in range(width):
        word |= _U(data[position + _U(byte)]) << _U(8 * byte)
    return word


@compile_cached
def hash_strings(
    data: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int64],
    seeds: npt.NDArray[np.uint64],
    out: npt.NDArray[np.uint64],
) -> None:
    """Write XXH64 of `data[offsets[row]:offsets[row + 1]]` with `seeds[row]` to `out[row]`, for each row."""
    for row in range(len(out)):
        position, end, seed = _U(offsets[row]), _U(offsets[row + 1]), seeds[row]
        length = end - position
        if length >= _U(32):
            lane1, lane2, lane3, lane4 = seed + _P1 + _P2, seed + _P2, seed, seed - _P1
            while end - position >= _U(32):
                lane1 = _round(lane1, _read(data, position, 8))
                lane2 = _round(lane2, _read(data, position + _U(8), 8))
                lane3 = _round(lane3, _read(data, position + _U(16), 8))
                lane4 = _round(lane4, _read(data, position + _U(24), 8))
                position += _U(32)
            value = _rotate(lane1, 1) + _rotate(lane2, 7) + _rotate(lane3, 12) + _rotate(lane4, 18)
            for lane in (lane1, lane2, lane3, lane4):
                value = (value ^ _round(_U(0), lane)) * _P1 + _P4
        else:
            value = seed + _P5
        value += length
        while end - position >= _U(8):
            value = _rotate(value ^ _round(_U(0), _read(data, position, 8)), 27) * _P1 + _P4
            position += _U(8)
        if end - position >= _U(4):
            value = _rotate(value ^ (_read(data, position, 4) * _P1), 23) * _P2 + _P3
            position += _U(4)
        while position < end:
            value = _rotate(value ^ (_U(data[position]) * _P5), 11) * _P1
            position += _U(1)
        value = (value ^ (value >> _U(33))) * _P2
        value = (value ^ (value >> _U(29))) * _P3
        out[row] = value ^ (value >> _U(32))


@compile_cached
def hash_words(words: npt.NDArray[np.uint64], seeds: npt.NDArray[np.uint64], out: npt.NDArray[np.uint64]) -> None:
    """Write XXH64 of the 8 bytes of `words[row]` with `seeds[row]` to `out[row]`; a single seed is that of all rows."""
    same = len(seeds) == 1
    for row in range(len(out)):
        seed = seeds[0] if same else seeds[row]
        value = seed + _P5 + _U(8)
        value = _rotate(value ^ _round(_U(0), words[row]), 27) * _P1 + _P4
        value = (value ^ (value >> _U(33))) * _P2
        value = (value ^ (value >> _U(29))) * _P3
        out[row] = value ^ (value >> _U(32))
