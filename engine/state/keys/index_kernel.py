"""Hash tables of keys by open addressing with linear probing, compiled by numba.

Imported by `key_index` only when there are more keys than a dict serves well, because its import takes longer than a
small job. A table is a power of two of rows (code, slot), both uint64, of which fewer than all are in use; EMPTY is the
slot of an unused row. A key's code is its hash; that of a word is a bijection of it, so equal codes mean equal words.

Sources: D. E. Knuth, The Art of Computer Programming 3, section 6.4, algorithms L and R (deletion without tombstones);
the mixing of words is MurmurHash3's fmix64.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from penstock.engine.state.keys.xxh64_kernel import compile_cached

Words = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

# Everything is uint64, as in xxh64_kernel: numba turns a signed and an unsigned 64-bit operand into a float.
_U: Final = np.uint64
EMPTY: Final = np.uint64(2**64 - 1)
_M1: Final = np.uint64(0xFF51AFD7ED558CCD)
_M2: Final = np.uint64(0xC4CEB9FE1A85EC53)
_SHIFT: Final = np.uint64(33)


@compile_cached
def word_codes(words: Words, out: Words) -> None:
    """The code of each word."""
    for row in range(len(words)):
        code = words[row]
        code = (code ^ (code >> _SHIFT)) * _M1
        code = (code ^ (code >> _SHIFT)) * _M2
        out[row] = code ^ (code >> _SHIFT)


@compile_cached
def find_words(table: Words, codes: Words, rows: Ints, fresh: Ints, slots: Ints) -> int:
    """Write the slot of each of `rows` to `slots`, or -1.

    Args:
        table: where to look.
        codes: of all rows.
        rows: those to look at.
        fresh: slots for keys that are not in the table, in order of first occurrence; none if they are not to be added.
        slots: the result, by row.

    Returns:
        How many of `fresh` were taken.
    """
    mask, used = _U(table.shape[0] - 1), 0
    for index in range(len(rows)):
        row = rows[index]
        code = codes[row]
        place = code & mask
        while table[place, 1] != EMPTY and table[place, 0] != code:
            place = (place + _U(1)) & mask
        if table[place, 1] != EMPTY:
            slots[row] = np.int64(table[place, 1])
        elif used < len(fresh):
            table[place, 0], table[place, 1] = code, _U(fresh[used])
            slots[row] = fresh[used]
            used += 1
        else:
            slots[row] = -1
    return used


@compile_cached
def word_row_codes(rows: Words, out: Words) -> None:
    """A code for each row of words, which others may have too."""
    for row in range(rows.shape[0]):
        code = _U(0)
        for column in range(rows.shape[1]):
            code = (code ^ rows[row, column]) * _M1
            code ^= code >> _SHIFT
        code *= _M2
        out[row] = code ^ (code >> _SHIFT)


@compile_cached
def find_word_rows(table: Words, codes: Words, rows: Ints, fresh: Ints, slots: Ints, words: Words, held: Words) -> int:
    """As `find_words`, for keys that are rows of words: equal codes do not make them equal.

    Args:
        table, codes, rows, fresh, slots: as for `find_words`.
        words: the key of each row.
        held: the key of each slot; new keys are written there.

    Returns:
        How many of `fresh` were taken.
    """
    mask, used = _U(table.shape[0] - 1), 0
    for index in range(len(rows)):
        row = rows[index]
        code = codes[row]
        place = code & mask
        found = False
        while table[place, 1] != EMPTY:
            if table[place, 0] == code:
                slot = np.int64(table[place, 1])
                column = 0
                while column < words.shape[1] and held[slot, column] == words[row, column]:
                    column += 1
                if column == words.shape[1]:
                    slots[row], found = slot, True
                    break
            place = (place + _U(1)) & mask
        if found:
            continue
        if used == len(fresh):
            slots[row] = -1
            continue
        slot = fresh[used]
        used += 1
        table[place, 0], table[place, 1] = code, _U(slot)
        slots[row] = slot
        held[slot] = words[row]
    return used


@compile_cached
def find_bytes(
    table: Words,
    codes: Words,
    rows: Ints,
    fresh: Ints,
    slots: Ints,
    data: Bytes,
    offsets: Ints,
    arena: Bytes,
    end: int,
    starts: Ints,
    lengths: Ints,
) -> tuple[int, int]:
    """As `find_words`, for keys that are byte strings: equal codes do not make them equal.

    Args:
        table, codes, rows, fresh, slots: as for `find_words`.
        data, offsets: the key of a row is `data[offsets[row]:offsets[row + 1]]`.
        arena: keys in the table, with room for all of `data` behind `end`; new keys are written there.
        end: where the used part of the arena ends.
        starts, lengths: where the key of each slot lies in the arena; new keys are entered.

    Returns:
        How many of `fresh` were taken, and where the used part of the arena ends now.
    """
    mask, used = _U(table.shape[0] - 1), 0
    for index in range(len(rows)):
        row = rows[index]
        code, begin = codes[row], offsets[row]
        length = offsets[row + 1] - begin
        place = code & mask
        found = False
        while table[place, 1] != EMPTY:
            if table[place, 0] == code:
                slot = np.int64(table[place, 1])
                found = lengths[slot] == length
                position = starts[slot]
                byte = 0
                while found and byte < length:
                    found = arena[position + byte] == data[begin + byte]
                    byte += 1
                if found:
                    slots[row] = slot
                    break
            place = (place + _U(1)) & mask
        if found:
            continue
        if used == len(fresh):
            slots[row] = -1
            continue
        slot = fresh[used]
        used += 1
        table[place, 0], table[place, 1] = code, _U(slot)
        slots[row] = slot
        starts[slot], lengths[slot] = end, length
        arena[end : end + length] = data[begin : begin + length]
        end += length
    return used, end


@compile_cached
def remove_slots(table: Words, codes: Words, slots: Ints) -> None:
    """Take keys out of the table.

    Args:
        table: holds all of them.
        codes, slots: of each key.
    """
    mask = _U(table.shape[0] - 1)
    for index in range(len(slots)):
        hole = codes[index] & mask
        while table[hole, 1] != _U(slots[index]):
            hole = (hole + _U(1)) & mask
        place = hole
        while True:
            place = (place + _U(1)) & mask
            if table[place, 1] == EMPTY:
                break
            # A row moves into the hole if the hole lies on its way from its home to its place.
            if ((place - table[place, 0]) & mask) >= ((place - hole) & mask):
                table[hole, 0], table[hole, 1] = table[place, 0], table[place, 1]
                hole = place
        table[hole, 1] = EMPTY


@compile_cached
def rehash(old: Words, new: Words) -> None:
    """Enter all rows of `old` into `new`, which is empty and larger."""
    mask = _U(new.shape[0] - 1)
    for row in range(old.shape[0]):
        if old[row, 1] != EMPTY:
            place = old[row, 0] & mask
            while new[place, 1] != EMPTY:
                place = (place + _U(1)) & mask
            new[place, 0], new[place, 1] = old[row, 0], old[row, 1]


@compile_cached
def copy_ranges(source: Bytes, starts: Ints, lengths: Ints, target: Bytes, to: Ints) -> None:
    """Copy `source[starts[i]:][:lengths[i]]` to `target[to[i]:]`, for each i."""
    for index in range(len(starts)):
        # Unsigned, so that no index is tested for being negative: byte for byte would take twice as long.
        begin, place = _U(starts[index]), _U(to[index])
        for byte in range(_U(lengths[index])):
            target[place + byte] = source[begin + byte]
