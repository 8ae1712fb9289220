"""The loops over bytes of `layouts`, compiled by numba; imported when there are enough records to pay for it.

`match` finds the values of records that have the same text between their values; `gather` puts values behind one
another. Of a text 32 bytes are looked at in one step, of what is between values eight.
Within, bytes are known by their addresses: numba counts references to an array at each call that is given one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from penstock.connectors.copying import copy
from penstock.connectors.json.kinds import BOOLEAN, NULL, NUMBER, TEXT
from penstock.engine.state.keys.xxh64_kernel import compile_cached

PADDING: Final = 8
"""So many bytes stand behind the texts that `match` is given."""

_Bytes = npt.NDArray[np.uint8]
_Places = npt.NDArray[np.int64]

# All of it is unsigned: see xxh64_kernel.
_U: Final = np.uint64
_ONES: Final = np.uint64(0x0101010101010101)
_SPACES: Final = np.uint64(0x2020202020202020)
_LONGEST_NUMBER: Final = np.uint64(300)
_MOST_DIGITS: Final = np.uint64(19)
"""So many fit 64 bits without a sign, whatever they are."""
_LARGEST: Final = np.uint64(2**63 - 1)
_WIDE: Final = 32
"""So many bytes of a text are looked at together."""
_NOWHERE: Final[np.uint64] = np.uint64(0)
"""No byte has this address."""


def _of_word(kind: types.Type, build: Callable[[Any, Any], Any]) -> Any:
    """A function of a word that gives a number of `kind`, as `build(builder, word)` builds it."""

    def built(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return build(builder, values[0])

    def typed(context: Any, word: Any) -> Any:
        return kind(types.uint64), built

    return intrinsic(typed)


def _load(builder: Any, address: Any, kind: ir.Type) -> Any:
    """What stands at an address, its lowest byte first."""
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=1)


def _marks(builder: Any, address: Any) -> Any:
    """A bit for each of the `_WIDE` bytes at an address that is a quote, a backslash or a control character."""
    vector = ir.VectorType(ir.IntType(8), _WIDE)
    data = _load(builder, address, vector)
    found = builder.icmp_unsigned("<", data, ir.Constant(vector, [0x20] * _WIDE))
    for byte in (0x22, 0x5C):
        found = builder.or_(found, builder.icmp_unsigned("==", data, ir.Constant(vector, [byte] * _WIDE)))
    return builder.zext(builder.bitcast(found, ir.IntType(_WIDE)), ir.IntType(64))


def _lowest(builder: Any, word: Any) -> Any:
    """The number of the lowest bit of a word that is not 0."""
    return builder.cttz(word, ir.Constant(ir.IntType(1), 1))


_Word: TypeAlias = "Callable[[np.uint64], np.uint64]"
_word: Final[_Word] = _of_word(types.uint64, lambda builder, address: _load(builder, address, ir.IntType(64)))
_byte: Final[Callable[[np.uint64], np.uint8]] = _of_word(
    types.uint8, lambda builder, address: _load(builder, address, ir.IntType(8))
)
_marks_at: Final[_Word] = _of_word(types.uint64, _marks)
_lowest_bit: Final[_Word] = _of_word(types.uint64, _lowest)


@compile_cached
def _text_end(at: np.uint64, end: np.uint64, limit: np.uint64) -> np.uint64:
    """Where the text that starts at `at` meets a quote, a backslash or a control character; `end` if it does not."""
    while at < end and at + _U(_WIDE) <= limit:
        marks = _marks_at(at)
        if marks:
            at += _lowest_bit(marks)
            return at if at < end else end
        at += _U(_WIDE)
    while at < end:
        byte = _byte(at)
        if byte == 0x22 or byte == 0x5C or byte < 0x20:
            return at
        at += _U(1)
    return end


@compile_cached
def _digits_end(at: np.uint64, end: np.uint64) -> np.uint64:
    while at < end and 0x30 <= _byte(at) <= 0x39:
        at += _U(1)
    return at


@compile_cached
def _number_end(at: np.uint64, end: np.uint64) -> np.uint64:
    """Where the number ends; `at` if it is none, has an exponent or very many digits."""
    begin = at
    if _byte(at) == 0x2D:
        at += _U(1)
    whole = at
    at = _digits_end(at, end)
    if at == whole or (_byte(whole) == 0x30 and at > whole + _U(1)):
        return begin
    if at < end and _byte(at) == 0x2E:
        fraction = at + _U(1)
        at = _digits_end(fraction, end)
        if at == fraction:
            return begin
    if at - begin > _LONGEST_NUMBER:
        return begin
    return at


@compile_cached
def _whole(at: np.uint64, end: np.uint64) -> tuple[np.int64, bool]:
    """The whole number from `at` to `end`, and whether it is one that has 64 bits."""
    negative = _byte(at) == 0x2D
    if negative:
        at += _U(1)
    if end - at > _MOST_DIGITS:
        return np.int64(0), False
    number = _U(0)
    while at < end:
        byte = _byte(at)
        if byte == 0x2E:
            return np.int64(0), False
        number = number * _U(10) + _U(byte - 0x30)
        at += _U(1)
    if number > _LARGEST:
        return np.int64(0), False
    return (-np.int64(number) if negative else np.int64(number)), True


@compile_cached
def _stands(at: np.uint64, end: np.uint64, limit: np.uint64, text: np.uint64, size: np.uint64) -> bool:
    """Whether the text stands at `at`, and ends before `end`."""
    if at + size > end:
        return False
    if size < _U(8) and at + _U(8) <= limit:
        return bool((_word(at) ^ _word(text)) << (_U(64) - (size << _U(3))) == _U(0))
    last = at + size
    while at + _U(8) <= last:
        if _word(at) != _word(text):
            return False
        at += _U(8)
        text += _U(8)
    if size >= _U(8):
        # The last eight bytes, though some of them have been compared.
        left = _U(8) - (last - at)
        return bool(_word(at - left) == _word(text - left))
    while at < last:
        if _byte(at) != _byte(text):
            return False
        at += _U(1)
        text += _U(1)
    return True


@compile_cached
def _spaces_end(at: np.uint64, end: np.uint64) -> np.uint64:
    """What is behind the white space at `at`."""
    while at + _U(8) <= end:
        others = _word(at) ^ _SPACES
        if others:
            # As many bytes as lie wholly below the lowest bit that differs.
            below = (others & (~others + _U(1))) - _U(1)
            at += (((below >> _U(7)) & _ONES) * _ONES) >> _U(56)
            break
        at += _U(8)
    while at < end:
        byte = _byte(at)
        if byte != 0x20 and byte != 0x0A and byte != 0x0D and byte != 0x09:
            break
        at += _U(1)
    return at


@compile_cached
def _behind_tokens(at: np.uint64, end: np.uint64, text: np.uint64, size: np.uint64) -> np.uint64:
    """What is behind the tokens of the text where these stand at `at`, with any white space between; else nowhere."""
    last, quoted = text + size, False
    while True:
        if not quoted:
            text, at = _spaces_end(text, last), _spaces_end(at, end)
        if text == last:
            return at
        byte = _byte(text)
        if at == end or _byte(at) != byte:
            return _NOWHERE
        if byte == 0x22:
            quoted = not quoted
        elif byte == 0x5C:
            # The byte behind it closes no name.
            text += _U(1)
            at += _U(1)
            if at == end or _byte(at) != _byte(text):
                return _NOWHERE
        text += _U(1)
        at += _U(1)


@compile_cached
def _behind(at: np.uint64, end: np.uint64, limit: np.uint64, text: np.uint64, size: np.uint64) -> np.uint64:
    if _stands(at, end, limit, text, size):
        behind: np.uint64 = at + size
        return behind
    return _behind_tokens(at, end, text, size)


@compile_cached
def _value(at: np.uint64, end: np.uint64, limit: np.uint64) -> tuple[int, np.uint64, np.uint64, np.uint64]:
    """The kind of the value at `at`, its begin, its end and what is behind it; -1 for a kind that is left to others."""
    if at >= end:
        return -1, at, at, at
    byte = _byte(at)
    if byte == 0x22:
        last = _text_end(at + _U(1), end, limit)
        if last < end and _byte(last) == 0x22:
            return TEXT, at + _U(1), last, last + _U(1)
        return -1, at, at, at
    if byte == 0x2D or 0x30 <= byte <= 0x39:
        last = _number_end(at, end)
        return (NUMBER if last > at else -1), at, last, last
    if end - at >= _U(4):
        if byte == 0x6E and _byte(at + _U(1)) == 0x75 and _byte(at + _U(2)) == 0x6C and _byte(at + _U(3)) == 0x6C:
            return NULL, at, at, at + _U(4)
        if byte == 0x74 and _byte(at + _U(1)) == 0x72 and _byte(at + _U(2)) == 0x75 and _byte(at + _U(3)) == 0x65:
            return BOOLEAN, at, at + _U(4), at + _U(4)
    if (
        end - at >= _U(5)
        and byte == 0x66
        and _byte(at + _U(1)) == 0x61
        and _byte(at + _U(2)) == 0x6C
        and _byte(at + _U(3)) == 0x73
        and _byte(at + _U(4)) == 0x65
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
    whole: npt.NDArray[np.bool_],
    rows: _Places,
    first: _Places,
    last: _Places,
    present: npt.NDArray[np.bool_],
) -> int:
    """Finds the values of the records that have the layout, whatever white space; those that do not are left out.

    Args:
        data: the bytes of all records.
        starts, ends: where each record begins and ends.
        between: the texts before, between and behind the values, one behind the other, and `PADDING` bytes more.
        bounds: where each of these texts begins in `between`, and its end.
        columns: for each value its column, or -1 where nobody wants it.
        allowed: for each value, a bit for each kind that it may have.
        whole: which columns are of whole numbers.
        rows: is given the numbers of the records that fit.
        first, last: are given where the value of each column begins and ends, by column and place in `rows`; `first` of
            a whole number is given the number.
        present: likewise whether it is not null.

    Returns:
        How many records fit.
    """
    fitting = 0
    values = len(columns)
    base, texts = _U(data.ctypes.data), _U(between.ctypes.data)
    limit = base + _U(len(data))
    for row in range(len(starts)):
        at, end = base + _U(starts[row]), base + _U(ends[row])
        fits = True
        for value in range(values):
            text = _U(bounds[value])
            at = _behind(at, end, limit, texts + text, _U(bounds[value + 1]) - text)
            if at == _NOWHERE:
                fits = False
                break
            kind, begin, stop, at = _value(at, end, limit)
            if kind < 0 or not (allowed[value] >> kind) & 1:
                fits = False
                break
            column = columns[value]
            if column >= 0:
                present[column, fitting] = kind != NULL
                if not whole[column]:
                    first[column, fitting] = begin - base
                    last[column, fitting] = stop - base
                elif kind == NULL:
                    first[column, fitting] = 0
                else:
                    first[column, fitting], fits = _whole(begin, stop)
                    if not fits:
                        break
        text = _U(bounds[values])
        if fits and _behind(at, end, limit, texts + text, _U(bounds[values + 1]) - text) == end:
            rows[fitting] = row
            fitting += 1
    return fitting


@compile_cached
def gather(data: _Bytes, first: _Places, offsets: _Places | npt.NDArray[np.int32], out: _Bytes) -> None:
    """Puts the values that begin at `first` at `offsets` of `out`."""
    base, target = _U(data.ctypes.data), _U(out.ctypes.data)
    for row in range(len(first)):
        size = offsets[row + 1] - offsets[row]
        if size:
            copy(target + _U(offsets[row]), base + _U(first[row]), _U(size))
