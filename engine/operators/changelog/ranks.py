"""The order of values as numbers, so that rows can be sorted by several columns, each in its own direction."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.engine.state.keys.codec import is_word, words_of

Int64s = npt.NDArray[np.int64]

_WORD: Final = 2**63
_HUGE: Final = 2**62
"""Numbers below it can be negated, and their differences are numbers, too."""


class Nulls(enum.Enum):
    """Where nulls come in an order."""

    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class Order:
    """A column to order by.

    Args:
        column: its name.
        descending: whether its largest value comes first.
        nulls: where nulls come. Flink's default is first where ascending, and last where descending.
    """

    column: str
    descending: bool = False
    nulls: Nulls = Nulls.FIRST

    def codes(self, column: pa.Array) -> Int64s:
        """A number for each of the column's values, ascending as they are ordered."""
        numbers = _small_numbers(column)
        if numbers is not None:
            return -numbers if self.descending else numbers
        codes = rank_codes(column)
        missing = codes == 0
        codes = -codes if self.descending else codes
        codes[missing] = -len(codes) - 1 if self.nulls is Nulls.FIRST else len(codes) + 1
        return codes

    def describe(self) -> str:
        """As `explain()` shows it."""
        direction = " desc" if self.descending else ""
        return f"{self.column}{direction}"


def _small_numbers(column: pa.Array) -> Int64s | None:
    """The values of a column of integers or times without nulls, as they are; None for others, and for huge ones."""
    if not len(column) or column.null_count or not is_word(column.type) or pa.types.is_uint64(column.type):
        return None
    numbers: Int64s = words_of(column).view(np.int64)
    return numbers if abs(int(numbers.min())) < _HUGE and abs(int(numbers.max())) < _HUGE else None


def rank_codes(column: pa.Array) -> Int64s:
    """Numbers from 1 that are ordered as the values are, the same for equal ones; 0 for null.

    Example:
        >>> rank_codes(pa.array(["b", None, "a", "b"])).tolist()
        [2, 0, 1, 2]
    """
    codes = np.zeros(len(column), np.int64)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    values = column.filter(pa.array(valid)) if column.null_count else column
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    if len(values):
        codes[valid] = pc.rank(values, sort_keys="ascending", tiebreaker="dense").to_numpy()
    return codes


def within_runs(numbers: Int64s) -> Int64s:
    """The place of each number in the run of equal numbers that it belongs to, from 0.

    Example:
        >>> within_runs(np.array([7, 7, 3, 7])).tolist()
        [0, 1, 0, 0]
    """
    places = np.arange(len(numbers))
    begins = np.ones(len(numbers), np.bool_)
    begins[1:] = numbers[1:] != numbers[:-1]
    within: Int64s = places - np.maximum.accumulate(np.where(begins, places, 0))
    return within


def sorted_places(keys: list[Int64s]) -> Int64s:
    """The places of rows in the order of their keys, the first of which counts most.

    Args:
        keys: at least one; no two rows have the same values in all of them.

    Example:
        >>> sorted_places([np.array([2, 1, 1]), np.array([7, 9, 8])]).tolist()
        [2, 1, 0]
    """
    if not len(keys[0]):
        return np.empty(0, np.int64)
    rows = np.arange(len(keys[0]))
    bits = len(rows).bit_length()
    packed, count = _packed(keys, _WORD >> bits)
    # In one number a row, with its place, they are sorted several times as fast.
    ordered = np.sort((packed << bits) | rows)
    order: Int64s = ordered & ((1 << bits) - 1)
    if count < len(keys):
        _sort_runs(order, packed, keys[count:])
    return order


def _packed(keys: list[Int64s], most: int) -> tuple[Int64s, int]:
    """The first keys, as many as can be, in one number below `most`, and how many these are."""
    packed, values = np.zeros(len(keys[0]), np.int64), 1
    for count, key in enumerate(keys):
        low = int(key.min())
        span = int(key.max()) - low + 1
        values *= span
        if values > most:
            return packed, count
        packed = packed * span + (key - low)
    return packed, len(keys)


def _sort_runs(order: Int64s, packed: Int64s, keys: list[Int64s]) -> None:
    """Put the places of equal numbers, which lie behind one another in `order`, in the order of more keys."""
    is_same = np.diff(packed[order]) == 0
    in_run = np.zeros(len(order), np.bool_)
    in_run[1:] |= is_same
    in_run[:-1] |= is_same
    places = np.flatnonzero(in_run)
    rows = order[places]
    order[places] = rows[np.lexsort([*(key[rows] for key in reversed(keys)), packed[rows]])]
