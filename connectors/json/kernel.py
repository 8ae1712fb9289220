"""The loops over bytes of `layouts`, compiled by numba; imported when there are enough records to pay for it.

`match` finds the values of records that have the same text between their values; `gather` puts values behind one
another. Eight bytes are looked at in one step, as in https://graphics.stanford.edu/~seander/bithacks.html#ZeroInWord.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from penstock.connectors.json.kinds import BOOLEAN, NULL, NUMBER, TEXT
from penstock.engine.state.keys.xxh64_kernel import compile_cached

_Bytes = npt.NDArray[np.uint8]
_Places = npt.NDArray[np.int64]

# All of it is unsigned: see xxh64_kernel.
_U: Final = np.uint64
_ONES: Final = np.uint64(0x0101010101010101)
_HIGH: Final = np.uint64(0x8080808080808080)
_QUOTES: Final = np.uint64(0x2222222222222222)
_BACKSLASHES: Final = np.uint64(0x5C5C5C5C5C5C5C5C)
_SPACES: Final = np.uint64(0x2020202020202020)
_LONGEST_NUMBER: Final = np.uint64(300)


@compile_cached
def _word(data: _Bytes, at: np.uint64) -> np.uint64:
    word = _U(0)
    for byte in range(8):
        word |= _U(data[at + _U(byte)]) << _U(8 * byte)
    joined: np.uint64 = word
    return joined


@compile_cached
def _text_end(data: _Bytes, at: np.uint64, end: np.uint64) -> np.uint64:
    """Where the text that starts at `at` meets a quote, a backslash or a control character; `end` if it does not."""
    size = _U(len(data))
    while at < end:
        if at + _U(8) <= size:
            word = _word(data, at)
            quote, backslash = word ^ _QUOTES, word ^ _BACKSLASHES
            found = (quote - _ONES) & ~quote
            found |= (backslash - _ONES) & ~backslash
            found |= (word - _SPACES) & ~word
            found &= _HIGH
            if found:
                # The lowest mark is exact; those above it may come from a borrow.
                lowest = found & (~found + _U(1))
                at += ((((lowest - _U(1)) & _ONES) * _ONES) >> _U(56)) - _U(1)
                return at if at < end else end
            at += _U(8)
        else:
            byte = data[at]
            if byte == 0x22 or byte == 0x5C or byte < 0x20:
                return at
            at += _U(1)
    return end


@compile_cached
def _digits_end(data: _Bytes, at: np.uint64, end: np.uint64) -> np.uint64:
    while at < end and 0x30 <= data[at] <= 0x39:
        at += _U(1)
    return at


@compile_cached
def _number_end(data: _Bytes, at: np.uint64, end: np.uint64) -> np.uint64:
    """Where the number ends; `at` if it is none, has an exponent or very many digits."""
    begin = at
    if data[at] == 0x2D:
        at += _U(1)
    whole = at
    at = _digits_end(data, at, end)
    if at == whole or (data[whole] == 0x30 and at > whole + _U(1)):
        return begin
    if at < end and data[at] == 0x2E:
        fraction = at + _U(1)
        at = _digits_end(data, fraction, end)
        if at == fraction:
            return begin
    if at - begin > _LONGEST_NUMBER:
        return begin
    return at


@compile_cached
def _stands(data: _Bytes, at: np.uint64, end: np.uint64, text: _Bytes, first: np.uint64, last: np.uint64) -> bool:
    """Whether bytes `first` to `last` of `text` stand at `at`, and end before `end`."""
    if at + (last - first) > end:
        return False
    while first + _U(8) <= last:
        if _word(data, at) != _word(text, first):
            return False
        at += _U(8)
        first += _U(8)
    while first < last:
        if data[at] != text[first]:
            return False
        at += _U(1)
        first += _U(1)
    return True


@compile_cached
def _value(data: _Bytes, at: np.uint64, end: np.uint64) -> tuple[int, np.uint64, np.uint64, np.uint64]:
    """The kind of the value at `at`, its begin, its end and what is behind it; -1 for a kind that is left to others."""
    if at >= end:
        return -1, at, at, at
    byte = data[at]
    if byte == 0x22:
        last = _text_end(data, at + _U(1), end)
        if last < end and data[last] == 0x22:
            return TEXT, at + _U(1), last, last + _U(1)
        return -1, at, at, at
    if byte == 0x2D or 0x30 <= byte <= 0x39:
        last = _number_end(data, at, end)
        return (NUMBER if last > at else -1), at, last, last
    if end - at >= _U(4):
        if byte == 0x6E and data[at + _U(1)] == 0x75 and data[at + _U(2)] == 0x6C and data[at + _U(3)] == 0x6C:
            return NULL, at, at, at + _U(4)
        if byte == 0x74 and data[at + _U(1)] == 0x72 and data[at + _U(2)] == 0x75 and data[at + _U(3)] == 0x65:
            return BOOLEAN, at, at + _U(4), at + _U(4)
    if (
        end - at >= _U(5)
        and byte == 0x66
        and data[at + _U(1)] == 0x61
        and data[at + _U(2)] == 0x6C
        and data[at + _U(3)] == 0x73
        and data[at + _U(4)] == 0x65
    ):
        return BOOLEAN, at, at + _U(5), at + _U(5)
    return -1, at, at, at


@compile_cached
def match(
    data: _Bytes,
    starts: _Places,
    ends: _Places,
    between: _Bytes,
    bounds: _Places,
    columns: _Places,
    allowed: _Places,
    rows: _Places,
    first: _Places,
    last: _Places,
    present: npt.NDArray[np.bool_],
) -> int:
    """Finds the values of the records that have the layout; those that do not are left out.

    Args:
        data: the bytes of all records.
        starts, ends: where each record begins and ends.
        between: the texts before, between and behind the values, one behind the other.
        bounds: where each of these texts begins in `between`, and its end.
        columns: for each value its column, or -1 where nobody wants it.
        allowed: for each value, a bit for each kind that it may have.
        rows: is given the numbers of the records that fit.
        first, last: are given where the value of each column begins and ends, by column and place in `rows`.
        present: likewise whether it is not null.

    Returns:
        How many records fit.
    """
    fitting = 0
    values = len(columns)
    for row in range(len(starts)):
        at, end = _U(starts[row]), _U(ends[row])
        fits = True
        for value in range(values):
            left, right = _U(bounds[value]), _U(bounds[value + 1])
            if not _stands(data, at, end, between, left, right):
                fits = False
                break
            at += right - left
            kind, begin, stop, at = _value(data, at, end)
            if kind < 0 or not (allowed[value] >> kind) & 1:
                fits = False
                break
            column = columns[value]
            if column >= 0:
                first[column, fitting] = begin
                last[column, fitting] = stop
                present[column, fitting] = kind != NULL
        left, right = _U(bounds[values]), _U(bounds[values + 1])
        if fits and end - at == right - left and _stands(data, at, end, between, left, right):
            rows[fitting] = row
            fitting += 1
    return fitting


@compile_cached
def gather(data: _Bytes, first: _Places, offsets: _Places, out: _Bytes) -> None:
    """Puts the values that begin at `first` at `offsets` of `out`."""
    for row in range(len(first)):
        at = _U(first[row])
        left, right = _U(offsets[row]), _U(offsets[row + 1])
        for byte in range(right - left):
            out[left + _U(byte)] = data[at + _U(byte)]
