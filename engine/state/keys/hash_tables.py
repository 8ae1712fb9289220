"""The arrays in which the tables of `KeyIndex` find keys by their codes, and the table of keys of several words.

`index.py` chooses among the tables. An array has rows (code, slot), as `index_kernel.py` says, which is imported with
the first call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.engine.state.keys.codec import from_words, grown, words_of

Slots = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

MOST_WORDS: Final = 64
"""Keys of more columns have not a bit for each in the word that says which of them are null."""
_MIN_ROWS: Final = 1_024
_UNUSED: Final = np.uint64(2**64 - 1)
_NOTHING: Final = np.empty(0, np.int64)


def new_rows(keys: int) -> Words:
    """An empty hash table with room for `keys` keys, half of its rows unused."""
    rows = np.empty((max(_MIN_ROWS, 1 << (2 * keys).bit_length()), 2), np.uint64)
    rows[:, 1] = _UNUSED
    return rows


def with_room(rows: Words, keys: int) -> Words:
    """The hash table, or a larger copy of it, with room for `keys` keys."""
    from penstock.engine.state.keys.index_kernel import rehash

    if 2 * keys <= len(rows):
        return rows
    larger = new_rows(keys)
    rehash(rows, larger)
    return larger


class WordRowTable:
    """Several columns whose values are words of 64 bits, which lie in a row, and behind them one of bits: what is null.

    Args:
        columns: how many, `MOST_WORDS` at most.
    """

    def __init__(self, columns: int) -> None:
        self._rows = new_rows(0)
        self._count = 0
        self._words: Words = np.zeros((0, columns + 1), np.uint64)

    def encode(self, columns: list[pa.Array]) -> tuple[Words, Words]:
        words: Words = np.zeros((len(columns[0]), len(columns) + 1), np.uint64)
        for place, column in enumerate(columns):
            words[:, place] = words_of(column)
            if column.null_count:
                nulls = column.is_null().to_numpy(zero_copy_only=False)
                words[nulls, place] = 0
                words[:, -1] |= nulls.astype(np.uint64) << np.uint64(place)
        return words, self._codes(words)

    def _codes(self, words: Words) -> Words:
        from penstock.engine.state.keys.index_kernel import word_row_codes

        codes = np.empty(len(words), np.uint64)
        word_row_codes(words, codes)
        return codes

    def encode_one(self, key: Sequence[Any], types: list[pa.DataType]) -> None:
        """Several columns need arrays."""

    def find(self, encoded: tuple[Words, Words], rows: Slots, slots: Slots) -> None:
        self._probe(encoded, rows, _NOTHING, slots)

    def add(self, encoded: tuple[Words, Words], rows: Slots, fresh: Slots, slots: Slots) -> int:
        self._rows = with_room(self._rows, self._count + len(rows))
        self._words = grown(self._words, int(fresh.max(initial=-1)) + 1)
        used = self._probe(encoded, rows, fresh, slots)
        self._count += used
        return used

    def _probe(self, encoded: tuple[Words, Words], rows: Slots, fresh: Slots, slots: Slots) -> int:
        from penstock.engine.state.keys.index_kernel import find_word_rows

        words, codes = encoded
        return find_word_rows(self._rows, codes, rows, fresh, slots, words, self._words)

    def remove(self, slots: Slots) -> None:
        from penstock.engine.state.keys.index_kernel import remove_slots

        remove_slots(self._rows, self._codes(self._words[slots]), slots)
        self._count -= len(slots)

    def take(self, slots: Slots, types: list[pa.DataType], places: Sequence[int]) -> Callable[[], list[pa.Array]]:
        words = self._words.take(slots, axis=0)

        def arrays() -> list[pa.Array]:
            nulls = words[:, -1]
            has_nulls = bool(nulls.any())
            return [
                from_words(
                    np.ascontiguousarray(words[:, place]),
                    (nulls >> np.uint64(place)) & np.uint64(1) == 0 if has_nulls else None,
                    types[place],
                )
                for place in places
            ]

        return arrays
