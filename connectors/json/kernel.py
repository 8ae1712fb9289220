"""The loops over bytes of `layouts`, compiled by numba; imported when there are enough records to pay for it.

`match` finds the values of records that have the same text between their values; `gather` puts values behind one
another. Of a text 32 bytes are looked at in one step, of what is between values eight.
Within, bytes are known by their addresses: numba counts references to an array at each call that is given one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from penstock.connectors.copying import copy
from penstock.connectors.json.kinds import BOOLEAN, NULL, NUMBER, OTHER_TEXT, TEXT
from penstock.engine.state.keys.xxh64_kernel import compile_cached

PADDING: Final = 32
"""So many bytes stand behind the texts that `match` is given."""

_Bytes = npt.NDArray[np.uint8]
_Places = npt.NDArray[np.int64]

# All of it is unsigned: see xxh64_kernel.
_U: Final = np.uint64
_LONGEST_NUMBER: Final = np.uint64(300)
_MOST_DIGITS: Final = np.uint64(19)
"""So many fit 64 bits without a sign, whatever they are."""
_LARGEST: Final = np.uint64(2**63 - 1)
WIDE: Final = 32
"""So many bytes of a text are looked at, and copied, together."""
_AHEAD: Final = 24
"""So many values further on are fetched: they lie apart, where the processor does not look for them by itself."""
_MOST_WIDE: Final = _U(256)
"""What is longer is copied by the C library."""
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
    """A bit for each of the `WIDE` bytes at an address that is a quote, a backslash or a control character, or that is
    not ASCII."""
    vector = ir.VectorType(ir.IntType(8), WIDE)
    data = _load(builder, address, vector)
    # With a sign, what is not ASCII is below 0.
    found = builder.icmp_signed("<", data, ir.Constant(vector, [0x20] * WIDE))
    for byte in (0x22, 0x5C):
        found = builder.or_(found, builder.icmp_unsigned("==", data, ir.Constant(vector, [byte] * WIDE)))
    return builder.zext(builder.bitcast(found, ir.IntType(WIDE)), ir.IntType(64))


def _others(builder: Any, address: Any) -> Any:
    """A bit for each of the `WIDE` bytes at an address that is no space."""
    vector = ir.VectorType(ir.IntType(8), WIDE)
    found = builder.icmp_unsigned("!=", _load(builder, address, vector), ir.Constant(vector, [0x20] * WIDE))
    return builder.zext(builder.bitcast(found, ir.IntType(WIDE)), ir.IntType(64))


def _lowest(builder: Any, word: Any) -> Any:
    """The number of the lowest bit of a word that is not 0."""
    return builder.cttz(word, ir.Constant(ir.IntType(1), 1))


_Word: TypeAlias = "Callable[[np.uint64], np.uint64]"
_word: Final[_Word] = _of_word(types.uint64, lambda builder, address: _load(builder, address, ir.IntType(64)))
_byte: Final[Callable[[np.uint64], np.uint8]] = _of_word(
    types.uint8, lambda builder, address: _load(builder, address, ir.IntType(8))
)
_marks_at: Final[_Word] = _of_word(types.uint64, _marks)
_others_at: Final[_Word] = _of_word(types.uint64, _others)
_lowest_bit: Final[_Word] = _of_word(types.uint64, _lowest)


def _put(context: Any, target: Any, source: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        vector = ir.VectorType(ir.IntType(8), WIDE)
        to = builder.inttoptr(values[0], vector.as_pointer())
        builder.store(_load(builder, values[1], vector), to, align=1)
        return context.get_dummy_value()

    return types.none(types.uint64, types.uint64), build


def _fetch(context: Any, address: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [pointer], kind)
        # To be read, soon and often, as data.
        builder.call(function, [builder.inttoptr(values[0], pointer), number(0), number(3), number(1)])
        return context.get_dummy_value()

    return types.none(types.uint64), build


_fetched: Final[Callable[[np.uint64], None]] = cast("Any", intrinsic(_fetch))
"""Has what is at an address come into the processor's cache."""
_put_wide: Final[Callable[[np.uint64, np.uint64], None]] = cast("Any", intrinsic(_put))
"""`_put_wide(target, source)`: `WIDE` bytes."""


@compile_cached
def _text_end(at: np.uint64, end: np.uint64, limit: np.uint64) -> np.uint64:
    """Where the text that starts at `at` meets a quote, a backslash or a control character, or a byte that is not
    ASCII; `end` if it does not."""
    while at < end and at + _U(WIDE) <= limit:
        marks = _marks_at(at)
        if marks:
            at += _lowest_bit(marks)
            return at if at < end else end
        at += _U(WIDE)
    while at < end:
        byte = _byte(at)
        if byte == 0x22 or byte == 0x5C or byte < 0x20 or byte >= 0x80:
            return at
        at += _U(1)
    return end


@compile_cached
def _other_text_end(at: np.uint64, end: np.uint64, limit: np.uint64) -> np.uint64:
    """As `_text_end`, wherever it meets bytes that are not ASCII."""
    while at < end and _byte(at) >= 0x80:
        while at < end and _byte(at) >= 0x80:
            at += _U(1)
        at = _text_end(at, end, limit)
    return at


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
def _spaces_end(at: np.uint64, end: np.uint64, limit: np.uint64) -> np.uint64:
    """What is behind the white space at `at`."""
    while at < end and at + _U(WIDE) <= limit:
        others = _others_at(at)
        if others:
            at += _lowest_bit(others)
            break
        at += _U(WIDE)
    if at > end:
        return end
    while at < end:
        byte = _byte(at)
        if byte != 0x20 and byte != 0x0A and byte != 0x0D and byte != 0x09:
            break
        at += _U(1)
    return at


@compile_cached
def _behind_tokens(at: np.uint64, end: np.uint64, limit: np.uint64, text: np.uint64, size: np.uint64) -> np.uint64:
    """What is behind the tokens of the text where these stand at `at`, with any white space between; else nowhere."""
    last, quoted = text + size, False
    while True:
        if not quoted:
            text, at = _spaces_end(text, last, last + _U(PADDING)), _spaces_end(at, end, limit)
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
    return _behind_tokens(at, end, limit, text, size)


@compile_cached
def _value(at: np.uint64, end: np.uint64, limit: np.uint64) -> tuple[int, np.uint64, np.uint64, np.uint64]:
    """The kind of the value at `at`, its begin, its end and what is behind it; -1 for a kind that is left to others."""
    if at >= end:
        return -1, at, at, at
    byte = _byte(at)
    if byte == 0x22:
        last, kind = _text_end(at + _U(1), end, limit), TEXT
        if last < end and _byte(last) >= 0x80:
            last, kind = _other_text_end(last, end, limit), OTHER_TEXT
        if last < end and _byte(last) == 0x22:
            return kind, at + _U(1), last, last + _U(1)
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
) -> tuple[int, bool]:
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
        How many records fit, and whether all of these are ASCII where their texts between the values are.
    """
    fitting, is_ascii = 0, True
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
            if kind == OTHER_TEXT:
                kind, is_ascii = TEXT, False
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
    return fitting, is_ascii


@compile_cached
def gather(data: _Bytes, first: _Places, offsets: _Places | npt.NDArray[np.int32], out: _Bytes) -> None:
    """Puts the values that begin at `first` at `offsets` of `out`, which has `WIDE` bytes more behind the last one."""
    base, target = _U(data.ctypes.data), _U(out.ctypes.data)
    limit = base + _U(len(data))
    for row in range(len(first)):
        if row + _AHEAD < len(first):
            _fetched(base + _U(first[row + _AHEAD]))
        size, to, at = _U(offsets[row + 1] - offsets[row]), target + _U(offsets[row]), base + _U(first[row])
        if size > _MOST_WIDE or at + size + _U(WIDE) > limit:
            copy(to, at, size)
            continue
        # What is behind the value is written, too, and the next one comes over it.
        last = at + size
        while at < last:
            _put_wide(to, at)
            to += _U(WIDE)
            at += _U(WIDE)
